//! Resident programs in several lanes.

use cmdseq::{Completion, Instruction, Status};
use fpga_driver::{Cluster, Error};
use fpga_tests::pattern;
use fpga_tests::run::open;

use super::{BYTES, Cycles, SECONDS, SHORT, cycles, four, grid, place, run_together, span, swap};

/// Stores `programs` on the first cards, launches them, and returns the outcome of each.
fn launch(cluster: &mut Cluster, programs: &[Vec<Instruction>]) -> Vec<(Status, u16, Option<Completion>)> {
    let stored: Vec<_> = (0..)
        .zip(programs)
        .filter(|(_, program)| !program.is_empty())
        .map(|(node, program)| (node, cluster.card_mut(node).store(0, program).unwrap()))
        .collect();
    let tokens: Vec<_> = stored
        .iter()
        .map(|(node, resident)| (*node, cluster.card_mut(*node).launch(resident, [0; 3]).unwrap()))
        .collect();
    let outcome = |(node, token)| match cluster.card_mut(node).wait(&token, SHORT) {
        Ok(completion) => (completion.status, completion.detail, Some(completion)),
        Err(Error::Failed { status, detail, .. }) => (status, detail, None),
        Err(Error::Timeout { .. }) => (Status::Aborted, u16::MAX, None),
        Err(other) => panic!("{other}"),
    };
    tokens.into_iter().map(outcome).collect()
}

#[test]
fn a_resident_program_takes_the_time_of_its_longest_lane() {
    let (_fabric, mut cluster) = open(four(2));
    let Cycles { dispatch, handover } = cycles(&cluster);
    let rows = grid(2, 2);
    let program = |node: u16, lane| vec![swap(node ^ 1, 0, 2 * BYTES), swap(node ^ 2, 2, BYTES).in_lane(lane)];
    for lane in [0, 1] {
        let programs: Vec<_> = (0..4).map(|node| program(node, lane)).collect();
        for (node, program) in programs.iter().enumerate() {
            cluster.card_mut(node).store(0, program.iter().copied()).unwrap();
        }
        let in_ring = run_together(&mut cluster, &rows, &programs);
        let launched = run_together(&mut cluster, &rows, &vec![vec![Instruction::launch(0, [0; 3])]; 4]);
        for (in_ring, launched) in in_ring.ranks.iter().zip(&launched.ranks) {
            let ([long, short], [launched]) = (&in_ring.repetitions[0][..], &launched.repetitions[0][..]) else {
                panic!("{in_ring:?} {launched:?}")
            };
            let last = if lane == 0 { short } else { long };
            let after = dispatch + if lane == 0 { long.t2 + handover } else { 0 };
            assert_eq!(
                (launched.t1, launched.t2, launched.arrival, launched.bytes),
                (after + last.t1, after + last.t2, after + last.arrival, 6 * BYTES)
            );
        }
    }
}

/// All rounds of a loop, and what follows a launch, wait for all before them.
#[test]
fn rounds_and_launches_wait_for_all() {
    let (_fabric, mut cluster) = open(four(2));
    let Cycles { dispatch, handover } = cycles(&cluster);
    let rows = grid(2, 2);
    // Lane 1 ends first, and begins the next round.
    let body = |node: u16| [swap(node ^ 2, 2, BYTES).in_lane(1), swap(node ^ 1, 0, 2 * BYTES)];
    let once = run_together(&mut cluster, &rows, &(0..4).map(|node| body(node).to_vec()).collect::<Vec<_>>());
    let round = span(&once.ranks[0].repetitions[0]).0;
    for rounds in [1, 2, 5] {
        for node in 0..4_u16 {
            let program: Vec<_> = [Instruction::repeat(rounds, 2)].into_iter().chain(body(node)).collect();
            cluster.card_mut(node.into()).store(0, program).unwrap();
        }
        // In the order of the ring after the launch: lane 1, which nothing of the last round in lane 0 holds back.
        let launch = Instruction::launch(0, [0; 3]);
        let programs: Vec<_> = (0..4).map(|node| vec![launch, body(node)[0], body(node)[1]]).collect();
        let report = run_together(&mut cluster, &rows, &programs);
        for rank in &report.ranks {
            let [launched, first, second] = rank.repetitions[0][..] else { panic!("{rank:?}") };
            let between = (handover + dispatch + round) * (u64::from(rounds) - 1);
            assert_eq!(launched.t2, dispatch + dispatch + handover + round + between, "{rounds} rounds");
            assert_eq!(first.issued, launched.issued + launched.t2 + handover);
            assert_eq!(second.issued, first.issued + dispatch);
        }
    }
}

#[test]
fn an_instruction_that_fails_ends_those_after_it() {
    let (_fabric, mut cluster) = open(four(2));
    // Card 1 sends less than card 0 expects; card 2 does not come.
    let program = vec![swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1), swap(1, 4, BYTES)];
    let outcome = launch(&mut cluster, &[program, vec![swap(0, 0, BYTES - 64)]]);
    assert_eq!((outcome[0].0, outcome[0].1), (Status::Mismatch, 0));
    cluster.abort([0, 1]).unwrap();
    let again = |node: u16| vec![swap(node ^ 1, 0, BYTES), swap(node ^ 2, 2, BYTES).in_lane(1)];
    let outcome = launch(&mut cluster, &(0..4).map(again).collect::<Vec<_>>());
    assert!(outcome.iter().all(|one| one.0 == Status::Done), "{outcome:?}");
}

#[test]
fn those_before_an_instruction_that_fails_end_first() {
    let (_fabric, mut cluster) = open(four(2));
    let mut data = vec![0; BYTES as usize];
    pattern::fill(0, 1, 0, &mut data);
    cluster.card_mut(1).write_memory(0, &data).unwrap();
    // The second fails at once, the third waits for the first, and is not issued.
    let bad = swap(2, 40, BYTES).in_lane(1);
    let programs = [vec![swap(1, 0, BYTES), bad, swap(1, 4, BYTES)], vec![Instruction::delay(1000), swap(0, 0, BYTES)]];
    let outcome = launch(&mut cluster, &programs);
    assert_eq!((outcome[0].0, outcome[0].1), (Status::OutOfRange, 1));
    assert_eq!(outcome[1].0, Status::Done);
    let mut found = vec![0; BYTES as usize];
    cluster.card_mut(0).read_memory(place(1).address, &mut found).unwrap();
    assert_eq!(pattern::first_difference(0, 1, 0, &found), None);

    // Both fail, the second first: the program's failure is that of the first.
    let programs = [vec![swap(1, 0, BYTES), bad], vec![Instruction::delay(1000), swap(0, 0, BYTES - 64)]];
    let outcome = launch(&mut cluster, &programs);
    assert_eq!((outcome[0].0, outcome[0].1), (Status::Mismatch, 0));
}

#[test]
fn a_resident_program_is_aborted_in_all_lanes() {
    let (_fabric, mut cluster) = open(four(2));
    let program = vec![swap(2, 0, 64), swap(1, 2, BYTES), swap(2, 4, BYTES).in_lane(1)];
    let resident = cluster.card_mut(0).store(0, program).unwrap();
    let token = cluster.card_mut(0).launch(&resident, [0; 3]).unwrap();
    run_one(&mut cluster, 2, swap(0, 0, 64));
    assert!(matches!(cluster.card_mut(0).wait(&token, SHORT), Err(Error::Timeout { .. })));
    cluster.card_mut(0).abort().unwrap();
    match cluster.card_mut(0).wait(&token, SHORT) {
        Err(Error::Failed { status: Status::Aborted, detail, .. }) => assert_eq!(detail, 1),
        other => panic!("{other:?}"),
    }
    cluster.card_mut(0).run([Instruction::nop()], SECONDS).unwrap();
}

fn run_one(cluster: &mut Cluster, node: usize, instruction: Instruction) {
    cluster.card_mut(node).run([instruction], SECONDS).unwrap();
}
