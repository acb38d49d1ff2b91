//! Host memory stays as long as a card may write to it, and a queue that cannot be believed takes nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cmdseq::{Instruction, Operand, Operation};
use fpga_driver::{Bound, Card, Error, State};
use fpga_hal::{DmaBuffer, Domain};

use crate::cards::Open as _;
use crate::open_card;
use fpga_fake::{BLOCK, Fake, Reply};

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(30);

/// A copy from the card to a buffer that nobody else holds, and a look at the buffer.
fn copy(card: &Card) -> (Bound, Weak<DmaBuffer>, u64) {
    let buffer = card.allocate(4096).unwrap();
    let (seen, iova) = (Arc::downgrade(&buffer), buffer.iova().0);
    (Bound::from(Instruction::copy(Operand::card(0), Operand::host(iova), 4096)).holding(buffer), seen, iova)
}

#[test]
fn a_timed_out_run_keeps_its_memory_until_the_card_is_done() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let (bound, seen, iova) = copy(&card);
    let error = card.run([bound], SHORT).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(seen.upgrade().is_some(), "the card may still write to it");
    let other = card.allocate(4096).unwrap();
    assert_ne!(other.iova().0, iova, "the address is handed out again");
    fake.release();
    card.queue_mut().poll().unwrap();
    assert!(seen.upgrade().is_none());
}

#[test]
fn any_number_of_buffers_is_kept() {
    for count in 0..6 {
        let fake = Fake::new(4);
        let mut card = fake.open().unwrap();
        fake.plant(0, Reply::Hang);
        let buffers: Vec<_> = (0..count).map(|_| card.allocate(64).unwrap()).collect();
        let seen: Vec<_> = buffers.iter().map(Arc::downgrade).collect();
        let bound = buffers.into_iter().fold(Bound::from(Instruction::nop()), Bound::holding);
        assert_eq!(bound.buffers().len(), count);
        card.queue_mut().submit(bound).unwrap().abandon();
        assert!(seen.iter().all(|one| one.upgrade().is_some()));
        fake.release();
        card.queue_mut().poll().unwrap();
        assert!(seen.iter().all(|one| one.upgrade().is_none()));
    }
}

#[test]
fn host_memory_that_nobody_holds_is_refused() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    let buffer = card.allocate(4096).unwrap();
    let iova = buffer.iova().0;
    let domain = Domain::in_process();
    // The same address of another domain.
    let others: Vec<_> = (0..8).map(|_| domain.allocate(4096, 4096).unwrap()).collect();
    let elsewhere = others.into_iter().find(|one| one.iova().0 == iova).unwrap();
    let both = [elsewhere.clone(), buffer.clone()];
    let (here, last) = (Operand::card(0), Operand::host(iova + 4096 - 64));
    for instruction in [
        Instruction::copy(here, Operand::host(iova), 4096),
        Instruction::copy(Operand::host(iova), here, 4096),
        Instruction::group(1, iova, 1),
        Instruction::table(1, iova, 2),
        Instruction::store(1, iova, 1),
    ] {
        let mut refused = |bound: Bound| {
            let error = card.queue_mut().push(bound.clone()).unwrap_err();
            let Error::HostMemoryUnbound { operation, .. } = error else { panic!("{error}") };
            assert_eq!(operation, instruction.operation);
            let error = card.run([bound], SECOND).unwrap_err();
            assert!(matches!(error, Error::HostMemoryUnbound { .. }), "{error}");
        };
        refused(instruction.into());
        refused(Bound::from(instruction).holding(elsewhere.clone()));
        card.queue_mut().push(Bound::from(instruction).holding(buffer.clone())).unwrap().abandon();
        card.queue_mut().push(Bound::covered_by(&instruction, &both)).unwrap().abandon();
    }
    let mut outcome = |instruction: Instruction| {
        card.queue_mut().push(Bound::from(instruction).holding(buffer.clone())).map(fpga_driver::Token::abandon)
    };
    outcome(Instruction::copy(here, last, 64)).unwrap();
    outcome(Instruction::copy(here, Operand::host(u64::MAX), 0)).unwrap();
    for instruction in [
        Instruction::copy(here, last, 65),
        Instruction::copy(here, Operand::host(iova - 1), 64),
        Instruction::copy(here, last, u64::MAX),
        Instruction::copy(here, Operand::host(u64::MAX), 64),
        // What a launch adds is not known.
        Instruction::copy(here, Operand::host(iova).plus_argument(0), 64),
        // These work on card memory.
        Instruction::send(0, Operand::host(iova), 64),
        Instruction::fill(Operand::host(iova), 64, 0),
    ] {
        let error = outcome(instruction).unwrap_err();
        assert!(matches!(error, Error::HostMemoryUnbound { .. }), "{instruction:?}: {error}");
    }
    assert_eq!(card.queue().in_flight(), 12, "what was refused is not stored");
}

#[test]
fn a_raw_address_needs_its_own_door() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    let buffer = card.allocate(4096).unwrap();
    buffer.write(0, &[7; 64]).unwrap();
    let copy = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(128), 64);
    card.run([Bound::dangerously_unowned(copy)], SECOND).unwrap();
    assert_eq!(fake.state().memory[128..192], [7; 64]);
}

#[test]
fn what_a_resident_program_names_stays_as_long_as_the_program() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    let (bound, first, iova) = copy(&card);
    let error = card.store(1, [*bound.instruction()]).unwrap_err();
    assert!(matches!(error, Error::HostMemoryUnbound { operation: Operation::Copy, .. }), "{error}");
    let program = card.store(1, [bound]).unwrap();
    card.run_resident(&program, [0; 3]).unwrap();
    assert!(first.upgrade().is_some(), "another launch would write to it");
    let (bound, second, _) = copy(&card);
    card.store(1, [bound]).unwrap();
    assert!(first.upgrade().is_none() && second.upgrade().is_some());
    card.abort().unwrap();
    assert!(second.upgrade().is_some(), "an abort leaves programs on the card");
    card.reset().unwrap();
    assert!(second.upgrade().is_none());

    // A store that does not go through the card does not keep what the program names.
    let words = card.allocate(64).unwrap();
    let named = Instruction::copy(Operand::card(0), Operand::host(iova), 64);
    words.write(0, &named.encode()).unwrap();
    let store = Bound::from(Instruction::store(1, words.iova().0, 1)).holding(words.clone());
    let error = card.queue_mut().push(store.clone()).unwrap_err();
    assert!(matches!(error, Error::HostMemoryUnbound { operation: Operation::Copy, .. }), "{error}");
    // Nor does a buffer of another domain hide it, which has another program at the same address.
    let domain = Domain::in_process();
    let others: Vec<_> = (0..64).map(|_| domain.allocate(4096, 4096).unwrap()).collect();
    let elsewhere = others.into_iter().find(|one| one.iova() == words.iova()).unwrap();
    elsewhere.write(0, &Instruction::nop().encode()).unwrap();
    let hidden = Bound::from(*store.instruction()).holding(elsewhere).holding(words.clone());
    let error = card.queue_mut().push(hidden).unwrap_err();
    assert!(matches!(error, Error::HostMemoryUnbound { operation: Operation::Copy, .. }), "{error}");
    words.write(0, &Instruction::nop().encode()).unwrap();
    card.run([store], SECOND).unwrap();
}

#[test]
fn a_failed_abort_poisons_the_queue_and_keeps_memory() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    assert_eq!(card.state(), State::Running);
    fake.plant(0, Reply::Deaf);
    let (bound, seen, _) = copy(&card);
    let token = card.queue_mut().submit(bound).unwrap();
    card.abort().unwrap_err();
    assert_eq!(card.state(), State::Poisoned);
    let error = card.queue_mut().push(Instruction::nop()).unwrap_err();
    let Error::NotRunning { state: State::Poisoned, why, .. } = error else { panic!("{error}") };
    assert!(why.contains("did not stop"), "{why}");
    for error in [
        card.queue_mut().submit(Instruction::nop()).unwrap_err(),
        card.queue_mut().poll().unwrap_err(),
        card.queue_mut().wait(&token, SECOND).unwrap_err(),
        card.write_memory(0, &[1]).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotRunning { .. }), "{error}");
    }
    assert!(seen.upgrade().is_some(), "the card may still write to it");
    fake.state().script.clear();
    card.reset().unwrap();
    assert_eq!(card.state(), State::Running);
    assert!(seen.upgrade().is_none());
    assert_eq!(card.wait(&token, SECOND).unwrap_err().to_string(), "Node 0, instruction 0 (copy): aborted");
    card.run([Instruction::nop()], SECOND).unwrap();
}

#[test]
fn after_a_failed_reset_only_a_reset_helps() {
    let fake = Fake::node(1, 4, 4);
    let mut card = fake.open().unwrap();
    let table = cmdseq::Table::packed([64, 64], 1);
    fake.set(BLOCK + 0xb8, 4);
    card.reset().unwrap();
    card.load_table(0, &table).unwrap();
    fake.set(BLOCK + 0x34, 2);
    card.reset().unwrap_err();
    assert_eq!(card.state(), State::Poisoned);
    for error in [card.queue_mut().push(Instruction::nop()).map(drop).unwrap_err(), card.abort().unwrap_err()] {
        assert!(matches!(&error, Error::NotRunning { why, .. } if why.contains("reset failed")), "{error}");
    }
    let error = card.load_table(0, &table).unwrap_err();
    assert!(matches!(error, Error::NotRunning { .. }), "nothing is known of the card's tables: {error}");
    fake.set(BLOCK + 0x34, 1);
    card.reset().unwrap();
    card.load_table(0, &table).unwrap();
    let loaded = fake.state().ran.iter().filter(|one| **one == Operation::Table).count();
    assert_eq!(loaded, 2);
}

#[test]
fn a_card_that_is_gone_takes_nothing_and_its_memory_is_kept() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let (bound, seen, _) = copy(&card);
    let token = card.queue_mut().submit(bound).unwrap();
    fake.state().is_gone = true;
    let error = card.queue_mut().wait(&token, SECOND).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    // It stays gone, even if it answers again.
    fake.state().is_gone = false;
    assert_eq!(card.state(), State::Gone);
    let error = card.queue_mut().push(Instruction::nop()).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    assert!(seen.upgrade().is_some());
    fake.state().script.clear();
    card.reset().unwrap();
    assert!(seen.upgrade().is_none());
    card.run([Instruction::nop()], SECOND).unwrap();
}

#[test]
fn one_driver_at_a_time_has_a_function() {
    let fake = Fake::new(4);
    let function = fake.function();
    let in_use = |error: Error| matches!(error, Error::Bus(fpga_hal::Error::InUse { .. }));
    let mut card = open_card(function.clone()).unwrap();
    assert!(in_use(open_card(function.clone()).unwrap_err()));
    assert!(matches!(fake.try_function().unwrap_err(), fpga_hal::Error::InUse { name } if name == "fake"));
    card.run([Instruction::nop()], SECOND).unwrap();
    drop(card);
    let mut card = open_card(function.clone()).unwrap();
    card.run([Instruction::nop()], SECOND).unwrap();
    drop((card, function));
    fake.open().unwrap().run([Instruction::nop()], SECOND).unwrap();
}

/// What the host knew of its tables may be true no more.
#[test]
fn a_card_that_was_lost_in_a_reset_needs_another_though_it_answers_again() {
    let fake = Fake::node(1, 4, 4);
    fake.set(BLOCK + 0xb8, 4);
    let mut card = fake.open().unwrap();
    let table = cmdseq::Table::packed([64, 64], 1);
    card.load_table(0, &table).unwrap();
    fake.state().is_gone = true;
    assert!(matches!(card.reset().unwrap_err(), Error::Removed { .. }));
    fake.state().is_gone = false;
    assert_eq!(card.state(), State::Gone);
    assert!(matches!(card.abort().unwrap_err(), Error::Removed { .. }));
    card.reset().unwrap();
    card.load_table(0, &table).unwrap();
    assert_eq!(fake.state().ran, [Operation::Table; 2]);
}

#[test]
fn a_card_that_cannot_be_told_to_stop_takes_nothing() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.force(0x104, u32::MAX);
    assert!(card.abort().is_err());
    let error = card.queue_mut().push(Instruction::nop()).unwrap_err();
    let Error::NotRunning { state: State::Poisoned, why, .. } = error else { panic!("{error}") };
    assert!(why.contains("could not be stopped"), "{why}");
    fake.state().forced.clear();
    card.abort().unwrap();
    assert_eq!(card.state(), State::Running);

    fake.state().is_gone = true;
    assert!(matches!(card.abort().unwrap_err(), Error::Removed { .. }));
    assert_eq!(card.state(), State::Gone);
}

#[test]
fn states_have_names() {
    let states = [State::Running, State::Stopped, State::Poisoned, State::Gone];
    assert_eq!(states.map(|state| state.to_string()), ["running", "stopped", "poisoned", "gone"]);
}

#[test]
fn each_word_that_is_stored_is_looked_at_wherever_it_lies() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    let buffer = card.allocate(4096).unwrap();
    let named = Instruction::copy(Operand::card(0), Operand::host(buffer.iova().0), 64);
    for first in [0, 1, 3] {
        for bad in 0..8 {
            for index in 0..8 {
                let word = if index == bad { named } else { Instruction::nop() };
                buffer.write(index * 64, &word.encode()).unwrap();
            }
            let store = Instruction::store(1, buffer.iova().0 + 64 * first as u64, 4);
            let outcome =
                card.queue_mut().push(Bound::from(store).holding(buffer.clone())).map(fpga_driver::Token::abandon);
            let is_among = (first..first + 4).contains(&bad);
            assert_eq!(outcome.is_err(), is_among, "word {bad}, of those from {first} on");
            if let Err(error) = outcome {
                assert!(matches!(error, Error::HostMemoryUnbound { operation: Operation::Copy, .. }), "{error}");
            }
        }
    }
}
