//! Bit errors on links and in card memory: nothing is ever silently wrong. OPTWEB has no retry, so what is hit is lost, and is told.

use std::time::Duration;

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::Plan;
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Cluster, Error, Execution};
use fpga_mock::{Fabric, Fault, Hardware, Profile};
use fpga_regs::bits::Errors;
use fpga_tests::oracle::{Case, Moving};
use fpga_tests::run::{open, plan_all};
use fpga_tests::sweep::{Data, is_full};

const CARDS: u32 = 4;
/// How long a lost signal is waited for. What is not lost takes less than a millisecond.
const WAIT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);

/// Runs the plan on data of its own. `Ok` only if every byte is right.
fn run(cluster: &mut Cluster, plan: &Plan, data: &Moving<'_>) -> Result<(), Error> {
    let request = &plan.request;
    for rank in 0..request.ranks() {
        let mut input = vec![0; request.input_bytes(rank) as usize];
        data.fill(rank, 0, &mut input);
        cluster.write_input(&plan.set, rank, 0, &input)?;
    }
    cluster.execute(&plan.set, &Execution { timeout: WAIT, ..Execution::default() })?;
    for rank in 0..request.ranks() {
        let mut output = vec![0; request.output_bytes(rank) as usize];
        cluster.read_output(&plan.set, rank, 0, &mut output)?;
        assert_eq!(data.first_wrong(plan, rank, 0, &output), None, "rank {rank} has wrong data, and nobody said so");
    }
    Ok(())
}

/// Whether the error says that a bit error on a link is the cause.
fn tells(error: &Error) -> bool {
    match error {
        Error::Failed { status, .. } => *status == Status::LinkError,
        Error::Timeout { .. } => error.to_string().contains("LINK_ERROR"),
        _ => false,
    }
}

fn plan_of(cluster: &Cluster, operation: &'static str, bytes: u64) -> (Plan, Case<'static>) {
    let plan = plan_all(cluster, operation, bytes, None, None).expect("a plan");
    (plan, Case { operation, ranks: CARDS, bytes, root: 0, peer: CARDS - 1 })
}

/// Whatever the link carries is hit: signals of barriers, bursts, blocks, acknowledgements.
#[test]
fn whatever_a_bit_error_hits_the_host_is_told_and_goes_on() {
    let (mut failed, mut late) = (0, 0);
    // Two barriers; a burst, or what announces that a card is ready and a block; an acknowledgement.
    for (bytes, things) in [(256, 4), (100_000, 5)] {
        for after in 0..=things {
            let (fabric, mut cluster) = open(Profile::optweb(CARDS));
            let (plan, case) = plan_of(&cluster, "allgather", bytes);
            fabric.plant(Fault::Garble { from: 1, to: 3, after });
            let outcome = run(&mut cluster, &plan, &Moving { case, seed: after });
            match &outcome {
                // The next run is hit.
                Ok(()) if after == things => continue,
                Err(error) if tells(error) => match error {
                    Error::Failed { .. } => failed += 1,
                    _ => late += 1,
                },
                other => panic!("{bytes} bytes, {after} things before: {other:?}"),
            }
            run(&mut cluster, &plan, &Moving { case, seed: 99 }).expect("a run without an error");
        }
    }
    assert!(failed >= 2 && late >= 2, "{failed} failed, {late} late");
}

/// A signal of the next repetition may pass for a lost one. They are counted, so that one is missing in the end.
#[test]
fn a_lost_signal_is_missing_in_the_end_however_many_follow() {
    let mut told = 0;
    for operation in ["broadcast", "gather", "send", "allgather"] {
        for bytes in [256, 100_000] {
            for after in 2..8 {
                let (fabric, mut cluster) = open(Profile::optweb(CARDS));
                let (plan, _) = plan_of(&cluster, operation, bytes);
                fabric.plant(Fault::Garble { from: 3, to: 0, after });
                let execution = Execution { repeat: 4, timeout: WAIT, ..Execution::default() };
                let outcome = cluster.execute(&plan.set, &execution);
                let was_hit = cluster.cards()[0].sequencer_state().unwrap().health.link_errors > 0;
                match outcome {
                    Err(error) if tells(&error) => told += 1,
                    Ok(_) if !was_hit => {}
                    other => panic!("{operation} of {bytes} bytes, {after} things before: {other:?}"),
                }
            }
        }
    }
    assert!(told > 20, "{told} told");
}

/// Some runs are hit, others are not. Those that are not hit are right, those that are say so.
#[test]
fn at_any_rate_of_bit_errors_nothing_is_silently_wrong() {
    let (mut right, mut told) = (0, 0);
    let rates: &[u64] = if is_full() { &[1 << 18, 1 << 20, 1 << 22, 1 << 24] } else { &[1 << 20] };
    for bits in rates {
        let hardware = Hardware { bits_per_error: Some(*bits), ..Hardware::default() };
        let (fabric, mut cluster) = open(Profile { hardware, ..Profile::optweb(CARDS) });
        for seed in 0..if is_full() { 200 } else { 20 } {
            for operation in ["alltoall", "broadcast", "gather"] {
                let (plan, case) = plan_of(&cluster, operation, 8 << (seed % 14));
                match run(&mut cluster, &plan, &Moving { case, seed }) {
                    Ok(()) => right += 1,
                    Err(error) if tells(&error) => told += 1,
                    Err(error) => panic!("{operation}, one in {bits} bits, seed {seed}: {error}"),
                }
            }
        }
        assert_eq!(fabric.failure(), None);
    }
    assert!(right > 5 && told > 5, "{right} right, {told} told");
}

/// Opens a window to all memory of a card, and returns it.
fn window(cluster: &mut Cluster, card: usize) -> Window {
    let window = Window { slot: 1, key: 7 };
    let open = Instruction::open(window, Rights::READ | Rights::WRITE, Operand::card(0), 1 << 20);
    cluster.card_mut(card).run([open], LONG).expect("a window");
    window
}

fn outcome(cluster: &mut Cluster, instruction: Instruction) -> Result<(), (Status, u16)> {
    match cluster.card_mut(0).run([instruction], WAIT) {
        Ok(_) => Ok(()),
        Err(Error::Failed { status, detail, .. }) => Err((status, detail)),
        Err(Error::Timeout { .. }) => Err((Status::Aborted, 0)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn one_sided_operations_that_are_hit_write_nothing_and_say_so() {
    let (from, to) = (Operand::card(4096), Operand::card(8192));
    let (get, put) = (Instruction::rdma_read(2, from, to, 64), Instruction::rdma_write(2, from, to, 64));
    // The read's answer, the read's request, the write. Card 2 hears nothing of a lost write's end, and card 0 nothing at all.
    for (fault, instruction, expected, counts_at) in [
        (Fault::Garble { from: 2, to: 0, after: 0 }, get, (Status::LinkError, 2), 0),
        (Fault::Garble { from: 0, to: 2, after: 0 }, get, (Status::Aborted, 0), 2),
        (Fault::Garble { from: 0, to: 2, after: 0 }, put, (Status::Aborted, 0), 2),
    ] {
        let (fabric, mut cluster) = open(Profile::optweb(CARDS));
        let window = window(&mut cluster, 2);
        for card in [0, 2] {
            cluster.card_mut(card).write_memory(4096, &[9; 64]).unwrap();
        }
        fabric.plant(fault);
        assert_eq!(outcome(&mut cluster, instruction.through(window)), Err(expected), "{fault:?}");
        let health = cluster.card_mut(counts_at).sequencer_state().unwrap().health;
        assert_eq!((health.errors, health.link_errors), (Errors::LINK_ERROR, 1), "{fault:?}");
        for card in [0, 2] {
            cluster.card_mut(card).abort().unwrap();
            let mut data = [1; 64];
            cluster.card_mut(card).read_memory(8192, &mut data).unwrap();
            assert_eq!(data, [0; 64], "{fault:?}: card {card}");
        }
    }
}

fn with_flipped(bits: u8) -> (Fabric, Cluster) {
    let (fabric, mut cluster) = open(Profile::optweb(CARDS));
    for card in [0, 2] {
        cluster.card_mut(card).write_memory(0, &[9; 8192]).unwrap();
        // The last byte of a word, and the first of the next.
        fabric.plant(Fault::FlipBits { node: card as u32, address: 4127, bits });
    }
    (fabric, cluster)
}

#[test]
fn an_error_that_memory_corrects_is_counted() {
    let (_fabric, mut cluster) = with_flipped(1);
    let window = window(&mut cluster, 2);
    let get = Instruction::rdma_read(2, Operand::card(4096), Operand::card(1 << 16), 64).through(window);
    assert_eq!(outcome(&mut cluster, get), Ok(()));
    let mut data = [0; 64];
    cluster.card_mut(0).read_memory(1 << 16, &mut data).unwrap();
    assert_eq!(data, [9; 64]);
    cluster.card_mut(2).read_memory(4096, &mut data).unwrap();
    cluster.card_mut(2).read_memory(4128, &mut data).unwrap();
    assert_eq!(cluster.cards()[2].corrected_memory_errors().unwrap(), 2);
    assert_eq!(cluster.cards()[0].corrected_memory_errors().unwrap(), 0);
}

#[test]
fn memory_that_cannot_be_corrected_fails_whatever_reads_it() {
    let (_fabric, mut cluster) = with_flipped(2);
    let window = window(&mut cluster, 2);
    let (bad, good, to) = (Operand::card(4096), Operand::card(4128), Operand::card(1 << 16));
    let sum = cmdseq::Combine::new(cmdseq::Reduction::Sum, cmdseq::Element::U8);
    for (instruction, expected) in [
        (Instruction::copy(bad, to, 64), Err((Status::MemoryError, 0))),
        (Instruction::copy(good, to, 64), Ok(())),
        (Instruction::fold(sum, good, bad, to, 64), Err((Status::MemoryError, 0))),
        (Instruction::rdma_write(2, bad, to, 64).through(window), Err((Status::MemoryError, 0))),
        (Instruction::rdma_read(2, bad, to, 64).through(window), Err((Status::MemoryError, 2))),
        (Instruction::rdma_read(2, good, to, 64).through(window), Ok(())),
        // Writing does not mend it.
        (Instruction::fill(bad, 64, 0), Ok(())),
        (Instruction::copy(bad, to, 64), Err((Status::MemoryError, 0))),
    ] {
        assert_eq!(outcome(&mut cluster, instruction), expected, "{instruction:?}");
    }
    let mut data = [0; 64];
    match cluster.card_mut(2).read_memory(4096, &mut data) {
        Err(Error::Failed { status: Status::MemoryError, detail: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
    let (plan, case) = plan_of(&cluster, "allgather", 8192);
    let error = run(&mut cluster, &plan, &Moving { case, seed: 5 }).expect_err("input that cannot be read");
    assert!(matches!(error, Error::Failed { status: Status::MemoryError, .. }), "{error}");
    cluster.card_mut(2).reset().unwrap();
    cluster.card_mut(2).read_memory(4096, &mut data).unwrap();
    assert_eq!(data, [0; 64]);
}

/// The rank that the others wait for may have lost nothing itself.
#[test]
fn a_timeout_names_what_other_ranks_lost() {
    let (fabric, mut cluster) = open(Profile::optweb(CARDS));
    let (plan, _) = plan_of(&cluster, "allgather", 64 << 10);
    for (from, to) in [(2, 3), (0, 1)] {
        fabric.plant(Fault::Garble { from, to, after: 0 });
    }
    let error = cluster.execute(&plan.set, &Execution { timeout: WAIT, ..Execution::default() }).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Timeout { rank: Some(0), .. }), "{text}");
    for rank in [1, 3] {
        assert!(text.contains(&format!("; rank {rank} reports errors Errors(LINK_ERROR)")), "{text}");
    }
    assert!(!text.contains("rank 0 reports") && !text.contains("rank 2 reports"), "{text}");
}
