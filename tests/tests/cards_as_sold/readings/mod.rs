//! Readings of cards: every sensor by numbers typed from the documents, and every way that a sensor may fail.

mod board;
mod management;
mod published;

use fpga_driver::readings::{Reading, Readings, Unit, Value};
use fpga_driver::xdma::{Completion, Direction, Engine, Piece};
use fpga_hal::{BarIndex, Domain, Function, in_process};
use fpga_mock::xdma::{Misanswer, Shape, XdmaCards};
use fpga_mock::{Fabric, Profile};

fn alveo() -> (XdmaCards, Function) {
    let cards = XdmaCards::new(1, Shape::default());
    let function = in_process::attach(cards.endpoint(0), &Domain::in_process(), "card 0").unwrap();
    (cards, function)
}

fn find<'a>(readings: &'a Readings, part: &str, name: &str) -> &'a Reading {
    let found = readings.rows.iter().find(|row| (row.part, row.name.as_str()) == (part, name));
    found.unwrap_or_else(|| panic!("no {part} {name}"))
}

fn alarms(readings: &Readings) -> Vec<(&str, &str)> {
    readings.alarms().map(|row| (row.part, row.name.as_str())).collect()
}

#[test]
fn a_card_without_sensors_has_link_and_errors() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let function = in_process::attach(fabric.endpoint(0), &Domain::in_process(), "card 0").unwrap();
    let readings = Readings::of(&function).unwrap();
    assert!(readings.failures.is_empty() && readings.board.is_empty());
    let expected = [
        ("link_speed", Unit::MegaTransfers, 8000),
        ("link_width", Unit::Lanes, 16),
        ("link_capable_speed", Unit::MegaTransfers, 8000),
        ("link_capable_width", Unit::Lanes, 16),
        ("uncorrectable", Unit::Bits, 0),
        ("correctable", Unit::Bits, 0),
    ];
    let found: Vec<_> = readings.rows.iter().map(|row| (row.name.as_str(), row.unit, row.value)).collect();
    assert_eq!(found, expected.map(|(name, unit, value)| (name, unit, Value::Good(value))));
}

/// Bits of PCI Express Base Specification 5.0, sections 7.8.4.2 and 7.8.4.5.
#[test]
fn errors_of_the_bus_are_told_and_those_that_were_corrected_are_no_alarm() {
    let (cards, function) = alveo();
    for (bit, text) in [
        (4, "data link protocol error"),
        (5, "surprise down"),
        (12, "poisoned packet"),
        (13, "flow control protocol error"),
        (14, "completion timeout"),
        (15, "completer abort"),
        (16, "unexpected completion"),
        (17, "receiver overflow"),
        (18, "malformed packet"),
        (19, "ECRC error"),
        (20, "unsupported request"),
        (22, "uncorrectable internal error"),
        (31, "bit 31"),
    ] {
        cards.report_errors(0, 1 << bit, 0);
        let readings = Readings::of(&function).unwrap();
        assert_eq!(find(&readings, "aer", "uncorrectable").meaning().as_deref(), Some(text));
        assert_eq!(alarms(&readings), [("aer", "uncorrectable")]);
        // Ones clear them.
        function.config_write_u32(0x104, !0).unwrap();
    }
    for (bit, text) in [
        (0, "receiver error"),
        (6, "bad packet"),
        (7, "bad link packet"),
        (8, "replay number rollover"),
        (12, "replay timer timeout"),
        (13, "advisory non-fatal error"),
    ] {
        cards.report_errors(0, 0, 1 << bit);
        let readings = Readings::of(&function).unwrap();
        assert_eq!(find(&readings, "aer", "correctable").meaning().as_deref(), Some(text));
        assert_eq!(alarms(&readings), [] as [(&str, &str); 0]);
        function.config_write_u32(0x110, !0).unwrap();
    }
}

#[test]
fn errors_of_the_bus_are_those_since_an_engine_was_opened() {
    let (cards, function) = alveo();
    cards.report_errors(0, 1 << 14, 1 << 6);
    function.reset().unwrap();
    assert_eq!(alarms(&Readings::of(&function).unwrap()), [("aer", "uncorrectable")], "a reset clears none");
    drop(Engine::open(function.clone(), Completion::Poll).unwrap());
    let readings = Readings::of(&function).unwrap();
    for name in ["uncorrectable", "correctable"] {
        assert_eq!(find(&readings, "aer", name).value, Value::Good(0));
    }
}

/// What a channel noted is there after the transfer failed, for whoever reads.
#[test]
fn errors_of_channels_are_told() {
    let (cards, function) = alveo();
    {
        let mut engine = Engine::open(function.clone(), Completion::Poll).unwrap();
        let buffer = engine.allocate(4096).unwrap();
        cards.misanswer(0, 1, Misanswer::Poisoned);
        let piece = Piece { buffer, offset: 0, address: 0, bytes: 4096 };
        engine.transfer(Direction::H2c, &[piece]).unwrap_err();
    }
    let readings = Readings::of(&function).unwrap();
    assert_eq!(find(&readings, "xdma", "h2c_0_errors").unit, Unit::Bits);
    assert_eq!(find(&readings, "xdma", "c2h_1_errors").value, Value::Good(0));
    let noted = find(&readings, "xdma", "h2c_0_errors");
    assert_eq!(noted.meaning().as_deref(), Some("poisoned data read"));
    // A reset clears it.
    function.reset().unwrap();
    assert_eq!(alarms(&Readings::of(&function).unwrap()), [] as [(&str, &str); 0]);
    let dma = function.window(BarIndex::new(2).unwrap()).unwrap();
    // A list that begins at an address that is not mapped: RUN, and every event logged.
    dma.write_u32(0x4080, 0xdead_0000).unwrap();
    function.set_bus_master(true).unwrap();
    dma.write_u32(0x0004, 0x00ff_fe7f).unwrap();
    let readings = Readings::of(&function).unwrap();
    let noted = find(&readings, "xdma", "h2c_0_errors");
    assert_eq!(noted.meaning().as_deref(), Some("fetch of descriptors refused"));
    assert_eq!(alarms(&readings), [("xdma", "h2c_0_errors")]);
    // Read again: nothing was cleared.
    assert_eq!(alarms(&Readings::of(&function).unwrap()), [("xdma", "h2c_0_errors")]);
}

#[test]
fn a_card_in_use_and_a_card_that_is_gone_are_told() {
    let (cards, function) = alveo();
    let engine = Engine::open(function.clone(), Completion::Poll).unwrap();
    let error = Readings::of(&function).unwrap_err();
    assert!(format!("{error:?}").contains("InUse"), "{error:?}");
    drop(engine);
    Readings::of(&function).unwrap();
    cards.remove(0);
    let error = Readings::of(&function).unwrap_err().to_string();
    assert!(error.contains("removed") || error.contains("gone"), "{error}");
}
