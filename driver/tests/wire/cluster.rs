//! Several cards, and plans on them. The fakes do not know of each other: every barrier is passed at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::graph::Schedule;
use cmdseq::plan::{Collective, Piece, Plan, Request, plan};
use cmdseq::{Instruction, Operation, Status, Table};
use fpga_driver::{COMPLETIONS_KEPT, Cluster, Error, Execution, State};

use crate::cards::open_all;
use fpga_fake::{BLOCK, Fake, Reply};

fn open(nodes: u32, depth: u32) -> (Vec<Arc<Fake>>, Cluster) {
    let fakes: Vec<_> = (0..nodes).map(|node| Fake::node(node, nodes, depth)).collect();
    let cluster = open_all(fakes.iter().rev().map(Fake::function).collect()).unwrap();
    (fakes, cluster)
}

fn barrier(cluster: &Cluster, group: &[u32]) -> Plan {
    let request = Request { peer: 0, ..Request::new(Collective::Barrier, group.to_vec(), 0) };
    plan(&request, cluster.capabilities()).unwrap()
}

#[test]
fn cards_are_ordered_and_compared() {
    let (_fakes, cluster) = open(4, 64);
    assert!(cluster.cards().iter().map(|card| card.node()).eq(0..4));

    let twice = [Fake::node(1, 4, 64), Fake::node(1, 4, 64)];
    let error = open_all(twice.iter().map(Fake::function).collect()).unwrap_err();
    assert!(matches!(error, Error::Mismatch { node: 1, other: 1, .. }), "{error}");

    let slower = Fake::node(3, 4, 64);
    slower.set(BLOCK + 0x30, 100_000);
    let error = open_all([Fake::node(0, 4, 64), slower].iter().map(Fake::function).collect()).unwrap_err();
    assert!(matches!(&error, Error::Mismatch { node: 0, other: 3, what } if what.contains("clock")), "{error}");

    assert!(matches!(open_all(Vec::new()).unwrap_err(), Error::BadArgument { .. }));
}

#[test]
fn a_plan_runs_behind_two_barriers_by_one_doorbell_a_card() {
    let (fakes, mut cluster) = open(3, 64);
    let plan = barrier(&cluster, &[0, 1, 2]);
    for fake in &fakes {
        fake.counts();
    }
    let execution = Execution { start_delay_cycles: vec![0, 7, 0], repeat: 2, ..Execution::default() };
    let report = cluster.execute(&plan.set, &execution).unwrap();
    let barriers = [Operation::Barrier; 4];
    assert_eq!(fakes[0].state().ran, barriers);
    let [first, rest @ ..] = barriers;
    assert_eq!(fakes[1].state().ran, [&[first, first, Operation::Delay], &rest[1..]].concat());
    for fake in &fakes {
        assert_eq!(fake.counts(), (0, 1));
    }
    assert_eq!((report.t1_cycles, report.t2_cycles, report.arrival_cycles), (10, 20, 15));
    // What arrives at rank 1, which begins 100 cycles after the others, counts from when they began. Then each runs on its own.
    assert_eq!(report.repetitions.iter().map(|one| one.arrival_cycles).collect::<Vec<_>>(), [100 + 15, 15]);
    assert_eq!((report.ranks[1].prologue.len(), report.ranks[1].repetitions.len()), (3, 2));
    // The fakes count 100 cycles an instruction, and rank 1 has a delay before. The counter wraps on the way.
    assert_eq!(report.skew_cycles, [100, 100]);
    assert_eq!(report.clock_khz, 200_000);
}

#[test]
fn runs_apart_begin_together() {
    let (fakes, mut cluster) = open(3, 64);
    let plan = barrier(&cluster, &[0, 1, 2]);
    let execution = Execution { start_delay_cycles: vec![0, 7, 0], repeat: 3, apart: true, ..Execution::default() };
    let report = cluster.execute(&plan.set, &execution).unwrap();
    // Two barriers before each run, which is a barrier too.
    assert_eq!(fakes[0].state().ran, [Operation::Barrier; 9]);
    assert_eq!(fakes[1].state().ran.iter().filter(|one| **one == Operation::Delay).count(), 1);
    assert_eq!(report.repetitions.iter().map(|one| one.arrival_cycles).collect::<Vec<_>>(), [100 + 15, 15, 15]);
    assert_eq!(report.skew_cycles, [100, 0, 0]);
    assert_eq!((report.ranks[1].prologue.len(), report.ranks[1].repetitions.len()), (3, 3));
}

#[test]
fn the_common_start_is_the_end_of_the_second_barrier() {
    let (fakes, mut cluster) = open(3, 64);
    // Each barrier ends 20 cycles after its issue, and the next instruction is issued after 100. The counter has 48 bits.
    for (fake, clock) in fakes.iter().zip([1000, (1 << 48) - 110, 0]) {
        fake.state().clock = clock;
    }
    let plan = barrier(&cluster, &[0, 1, 2]);
    let execution = Execution { start_delay_cycles: vec![0, 0, 7], ..Execution::default() };
    let report = cluster.execute(&plan.set, &execution).unwrap();
    let starts: Vec<_> = report.ranks.iter().map(|rank| rank.synchronised).collect();
    assert_eq!(starts, [Some(1120), Some(10), Some(120)]);
}

#[test]
fn a_table_is_loaded_before_its_plan_and_only_once() {
    let fakes: Vec<_> = (0..3).map(|node| Fake::node(node, 3, 64)).collect();
    fakes.iter().for_each(|fake| fake.set(BLOCK + 0xb8, 4));
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    let mut plan = barrier(&cluster, &[0, 1, 2]);
    plan.set.programs[1].tables = [(2, Table::packed([64, 128], 64))].into();
    let loads = || {
        let loads = |fake: &Arc<Fake>| fake.state().ran.iter().filter(|one| **one == Operation::Table).count();
        (loads(&fakes[0]), loads(&fakes[1]))
    };
    fakes[1].plant(0, Reply::Code(18, 0));
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::Failed { rank: Some(1), status: Status::BadTable, .. }), "{error}");
    assert_eq!((loads(), fakes[0].state().ran.len()), ((0, 1), 0));
    // A table that was refused is loaded again; one that was taken is not.
    fakes[1].state().script.clear();
    for _ in 0..3 {
        cluster.execute(&plan.set, &Execution::default()).unwrap();
        assert_eq!(loads(), (0, 2));
    }
    let ran = fakes[1].state().ran.clone();
    assert_eq!(ran[..3], [Operation::Table, Operation::Table, Operation::Barrier]);
    plan.set.programs[1].tables = [(2, Table::packed([64, 192], 64))].into();
    cluster.execute(&plan.set, &Execution::default()).unwrap();
    assert_eq!(loads(), (0, 3));
}

#[test]
fn a_part_of_the_fabric_gets_its_communicator_first() {
    let (fakes, mut cluster) = open(4, 64);
    let plan = barrier(&cluster, &[3, 1]);
    cluster.execute(&plan.set, &Execution::default()).unwrap();
    assert_eq!(fakes[3].state().ran[..2], [Operation::Group, Operation::Barrier]);
    // One barrier to let both arrive, one to release them, each with a delay that brings two cards together, and its own.
    assert_eq!(fakes[3].state().ran[2..], [Operation::Delay, Operation::Barrier, Operation::Delay, Operation::Barrier]);
    assert!(fakes[0].state().ran.is_empty());
}

#[test]
fn repetitions_go_through_a_ring_of_four() {
    let (fakes, mut cluster) = open(2, 4);
    let plan = barrier(&cluster, &[0, 1]);
    let report = cluster.execute(&plan.set, &Execution { repeat: 500, ..Execution::default() }).unwrap();
    assert_eq!(report.repetitions.len(), 500);
    assert_eq!(fakes[1].state().ran.len(), 506);
}

#[test]
fn completions_of_whole_repetitions_are_kept() {
    let (_fakes, mut cluster) = open(2, 64);
    let mut plan = barrier(&cluster, &[0, 1]);
    plan.set.programs.iter_mut().for_each(|program| program.instructions = vec![Instruction::nop(); 3]);
    let kept = COMPLETIONS_KEPT / 3;
    let execution = Execution { repeat: kept as u32 + 10, ..Execution::default() };
    let report = cluster.execute(&plan.set, &execution).unwrap();
    assert_eq!(report.ranks[1].repetitions.len(), kept);
    assert!(report.ranks[1].repetitions.iter().all(|one| one.len() == 3));
}

#[test]
fn a_rank_that_the_group_does_not_have_has_no_output() {
    let (_fakes, mut cluster) = open(2, 64);
    let mut plan = barrier(&cluster, &[0, 1]);
    plan.set.programs.push(plan.set.programs[0].clone());
    let error = cluster.read_output(&plan.set, 2, 0, &mut []).unwrap_err();
    assert!(matches!(error, Error::BadArgument { what: "rank", .. }), "{error}");
}

/// A plan whose first rank has an input of pieces of these lengths, one after the other.
fn with_input(cluster: &Cluster, lengths: &[u64]) -> Plan {
    let mut plan = barrier(cluster, &[0, 1]);
    let mut at = 0;
    plan.set.programs[0].input = lengths
        .iter()
        .map(|bytes| {
            at += bytes;
            Piece { offset: at - bytes, address: at - bytes, bytes: *bytes }
        })
        .collect();
    plan
}

#[test]
fn many_pieces_are_copied_by_few_doorbells() {
    let (fakes, mut cluster) = open(2, 64);
    let plan = with_input(&cluster, &[64; 100]);
    fakes[0].counts();
    cluster.write_input(&plan.set, 0, 0, &[7; 6400]).unwrap();
    let (_, writes) = fakes[0].counts();
    assert!(writes < 20, "{writes} writes for 100 copies");
    assert_eq!(fakes[0].state().memory[..6400], [7; 6400]);
}

#[test]
fn a_piece_does_not_reach_beyond_its_half_of_the_buffer() {
    let (fakes, mut cluster) = open(2, 64);
    let lengths = [1 << 20, 64, 1 << 20];
    let plan = with_input(&cluster, &lengths);
    let data: Vec<u8> = (0..lengths.iter().sum::<u64>()).map(|at| (at % 251) as u8).collect();
    cluster.write_input(&plan.set, 0, 0, &data).unwrap();
    assert!(fakes[0].state().memory[..data.len()] == data[..]);
}

#[test]
fn a_failure_names_rank_and_instruction_of_the_program() {
    let (fakes, mut cluster) = open(4, 64);
    let plan = barrier(&cluster, &[2, 0, 1]);
    // Count 0 defines the communicator, 1 and 2 are the barriers before the program.
    fakes[1].plant(3, Reply::Code(13, 0));
    fakes[0].plant(2, Reply::Hang);
    let start = Instant::now();
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5), "the failure ends the wait");
    let Error::Failed { node: 1, rank: Some(2), instruction: 0, status: Status::LinkDown, .. } = error else {
        panic!("{error}")
    };
    fakes.iter().for_each(|fake| fake.state().script.clear());
    cluster.execute(&plan.set, &Execution::default()).unwrap();
}

#[test]
fn every_status_reaches_the_caller_of_a_plan() {
    let (fakes, mut cluster) = open(2, 64);
    let plan = barrier(&cluster, &[0, 1]);
    for code in 1..=255 {
        let mut state = fakes[1].state();
        state.script = (0..2048).map(|count| (count, Reply::Code(code, 1))).collect();
        drop(state);
        let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
        let Error::Failed { node: 1, rank: Some(1), status, detail: 1, .. } = error else { panic!("{error}") };
        assert_eq!(status, Status::from_code(code));
    }
}

#[test]
fn a_timeout_names_rank_and_instruction_and_aborts_the_rest() {
    let (fakes, mut cluster) = open(3, 64);
    let plan = barrier(&cluster, &[0, 1, 2]);
    fakes[1].plant(2, Reply::Hang);
    fakes[2].plant(0, Reply::Hang);
    fakes[1].set(BLOCK + 0x124, 2);
    let execution = Execution { timeout: Duration::from_millis(100), ..Execution::default() };
    let start = Instant::now();
    let error = cluster.execute(&plan.set, &execution).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5));
    let text = error.to_string();
    // Rank 1 is further on, and waits for rank 2, which waits for nobody.
    let Error::Timeout { node: Some(2), rank: Some(2), instruction: Some(0), last_seen, .. } = error else {
        panic!("{error}")
    };
    for part in ["barrier", "2 of 3 ranks", "undefined", "rank 1 waits for rank 2"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(last_seen.contains("running barrier") && !last_seen.contains("waiting"), "{last_seen}");
    assert!(fakes.iter().all(|fake| fake.state().registers[&(BLOCK + 0x100)] == 1), "all run again");
    fakes.iter().for_each(|fake| fake.state().script.clear());
    cluster.execute(&plan.set, &Execution::default()).unwrap();
}

#[test]
fn cards_that_ignore_an_abort_share_one_deadline_and_are_poisoned() {
    let (fakes, mut cluster) = open(4, 64);
    let plan = barrier(&cluster, &[0, 1, 2, 3]);
    fakes.iter().for_each(|fake| fake.plant(2, Reply::Deaf));
    let execution = Execution { timeout: Duration::from_millis(20), ..Execution::default() };
    let error = cluster.execute(&plan.set, &execution).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    // All were told to stop before the first was waited for.
    let told = fakes.iter().map(|fake| fake.state().aborted_at.unwrap()).max().unwrap();
    let waited = fakes.iter().map(|fake| fake.state().asked_at.unwrap()).min().unwrap();
    assert!(told < waited, "{told} {waited}");
    assert!(cluster.cards().iter().all(|card| card.state() == State::Poisoned));
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::NotRunning { .. }), "{error}");
    fakes.iter().for_each(|fake| fake.state().script.clear());
    for place in 0..4 {
        cluster.card_mut(place).reset().unwrap();
    }
    cluster.execute(&plan.set, &Execution::default()).unwrap();
}

#[test]
fn a_card_that_vanishes_or_halts_is_told_from_a_slow_one() {
    let (fakes, mut cluster) = open(3, 64);
    let plan = barrier(&cluster, &[0, 1, 2]);
    fakes[0].plant(2, Reply::Hang);
    fakes[2].plant(1, Reply::Halt(2));
    // It is told long before the timeout.
    let execution = Execution { timeout: Duration::from_secs(100), ..Execution::default() };
    let start = Instant::now();
    let error = cluster.execute(&plan.set, &execution).unwrap_err();
    assert!(matches!(error, Error::Halted { .. }), "{error}");
    fakes[2].state().is_gone = true;
    let error = cluster.execute(&plan.set, &execution).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
}

#[test]
fn plans_that_do_not_fit_the_cards_are_refused() {
    let fakes = [Fake::node(0, 4, 64), Fake::node(2, 4, 64)];
    let mut cluster = open_all(fakes.iter().map(Fake::function).collect()).unwrap();
    let plan = barrier(&cluster, &[0, 1]);
    let mut refused = |plan: &Plan, execution: &Execution| {
        let error = cluster.execute(&plan.set, execution).unwrap_err();
        assert!(matches!(error, Error::BadArgument { .. }), "{error}");
    };
    refused(&plan, &Execution::default());
    let mut plan = plan;
    plan.set.nodes = vec![0, 2];
    refused(&plan, &Execution { repeat: 0, ..Execution::default() });
    refused(&plan, &Execution { start_delay_cycles: vec![1], ..Execution::default() });
    plan.set.programs.pop();
    refused(&plan, &Execution::default());
    assert!(fakes.iter().all(|fake| fake.state().ran.is_empty()));
}

#[test]
fn a_card_in_the_place_of_another_is_found_out() {
    let (fakes, mut cluster) = open(2, 64);
    let (_others, mut other) = open(3, 64);
    let plan = barrier(&cluster, &[0, 1]);
    std::mem::swap(cluster.card_mut(0), other.card_mut(1));
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::Mismatch { node: 0, other: 1, .. }), "{error}");
    let world = cluster.world();
    assert!(matches!(cluster.create(&world, &[1, 0]), Err(Error::Mismatch { .. })));
    assert!(fakes.iter().all(|fake| fake.state().ran.is_empty()));
    std::mem::swap(cluster.card_mut(0), other.card_mut(1));
    cluster.execute(&plan.set, &Execution::default()).unwrap();
}

/// Three of four wait, the last for one that waits for nobody; then all wait in a circle.
#[test]
fn the_card_that_all_wait_for_is_blamed() {
    let (fakes, mut cluster) = open(4, 64);
    let plan = barrier(&cluster, &[3, 0, 1, 2]);
    // Its communicator is there before.
    cluster.execute(&plan.set, &Execution::default()).unwrap();
    let execution = Execution { timeout: Duration::from_millis(50), ..Execution::default() };
    for (peers, blamed) in [
        ([1, 2, 3, u32::MAX], 3),
        ([u32::MAX, 0, 1, 2], 0),
        // Two wait for node 2, and it for node 1.
        ([2, 2, 1, 0], 2),
        // A circle of three, whom one waits for.
        ([1, 2, 0, 1], 1),
        // Node 9 is none of the cards.
        ([9, 0, 1, 2], 0),
    ] {
        for (fake, peer) in fakes.iter().zip(peers) {
            fake.state().script = (0..64).map(|count| (count, Reply::Hang)).collect();
            fake.set(BLOCK + 0x124, peer);
            fake.counts();
        }
        let error = cluster.execute(&plan.set, &execution).unwrap_err();
        let text = error.to_string();
        let Error::Timeout { node, rank, .. } = error else { panic!("{error}") };
        assert_eq!((node, rank), (Some(blamed), Some((blamed + 1) % 4)), "{peers:?}: {text}");
        assert!(text.contains("4 of 4 ranks") && text.contains("for rank"), "{text}");
    }
}

/// Each waits for the next one, as the registers of a card say that stopped in the middle of an exchange. One takes no abort.
#[test]
fn in_a_circle_the_card_that_cannot_be_aborted_is_blamed() {
    for deaf in 0..4 {
        let (fakes, mut cluster) = open(4, 64);
        let plan = barrier(&cluster, &[3, 0, 1, 2]);
        cluster.execute(&plan.set, &Execution::default()).unwrap();
        for (node, fake) in (0..).zip(&fakes) {
            let reply = || if node == deaf { Reply::Deaf } else { Reply::Hang };
            fake.state().script = (0..64).map(|count| (count, reply())).collect();
            fake.set(BLOCK + 0x124, (node + 1) % 4);
        }
        let execution = Execution { timeout: Duration::from_millis(50), ..Execution::default() };
        let error = cluster.execute(&plan.set, &execution).unwrap_err();
        let text = error.to_string();
        let Error::Timeout { node, rank, .. } = error else { panic!("{error}") };
        assert_eq!((node, rank), (Some(deaf), Some((deaf + 1) % 4)), "{text}");
    }
}

#[test]
fn a_card_that_does_not_run_is_told_of_before_anything_is_launched() {
    let (fakes, mut cluster) = open(4, 64);
    let all = barrier(&cluster, &[0, 1, 2, 3]);
    let others = barrier(&cluster, &[0, 1, 3]);
    fakes[2].plant(0, Reply::Deaf);
    let execution = Execution { timeout: Duration::from_millis(50), ..Execution::default() };
    let error = cluster.execute(&all.set, &execution).unwrap_err();
    assert!(matches!(error, Error::Timeout { node: Some(2), rank: Some(2), .. }), "{error}");
    assert_eq!(cluster.cards()[2].state(), State::Poisoned);
    fakes[2].state().script.clear();
    let ran = |fakes: &[Arc<Fake>]| fakes.iter().map(|fake| fake.state().ran.len()).sum::<usize>();
    let before = ran(&fakes);
    let error = cluster.execute(&all.set, &execution).unwrap_err();
    assert!(matches!(error, Error::NotRunning { state: State::Poisoned, .. }), "{error}");
    let schedule = Schedule::of(&all);
    assert!(matches!(cluster.prepare(&schedule), Err(Error::NotRunning { .. } | Error::Refused(_))));
    assert_eq!(ran(&fakes), before, "nothing was launched");
    // The others are a group of their own.
    cluster.execute(&others.set, &Execution::default()).unwrap();
    // And so they are if the card is gone, though it has a communicator with them.
    cluster.card_mut(2).reset().unwrap();
    cluster.execute(&all.set, &Execution::default()).unwrap();
    fakes[2].state().is_gone = true;
    let error = cluster.execute(&barrier(&cluster, &[0, 2]).set, &execution).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    cluster.execute(&others.set, &Execution::default()).unwrap();
}

#[test]
fn one_deadline_bounds_communicators_tables_and_programs() {
    let (fakes, mut cluster) = open(4, 64);
    cluster.set_timeout(Duration::from_secs(600));
    let plan = barrier(&cluster, &[3, 1]);
    // Defining the communicator of the plan is what does not end.
    fakes[1].plant(0, Reply::Hang);
    let start = Instant::now();
    let execution = Execution { timeout: Duration::from_millis(100), ..Execution::default() };
    let error = cluster.execute(&plan.set, &execution).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let text = error.to_string();
    assert!(matches!(error, Error::Timeout { node: Some(1), rank: Some(1), .. }), "{text}");
    assert!(text.contains("communicators of rank 1"), "{text}");
    fakes[1].release();
    cluster.execute(&plan.set, &Execution { timeout: Duration::MAX, ..Execution::default() }).unwrap();
}

#[test]
fn copies_in_and_out_name_the_rank_within_one_deadline() {
    let (fakes, mut cluster) = open(2, 64);
    let request = Request::new(Collective::Allgather, vec![1, 0], 1 << 20);
    let plan = plan(&request, cluster.capabilities()).unwrap();
    cluster.set_timeout(Duration::from_millis(100));
    let mut data = vec![1; 1 << 20];
    for phase in ["copy in", "copy out"] {
        fakes[1].state().script = (0..64).map(|count| (count, Reply::Hang)).collect();
        let start = Instant::now();
        let error = match phase {
            "copy in" => cluster.write_input(&plan.set, 0, 0, &data).unwrap_err(),
            _ => cluster.read_output(&plan.set, 0, 0, &mut data).unwrap_err(),
        };
        assert!(start.elapsed() < Duration::from_secs(30));
        let text = error.to_string();
        assert!(matches!(error, Error::Timeout { node: Some(1), rank: Some(0), .. }), "{text}");
        assert!(text.contains(&format!("{phase} of rank 0")), "{text}");
        cluster.card_mut(1).reset().unwrap();
    }
}

#[test]
fn what_was_merely_aborted_is_told_of_last() {
    let (fakes, mut cluster) = open(3, 64);
    let plan = barrier(&cluster, &[0, 1, 2]);
    // Of each rank, the first failure; of the ranks, the lowest that was not merely aborted.
    fakes[0].plant(2, Reply::Code(14, 0));
    fakes[2].plant(2, Reply::Code(13, 1));
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::Failed { rank: Some(2), status: Status::LinkDown, .. }), "{error}");
    fakes[2].state().script.clear();
    let mut state = fakes[0].state();
    state.script = (0..64).map(|count| (count, Reply::Code(14, 0))).collect();
    drop(state);
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::Failed { rank: Some(0), status: Status::Aborted, .. }), "{error}");
}

/// The card of rank 1 has something to tell as soon as it is waited for.
#[test]
fn after_a_failure_the_others_have_time_to_fail_themselves() {
    let (fakes, mut cluster) = open(2, 64);
    let plan = barrier(&cluster, &[0, 1]);
    fakes[0].plant(2, Reply::Code(14, 0));
    fakes[1].plant(2, Reply::OnceAwaited(13));
    let error = cluster.execute(&plan.set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::Failed { rank: Some(1), status: Status::LinkDown, .. }), "{error}");
}

#[test]
fn the_eager_limit_is_set_on_all_cards() {
    let (fakes, mut cluster) = open(3, 64);
    for bytes in [4096, 0, 65536] {
        cluster.set_eager_limit(bytes).unwrap();
        assert!(fakes.iter().all(|fake| u64::from(fake.state().registers[&(BLOCK + 0x10c)]) == bytes));
        assert!(cluster.cards().iter().all(|card| card.eager_limit() == bytes));
        assert_eq!(cluster.capabilities().eager_limit, bytes);
    }
    assert!(matches!(cluster.set_eager_limit(65537).unwrap_err(), Error::BadArgument { .. }));
}

#[test]
fn cards_whose_eager_limits_differ_run_nothing_together() {
    let (fakes, mut cluster) = open(3, 64);
    let plan = barrier(&cluster, &[0, 1, 2]);
    cluster.set_eager_limit(0).unwrap();
    // The card's own limit, which a reset restores.
    fakes[1].set(BLOCK + 0x10c, 16384);
    cluster.card_mut(1).reset().unwrap();
    for error in [
        cluster.execute(&plan.set, &Execution::default()).map(drop).unwrap_err(),
        cluster.prepare(&Schedule::of(&plan)).map(drop).unwrap_err(),
        cluster.run(&[0, 1], &[Vec::new(), Vec::new()], Duration::from_secs(60)).map(drop).unwrap_err(),
    ] {
        let is_told = matches!(&error, Error::Mismatch { node: 0, other: 1, what } if what.contains("0 and 16384"));
        assert!(is_told, "{error}");
    }
    assert!(fakes.iter().all(|fake| fake.state().ran.is_empty()));
    // The others do without it.
    let nops = vec![vec![Instruction::nop().into()]; 2];
    cluster.run(&[0, 2], &nops, Duration::from_secs(60)).unwrap().result.unwrap();
    cluster.set_eager_limit(0).unwrap();
    cluster.execute(&plan.set, &Execution::default()).unwrap();
}

#[test]
fn an_abort_of_a_card_that_is_not_there_stops_none() {
    let (fakes, mut cluster) = open(2, 64);
    for indices in [vec![99], vec![0, 2]] {
        let error = cluster.abort(indices).unwrap_err();
        assert!(matches!(error, Error::BadArgument { what: "card index", .. }), "{error}");
    }
    assert!(fakes.iter().all(|fake| fake.state().aborted_at.is_none()));
}

#[test]
fn an_abort_leaves_a_card_whose_reset_has_failed_as_it_is() {
    let (fakes, mut cluster) = open(2, 64);
    // Another node answers.
    fakes[1].set(BLOCK + 0x34, 0);
    cluster.card_mut(1).reset().unwrap_err();
    for _ in 0..2 {
        let error = cluster.abort([1, 0]).unwrap_err();
        let is_told = matches!(&error, Error::NotRunning { state: State::Poisoned, why, .. } if why.contains("reset"));
        assert!(is_told, "{error}");
        assert_eq!([0, 1].map(|card| cluster.cards()[card].state()), [State::Running, State::Poisoned]);
    }
    assert!(fakes[1].state().aborted_at.is_none());
    fakes[1].set(BLOCK + 0x34, 1);
    cluster.card_mut(1).reset().unwrap();
    cluster.abort([1, 0]).unwrap();
}

/// The barrier that the cards of a timeout did not pass, as callers tell of it who push themselves.
#[test]
fn who_waits_for_nobody_is_blamed_before_who_is_waited_for_most() {
    let (fakes, cluster) = open(5, 64);
    let group = [4, 0, 1, 2, 3];
    let unfinished: Vec<_> = (0..5)
        .map(|rank| fpga_driver::Unfinished {
            rank,
            card: group[rank as usize] as usize,
            phase: "barrier",
            instruction: Some(3),
            operation: Operation::Barrier,
            completed: 0,
        })
        .collect();
    for (peers, halted, blamed) in [
        // By node: three wait for node 3, and it for node 4, which is at work.
        ([3, 3, 3, 4, u32::MAX], None, 4),
        // Node 0 waits for a card that is none of the group, and two for it; but node 3 is at work.
        ([9, 0, 0, u32::MAX, 3], None, 3),
        // What has stopped waits for nobody, whatever it says.
        ([3, 3, 3, 4, 0], Some(1), 1),
        ([3, 3, 3, 4, 0], None, 3),
    ] {
        for (node, fake) in (0..).zip(&fakes) {
            fake.set(BLOCK + 0x124, peers[node]);
            fake.set(BLOCK + 0x108, u32::from(halted == Some(node)));
        }
        let error = cluster.timeout(&group, &unfinished, Duration::from_secs(1));
        let text = error.to_string();
        let Error::Timeout { node, rank, instruction: Some(3), .. } = error else { panic!("{text}") };
        assert_eq!((node, rank), (Some(blamed), Some((blamed + 1) % 5)), "{peers:?}: {text}");
    }
    fakes.iter().for_each(|fake| fake.set(BLOCK + 0x108, 0));
}
