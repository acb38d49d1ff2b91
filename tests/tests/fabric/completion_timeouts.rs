//! Reads of host memory that are never answered, or answered with poisoned data: the host is told, and no byte is used.

use std::sync::Arc;
use std::time::Duration;

use cmdseq::completion::{READ_POISONED, READ_TIMED_OUT};
use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Bound, Card, Error};
use fpga_hal::{DmaBuffer, in_process};
use fpga_mock::{Fabric, Fault, Hardware, Profile};
use fpga_regs::bits::Errors;
use fpga_tests::run::domain;

const BYTES: usize = 40_000;
const LONG: Duration = Duration::from_secs(20);
/// 10 ms of the fabric's time.
const TIMEOUT_PS: u128 = 10_000_000_000;
/// Advanced error reporting of the cards, and its bits (PCI Express Base 5.0, section 7.8.4.2).
const UNCORRECTABLE: u16 = 0x104;
const POISONED_TLP: u32 = 1 << 12;
const COMPLETION_TIMEOUT: u32 = 1 << 14;

const PLAIN: Hardware =
    Hardware { posted_writes: None, split_dma: None, drift_ppm: 0, bits_per_error: None, reset_ms: 0 };
const ALL: Hardware = Hardware { posted_writes: Some(3), split_dma: Some(5), drift_ppm: 300, ..PLAIN };

/// A card, and host memory with other bytes than its own.
fn card(hardware: Hardware) -> (Fabric, Card, Arc<DmaBuffer>) {
    let fabric = Fabric::new(Profile { hardware, ..Profile::optweb(2) }).unwrap();
    let function = in_process::attach(fabric.endpoint(0), &domain(), "card 0").unwrap();
    let mut card = Card::open(function).unwrap();
    card.set_timeout(LONG);
    let buffer = card.allocate(BYTES).unwrap();
    buffer.fill(0, BYTES, 0x5a).unwrap();
    (fabric, card, buffer)
}

/// A fault that a read may have, and what tells it.
#[derive(Clone, Copy)]
struct Kind {
    /// The fault of a read after so many others.
    fault: fn(u64) -> Fault,
    /// Detail of the status.
    detail: u16,
    /// Bit of ERROR, if the read was a fetch.
    error: Errors,
    /// Bit of advanced error reporting.
    reported: u32,
}

const KINDS: [Kind; 2] = [
    Kind {
        fault: |after| Fault::Unanswered { node: 0, after },
        detail: READ_TIMED_OUT,
        error: Errors::COMPLETION_TIMEOUT,
        reported: COMPLETION_TIMEOUT,
    },
    Kind {
        fault: |after| Fault::Poisoned { node: 0, after },
        detail: READ_POISONED,
        error: Errors::POISONED_DATA,
        reported: POISONED_TLP,
    },
];

/// Every kind, on a plain card and on one with all that hardware does.
fn cases() -> impl Iterator<Item = (Kind, Hardware)> {
    KINDS.into_iter().flat_map(|kind| [(kind, PLAIN), (kind, ALL)])
}

#[test]
fn an_instruction_whose_read_fails_says_why_and_uses_nothing() {
    for (Kind { fault, detail, reported, .. }, hardware) in cases() {
        let (fabric, mut card, buffer) = card(hardware);
        // The fetch is one read; of the copy, a split one is many.
        let after = if hardware == ALL { 20 } else { 1 };
        fabric.plant(fault(after));
        let began = fabric.statistics().now_ps;
        let copy = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(0), BYTES as u64);
        match card.run([Bound::covered_by(&copy, &[Arc::clone(&buffer)])], LONG) {
            Err(Error::Failed { status: Status::HostReadFault, detail: found, .. }) => assert_eq!(found, detail),
            other => panic!("{hardware:?}: {other:?}"),
        }
        let waited = fabric.statistics().now_ps - began;
        assert_eq!(waited >= TIMEOUT_PS, detail == READ_TIMED_OUT, "{waited} ps");
        assert_eq!(card.function().config_read_u32(UNCORRECTABLE).unwrap(), reported);
        let mut kept = vec![1; BYTES];
        card.read_memory(0, &mut kept).unwrap();
        assert!(kept.iter().all(|byte| *byte == 0), "a failed read was used");
        // And the card goes on.
        card.write_memory(0, &[7; BYTES]).unwrap();
        card.read_memory(0, &mut kept).unwrap();
        assert!(kept.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_fetch_that_fails_halts_the_card_and_the_driver_says_why() {
    for (Kind { fault, error, reported, .. }, hardware) in cases() {
        let (fabric, mut card, _buffer) = card(hardware);
        fabric.plant(fault(0));
        match card.run([Instruction::nop()], LONG) {
            Err(Error::Halted { health, .. }) => {
                assert_eq!(health.errors, Errors::FETCH_FAULT | error);
                assert_eq!(health.pcie.map(|pcie| pcie.uncorrectable), Some(reported));
            }
            other => panic!("{hardware:?}: {other:?}"),
        }
        card.reset().unwrap();
        assert_eq!(card.function().config_read_u32(UNCORRECTABLE).unwrap(), 0);
        card.run([Instruction::nop()], LONG).unwrap();
    }
}

/// No reset clears the bits of the function.
#[test]
fn errors_of_the_last_user_are_not_those_of_the_next() {
    let (fabric, mut card, _buffer) = card(PLAIN);
    fabric.plant(Fault::Unanswered { node: 0, after: 0 });
    card.run([Instruction::nop()], LONG).unwrap_err();
    drop(card);
    let function = in_process::attach(fabric.endpoint(0), &domain(), "card 0").unwrap();
    function.reset().unwrap();
    assert_eq!(function.config_read_u32(UNCORRECTABLE).unwrap(), COMPLETION_TIMEOUT);
    let health = Card::open(function).unwrap().sequencer_state().unwrap().health;
    assert_eq!(health.pcie.map(|pcie| (pcie.uncorrectable, pcie.correctable)), Some((0, 0)));
    assert!(health.is_good(), "{health}");
}

#[test]
fn a_card_that_waits_for_an_answer_is_busy_and_others_go_on() {
    for hardware in [PLAIN, Hardware { posted_writes: None, ..ALL }] {
        let (fabric, mut card, buffer) = card(hardware);
        let domain = domain();
        let other = in_process::attach(fabric.endpoint(1), &domain, "card 1").unwrap();
        let mut other = Card::open(other).unwrap();
        let _clock = fabric.start_clock().unwrap();
        fabric.plant(Fault::Unanswered { node: 0, after: 1 });
        let copy = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(0), 64);
        let token = card.queue_mut().submit(Bound::covered_by(&copy, &[Arc::clone(&buffer)])).unwrap();
        other.run([Instruction::nop()], LONG).unwrap();
        let completion = card.queue_mut().wait(&token, LONG).unwrap();
        assert_eq!((completion.status, completion.detail), (Status::HostReadFault, READ_TIMED_OUT));
        // Its own clock counts the time: 10 ms are two million cycles.
        assert!(completion.t2.abs_diff(2_000_000) < 2_000, "{} cycles", completion.t2);
    }
}
