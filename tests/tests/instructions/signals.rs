//! put_signal and wait_signal on mock cards: ordering with data, counting, and the end of a wait for a missing signal.

use fpga_tests::sweep::is_full;
use std::time::{Duration, Instant};

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::ProgramSet;
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Cluster, Error, Execution, Report, Result};
use fpga_mock::{Fault, Moved, Profile, When};
use fpga_tests::pattern;
use fpga_tests::run::open;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Runs a program on each card behind a barrier of all, and at the same time.
fn run(cluster: &mut Cluster, programs: &[Vec<Instruction>], timeout: Duration) -> Result<Report> {
    let nodes: Vec<u32> = (0..programs.len() as u32).collect();
    cluster.execute(&ProgramSet::new(nodes, programs.iter().cloned()), &Execution { timeout, ..Execution::default() })
}

fn done(cluster: &mut Cluster, programs: &[Vec<Instruction>]) -> Report {
    run(cluster, programs, Duration::from_secs(60)).unwrap()
}

fn failed(outcome: Result<Report>) -> (u32, usize, Status, u16) {
    match outcome.unwrap_err() {
        Error::Failed { rank: Some(rank), instruction, status, detail, .. } => (rank, instruction, status, detail),
        other => panic!("{other}"),
    }
}

/// Rank, and index of the instruction, that did not come to an end.
fn late(outcome: Result<Report>) -> (u32, usize) {
    match outcome.unwrap_err() {
        Error::Timeout { rank: Some(rank), instruction: Some(instruction), .. } => (rank, instruction),
        other => panic!("{other}"),
    }
}

const SHORT: Duration = Duration::from_millis(150);

fn put(peer: u16, signal: u16, value: u32) -> Instruction {
    Instruction::put_signal(peer, Operand::card(0), Operand::card(0), 0, signal, value)
}

fn wait(signal: u16, value: u32) -> Instruction {
    Instruction::wait_signal(signal, value)
}

#[test]
fn data_can_be_seen_when_its_signal_can() {
    for bytes in [1, 64, 16_385, MIB + 3] {
        let (_fabric, mut cluster) = open(Profile::optweb(2));
        let mut data = vec![0; bytes as usize];
        pattern::fill(bytes, 0, 0, &mut data);
        cluster.card_mut(0).write_memory(100, &data).unwrap();
        let [from, there, seen] = [100, 512 * MIB, 1024 * MIB].map(Operand::card);
        let produce = vec![Instruction::delay(500), Instruction::put_signal(1, from, there, bytes, 3, 1)];
        // The copy reads what is there as soon as the signal is.
        let consume = vec![wait(3, 1), Instruction::copy(there, seen, bytes)];
        done(&mut cluster, &[produce, consume]);
        let mut found = vec![0; bytes as usize];
        cluster.card_mut(1).read_memory(seen.address, &mut found).unwrap();
        assert!(found == data, "{bytes} B");
    }
}

/// A beat goes there and a signal comes back: what is added to the cycles of issue is what the card says these take.
#[test]
fn a_signal_without_data_takes_a_control_signal_each_way() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let timing = cluster.capabilities().timing;
    const LATER: u64 = 10_000;
    let report = done(&mut cluster, &[vec![Instruction::delay(LATER), put(1, 0, 7)], vec![wait(0, 7)]]);
    let put = report.ranks[0].repetitions[0][1];
    let (out, control) = (u64::from(timing.dispatch_cycles) + 2, u64::from(timing.control_ps) / 5000);
    assert_eq!(put.t1, out);
    assert_eq!(put.t2 - out, u64::from(timing.control_ps + timing.acknowledge_ps) / 5000);
    let wait = report.ranks[1].repetitions[0][0];
    assert_eq!((wait.t1, wait.arrival), (timing.dispatch_cycles.into(), wait.t2));
    // Of two cards, a barrier releases one a control signal before the other.
    let expected = LATER + u64::from(timing.handover_cycles) + out + control;
    assert!(wait.t2.abs_diff(expected) <= control, "{} and not {expected}", wait.t2);
}

#[test]
fn signals_count() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let five = vec![put(1, 9, 1); 5];
    done(&mut cluster, &[five.clone(), vec![wait(9, 3), wait(9, 2)]]);
    // Nothing is left; and a signal that nobody waits for stays.
    assert_eq!(late(run(&mut cluster, &[five, vec![wait(9, 4), wait(9, 2)]], SHORT)), (1, 1));
    done(&mut cluster, &[vec![], vec![wait(9, 1), wait(9, 0), wait(10, 0)]]);
    assert_eq!(late(run(&mut cluster, &[vec![put(1, 8, 1)], vec![wait(9, 1)]], SHORT)), (1, 0));
}

#[test]
fn several_producers_fill_one_signal_and_one_fills_several() {
    let (_fabric, mut cluster) = open(Profile::optweb(5));
    let mut programs: Vec<Vec<Instruction>> = (1..5_u32)
        .map(|rank| {
            let place = Operand::card(u64::from(rank) * 4096);
            let here = Instruction::fill(place, 4096, u64::from(rank) * 0x0101_0101_0101_0101);
            let there = Instruction::put_signal(0, place, place, 4096, 1, rank);
            vec![here, Instruction::delay(u64::from(rank * 37 % 5) * 100), there, put(0, 1 + rank as u16, 1)]
        })
        .collect();
    // 1 + 2 + 3 + 4, and then one signal of each, whatever came first.
    let all = [wait(1, 10), wait(5, 1), wait(4, 1), wait(3, 1), wait(2, 1)];
    let gathered = Instruction::copy(Operand::card(4096), Operand::card(64 * MIB), 4 * 4096);
    programs.insert(0, [all[0], gathered].into_iter().chain(all[1..].iter().copied()).collect());
    done(&mut cluster, &programs);
    let mut found = vec![0; 4 * 4096];
    cluster.card_mut(0).read_memory(64 * MIB, &mut found).unwrap();
    for (rank, part) in (1..).zip(found.chunks(4096)) {
        assert!(part.iter().all(|byte| *byte == rank), "rank {rank}");
    }
}

/// A block goes through all cards, each waiting for the one before; two slots, so that the next block is on its way.
#[test]
fn chains_with_two_buffers() {
    for ranks in [2, 3, 8, 17] {
        const BLOCK: u64 = 40_000;
        const BLOCKS: u64 = 7;
        let (_fabric, mut cluster) = open(Profile::optweb(ranks));
        let (full, free) = (0, 1);
        let slot = |block: u64| Operand::card(MIB * (block % 2));
        let programs: Vec<Vec<Instruction>> = (0..ranks)
            .map(|rank| {
                let (is_first, is_last) = (rank == 0, rank == ranks - 1);
                let mut program = Vec::new();
                for block in 0..BLOCKS {
                    let own = Operand::card(256 * MIB + block * MIB);
                    if !is_first {
                        program.push(wait(full, 1));
                    }
                    if is_last {
                        program.push(Instruction::copy(slot(block), own, BLOCK));
                    } else {
                        // The next rank has two slots before it has to give one back.
                        program.extend((block >= 2).then(|| wait(free, 1)));
                        let from = if is_first { own } else { slot(block) };
                        program.push(Instruction::put_signal(rank as u16 + 1, from, slot(block), BLOCK, full, 1));
                    }
                    program.extend((!is_first).then(|| put(rank as u16 - 1, free, 1)));
                }
                program
            })
            .collect();
        let mut data = vec![0; BLOCK as usize];
        for block in 0..BLOCKS {
            pattern::fill(u64::from(ranks), 0, block * BLOCK, &mut data);
            cluster.card_mut(0).write_memory(256 * MIB + block * MIB, &data).unwrap();
        }
        done(&mut cluster, &programs);
        let mut found = vec![0; BLOCK as usize];
        for block in 0..BLOCKS {
            pattern::fill(u64::from(ranks), 0, block * BLOCK, &mut data);
            cluster.card_mut(ranks as usize - 1).read_memory(256 * MIB + block * MIB, &mut found).unwrap();
            assert!(found == data, "{ranks} ranks, block {block}");
        }
    }
}

#[test]
fn a_signal_does_not_overflow() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let programs = [vec![put(1, 63, u32::MAX), put(1, 63, 0), put(1, 63, 1)], vec![]];
    assert_eq!(failed(run(&mut cluster, &programs, SHORT)), (0, 2, Status::BadSignal, 63));
    done(&mut cluster, &[vec![], vec![wait(63, u32::MAX)]]);
}

#[test]
fn signals_that_no_card_has_are_refused() {
    for instruction in [put(1, 64, 1), wait(64, 1), wait(1000, 0)] {
        let (_fabric, mut cluster) = open(Profile::optweb(2));
        let outcome = run(&mut cluster, &[vec![instruction], vec![]], SHORT);
        assert_eq!(failed(outcome), (0, 0, Status::BadSignal, instruction.signal_id));
    }
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    for (instruction, status) in [
        (put(0, 1, 1), Status::BadField),
        (put(2, 1, 1), Status::BadRank),
        (Instruction::put_signal(1, Operand::card(8 << 30), Operand::card(0), 1, 1, 1), Status::OutOfRange),
        (Instruction::put_signal(1, Operand::card(0), Operand::card(8 << 30), 1, 1, 1), Status::OutOfRange),
    ] {
        let (rank, at, found, _) = failed(run(&mut cluster, &[vec![instruction], vec![]], SHORT));
        assert_eq!((rank, at, found), (0, 0, status), "{instruction:?}");
    }
}

#[test]
fn a_reset_clears_signals_and_an_abort_does_not() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    done(&mut cluster, &[vec![put(1, 2, 5)], vec![]]);
    // Waits for 6, is aborted, and 5 are still there.
    assert_eq!(late(run(&mut cluster, &[vec![], vec![wait(2, 6)]], SHORT)), (1, 0));
    done(&mut cluster, &[vec![], vec![wait(2, 5)]]);
    done(&mut cluster, &[vec![put(1, 2, 5)], vec![]]);
    (0..2).for_each(|place| cluster.card_mut(place).reset().unwrap());
    assert_eq!(late(run(&mut cluster, &[vec![], vec![wait(2, 1)]], SHORT)), (1, 0));
}

#[test]
fn a_wait_ends_when_its_producer_does_not_come() {
    // The clock of the producer stops before it puts.
    let (fabric, mut cluster) = open(Profile::optweb(3));
    fabric.plant(Fault::Freeze { node: 0, when: When::After(100_000_000) });
    let produce = vec![Instruction::delay(1_000_000), put(1, 0, 1)];
    let (_, at) = late(run(&mut cluster, &[produce, vec![wait(0, 1)], vec![]], SHORT));
    assert_eq!(at, 0);
    // The others go on.
    let window = Window { slot: 0, key: 1 };
    let opened = Instruction::open(window, Rights::SIGNAL, Operand::card(0), 0);
    cluster.card_mut(1).run([opened], Duration::from_secs(5)).unwrap();
    cluster.card_mut(2).run([put(1, 0, 1).through(window)], Duration::from_secs(5)).unwrap();
    cluster.card_mut(1).run([wait(0, 1)], Duration::from_secs(5)).unwrap();

    // The link fails once 5 of 16 MiB are sent: the producer is told, and the signal is not there.
    let (fabric, mut cluster) = open(Profile::optweb(2));
    let when = When::Moved(Moved { node: 0, tag: None, transfer: 0, bytes: 5 * MIB });
    fabric.plant(Fault::Cut { a: 0, b: 1, when });
    let far = Operand::card(512 * MIB);
    let produce = vec![Instruction::put_signal(1, Operand::card(0), far, 16 * MIB, 0, 1)];
    let (rank, _, status, _) = failed(run(&mut cluster, &[produce, vec![wait(0, 1)]], SHORT));
    assert_eq!((rank, status), (0, Status::LinkDown));
    assert!(matches!(cluster.card_mut(1).run([wait(0, 1)], SHORT), Err(Error::Timeout { .. })));

    // A consumer that has stopped does not answer, and is blamed.
    let (fabric, mut cluster) = open(Profile::optweb(2));
    fabric.plant(Fault::Freeze { node: 1, when: When::After(100_000_000) });
    let produce = vec![Instruction::delay(1_000_000), put(1, 0, 1)];
    let begin = Instant::now();
    assert_eq!(late(run(&mut cluster, &[produce, vec![wait(0, 1)]], SHORT)).0, 1);
    // Its window, which it does not close either, holds nobody up.
    let took = begin.elapsed();
    assert!(took < cluster.cards()[0].timeout(), "{took:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if is_full() { 1000 } else { 30 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever is put, in whatever order, can be waited for in any parts, and nothing more.
    #[test]
    fn what_was_put_can_be_taken(
        puts in prop::collection::vec((0..4_u16, 0..4_u16, 0..3_u16, 0..1000_u32, 0..300_u64), 1..40),
        parts in prop::collection::vec(0..400_u32, 1..20),
    ) {
        let (_fabric, mut cluster) = open(Profile::optweb(4));
        let mut programs = vec![Vec::new(); 4];
        let mut counts = [[0_u32; 3]; 4];
        for (from, to, signal, value, delay) in puts.into_iter().filter(|one| one.0 != one.1) {
            programs[usize::from(from)].extend([Instruction::delay(delay), put(to, signal, value)]);
            counts[usize::from(to)][usize::from(signal)] += value;
        }
        // Behind the own puts: a wait before them could be one in a circle.
        let mut parts = parts.into_iter().cycle();
        for (program, counts) in programs.iter_mut().zip(counts) {
            for (signal, mut left) in (0..).zip(counts) {
                for part in parts.by_ref().take(5) {
                    let part = part.min(left);
                    left -= part;
                    program.push(wait(signal, part));
                }
                program.push(wait(signal, left));
            }
        }
        done(&mut cluster, &programs);
        for place in 0..cluster.cards().len() {
            let card = cluster.card_mut(place);
            // The first that is not there: all are 0 again.
            let is_late = matches!(card.run([wait(0, 1)], Duration::from_millis(2)), Err(Error::Timeout { .. }));
            prop_assert!(is_late);
        }
    }
}
