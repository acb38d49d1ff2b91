//! The rings: what goes over the wire, and what is made of what comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::{Encoded, Instruction, Operand, Operation, Status};
use fpga_driver::{Bound, Error, State, check};

use crate::cards::Open as _;
use crate::logged::{self, logged_here};
use fpga_fake::{BLOCK, Fake, Reply};

const SECOND: Duration = Duration::from_secs(1);

/// Waits for a condition.
pub(crate) fn until(mut is_met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < Duration::from_secs(50), "the condition is not met");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_status_planted_on_the_wire_is_seen() {
    let by_hand = [
        (1, Status::BadChecksum),
        (2, Status::BadVersion),
        (3, Status::BadOperation),
        (4, Status::BadField),
        (5, Status::BadCommunicator),
        (6, Status::NotMember),
        (7, Status::BadRank),
        (8, Status::OutOfRange),
        (9, Status::Overlap),
        (10, Status::EagerOverrun),
        (11, Status::HostReadFault),
        (12, Status::HostWriteFault),
        (13, Status::LinkDown),
        (14, Status::Aborted),
        (15, Status::BadProgram),
        (16, Status::Mismatch),
        (17, Status::NoUserLogic),
        (18, Status::BadTable),
        (19, Status::BadSignal),
        (20, Status::BadWindow),
        (21, Status::LinkError),
        (22, Status::MemoryError),
    ];
    assert_eq!(by_hand.len() + 1, Status::ALL.len());
    let unknown = (23..=255).map(|code| (code, Status::Unknown(code)));
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    for (count, (code, expected)) in by_hand.into_iter().chain(unknown).enumerate() {
        let detail = 7 * u16::from(code);
        fake.plant(count as u32, Reply::Code(code, detail));
        let token = card.queue_mut().submit(Instruction::barrier()).unwrap();
        let completion = card.queue_mut().wait(&token, SECOND).unwrap();
        assert_eq!((completion.status, completion.detail), (expected, detail));
        let error = check(completion, 3, 9, Operation::Barrier).unwrap_err();
        let Error::Failed { node: 3, rank: None, instruction: 9, operation, status, detail: found } = error else {
            panic!("{error}")
        };
        assert_eq!((operation, status, found), (Operation::Barrier, expected, detail));
    }
}

#[test]
fn submitting_is_one_write_and_no_read() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    fake.counts();
    let mut tokens = Vec::new();
    for _ in 0..8 {
        tokens.push(card.queue_mut().push(Instruction::nop()).unwrap());
    }
    assert_eq!(fake.counts(), (0, 0), "storing is no MMIO");
    card.queue_mut().ring().unwrap();
    assert_eq!(fake.counts(), (0, 1), "one doorbell for all");
    card.queue_mut().ring().unwrap();
    assert_eq!(fake.counts(), (0, 0), "nothing new, no doorbell");
    for token in tokens {
        card.queue_mut().wait(&token, SECOND).unwrap();
    }
    assert_eq!(fake.counts(), (0, 0), "8 of 64 completions are not worth a write");
    for _ in 0..1000 {
        let token = card.queue_mut().submit(Instruction::nop()).unwrap();
        card.queue_mut().wait(&token, SECOND).unwrap();
    }
    assert_eq!(fake.counts(), (0, 1000 + 31), "a doorbell each, and one write for 32 completions");
}

#[test]
fn an_instruction_is_the_same_by_value_by_reference_bound_or_encoded() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    let instruction = Instruction::fill(Operand::card(4096), 64, 7);
    let (bound, encoded) = (Bound::from(instruction), Encoded::new(&instruction));
    let references = (&instruction, &bound.clone(), &encoded);
    let queue = card.queue_mut();
    let tokens = [
        queue.submit(instruction).unwrap(),
        queue.submit(references.0).unwrap(),
        queue.submit(references.1).unwrap(),
        queue.submit(bound).unwrap(),
        queue.submit(references.2).unwrap(),
        queue.push(encoded).unwrap(),
    ];
    queue.ring().unwrap();
    for (tag, token) in (0..).zip(&tokens) {
        assert_eq!((queue.wait(token, SECOND).unwrap().tag, token.operation()), (tag, Operation::Fill));
    }
    assert_eq!(fake.state().ran, [Operation::Fill; 6]);
}

#[test]
fn what_was_encoded_before_names_no_host_memory_either() {
    let mut card = Fake::new(4).open().unwrap();
    let copy = Encoded::new(&Instruction::copy(Operand::host(4096), Operand::card(0), 64));
    let error = card.queue_mut().push(copy).unwrap_err();
    assert!(matches!(error, Error::HostMemoryUnbound { .. }), "{error}");
    assert_eq!(card.queue().in_flight(), 0);
}

#[test]
fn a_full_ring_gives_the_instruction_back() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let queue = card.queue_mut();
    let tokens: Vec<_> = (0..4).map(|cycles| queue.push(Instruction::delay(cycles)).unwrap()).collect();
    let more = Instruction::delay(99);
    let error = queue.submit(more).unwrap_err();
    let Error::Full { instruction, in_flight: 4, depth: 4 } = error else { panic!("{error}") };
    assert_eq!(*instruction.instruction(), more);
    queue.ring().unwrap();
    fake.release();
    let queue = card.queue_mut();
    for token in tokens {
        queue.wait(&token, SECOND).unwrap();
    }
    let token = queue.submit(*instruction).unwrap();
    queue.wait(&token, SECOND).unwrap();
    assert_eq!(fake.state().ran.len(), 5);
}

#[test]
fn a_small_ring_wraps_many_times() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    let mut count = 0_u32;
    for round in 0..50_000 {
        // Four behind one: the completion not yet announced must be, before the ring is filled.
        let tokens: Vec<_> =
            (0..[1, 4, 3, 2, 4, 1][round % 6]).map(|_| card.queue_mut().push(Instruction::nop()).unwrap()).collect();
        card.queue_mut().ring().unwrap();
        // Tokens may be waited for in any order.
        for token in tokens.into_iter().rev() {
            let tag = token.tag();
            assert_eq!(card.queue_mut().wait(&token, SECOND).unwrap().tag, tag);
            count += 1;
        }
    }
    assert_eq!(fake.state().ran.len() as u32, count);
    assert!(count > 1 << 16, "tags wrap as well");
}

#[test]
fn depth_two_works() {
    let mut card = Fake::new(2).open().unwrap();
    for _ in 0..9 {
        let first = card.queue_mut().submit(Instruction::nop()).unwrap();
        let second = card.queue_mut().submit(Instruction::nop()).unwrap();
        card.queue_mut().wait(&first, SECOND).unwrap();
        card.queue_mut().wait(&second, SECOND).unwrap();
    }
}

#[test]
fn a_wrong_tag_is_no_completion() {
    for count in [0, 5] {
        let fake = Fake::new(4);
        let mut card = fake.open().unwrap();
        for _ in 0..count {
            let token = card.queue_mut().submit(Instruction::nop()).unwrap();
            card.queue_mut().wait(&token, SECOND).unwrap();
        }
        fake.plant(count, Reply::WrongTag);
        let token = card.queue_mut().submit(Instruction::nop()).unwrap();
        let error = card.queue_mut().wait(&token, SECOND).unwrap_err();
        let Error::BadCompletion { expected, found, .. } = error else { panic!("{error}") };
        assert_eq!((u32::from(expected), u32::from(found)), (count, count ^ 0x40));
        // Nothing more is believed until the card is reset.
        let error = card.queue_mut().submit(Instruction::nop()).unwrap_err();
        assert!(matches!(error, Error::BadCompletion { .. }), "{error}");
        fake.state().script.clear();
        card.reset().unwrap();
        card.run([Instruction::nop()], SECOND).unwrap();
    }
}

#[test]
fn a_completion_nobody_asked_for_is_an_error() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(1, Reply::Twice);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    card.queue_mut().wait(&token, SECOND).unwrap();
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let error = card.queue_mut().wait(&token, SECOND).unwrap_err();
    assert!(matches!(error, Error::BadCompletion { .. }), "{error}");
}

#[test]
fn a_wrong_phase_is_not_seen_and_the_timeout_says_so() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::WrongPhase);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let error = card.queue_mut().wait(&token, Duration::from_millis(50)).unwrap_err();
    let Error::Timeout { last_seen, .. } = error else { panic!("{error}") };
    assert!(last_seen.contains("1 completed") && last_seen.contains("of which 0 arrived"), "{last_seen}");
}

#[test]
fn a_timeout_is_bounded_and_names_what_it_waited_for() {
    let fake = Fake::node(2, 5, 4);
    let mut card = fake.open().unwrap();
    fake.plant(1, Reply::Hang);
    fake.set(BLOCK + 0x124, 4);
    let first = card.queue_mut().submit(Instruction::nop()).unwrap();
    let second = card.queue_mut().submit(Instruction::barrier()).unwrap();
    card.queue_mut().wait(&first, SECOND).unwrap();
    let start = Instant::now();
    let error = card.queue_mut().wait(&second, Duration::from_millis(120)).unwrap_err();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(120) && took < Duration::from_secs(2), "{took:?}");
    let Error::Timeout { what, node, last_seen, waited, .. } = &error else { panic!("{error}") };
    assert_eq!((*node, *waited), (Some(2), Duration::from_millis(120)));
    assert!(what.contains("tag 1"), "{what}");
    assert!(last_seen.contains("running barrier (tag 1), waiting for node 4"), "{last_seen}");
    assert!(last_seen.contains("2 fetched, 1 completed"), "{last_seen}");
    assert!(!last_seen.contains("arrived"), "what the card completed is here: {last_seen}");
    // The instruction went on; so does the queue.
    fake.release();
    card.run([Instruction::nop()], SECOND).unwrap();
}

#[test]
fn silence_is_a_timeout() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Silence);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let error = card.queue_mut().wait(&token, Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let error = card.queue_mut().wait(&token, Duration::ZERO).unwrap_err();
    assert!(matches!(error, Error::BadCompletion { .. }), "{error}");
}

#[test]
fn a_sleeper_is_woken_by_the_interrupt() {
    const RAISED: u32 = 5;
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    let other = {
        let fake = Arc::clone(&fake);
        std::thread::spawn(move || {
            // Whoever is woken for nothing arms again; whoever only looks now and then does not.
            for count in 1..=RAISED {
                until(|| fake.state().arms == count);
                fake.raise();
            }
            until(|| fake.state().arms == RAISED + 1);
            fake.release();
        })
    };
    fake.counts();
    assert_eq!(card.queue_mut().wait_progress(Duration::from_secs(100)).unwrap(), 1);
    other.join().unwrap();
    assert_eq!(fake.state().arms, RAISED + 1);
    // Only a line is acknowledged.
    assert_eq!(fake.counts().1, RAISED + 1);
    card.queue_mut().wait(&token, SECOND).unwrap();
}

#[test]
fn a_sleep_that_nothing_interrupts_arms_once() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    // Many slices: the first takes 10 ms.
    assert_eq!(card.queue_mut().wait_progress(Duration::from_millis(300)).unwrap(), 0);
    assert_eq!(fake.state().arms, 1);
    fake.release();
    card.queue_mut().wait(&token, SECOND).unwrap();
}

#[test]
fn a_halt_is_told_long_before_the_timeout() {
    for bit in 0..6 {
        let fake = Fake::new(4);
        let mut card = fake.open().unwrap();
        fake.plant(0, Reply::Halt(1 << bit));
        let token = card.queue_mut().submit(Instruction::nop()).unwrap();
        let start = Instant::now();
        let error = card.queue_mut().wait(&token, Duration::from_secs(20)).unwrap_err();
        let Error::Halted { health, .. } = error else { panic!("{error}") };
        assert_eq!(health.errors.bits(), 1 << bit);
        assert!(start.elapsed() < Duration::from_secs(5));
        // What halted it is cleared when it is set going again.
        fake.state().script.clear();
        card.abort().unwrap();
        card.run([Instruction::nop()], SECOND).unwrap();
    }
}

#[test]
fn a_card_that_vanishes_is_removed() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    fake.state().is_gone = true;
    let start = Instant::now();
    let error = card.queue_mut().wait(&token, Duration::from_secs(20)).unwrap_err();
    assert!(matches!(&error, Error::Removed { name, .. } if name == "fake"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(card.cycles().unwrap_err(), Error::Removed { .. }));
    assert!(matches!(card.sequencer_state().unwrap_err(), Error::Removed { .. }));
    assert!(matches!(card.reset().unwrap_err(), Error::Removed { .. }));
}

#[test]
fn tokens_given_up_never_wedge_the_queue() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    for round in 0..1000 {
        let queue = card.queue_mut();
        let tokens: Vec<_> = (0..4).map(|_| queue.push(Instruction::nop()).unwrap()).collect();
        if round % 3 == 0 {
            queue.ring().unwrap();
            queue.poll().unwrap();
        }
        for (index, token) in tokens.into_iter().enumerate() {
            match (round + index) % 3 {
                0 => drop(token),
                1 => token.abandon(),
                _ => std::thread::spawn(move || drop(token)).join().unwrap(),
            }
        }
        queue.ring().unwrap();
        queue.poll().unwrap();
    }
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    assert_eq!(card.queue_mut().wait(&token, SECOND).unwrap().status, Status::Done);
}

#[test]
fn only_a_token_that_is_dropped_too_early_is_told_of() {
    logged::begin();
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    let queue = card.queue_mut();
    let done = queue.submit(Instruction::nop()).unwrap();
    queue.poll().unwrap();
    drop(done);
    fake.plant(1, Reply::Hang);
    queue.submit(Instruction::nop()).unwrap().abandon();
    assert_eq!(logged_here(), 0);
    drop(queue.submit(Instruction::nop()).unwrap());
    assert_eq!(logged_here(), 1);
    fake.release();
}

#[test]
fn tokens_kept_do_not_stop_others_until_there_are_too_many() {
    let mut card = Fake::new(4).open().unwrap();
    let queue = card.queue_mut();
    let kept = queue.submit(Instruction::nop()).unwrap();
    for _ in 0..100 {
        let token = queue.submit(Instruction::nop()).unwrap();
        queue.wait(&token, SECOND).unwrap();
    }
    let mut more = Vec::new();
    let error = loop {
        match queue.submit(Instruction::nop()) {
            Ok(token) => more.push(token),
            Err(error) => break error,
        }
        queue.poll().unwrap();
    };
    assert!(matches!(error, Error::Full { in_flight: 0, .. }), "{error}");
    assert_eq!(more.len() + 1, 8);
    drop(more);
    assert_eq!(queue.wait(&kept, SECOND).unwrap().tag, 0);
    let token = queue.submit(Instruction::nop()).unwrap();
    queue.wait(&token, SECOND).unwrap();
}

#[test]
fn a_token_of_another_queue_is_stale() {
    let (mut one, mut other) = (Fake::new(4).open().unwrap(), Fake::new(4).open().unwrap());
    let token = one.queue_mut().submit(Instruction::nop()).unwrap();
    assert!(matches!(other.queue_mut().wait(&token, SECOND).unwrap_err(), Error::Stale { .. }));
}

#[test]
fn memory_of_an_instruction_stays_until_it_is_complete() {
    let fake = Fake::new(4);
    let mut card = fake.open().unwrap();
    fake.plant(0, Reply::Hang);
    let buffer = card.allocate(4096).unwrap();
    let seen = Arc::downgrade(&buffer);
    let instruction = Instruction::group(1, buffer.iova().0, 1);
    let token = card.queue_mut().push(Bound::from(instruction).holding(buffer)).unwrap();
    card.queue_mut().ring().unwrap();
    token.abandon();
    assert!(seen.upgrade().is_some());
    fake.release();
    card.queue_mut().poll().unwrap();
    assert!(seen.upgrade().is_none());
}

#[test]
fn a_queue_dropped_with_nothing_in_flight_aborts_nothing() {
    for count in [0, 2] {
        let fake = Fake::new(4);
        let mut card = fake.open().unwrap();
        // Complete, though nobody has looked.
        for _ in 0..count {
            card.queue_mut().submit(Instruction::nop()).unwrap().abandon();
        }
        drop(card);
        let state = fake.state();
        assert_eq!((state.ran.len(), state.aborted_at), (count, None));
    }
}

#[test]
fn a_queue_dropped_in_flight_stops_the_card_first() {
    for reply in [Reply::Hang, Reply::Deaf] {
        let fake = Fake::new(4);
        let mut card = fake.open().unwrap();
        fake.plant(0, reply);
        let buffer = card.allocate(4096).unwrap();
        let seen = Arc::downgrade(&buffer);
        let instruction = Instruction::group(1, buffer.iova().0, 1);
        let token = card.queue_mut().push(Bound::from(instruction).holding(buffer)).unwrap();
        card.queue_mut().ring().unwrap();
        token.abandon();
        let resets = fake.state().resets;
        drop(card);
        // One reset is the function's own when it is closed; a card that ignores the abort gets one more before.
        assert_eq!(fake.state().resets - resets, if reply == Reply::Deaf { 2 } else { 1 });
        assert!(seen.upgrade().is_none());
    }
}

#[test]
fn a_wait_that_finds_the_card_gone_when_its_time_is_over_notes_it() {
    let fake = Fake::new(4);
    fake.plant(0, Reply::Silence);
    let mut card = fake.open().unwrap();
    let token = card.queue_mut().submit(Instruction::nop()).unwrap();
    fake.state().is_gone = true;
    let error = card.queue_mut().wait(&token, Duration::ZERO).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    assert_eq!(card.queue().state(), State::Gone);
}
