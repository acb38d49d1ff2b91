//! Programs that are no plan.

use std::sync::Arc;
use std::time::Duration;

use cmdseq::plan::ProgramSet;
use cmdseq::{Instruction, Operand, Operation, Status, Table, Tables};
use fpga_driver::{Bound, Cluster, Error, Execution, State};
use fpga_fake::{BLOCK, Fake, Reply};

use crate::cards::{Open as _, open_all};

const SECOND: Duration = Duration::from_secs(1);

fn open(depth: u32) -> ([Arc<Fake>; 2], Cluster) {
    let fakes = [0, 1].map(|node| Fake::node(node, 2, depth));
    let cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    (fakes, cluster)
}

fn nops(count: usize) -> Vec<Bound> {
    vec![Instruction::nop().into(); count]
}

#[test]
fn programs_of_any_length_run_by_rank_without_barriers() {
    let (fakes, mut cluster) = open(4);
    let mut delays = nops(9);
    delays.push(Instruction::delay(7).into());
    // Rank 0 is node 1.
    let outcome = cluster.run(&[1, 0], &[delays, Vec::new()], SECOND).unwrap();
    outcome.result.unwrap();
    let counts: Vec<usize> = outcome.completions.iter().map(Vec::len).collect();
    assert_eq!(counts, [10, 0]);
    assert!(fakes[0].state().ran.is_empty());
    assert_eq!(fakes[1].state().ran[8..], [Operation::Nop, Operation::Delay]);
}

#[test]
fn host_memory_is_held_by_each_instruction_that_names_it() {
    let (fakes, mut cluster) = open(4);
    let buffer = cluster.cards()[0].allocate(4096).unwrap();
    buffer.write(0, &[7; 64]).unwrap();
    let copy = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(64), 64);
    let outcome = cluster.run(&[0, 1], &[vec![copy.into()], nops(1)], SECOND).unwrap();
    assert!(matches!(outcome.result.unwrap_err(), Error::HostMemoryUnbound { .. }));
    let programs = [vec![Bound::from(copy).holding(Arc::clone(&buffer))], nops(1)];
    cluster.run(&[0, 1], &programs, SECOND).unwrap().result.unwrap();
    assert_eq!(fakes[0].state().memory[64..128], [7; 64]);
    drop(programs);
    assert_eq!(Arc::strong_count(&buffer), 1);
}

#[test]
fn the_lowest_rank_that_failed_is_named_and_an_abort_is_named_last() {
    for (replies, expected) in [
        ([(14, 0), (8, 2)], (1, 2, Status::OutOfRange)),
        ([(8, 1), (4, 0)], (0, 1, Status::OutOfRange)),
        ([(14, 1), (14, 0)], (0, 1, Status::Aborted)),
    ] {
        let (fakes, mut cluster) = open(64);
        for (fake, (code, count)) in fakes.iter().zip(replies) {
            fake.plant(count, Reply::Code(code, 0));
        }
        let outcome = cluster.run(&[0, 1], &[nops(3), nops(3)], SECOND).unwrap();
        assert_eq!(outcome.completions.iter().map(Vec::len).sum::<usize>(), 6, "all have ended by themselves");
        let Err(Error::Failed { rank: Some(rank), instruction, status, .. }) = outcome.result else {
            panic!("{:?}", outcome.result)
        };
        assert_eq!((rank, instruction, status), expected);
        assert!(fakes.iter().all(|fake| fake.state().aborted_at.is_none()));
    }
}

#[test]
fn after_a_failure_or_a_timeout_all_cards_are_aborted_and_run_again() {
    for is_failure in [true, false] {
        let (fakes, mut cluster) = open(64);
        if is_failure {
            fakes[0].plant(1, Reply::Code(8, 0));
        }
        fakes[1].plant(1, Reply::Hang);
        fakes[1].set(BLOCK + 0x124, u32::MAX);
        let timeout = if is_failure { Duration::from_secs(100) } else { Duration::from_millis(50) };
        let outcome = cluster.run(&[0, 1], &[nops(2), nops(3)], timeout).unwrap();
        assert_eq!(outcome.completions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let error = outcome.result.unwrap_err();
        match is_failure {
            true => assert!(matches!(error, Error::Failed { rank: Some(0), instruction: 1, .. }), "{error}"),
            false => assert!(matches!(error, Error::Timeout { rank: Some(1), instruction: Some(1), .. }), "{error}"),
        }
        assert!(fakes.iter().all(|fake| fake.state().aborted_at.is_some()));
        fakes.iter().for_each(|fake| fake.state().script.clear());
        cluster.run(&[0, 1], &[nops(2), nops(3)], SECOND).unwrap().result.unwrap();
    }
}

#[test]
fn a_card_that_halts_in_a_program_is_told_from_a_slow_one() {
    let (fakes, mut cluster) = open(64);
    fakes[0].plant(0, Reply::Hang);
    fakes[1].plant(1, Reply::Halt(2));
    let outcome = cluster.run(&[0, 1], &[nops(2), nops(2)], SECOND).unwrap();
    let error = outcome.result.unwrap_err();
    assert!(matches!(error, Error::Halted { .. }), "{error}");
}

#[test]
fn nothing_is_launched_for_a_wrong_group_or_on_a_card_that_does_not_run() {
    let (fakes, mut cluster) = open(64);
    let mut refused = |group: &[u32], programs: &[Vec<Bound>]| cluster.run(group, programs, SECOND).unwrap_err();
    assert!(matches!(refused(&[0, 1], &[nops(1)]), Error::BadArgument { what: "programs", .. }));
    assert!(matches!(refused(&[0, 2], &[nops(1), nops(1)]), Error::BadArgument { what: "node", .. }));
    let error = cluster.prepare(&ProgramSet { nodes: vec![0, 1], ..ProgramSet::default() }.into()).unwrap_err();
    assert!(matches!(error, Error::BadArgument { what: "programs", .. }), "{error}");
    fakes[1].state().is_gone = true;
    cluster.card_mut(1).reset().unwrap_err();
    assert_eq!(cluster.cards()[1].state(), State::Gone);
    let error = cluster.run(&[0, 1], &[nops(1), nops(1)], SECOND).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    assert!(fakes[0].state().ran.is_empty());
}

#[test]
fn tables_are_loaded_through_one_free_place() {
    let fake = Fake::node(1, 4, 4);
    let mut card = fake.open().unwrap();
    fake.set(BLOCK + 0xb8, 4);
    card.reset().unwrap();
    let mut kept = Vec::new();
    for _ in 0..7 {
        kept.push(card.queue_mut().submit(Instruction::nop()).unwrap());
        card.wait(&kept[kept.len() - 1], SECOND).unwrap();
    }
    let tables: Tables = (0..4).map(|slot| (slot, Table::packed([64, 64], 1))).collect();
    card.load_tables(&tables).unwrap();
    assert_eq!(kept.len(), 7);
}

#[test]
fn a_queue_that_kept_tokens_fill_is_full_at_once() {
    const LONG: Duration = Duration::from_secs(60);
    let (_fakes, mut cluster) = open(4);
    let set = ProgramSet::new([0, 1], [vec![Instruction::nop()], vec![Instruction::nop()]]);
    let mut tokens = Vec::new();
    let queue = cluster.card_mut(1).queue_mut();
    // The completions of the last four are not taken yet.
    for count in 0..8 {
        let token = queue.submit(Instruction::nop()).unwrap();
        if count < 4 {
            queue.wait(&token, LONG).unwrap();
        }
        tokens.push(token);
    }
    for _ in 0..2 {
        let ran = cluster.run(&[0, 1], &[nops(1), nops(1)], LONG).unwrap().result;
        let executed = cluster.execute(&set, &Execution { timeout: LONG, ..Execution::default() }).map(drop);
        for outcome in [ran, executed] {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::Full { in_flight: 0, depth: 4, .. }), "{error}");
        }
    }
    // One place is enough for a program of any length.
    tokens.pop();
    cluster.run(&[0, 1], &[nops(9), nops(9)], LONG).unwrap().result.unwrap();
    cluster.execute(&set, &Execution::default()).unwrap();
    let queue = cluster.card_mut(1).queue_mut();
    assert!(tokens.iter().all(|token| queue.wait(token, LONG).unwrap().status == Status::Done));
}
