//! Sensors of cards in use, as their owner publishes them and another process reads them.

use std::path::PathBuf;
use std::time::SystemTime;

use fpga_driver::dfl::Control;
use fpga_driver::readings::{Error, Unit, Value};
use fpga_driver::{Card, CardStats, PublishedSensors, read_stats};
use fpga_hal::{Domain, in_process};
use fpga_mock::dfl::{BoardFault, D5005};
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_mock::{Fabric, Profile, Shell};
use tempfile::TempDir;

/// A published card.
struct Published {
    card: Card,
    sensors: PublishedSensors,
    path: PathBuf,
    _directory: TempDir,
}

impl Published {
    fn new(mut card: Card) -> Self {
        let directory = tempfile::tempdir().unwrap();
        assert!(card.sensors().unwrap().is_none(), "a card that is not published");
        let path = card.publish(directory.path()).unwrap();
        let sensors = card.sensors().unwrap().expect("a card with sensors");
        Published { card, sensors, path, _directory: directory }
    }

    fn read(&self) -> CardStats {
        read_stats(&self.path).unwrap()
    }

    /// Reads the sensors as the owner, and what `name` has then as another process.
    fn value(&mut self, name: &str) -> Value {
        assert!(self.sensors.publish().unwrap());
        self.stored(name)
    }

    fn stored(&self, name: &str) -> Value {
        let read = self.read();
        read.sensors.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name}: {read:?}")).value
    }

    /// Publishes until the firmware has started.
    fn start(&mut self) {
        assert!((0..1000).any(|_| self.sensors.publish().unwrap() && self.read().sensed.is_some()), "it never starts");
    }
}

fn alveo() -> (XdmaCards, Published) {
    let fabric = Fabric::new(Profile { shell: Shell::AlveoXdma, ..Profile::optweb(2) }).unwrap();
    let cards = XdmaCards::before(&fabric, Shape::default());
    let function = in_process::attach(cards.endpoint(0), &Domain::in_process(), "card 0").unwrap();
    (cards, Published::new(Card::open(function).unwrap()))
}

#[test]
fn what_card_management_measures_is_published() {
    let (cards, mut owner) = alveo();
    let before = owner.read();
    assert_eq!((before.sensors.as_slice(), before.sensed), ([].as_slice(), None));
    let cms = cards.cms(0);
    cms.set_sensor(0xf8, [90, 50, 44]);
    cms.set_sensor(0x164, [0; 3]);
    let begin = SystemTime::now();
    owner.start();
    let read = owner.read();
    assert_eq!(read.sensors.len(), 51);
    assert!(read.sensed.is_some_and(|at| at >= begin));
    let first = &read.sensors[0];
    assert_eq!((first.part.as_str(), first.name.as_str(), first.unit), ("cms", "12v_pex", Unit::Millivolts));
    assert_eq!(owner.stored("fpga_temperature"), Value::Good(44_000));
    assert_eq!(owner.stored("fan_speed"), Value::Absent);
    cms.set_sensor(0xf8, [90, 50, 45]);
    assert_eq!(owner.value("fpga_temperature"), Value::Good(45_000));
    cms.set_sensor(0xf8, [90, 50, 151]);
    assert_eq!(owner.value("fpga_temperature"), Value::Implausible(151_000));
    // Firmware that has stopped, and goes on.
    cms.set_sensor(0xf8, [90, 50, 46]);
    cms.stop_heartbeat(true);
    owner.value("fpga_temperature");
    assert_eq!(owner.value("fpga_temperature"), Value::Stale(46_000));
    cms.stop_heartbeat(false);
    assert_eq!(owner.value("fpga_temperature"), Value::Good(46_000));
    // Instructions go on beside it.
    owner.card.write_memory(0, &[7; 64]).unwrap();
    assert_eq!(owner.read().failed, 0);
}

/// A reset of the card holds the firmware, and the next reading starts it again.
#[test]
fn sensors_outlive_a_reset_and_not_the_card() {
    let (_cards, mut owner) = alveo();
    owner.start();
    let sensed = owner.read().sensed;
    owner.card.reset().unwrap();
    assert!((0..1000).any(|_| owner.sensors.publish().unwrap() && owner.read().sensed != sensed), "it never starts");
    let Published { card, mut sensors, path, .. } = owner;
    drop(card);
    assert!(!sensors.publish().unwrap(), "the card is published no more");
    assert!(!path.exists());
}

#[test]
fn a_card_that_vanishes_leaves_stale_values() {
    let (cards, mut owner) = alveo();
    owner.start();
    let Value::Good(before) = owner.stored("vccint") else { panic!("no core voltage") };
    cards.remove(0);
    assert!(matches!(owner.sensors.publish(), Err(Error::Alveo(_))));
    assert_eq!(owner.stored("vccint"), Value::Stale(before));
}

/// Where the sequencer and the board's controller are behind one function. On a card whose controller is behind another function the
/// sequencer's has no sensors.
#[test]
fn what_the_controller_of_a_board_measures_is_published() {
    let fabric = Fabric::new(Profile { shell: Shell::S10Pac, ..Profile::optweb(2) }).unwrap();
    let board = D5005::new(&fabric, 0);
    let function = in_process::attach(board.accelerator(), &Domain::in_process(), "card 0").unwrap();
    Control::open(function.clone()).unwrap().reset_accelerator().unwrap();
    let mut owner = Published::new(Card::open(function).unwrap());
    owner.start();
    let read = owner.read();
    assert_eq!((read.sensors.len(), read.sensors[1].part.as_str()), (35, "board"));
    board.set_board_register(0x30_0800 + 0x110, 92);
    assert_eq!(owner.value("fpga_temperature"), Value::Good(46_000));
    board.fail_board(BoardFault::Silent);
    assert!(matches!(owner.sensors.publish(), Err(Error::Control { .. })));
    assert_eq!(owner.stored("fpga_temperature"), Value::Stale(46_000));

    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let function = in_process::attach(fabric.endpoint(0), &Domain::in_process(), "card 0").unwrap();
    let mut card = Card::open(function).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = card.publish(directory.path()).unwrap();
    assert!(card.sensors().unwrap().is_none());
    assert_eq!(read_stats(&path).unwrap().sensors, []);
}
