//! What a card says went wrong is checked, told, and never cleared unread; and calls end when they were told to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::{Instruction, Operation};
use fpga_driver::{Card, Current, Error};
use fpga_hal::{Domain, endpoint::Endpoint, in_process};

use crate::cards::Open as _;
use crate::logged::{self, logged};
use crate::open_card;
use fpga_fake::{BLOCK, Fake, Reply};

const SECOND: Duration = Duration::from_secs(1);
/// What ends long before it on any machine was not waited out.
const LONG: Duration = Duration::from_secs(500);

fn open_as(fake: &Arc<Fake>, name: &str) -> Card {
    let endpoint = Arc::clone(fake) as Arc<dyn Endpoint>;
    open_card(in_process::attach(endpoint, &Domain::in_process(), name).unwrap()).unwrap()
}

#[test]
fn a_register_of_all_ones_is_no_card_that_is_gone() {
    for offset in [0x104, 0x20] {
        let fake = Fake::new(4);
        let mut card = fake.open().unwrap();
        fake.plant(0, Reply::Hang);
        let token = card.queue_mut().submit(Instruction::nop()).unwrap();
        fake.force(0x104, u32::MAX);
        fake.force(offset, u32::MAX);
        let error = card.queue_mut().wait(&token, LONG).unwrap_err();
        let Error::AllOnes { register: found, .. } = error else { panic!("{error}") };
        assert_eq!(found, u64::from(offset));
        fake.state().forced.clear();
        fake.release();
        card.queue_mut().wait(&token, LONG).unwrap();
    }
}

#[test]
fn counters_and_tags_of_all_ones_are_values() {
    let fake = Fake::new(4);
    let card = fake.open().unwrap();
    for offset in [0x118, 0x11c, 0x128, 0x12c, 0x120, 0x428, 0x42c] {
        fake.force(offset, u32::MAX);
    }
    assert_eq!((card.cycles().unwrap(), card.retired().unwrap()), (u64::MAX, u64::MAX));
    let state = card.sequencer_state().unwrap();
    assert_eq!((state.fetched, state.completed), (u32::MAX, u32::MAX));
    fake.state().is_gone = true;
    assert!(matches!(card.cycles().unwrap_err(), Error::Removed { .. }));
}

#[test]
fn an_idle_sequencer_runs_nothing() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    assert_eq!(card.sequencer_state().unwrap().current, None);
    fake.plant(1, Reply::Hang);
    for instruction in [Instruction::nop(), Instruction::barrier()] {
        card.queue_mut().submit(instruction).unwrap().abandon();
    }
    let running = Some(Current { tag: 1, code: Operation::Barrier as u8 });
    assert_eq!(card.sequencer_state().unwrap().current, running);
    card.abort().unwrap();
}

#[test]
fn a_card_that_vanishes_while_it_is_read_is_gone() {
    type Read = fn(&Card) -> Result<(), Error>;
    let counter: Read = |card| card.cycles().map(drop);
    let state: Read = |card| card.sequencer_state().map(drop);
    for read in [counter, state] {
        let fake = Fake::new(4);
        let card = fake.open().unwrap();
        fake.counts();
        read(&card).unwrap();
        let (reads, _) = fake.counts();
        for vanishes_after in 0..reads {
            let fake = Fake::new(4);
            let card = fake.open().unwrap();
            fake.vanish_after(vanishes_after);
            let error = read(&card).unwrap_err();
            assert!(matches!(error, Error::Removed { .. }), "after {vanishes_after} of {reads} reads: {error}");
        }
    }
}

#[test]
fn a_counter_takes_two_reads_whatever_it_counts() {
    let fake = Fake::new(4);
    let card = fake.open().unwrap();
    for (low, high) in [(0, 0), (u32::MAX, 0), (u32::MAX, u32::MAX - 1)] {
        fake.set(BLOCK + 0x118, low);
        fake.set(BLOCK + 0x11c, high);
        fake.counts();
        assert_eq!(card.cycles().unwrap(), u64::from(high) << 32 | u64::from(low));
        assert_eq!(fake.counts(), (2, 0));
    }
}

#[test]
fn error_reporting_is_found_wherever_the_list_has_it() {
    let pcie = |entries: &[(u16, u32)]| {
        let fake = Fake::new(4);
        let write = |entries: &[(u16, u32)]| entries.iter().for_each(|(offset, word)| fake.set_config(*offset, *word));
        write(entries);
        let card = fake.open().unwrap();
        // Opening the card clears the errors.
        write(entries);
        card.sequencer_state().unwrap().health.pcie.map(|pcie| (pcie.uncorrectable, pcie.correctable))
    };
    // A serial number first; the two lowest bits of a pointer are reserved.
    let serial = |next: u32| (0x100, next << 20 | 0x0001_0003);
    let reporting = [(0x148, 0x0001_0001), (0x14c, 16), (0x158, 64)];
    for next in [0x148, 0x149, 0x14b] {
        assert_eq!(pcie(&[&[serial(next)][..], &reporting].concat()), Some((16, 64)), "{next:#x}");
    }
    // Power management, which lies before the extended capabilities, begins as error reporting does.
    assert_eq!(pcie(&[serial(0x60), (0x60, 0x0003_0001), (0x64, 16)]), None);
    // A list that leads back to its beginning ends.
    assert_eq!(pcie(&[serial(0x100)]), None);
}

#[test]
fn errors_of_sequencer_and_bus_are_in_what_fails() {
    let fake = Fake::new(4);
    fake.report(1 << 12, 0);
    let mut card = fake.open().unwrap();
    fake.report(1 << 14, 1 << 6);
    fake.plant(0, Reply::Halt(2));
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let error = card.queue_mut().wait(&token, LONG).unwrap_err();
    let text = error.to_string();
    let Error::Halted { health, .. } = error else { panic!("{text}") };
    let pcie = health.pcie.expect("the function has the capability");
    assert_eq!((health.errors.bits(), pcie.uncorrectable, pcie.correctable), (2, 1 << 14, 1 << 6));
    assert!(text.contains("FETCH_FAULT") && text.contains("0x00004000") && text.contains("0x00000040"), "{text}");
    card.abort().unwrap();
    assert_eq!(fake.state().registers[&(BLOCK + 0x108)], 0);
    fake.state().script.clear();

    fake.plant(1, Reply::Hang);
    let error = card.run([Instruction::nop(); 2], Duration::from_millis(20)).unwrap_err();
    let Error::Timeout { last_seen, .. } = error else { panic!("{error}") };
    assert!(last_seen.contains("uncorrectable 0x00004000"), "{last_seen}");
    card.abort().unwrap();
}

#[test]
fn a_function_without_error_reporting_has_none_to_tell() {
    let card = Fake::new(4).open().unwrap();
    assert_eq!(card.sequencer_state().unwrap().health.pcie, None);
}

#[test]
fn errors_that_nobody_saw_are_logged_before_they_are_cleared_or_lost() {
    logged::begin();
    let fake = Fake::new(4);
    fake.report(1 << 14, 1 << 6);
    let mut card = open_as(&fake, "the card that clears");
    assert!(logged(&["the card that clears", "clearing PCIe errors", "0x00004000", "0x00000040"]));
    fake.report(1 << 12, 0);
    fake.halt(8);
    card.abort().unwrap();
    assert!(logged(&["the card that clears", "clearing ERROR", "RECEIVE_OVERRUN"]));
    drop(card);
    assert!(logged(&["the card that clears", "at close", "0x00001000"]));

    let fake = Fake::new(4);
    let card = open_as(&fake, "the card that closes");
    fake.halt(16);
    drop(card);
    assert!(logged(&["the card that closes", "at close", "UNEXPECTED_DATA"]));

    drop(open_as(&Fake::new(4), "the card without errors"));
    assert!(!logged(&["the card without errors"]));
}

#[test]
fn a_halt_ends_a_sleep() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Silence);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let began = Instant::now();
    let halting = {
        let fake = Arc::clone(&fake);
        std::thread::spawn(move || {
            // It sleeps by now: it has armed.
            while fake.state().arms == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            fake.halt(4);
        })
    };
    let error = card.queue_mut().wait_progress(Duration::MAX).unwrap_err();
    assert!(matches!(error, Error::Halted { .. }), "{error}");
    halting.join().unwrap();
    assert!(began.elapsed() < LONG);
    token.abandon();
}

#[test]
fn a_timed_out_wait_consumes_and_aborts_nothing() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(1)] {
        let error = card.wait(&token, timeout).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert_eq!(card.queue_mut().test(&token).unwrap(), None);
    }
    fake.release();
    let completion = card.queue_mut().test(&token).unwrap().expect("it has come");
    // Looking at it takes it away from nobody.
    assert_eq!(card.queue_mut().test(&token).unwrap(), Some(completion));
    assert_eq!(card.wait(&token, Duration::ZERO).unwrap(), completion);
    assert_eq!(card.queue_mut().take(token).unwrap().unwrap(), completion);
    assert_eq!(fake.state().ran.len(), 1);
}

#[test]
fn a_test_rings_nothing_and_reads_no_register() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    let token = card.queue_mut().push(Instruction::nop()).unwrap();
    fake.counts();
    assert_eq!(card.queue_mut().test(&token).unwrap(), None);
    assert_eq!(fake.counts(), (0, 0));
    card.queue_mut().ring().unwrap();
    assert!(card.queue_mut().test(&token).unwrap().is_some());
    assert_eq!(fake.counts(), (0, 1));
    let mut other = Fake::new(4).open().unwrap();
    assert!(matches!(other.queue_mut().test(&token).unwrap_err(), Error::Stale { .. }));
}

#[test]
fn the_longest_timeout_is_no_panic() {
    let mut card = Fake::new(4).open().unwrap();
    card.run([Instruction::nop(); 9], Duration::MAX).unwrap();
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    card.wait(&token, Duration::MAX).unwrap();
    card.set_timeout(Duration::MAX);
    card.write_memory(3, &[1, 2, 3]).unwrap();
    let program = card.store(1, [Instruction::nop()]).unwrap();
    card.run_resident(&program, [0; 3]).unwrap();
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    assert_eq!(card.queue_mut().wait_progress(Duration::MAX).unwrap(), 1);
    token.abandon();
}

#[test]
fn times_out_of_order_are_an_invalid_completion() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Late);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let error = card.queue_mut().wait(&token, SECOND).unwrap_err();
    assert!(matches!(error, Error::BadCompletion { what, .. } if what.contains("T1")), "{error}");
    fake.state().script.clear();
    card.reset().unwrap();
    card.run([Instruction::nop()], SECOND).unwrap();
}
