//! A card with both of its functions: reset by the port, errors of the shell, sensors of the board.

use std::time::Duration;

use cmdseq::Instruction;
use fpga_driver::{Card, CardFunctions, Error, ErrorKind, State};
use fpga_hal::Domain;
use fpga_hal::vfio_user::{Server, connect};
use fpga_select::Selector;

use super::Cards;

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn open(cards: &Cards) -> Card {
    let control = Some(cards.control_function());
    let mut card = Card::open(CardFunctions { data: cards.accelerator(), control }).unwrap();
    card.set_timeout(PATIENCE);
    nop(&mut card).unwrap();
    card
}

fn nop(card: &mut Card) -> Result<(), Error> {
    card.run([Instruction::nop()], PATIENCE).map(drop)
}

#[test]
fn a_reset_of_the_card_resets_its_port() {
    let cards = Cards::new();
    let mut card = open(&cards);
    for _ in 0..3 {
        card.reset().unwrap();
        nop(&mut card).unwrap();
    }
    cards.first.withhold_port_acknowledge(true);
    let error = card.reset().unwrap_err();
    assert!(matches!(error, Error::Control { .. }) && error.kind() == ErrorKind::Timeout, "{error}");
    assert_ne!(card.state(), State::Running);
    cards.first.withhold_port_acknowledge(false);
    card.reset().unwrap();
    nop(&mut card).unwrap();
    // Without its control function the port is left alone.
    drop(card);
    let mut card = Card::open(cards.accelerator()).unwrap();
    cards.first.withhold_port_acknowledge(true);
    card.reset().unwrap();
    nop(&mut card).unwrap();
}

#[test]
fn an_accelerator_that_is_held_in_reset_is_released() {
    let cards = Cards::new();
    cards.control().hold_accelerator().unwrap();
    assert!(Card::open(cards.accelerator()).is_err());
    drop(open(&cards));
}

#[test]
fn errors_of_the_shell_reach_the_card() {
    let cards = Cards::new();
    let card = open(&cards);
    assert_eq!(card.shell_errors().unwrap(), []);
    // The port's error register, by its place in the control function; it has a copy of the first error.
    cards.first.set_errors(0xa_0010, 1 << 7);
    let errors = card.shell_errors().unwrap();
    assert_eq!(errors.iter().map(|one| (one.part, one.bits)).collect::<Vec<_>>(), [("port", 1 << 7), ("port", 1 << 7)]);
    assert_eq!(card.shell_errors().unwrap(), errors, "reading clears nothing");
    assert_eq!(Card::open(cards.second()).unwrap().shell_errors().unwrap(), []);
}

#[test]
fn the_sensors_of_the_board_are_the_cards() {
    let (cards, folder) = (Cards::new(), tempfile::tempdir().unwrap());
    let mut card = open(&cards);
    let path = card.publish(folder.path()).unwrap();
    let mut sensors = card.sensors().unwrap().expect("the board's sensors");
    assert!(sensors.publish().unwrap());
    let published = fpga_driver::read_stats(&path).unwrap();
    assert_eq!(published.sensors.len(), 35);
    drop(card);
    let mut alone = Card::open(cards.accelerator()).unwrap();
    alone.publish(folder.path()).unwrap();
    assert!(alone.sensors().unwrap().is_none());
}

#[test]
fn a_control_function_has_one_owner() {
    let cards = Cards::new();
    let control = cards.control_function();
    let _held = control.claim().unwrap();
    let functions = CardFunctions { data: cards.accelerator(), control: Some(control) };
    let error = Card::open(functions).unwrap_err();
    assert!(matches!(&error, Error::Bus(fpga_hal::Error::InUse { .. })), "{error:?}");
    // Not a control function at all.
    let functions = CardFunctions { data: cards.accelerator(), control: Some(cards.second()) };
    assert!(matches!(Card::open(functions).unwrap_err(), Error::Control { .. }));
}

/// Opening the control function resets the card: a client that is refused the card leaves the function alone.
#[test]
fn only_who_has_a_card_opens_its_control_function() {
    let directory = tempfile::tempdir().unwrap();
    let socket = |name: &str| directory.path().join(name);
    let cards = Cards::new();
    cards.first.release();
    let _card = Server::bind(socket("0.sock"), cards.first.accelerator()).unwrap().spawn().unwrap();
    let _control = Server::bind(socket("0.control.sock"), cards.first.control()).unwrap().spawn().unwrap();
    let selector = Selector::parse(&format!("vfio-user:{}", directory.path().display())).unwrap();
    let mut card = Card::open(connect(&socket("0.sock"), &Domain::vfio_user()).unwrap()).unwrap();
    nop(&mut card).unwrap();
    assert!(selector.open_cards(PATIENCE).is_err());
    nop(&mut card).unwrap();
    drop(card);
    let mut opened = selector.open_cards(PATIENCE).unwrap();
    let (data, control) = (opened.functions.remove(0), opened.controls.remove(0));
    assert!(control.is_some());
    nop(&mut Card::open(CardFunctions { data, control }).unwrap()).unwrap();
}
