//! Resets that take time: the driver waits for the function, and then for its sequencer.

use std::time::Duration;

use cmdseq::Instruction;
use fpga_driver::{Card, Error};
use fpga_hal::{Domain, Function, in_process};
use fpga_mock::{Fabric, Fault, Hardware, Profile, When};

const SHORT: Duration = Duration::from_secs(5);
const RESET_MS: u32 = 100;
const PS_PER_MS: u64 = 1_000_000_000;

fn fabric() -> Fabric {
    let hardware = Hardware { reset_ms: RESET_MS, ..Hardware::default() };
    Fabric::new(Profile { hardware, ..Profile::optweb(2) }).unwrap()
}

fn attach(fabric: &Fabric) -> fpga_hal::Result<Function> {
    in_process::attach(fabric.endpoint(0), &Domain::in_process(), "card 0")
}

fn ms(fabric: &Fabric) -> u128 {
    fabric.statistics().now_ps / u128::from(PS_PER_MS)
}

#[test]
fn a_card_is_opened_and_reset_in_its_own_time() {
    let fabric = fabric();
    let mut card = Card::open(attach(&fabric).unwrap()).unwrap();
    assert_eq!(ms(&fabric), 100);
    for round in 1..4 {
        card.run([Instruction::delay(1000)], SHORT).unwrap();
        card.reset().unwrap();
        assert_eq!(ms(&fabric), 100 * (round + 1));
    }
    card.run([Instruction::delay(1000)], SHORT).unwrap();
}

/// The next user opens the card while the reset of the last one's closing is under way.
#[test]
fn a_card_that_was_closed_is_opened_again() {
    let fabric = fabric();
    for _ in 0..3 {
        let mut card = Card::open(attach(&fabric).unwrap()).unwrap();
        card.run([Instruction::delay(1000)], SHORT).unwrap();
    }
}

/// The card's clock stops a quarter and three quarters through the reset.
#[test]
fn a_reset_that_does_not_end_is_reported() {
    let after = |ms| Fault::Freeze { node: 0, when: When::After(ms * PS_PER_MS) };
    let silent = fabric();
    silent.plant(after(25));
    assert!(matches!(attach(&silent), Err(fpga_hal::Error::Removed { .. })));

    let unready = fabric();
    unready.plant(after(75));
    let error = Card::open(attach(&unready).unwrap()).unwrap_err();
    assert!(matches!(&error, Error::Timeout { what, .. } if what.ends_with("to be ready")), "{error}");
}
