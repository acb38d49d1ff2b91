//! Programs, resident programs, aborts and resets.

use std::time::{Duration, Instant};

use cmdseq::{Flags, Instruction, Operation, Status};
use fpga_driver::{Bound, Error};

use crate::cards::Open as _;
use crate::open_card;
use crate::queue::until;
use fpga_fake::{BLOCK, Fake, Reply};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn programs_longer_than_the_ring_run_in_order() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    let program: Vec<_> =
        (0..1001).map(|i| if i % 2 == 0 { Instruction::nop() } else { Instruction::delay(i) }).collect();
    let completions = card.run(&program, SECOND).unwrap();
    assert_eq!(completions.len(), 1001);
    assert!(completions.iter().enumerate().all(|(index, completion)| completion.tag == index as u16));
    let operations: Vec<_> = program.iter().map(|instruction| instruction.operation).collect();
    assert_eq!(fake.state().ran, operations);
    assert!(card.run(&[] as &[Instruction], SECOND).unwrap().is_empty());
}

#[test]
fn the_first_failure_of_a_program_is_told_with_its_place() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(6, Reply::Code(13, 5));
    fake.plant(8, Reply::Code(8, 0));
    let mut program = vec![Instruction::nop(); 20];
    program[6] = Instruction::barrier();
    let error = card.run(&program, SECOND).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Failed { instruction: 6, operation: Operation::Barrier, status: Status::LinkDown, detail: 5, .. }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("node 5"), "{error}");
}

#[test]
fn a_failure_explains_the_silence_after_it() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    fake.plant(1, Reply::Code(9, 0));
    fake.plant(2, Reply::Hang);
    let error = card.run([Instruction::nop(); 4], Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, Error::Failed { instruction: 1, status: Status::Overlap, .. }), "{error}");
}

#[test]
fn a_timeout_names_the_instruction() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(9, Reply::Hang);
    let start = Instant::now();
    let error = card.run([Instruction::delay(1); 30], Duration::from_millis(80)).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(matches!(&error, Error::Timeout { instruction: Some(9), what, .. } if what.contains("delay")), "{error}");
}

#[test]
fn room_taken_by_others_is_waited_for() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let others: Vec<_> = (0..4).map(|_| card.queue_mut().submit(Instruction::nop()).unwrap()).collect();
    let error = card.run([Instruction::nop()], Duration::from_millis(40)).unwrap_err();
    assert!(matches!(&error, Error::Timeout { what, .. } if what.contains("room")), "{error}");
    fake.release();
    card.run([Instruction::nop()], SECOND).unwrap();
    for token in others {
        card.wait(&token, SECOND).unwrap();
    }
}

#[test]
fn an_abort_ends_everything_in_flight_and_the_card_goes_on() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    let mut first = card.queue_mut().submit(Instruction::nop()).unwrap();
    card.wait(&first, SECOND).unwrap();
    fake.plant(1, Reply::Hang);
    first = card.queue_mut().submit(Instruction::barrier()).unwrap();
    let second = card.queue_mut().submit(Instruction::nop()).unwrap();
    let third = card.queue_mut().push(Instruction::nop()).unwrap();
    card.abort().unwrap();
    for token in [first, second, third] {
        assert_eq!(card.queue_mut().wait(&token, SECOND).unwrap().status, Status::Aborted);
    }
    fake.state().script.clear();
    card.run([Instruction::nop(); 9], SECOND).unwrap();
}

/// The fake itself refuses to be let onto the bus while it runs.
#[test]
fn a_sequencer_that_was_not_reset_is_stopped_before_it_masters_the_bus() {
    for reply in [Reply::Hang, Reply::Deaf] {
        let fake = Fake::new(4);
        let function = fake.function();
        fake.run_what_was_left(reply);
        match (reply, open_card(function)) {
            (Reply::Hang, Ok(mut card)) => drop(card.run([Instruction::nop(); 9], SECOND).unwrap()),
            (Reply::Deaf, Err(Error::Timeout { what, .. })) => assert!(what.contains("last user"), "{what}"),
            (_, other) => panic!("{reply:?}: {other:?}"),
        }
    }
    // One that only waits for more would take it as soon as it could; one that was told to stop may still be at work.
    for (control, is_busy) in [(1, false), (0, true)] {
        let fake = Fake::new(4);
        let function = fake.function();
        fake.run_what_was_left(Reply::Hang);
        fake.set(BLOCK + 0x100, control);
        if !is_busy {
            fake.rest();
        }
        open_card(function).unwrap().run([Instruction::nop(); 9], SECOND).unwrap();
    }
}

#[test]
fn a_card_that_ignores_an_abort_is_reset() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Deaf);
    let token = card.queue_mut().submit(Instruction::barrier()).unwrap();
    let error = card.abort().unwrap_err();
    assert!(matches!(&error, Error::Timeout { what, .. } if what.contains("stop")), "{error}");
    fake.state().script.clear();
    card.reset().unwrap();
    assert_eq!(card.queue_mut().wait(&token, SECOND).unwrap().status, Status::Aborted);
    card.run([Instruction::nop(); 9], SECOND).unwrap();
    // The interrupt works again as well.
    fake.plant(9, Reply::Hang);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let arms = fake.state().arms;
    let releaser = std::thread::spawn(move || {
        until(|| fake.state().arms == arms + 1);
        fake.raise();
        // A sleeper that is not woken never arms again.
        until(|| fake.state().arms == arms + 2);
        fake.release();
    });
    card.wait(&token, Duration::from_secs(100)).unwrap();
    releaser.join().unwrap();
}

#[test]
fn a_reset_that_brings_another_card_is_an_error() {
    let fake = Fake::node(1, 4, 4);
    let mut card = fake.open().unwrap();
    fake.set(BLOCK + 0x34, 2);
    assert!(matches!(card.reset().unwrap_err(), Error::Mismatch { node: 1, other: 2, .. }));
}

#[test]
fn resident_programs_live_as_long_as_their_slot() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    let program = [Instruction::nop(), Instruction::barrier()];
    let resident = card.store(2, program).unwrap();
    assert_eq!(resident.slot(), 2);
    fake.counts();
    let token = card.launch(&resident, [1, 2, 3]).unwrap();
    card.wait(&token, SECOND).unwrap();
    assert_eq!(fake.counts(), (0, 1), "one doorbell");
    let other = card.store(3, program).unwrap();
    card.run_resident(&resident, [0; 3]).unwrap();
    let again = card.store(2, program).unwrap();
    assert!(matches!(card.launch(&resident, [0; 3]).unwrap_err(), Error::Stale { .. }));
    card.run_resident(&again, [0; 3]).unwrap();
    card.reset().unwrap();
    assert!(matches!(card.launch(&other, [0; 3]).unwrap_err(), Error::Stale { .. }));

    let mut elsewhere = Fake::new(64).open().unwrap();
    elsewhere.store(2, program).unwrap();
    assert!(matches!(elsewhere.launch(&again, [0; 3]).unwrap_err(), Error::Stale { .. }));
}

#[test]
fn an_instruction_that_stores_replaces_the_resident_program() {
    let mut card = Fake::new(64).open().unwrap();
    let last = Instruction::nop().with_flags(Flags::LAST);
    let [replaced, other] = [2, 3].map(|slot| card.store(slot, [last]).unwrap());
    let buffer = card.allocate(4096).unwrap();
    buffer.write(0, &last.encode()).unwrap();
    let store = Instruction::store(2, buffer.iova().0, 1);
    card.run([Bound::from(store).holding(buffer)], SECOND).unwrap();
    assert!(matches!(card.launch(&replaced, [0; 3]).unwrap_err(), Error::Stale { .. }));
    card.run_resident(&other, [0; 3]).unwrap();
}

#[test]
fn programs_that_cannot_be_stored_are_refused() {
    let mut card = Fake::new(64).open().unwrap();
    let nop = Instruction::nop();
    for (slot, program) in [(4, vec![nop]), (0, vec![]), (0, vec![nop; 9]), (0, vec![nop.with_flags(Flags::LAST), nop])]
    {
        assert!(matches!(card.store(slot, &program).unwrap_err(), Error::BadArgument { .. }));
    }
    card.store(0, [nop, nop.with_flags(Flags::LAST)]).unwrap();
    // As many as the card stores.
    card.store(3, [nop; 8]).unwrap();
}

#[test]
fn the_timeout_is_as_set() {
    let mut card = Fake::new(4).open().unwrap();
    card.set_timeout(SECOND);
    assert_eq!(card.timeout(), SECOND);
}

#[test]
fn the_eager_limit_is_checked_and_written() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    assert!(matches!(card.set_eager_limit(65537).unwrap_err(), Error::BadArgument { .. }));
    assert!(matches!(card.set_eager_limit(1 << 40).unwrap_err(), Error::BadArgument { .. }));
    for bytes in [65536, 0, 32] {
        card.set_eager_limit(bytes).unwrap();
        assert_eq!((card.eager_limit(), u64::from(fake.state().registers[&(BLOCK + 0x10c)])), (bytes, bytes));
    }
}

#[test]
fn the_counter_is_read_low_half_first() {
    let fake = Fake::new(4);
    let card = fake.open().unwrap();
    fake.set(BLOCK + 0x118, 7);
    fake.set(BLOCK + 0x11c, 0x12);
    assert_eq!(card.cycles().unwrap(), 0x12_0000_0007);
    // All-ones in one half is a count like any other.
    fake.set(BLOCK + 0x118, u32::MAX);
    assert_eq!(card.cycles().unwrap(), 0x12_ffff_ffff);
}

#[test]
fn errors_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Error>();
    fn moves<T: Send>() {}
    moves::<fpga_driver::Card>();
    moves::<fpga_driver::Cluster>();
    moves::<fpga_driver::Token>();
}
