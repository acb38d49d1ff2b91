//! The port's reset, and the errors of the card.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cmdseq::{Instruction, Operand};
use fpga_driver::dfl::Error;
use fpga_driver::{Card, Error as CardError, State};
use fpga_hal::{InterruptKind, in_process};
use fpga_tests::altered::altered;

use super::{Cards, bar_0};

#[test]
fn the_accelerator_answers_once_it_is_released() {
    let cards = Cards::new();
    let mut control = cards.control();
    assert!(control.is_held().unwrap());
    let accelerator = cards.accelerator();
    assert_eq!(bar_0(&accelerator).read_u64(0).unwrap(), u64::MAX);
    control.reset_accelerator().unwrap();
    assert!(!control.is_held().unwrap());
    assert_eq!(bar_0(&accelerator).read_u64(0).unwrap() >> 60, 1);
    // The access before was not answered, and the port says so.
    let errors: Vec<String> = control.errors().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "port: ERROR 0x80: the accelerator did not answer an access",
            "port: FIRST 0x80: the accelerator did not answer an access"
        ]
    );
    control.clear_errors().unwrap();
    assert_eq!(control.errors().unwrap(), []);
    assert!(!control.is_held().unwrap(), "released as before");

    let mut card = Card::open(accelerator).unwrap();
    card.write_memory(64, b"sixteen bytes...").unwrap();
    let copy = Instruction::copy(Operand::card(64), Operand::card(4096), 16);
    let token = card.queue_mut().submit(copy).unwrap();
    card.wait(&token, Duration::from_secs(10)).unwrap();
    let mut back = [0; 16];
    card.read_memory(4096, &mut back).unwrap();
    assert_eq!(&back, b"sixteen bytes...");
    drop((token, card));
    control.hold_accelerator().unwrap();
    assert!(control.is_held().unwrap());
    assert_eq!(bar_0(&cards.accelerator()).read_u64(0).unwrap(), u64::MAX);
}

#[test]
fn a_reset_in_the_middle_is_an_error_and_not_a_hang() {
    let cards = Cards::new();
    let mut control = cards.control();
    control.reset_accelerator().unwrap();
    let mut card = Card::open(cards.accelerator()).unwrap();
    let mut peer = Card::open(cards.second()).unwrap();
    // A receive that nobody answers.
    let token = card.queue_mut().submit(Instruction::recv(1, Operand::card(0), 64)).unwrap();
    control.reset_accelerator().unwrap();
    let waited = card.wait(&token, Duration::from_secs(60)).unwrap_err();
    assert!(matches!(waited, CardError::NotRunning { state: State::Poisoned, .. }), "{waited:?}");
    assert!(waited.to_string().contains("another program has reset or reconfigured the card"), "{waited}");
    assert!(matches!(card.abort(), Err(CardError::NotRunning { .. })), "its communicators are gone");
    card.reset().unwrap();
    card.run([Instruction::nop()], Duration::from_secs(120)).unwrap();
    drop((token, card));
    // A new user of the accelerator, and the fabric's other card, are as if nothing had been.
    let mut card = Card::open(cards.accelerator()).unwrap();
    card.write_memory(0, &[7; 64]).unwrap();
    peer.write_memory(0, &[8; 64]).unwrap();
    let mut back = [0; 64];
    card.read_memory(0, &mut back).unwrap();
    assert_eq!(back, [7; 64]);
}

#[test]
fn a_port_that_never_acknowledges_is_a_timeout() {
    let cards = Cards::new();
    let mut control = cards.control();
    cards.first.withhold_port_acknowledge(true);
    let error = control.reset_accelerator().unwrap_err();
    assert!(matches!(error, Error::TimedOut { to: "hold the accelerator in reset", .. }), "{error:?}");
    assert!(error.to_string().contains("port CONTROL 0x5"), "{error}");
    cards.first.withhold_port_acknowledge(false);
    control.reset_accelerator().unwrap();
}

#[test]
fn errors_of_every_register_are_told_and_cleared() {
    let cards = Cards::new();
    let mut control = cards.control();
    control.reset_accelerator().unwrap();
    let planted = [
        (0x4010, 1 << 4, "management engine: ERROR 0x10: bit 4"),
        (0x4020, 1 << 3, "management engine: PCIE0_ERROR 0x8: no completion in time"),
        (0x4030, 1 << 5, "management engine: PCIE1_ERROR 0x20: poisoned packet"),
        (0x2_0020, 1 << 8 | 1, "PCIe: ERROR 0x101: format or type of a packet, overflow of a queue"),
        (0xa_0010, 1 << 31, "port: ERROR 0x80000000: the accelerator is cut off until the port is reset"),
    ];
    for (register, bits, _) in planted {
        cards.first.set_errors(register, bits);
    }
    let found: Vec<String> = control.errors().unwrap().iter().map(ToString::to_string).collect();
    for (_, _, text) in planted {
        assert!(found.iter().any(|line| line == text), "{text} is not in {found:?}");
    }
    assert_eq!(found.len(), planted.len() + 1, "and the port's first error: {found:?}");
    control.clear_errors().unwrap();
    assert_eq!(control.errors().unwrap(), []);
    assert!(!control.is_held().unwrap());
}

#[test]
fn errors_are_not_masked_after_a_failure() {
    let cards = Cards::new();
    cards.control().reset_accelerator().unwrap();
    let control = cards.first.control();
    // The mask and the error register of the management engine.
    let deaf = altered(Arc::clone(&control), 0, &[(0x4010, !0), (0x4014, !0)]);
    let function = in_process::attach(deaf, &cards.domain, "control of card 0").unwrap();
    let bar = bar_0(&function);
    bar.write_u64(0x4008, 0x25).unwrap();
    let mut control = fpga_driver::dfl::Control::open(function).unwrap();
    let error = control.clear_errors().unwrap_err();
    assert!(matches!(error, Error::Card(CardError::AllOnes { register: 0x4010, .. })), "{error}");
    assert_eq!(bar.read_u64(0x4008).unwrap(), 0x25);
}

#[test]
fn errors_of_an_accelerator_without_power_stay() {
    let cards = Cards::new();
    cards.control().reset_accelerator().unwrap();
    cards.first.set_errors(0xa_0010, 1 << 31);
    // The board has switched it off: PORT_STATUS.
    let without = altered(cards.first.control(), 0, &[(0x9_1040, 6 << 8), (0x9_1044, 0)]);
    let function = in_process::attach(without, &cards.domain, "control of card 0").unwrap();
    let mut control = fpga_driver::dfl::Control::open(function).unwrap();
    let error = control.clear_errors().unwrap_err();
    assert!(matches!(&error, Error::Refused { what, .. } if what.contains("switched off")), "{error}");
    assert!(!control.errors().unwrap().is_empty());
    assert!(!control.is_held().unwrap());
    drop(control);
    let mut control = cards.control();
    control.clear_errors().unwrap();
    assert_eq!(control.errors().unwrap(), []);
}

#[test]
fn injected_errors_are_cleared_too() {
    let cards = Cards::new();
    let function = cards.control_function();
    bar_0(&function).write_u64(0x4068, 7).unwrap();
    let mut control = fpga_driver::dfl::Control::open(function).unwrap();
    let found: Vec<String> = control.errors().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "management engine: NONFATAL 0x40: injected",
            "management engine: CATFAT 0xa00: fatal, injected, catastrophic, injected"
        ]
    );
    control.clear_errors().unwrap();
    assert_eq!(control.errors().unwrap(), []);
}

#[test]
fn vector_6_tells_of_errors() {
    let cards = Cards::new();
    let function = cards.control_function();
    function.set_bus_master(true).unwrap();
    let vectors = function.enable_interrupts_of(InterruptKind::Msix, 7).unwrap();
    cards.first.set_errors(0x4010, 1);
    assert!(vectors[6].wait(Duration::from_secs(10)).unwrap());
    assert!(vectors[..6].iter().all(|vector| !vector.wait(Duration::ZERO).unwrap()));
}

#[test]
fn a_function_that_is_gone_is_said_to_be() {
    let cards = Cards::new();
    let mut control = cards.control();
    cards.first.remove();
    for result in
        [control.reset_accelerator(), control.clear_errors(), control.errors().map(drop), control.identity().map(drop)]
    {
        assert!(matches!(result, Err(Error::Card(CardError::Removed { .. }))), "{result:?}");
    }
}

#[test]
fn two_drivers_do_not_share_a_control_function() {
    let cards = Cards::new();
    let function = cards.control_function();
    let control = fpga_driver::dfl::Control::open(function.clone()).unwrap();
    let second = fpga_driver::dfl::Control::open(function.clone()).unwrap_err();
    assert!(matches!(second, Error::Card(CardError::Bus(fpga_hal::Error::InUse { .. }))), "{second:?}");
    drop(control);
    fpga_driver::dfl::Control::open(function).unwrap();
}

#[test]
fn two_functions_are_used_by_two_threads() {
    let cards = Cards::new();
    let mut control = cards.control();
    control.reset_accelerator().unwrap();
    let mut card = Card::open(cards.accelerator()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200_u64 {
                let data = [round as u8; 256];
                card.write_memory(round * 256, &data).unwrap();
                let mut back = [0; 256];
                card.read_memory(round * 256, &mut back).unwrap();
                assert_eq!(back, data);
            }
        });
        for _ in 0..2000 {
            assert_eq!(control.errors().unwrap(), []);
        }
    });
}
