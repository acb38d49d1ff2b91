//! Registers and rings of cards with several lanes, without the driver.

use cmdseq::instruction::offset;
use cmdseq::{Completion, Flags, Instruction, Status};
use fpga_mock::{Fault, Profile, When};
use fpga_regs::{bits, sequencer};
use fpga_tests::raw_host::RawHost;

use super::{BYTES, four, swap};

/// A host that stores instructions by hand on each card.
fn raw(profile: Profile) -> (fpga_mock::Fabric, Vec<RawHost>) {
    let fabric = fpga_mock::Fabric::new(profile).unwrap();
    let hosts = (0..fabric.profile().nodes).map(|node| RawHost::attach(fabric.endpoint(node), 1 << 16)).collect();
    (fabric, hosts)
}

#[test]
fn completions_are_in_the_order_of_the_program() {
    let (_fabric, mut hosts) = raw(four(2));
    let tagged = |instruction: Instruction, tag| instruction.with_tag(tag);
    let last = tagged(swap(2, 4, 64).in_lane(1), 3);
    hosts[0].push_all(&[tagged(swap(1, 0, 64), 1), tagged(swap(2, 2, 64).in_lane(1), 2), last]);
    hosts[2].push_all(&[swap(0, 2, 64).in_lane(1), swap(0, 4, 64).in_lane(1)]);
    // Both of lane 1 have ended, as their partner says.
    assert!((0..2).all(|_| hosts[2].wait().status == Status::Done));
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::CURRENT) & 0xffff, 1);
    assert_eq!(hosts[0].read(sequencer::WAITING_PEER), 1);
    assert_eq!(hosts[0].read(sequencer::RETIRED_LO), 0);
    hosts[1].push(&swap(0, 0, 64));
    let completions: Vec<Completion> = (0..3).map(|_| hosts[0].wait()).collect();
    assert_eq!(completions.iter().map(|one| one.tag).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(completions.iter().all(|one| one.status == Status::Done && one.bytes == 128), "{completions:?}");
    // Each has its own time, not that at which its turn came.
    let end = |one: &Completion| one.issued + one.t2;
    assert!(end(&completions[1]) < end(&completions[2]) && end(&completions[2]) < end(&completions[0]));
    assert_eq!(hosts[0].read(sequencer::RETIRED_LO), 3);
}

#[test]
fn the_ring_of_completions_does_not_overflow() {
    let (_fabric, mut hosts) = raw(four(2));
    let depth = fpga_tests::raw_host::DEPTH;
    // One that waits, and more beside it than there is room for.
    let beside = vec![swap(2, 2, 64).in_lane(1); depth as usize - 1];
    hosts[0].push(&swap(1, 0, 64));
    hosts[0].push_all(&beside);
    hosts[2].push_all(&[swap(0, 2, 64).in_lane(1)]);
    for _ in 0..depth - 2 {
        hosts[2].push(&swap(0, 2, 64).in_lane(1));
        assert_eq!(hosts[2].wait().status, Status::Done);
    }
    assert_eq!(hosts[2].wait().status, Status::Done);
    hosts[0].push_all(&beside[1..3]);
    hosts[2].push_all(&beside[1..3].iter().map(|_| swap(0, 2, 64).in_lane(1)).collect::<Vec<_>>());
    assert_eq!(hosts[2].take(), None, "there is no room for a completion of its partner");
    hosts[1].push(&swap(0, 0, 64));
    for _ in 0..depth + 2 {
        assert_eq!(hosts[0].wait().status, Status::Done);
    }
    assert_eq!(hosts[0].read(sequencer::ERROR), 0);
}

#[test]
fn an_abort_ends_all_that_run() {
    let (_fabric, mut hosts) = raw(four(2));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, 64).in_lane(1), swap(1, 0, 64), swap(2, 2, 64).in_lane(1)]);
    // The second ends, the third waits for the first, and the fourth for the third.
    hosts[2].push(&swap(0, 2, 64).in_lane(1));
    assert_eq!(hosts[2].wait().status, Status::Done);
    assert_eq!(hosts[0].take(), None);
    hosts[0].write(sequencer::ABORT, sequencer::ABORT_VALUE);
    let statuses = [hosts[0].wait().status, hosts[0].wait().status];
    assert_eq!(statuses, [Status::Aborted, Status::Done]);
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());

    // Both run.
    hosts[0].write(sequencer::CONTROL, 1);
    assert_eq!(hosts[0].read(sequencer::STATUS), (bits::Status::READY | bits::Status::BUSY).bits());
    hosts[0].write(sequencer::ABORT, sequencer::ABORT_VALUE);
    let aborted = [hosts[0].wait(), hosts[0].wait()];
    assert_eq!(aborted.map(|one| one.status), [Status::Aborted; 2]);
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());

    // The card is as before. What it sent is dropped by its partners.
    for host in &hosts {
        host.write(sequencer::ABORT, sequencer::ABORT_VALUE);
        host.write(sequencer::CONTROL, 1);
    }
    hosts[1].push(&swap(0, 4, BYTES));
    hosts[2].push(&swap(0, 6, BYTES).in_lane(1));
    hosts[0].push_all(&[swap(1, 4, BYTES), swap(2, 6, BYTES).in_lane(1)]);
    for host in [0, 0, 1, 2] {
        assert_eq!(hosts[host].wait().status, Status::Done, "host {host}");
    }
}

#[test]
fn a_reset_ends_all_that_run() {
    let (_fabric, mut hosts) = raw(four(2));
    for _ in 0..2 {
        hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1)]);
        assert_eq!(hosts[0].read(sequencer::STATUS), (bits::Status::READY | bits::Status::BUSY).bits());
        hosts[0].function.reset().unwrap();
        assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());
        hosts[0].start();
    }
    hosts[1].push(&swap(0, 0, BYTES));
    hosts[2].push(&swap(0, 2, BYTES).in_lane(1));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1)]);
    for host in [0, 0, 1, 2] {
        assert_eq!(hosts[host].wait().status, Status::Done, "host {host}");
    }
}

#[test]
fn a_link_that_fails_ends_the_exchange_that_uses_it() {
    let (fabric, mut hosts) = raw(four(2));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1)]);
    fabric.plant(Fault::Cut { a: 0, b: 2, when: When::Now });
    assert_eq!(hosts[0].take(), None);
    hosts[1].push(&swap(0, 0, BYTES));
    assert_eq!(hosts[0].wait().status, Status::Done);
    let cut = hosts[0].wait();
    assert_eq!((cut.status, cut.detail), (Status::LinkDown, 2));
}

#[test]
fn clearing_run_lets_all_that_run_end() {
    let (_fabric, mut hosts) = raw(four(2));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1), swap(1, 4, BYTES)]);
    hosts[0].write(sequencer::CONTROL, 0);
    hosts[1].push_all(&[swap(0, 0, BYTES), swap(0, 4, BYTES)]);
    hosts[2].push(&swap(0, 2, BYTES).in_lane(1));
    assert_eq!([hosts[0].wait().status, hosts[0].wait().status], [Status::Done; 2]);
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());
    hosts[0].write(sequencer::CONTROL, 1);
    assert_eq!(hosts[0].wait().status, Status::Done);
}

/// Status and detail of an instruction that a card refuses.
fn refused(lanes: u32, instruction: Instruction) -> (Status, u16) {
    let (_fabric, mut hosts) = raw(four(lanes));
    let completion = hosts[0].run(&instruction);
    assert_eq!(hosts[0].run(&Instruction::nop()).status, Status::Done);
    (completion.status, completion.detail)
}

#[test]
fn lanes_and_fences_that_a_card_does_not_have_are_refused() {
    let lane = (Status::BadField, offset::LANE as u16);
    for (lanes, number) in [(1, 1), (1, 255), (2, 2), (64, 64)] {
        assert_eq!(refused(lanes, swap(1, 0, 64).in_lane(number)), lane);
        assert_eq!(refused(lanes, Instruction::barrier().in_lane(number)), lane);
    }
    let fence = (Status::BadField, offset::FLAGS as u16);
    for instruction in [swap(1, 0, 64), Instruction::nop()] {
        assert_eq!(refused(1, instruction.with_flags(Flags::FENCE)), fence);
    }
    assert_eq!(refused(2, Instruction::nop().with_flags(Flags::FENCE)), (Status::Done, 0));
    // An operation that is no exchange has no lane.
    assert_eq!(refused(2, Instruction::nop().in_lane(1)), lane);
}
