//! Links that go down and come up again: what needs them fails by name, and what comes after is right.

use std::time::Duration;

use cmdseq::plan::Plan;
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Card, Cluster, Error, Execution};
use fpga_mock::{Fabric, Fault, Hardware, Moved, Profile, When};
use fpga_tests::oracle::{Case, Moving};
use fpga_tests::run::{open, plan_all};
use fpga_tests::sweep::{Data, is_full};

const CARDS: u32 = 4;
const MICROSECOND: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(20);

fn plan_of(cluster: &Cluster, operation: &'static str, bytes: u64) -> (Plan, Case<'static>) {
    let plan = plan_all(cluster, operation, bytes, None, None).expect("a plan");
    (plan, Case { operation, ranks: CARDS, bytes, root: 0, peer: CARDS - 1 })
}

/// Runs the plan on data of its own, once its input is written and `before` has run. `Ok` only if every byte is right.
fn run_after(before: impl FnOnce(), cluster: &mut Cluster, plan: &Plan, data: &Moving<'_>) -> Result<(), Error> {
    let request = &plan.request;
    for rank in 0..request.ranks() {
        let mut input = vec![0; request.input_bytes(rank) as usize];
        data.fill(rank, 0, &mut input);
        cluster.write_input(&plan.set, rank, 0, &input)?;
    }
    before();
    cluster.execute(&plan.set, &Execution { timeout: LONG, repeat: 3, ..Execution::default() })?;
    for rank in 0..request.ranks() {
        let mut output = vec![0; request.output_bytes(rank) as usize];
        cluster.read_output(&plan.set, rank, 0, &mut output)?;
        assert_eq!(data.first_wrong(plan, rank, 0, &output), None, "rank {rank} has wrong data, and nobody said so");
    }
    Ok(())
}

fn run(cluster: &mut Cluster, plan: &Plan, data: &Moving<'_>) -> Result<(), Error> {
    run_after(|| {}, cluster, plan, data)
}

fn is_link_down(error: &Error) -> bool {
    matches!(error, Error::Failed { status: Status::LinkDown, .. })
}

#[test]
fn a_transfer_in_the_middle_fails_and_the_next_is_right() {
    for bytes in [256, 100_000] {
        let (fabric, mut cluster) = open(Profile::optweb(CARDS));
        let (plan, case) = plan_of(&cluster, "allgather", bytes);
        let moved = Moved { node: 1, tag: None, transfer: 0, bytes: bytes / 2 };
        let when = When::Moved(moved);
        fabric.plant(Fault::Flap { a: 1, b: 2, when, down_ps: 5 * MICROSECOND, count: 3 });
        let outcomes: Vec<bool> = (0..5)
            .map(|seed| match run(&mut cluster, &plan, &Moving { case, seed }) {
                Ok(()) => true,
                Err(error) if is_link_down(&error) => false,
                Err(error) => panic!("{bytes} bytes: {error}"),
            })
            .collect();
        assert_eq!(outcomes.iter().filter(|is_right| !**is_right).count(), 3, "{bytes} bytes: {outcomes:?}");
        assert!(outcomes[3..].iter().all(|is_right| *is_right));
    }
}

/// The link flaps while programs run, whether they use it or not.
#[test]
fn whenever_a_link_flaps_nothing_is_silently_wrong() {
    let (mut right, mut failed) = (0, 0);
    for hardware in [Hardware::default(), Hardware { split_dma: Some(3), drift_ppm: 100, ..Hardware::default() }] {
        for seed in 0..if is_full() { 200 } else { 20 } {
            let (fabric, mut cluster) = open(Profile { hardware, ..Profile::optweb(CARDS) });
            let operation = ["alltoall", "broadcast", "gather", "allgather"][seed as usize % 4];
            let (plan, case) = plan_of(&cluster, operation, 64 << (seed % 12));
            // Somewhere in the transfers of a card, or after them.
            let moved =
                Moved { node: seed as u32 % CARDS, tag: None, transfer: seed as u32 % 3, bytes: 16 << (seed % 14) };
            let (when, down_ps) = (When::Moved(moved), (3 + 6 * seed) * MICROSECOND / 10);
            let flap = || fabric.plant(Fault::Flap { a: 0, b: 3, when, down_ps, count: 1 });
            let outcome = run_after(flap, &mut cluster, &plan, &Moving { case, seed });
            let is_struck = outcome.is_err();
            match outcome {
                Ok(()) => right += 1,
                Err(error) if is_link_down(&error) => failed += 1,
                Err(error) => panic!("{operation}, seed {seed}: {error}"),
            }
            if is_struck {
                run(&mut cluster, &plan, &Moving { case, seed: seed + 1 }).expect("a run after the flap");
            }
            assert_eq!(fabric.failure(), None);
        }
    }
    assert!(right > 0 && failed > 0, "{right} right, {failed} failed");
}

/// What a receive buffer has of a send that failed does not pass for the next send.
#[test]
fn nothing_of_a_failed_send_is_left_when_the_link_is_up_again() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let domain = fpga_hal::Domain::in_process();
    let [mut first, mut second] = [0, 1]
        .map(|node| Card::open(fpga_hal::in_process::attach(fabric.endpoint(node), &domain, "card").unwrap()).unwrap());
    first.write_memory(0, &[1; 64]).unwrap();
    first.write_memory(64, &[2; 64]).unwrap();
    // The first send waits in the buffer of the other card when the link goes down.
    let sent = first.queue_mut().submit(Instruction::send(1, Operand::card(0), 64)).unwrap();
    fabric.plant(Fault::Flap { a: 0, b: 1, when: When::Now, down_ps: MICROSECOND, count: 1 });
    assert_eq!(first.queue_mut().wait(&sent, LONG).unwrap().status, Status::LinkDown);
    // Meanwhile the link comes up.
    first.run([Instruction::nop()], LONG).unwrap();
    let received = second.queue_mut().submit(Instruction::recv(0, Operand::card(0), 64)).unwrap();
    first.run([Instruction::send(1, Operand::card(64), 64)], LONG).unwrap();
    assert_eq!(second.queue_mut().wait(&received, LONG).unwrap().status, Status::Done);
    let mut data = [0; 64];
    second.read_memory(0, &mut data).unwrap();
    assert_eq!(data, [2; 64]);
}

#[test]
fn a_link_that_is_cut_stays_down() {
    let (fabric, mut cluster) = open(Profile::optweb(CARDS));
    fabric.plant(Fault::Flap { a: 0, b: 1, when: When::Now, down_ps: MICROSECOND, count: 1 });
    fabric.plant(Fault::Cut { a: 0, b: 1, when: When::Now });
    let (plan, case) = plan_of(&cluster, "allgather", 64);
    for seed in 0..2 {
        let error = run(&mut cluster, &plan, &Moving { case, seed }).expect_err("a link that is cut");
        assert!(is_link_down(&error), "{error}");
    }
}
