//! Card management (CMS) of Alveo cards: registers and sensors by number, typed from AMD PG348, and what may go wrong with it.

use std::time::{Duration, Instant};

use fpga_driver::readings::{Readings, Unit, Value};
use fpga_hal::{BarIndex, Domain, Window, in_process};
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_tests::altered::altered;
use proptest::prelude::*;

use super::{alarms, alveo, find};

/// Longer than any wait of a reading, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Offset, name, unit, and how many of the unit one step is.
const SENSORS: [(u32, &str, Unit, u64); 51] = [
    (0x20, "12v_pex", Unit::Millivolts, 1),
    (0x2c, "3v3_pex", Unit::Millivolts, 1),
    (0x38, "3v3_aux", Unit::Millivolts, 1),
    (0x44, "12v_aux", Unit::Millivolts, 1),
    (0x50, "ddr4_vpp_bottom", Unit::Millivolts, 1),
    (0x5c, "sys_5v5", Unit::Millivolts, 1),
    (0x68, "vcc1v2_top", Unit::Millivolts, 1),
    (0x74, "vcc1v8", Unit::Millivolts, 1),
    (0x80, "vcc0v85", Unit::Millivolts, 1),
    (0x8c, "ddr4_vpp_top", Unit::Millivolts, 1),
    (0x98, "mgt0v9", Unit::Millivolts, 1),
    (0xa4, "12v_sw", Unit::Millivolts, 1),
    (0xb0, "mgt_avtt", Unit::Millivolts, 1),
    (0xbc, "vcc1v2_bottom", Unit::Millivolts, 1),
    (0xc8, "12v_pex_current", Unit::Milliamperes, 1),
    (0xd4, "12v_aux_current", Unit::Milliamperes, 1),
    (0xe0, "vccint", Unit::Millivolts, 1),
    (0xec, "vccint_current", Unit::Milliamperes, 1),
    (0xf8, "fpga_temperature", Unit::MilliCelsius, 1000),
    (0x104, "fan_temperature", Unit::MilliCelsius, 1000),
    (0x110, "dimm_0_temperature", Unit::MilliCelsius, 1000),
    (0x11c, "dimm_1_temperature", Unit::MilliCelsius, 1000),
    (0x128, "dimm_2_temperature", Unit::MilliCelsius, 1000),
    (0x134, "dimm_3_temperature", Unit::MilliCelsius, 1000),
    (0x140, "se98_0_temperature", Unit::MilliCelsius, 1000),
    (0x14c, "se98_1_temperature", Unit::MilliCelsius, 1000),
    (0x158, "se98_2_temperature", Unit::MilliCelsius, 1000),
    (0x164, "fan_speed", Unit::Rpm, 1),
    (0x170, "qsfp_0_temperature", Unit::MilliCelsius, 1000),
    (0x17c, "qsfp_1_temperature", Unit::MilliCelsius, 1000),
    (0x188, "qsfp_2_temperature", Unit::MilliCelsius, 1000),
    (0x194, "qsfp_3_temperature", Unit::MilliCelsius, 1000),
    (0x260, "hbm_0_temperature", Unit::MilliCelsius, 1000),
    (0x26c, "vcc3v3", Unit::Millivolts, 1),
    (0x278, "3v3_pex_current", Unit::Milliamperes, 1),
    (0x284, "vcc0v85_current", Unit::Milliamperes, 1),
    (0x290, "hbm_1v2", Unit::Millivolts, 1),
    (0x29c, "vpp2v5", Unit::Millivolts, 1),
    (0x2a8, "vccint_bram", Unit::Millivolts, 1),
    (0x2b4, "hbm_1_temperature", Unit::MilliCelsius, 1000),
    (0x2c0, "12v_aux_1", Unit::Millivolts, 1),
    (0x2cc, "vccint_temperature", Unit::MilliCelsius, 1000),
    (0x2f0, "3v3_aux_current", Unit::Milliamperes, 1),
    (0x314, "vcc1v2_current", Unit::Milliamperes, 1),
    (0x320, "12v_in_current", Unit::Milliamperes, 1),
    (0x32c, "12v_in_aux_0_current", Unit::Milliamperes, 1),
    (0x338, "12v_in_aux_1_current", Unit::Milliamperes, 1),
    (0x344, "vccaux", Unit::Millivolts, 1),
    (0x350, "vccaux_pmc", Unit::Millivolts, 1),
    (0x35c, "vccram", Unit::Millivolts, 1),
    (0x380, "vccint_vcu", Unit::Millivolts, 1),
];

/// Of the subsystem in the user BAR, and of its map.
const CMS: u64 = 0x8_0000;
const MAP: u64 = 0xa_8000;

fn user_bar(function: &fpga_hal::Function) -> Window {
    function.window(BarIndex::new(0).unwrap()).unwrap()
}

/// Lets the processor run, and waits until the map is ready.
fn start(bar: &Window) {
    bar.write_u32(CMS + 0x2_0000, 1).unwrap();
    assert!((0..1000).any(|_| bar.read_u32(MAP + 0x30c).unwrap() & 1 == 1));
}

#[test]
fn every_sensor_is_where_the_product_guide_has_it() {
    let (cards, function) = alveo();
    for (number, (offset, ..)) in (0..).zip(SENSORS) {
        cards.cms(0).set_sensor(offset, [60 + number, 30 + number, 1 + number]);
    }
    let readings = Readings::of(&function).unwrap();
    for (number, (_, name, unit, step)) in (0..).zip(SENSORS) {
        let row = find(&readings, "cms", name);
        assert_eq!((row.unit, row.value), (unit, Value::Good((1 + number) * step)), "{name}");
        assert_eq!((row.largest, row.average), (Some((60 + number) * step), Some((30 + number) * step)), "{name}");
    }
    assert_eq!(readings.rows.iter().filter(|row| row.part == "cms").count(), SENSORS.len());
    assert!(readings.failures.is_empty(), "{:?}", readings.failures);
    assert_eq!(alarms(&readings), []);
}

/// Offset in the map, value, and what a write of ones leaves. Until the processor runs, and until the map is ready, all read 0.
#[test]
fn every_register_has_its_value_and_its_access() {
    let (_cards, function) = alveo();
    let bar = user_bar(&function);
    let registers = [
        (0x00, 0x7465_7374),
        (0x08, 0x1400_0000),
        (0x0c, 0),
        (0x10, 0),
        (0x14, 0),
        (0x18, 0),
        (0x1c, 0),
        (0x300, 0x1000),
        (0x304, 0),
        (0x310, 0),
    ];
    assert_eq!(bar.read_u32(CMS + 0x2_0000).unwrap(), 0);
    for (offset, _) in registers {
        assert_eq!(bar.read_u32(MAP + offset).unwrap(), 0, "{offset:#x} in reset");
    }
    assert_eq!(bar.read_u32(MAP + 0x30c).unwrap(), 0);
    start(&bar);
    for (offset, value) in registers {
        assert_eq!(bar.read_u32(MAP + offset).unwrap(), value, "{offset:#x}");
        if offset != 0x18 {
            bar.write_u32(MAP + offset, !0).unwrap();
            assert_eq!(bar.read_u32(MAP + offset).unwrap(), value, "{offset:#x} after a write");
        }
    }
    // Two of them in one access of 8 bytes.
    assert_eq!(bar.read_u64(MAP + 0x300).unwrap(), 0x1000);
    assert_eq!(bar.read_u32(MAP + 0x04).unwrap() >> 24, 0x0c);
    let beats = [(); 2].map(|()| bar.read_u32(MAP + 0x2fc).unwrap());
    assert_ne!(beats[0], beats[1]);
    // Firmware: reads 0 here, takes nothing.
    bar.write_u32(CMS, 7).unwrap();
    assert_eq!(bar.read_u32(CMS).unwrap(), 0);
    // The mailbox keeps words until there is a request; a request of an unknown opcode fails.
    bar.write_u32(MAP + 0x1000, 0x7f00_0000).unwrap();
    bar.write_u32(MAP + 0x1ffc, 5).unwrap();
    assert_eq!((bar.read_u32(MAP + 0x1000).unwrap(), bar.read_u32(MAP + 0x1ffc).unwrap()), (0x7f00_0000, 5));
    bar.write_u32(MAP + 0x18, 1 << 5).unwrap();
    assert!((0..100).any(|_| bar.read_u32(MAP + 0x18).unwrap() & 1 << 5 == 0));
    assert_eq!((bar.read_u32(MAP + 0x304).unwrap(), bar.read_u32(MAP + 0x0c).unwrap()), (1, 1 << 26));
    bar.write_u32(MAP + 0x18, 1 << 1).unwrap();
    assert_eq!((bar.read_u32(MAP + 0x304).unwrap(), bar.read_u32(MAP + 0x0c).unwrap()), (0, 0));
    // A reset of the function holds the processor again.
    function.reset().unwrap();
    assert_eq!((bar.read_u32(CMS + 0x2_0000).unwrap(), bar.read_u32(MAP).unwrap()), (0, 0));
}

#[test]
fn sensors_that_are_absent_stale_or_broken_are_told_apart() {
    let (cards, function) = alveo();
    let cms = cards.cms(0);
    cms.set_sensor(0x20, [0; 3]);
    cms.set_sensor(0xf8, [90, 50, 151]);
    cms.set_sensor(0x164, [5, 5, 0]);
    let readings = Readings::of(&function).unwrap();
    assert_eq!(find(&readings, "cms", "12v_pex").value, Value::Absent);
    assert_eq!(find(&readings, "cms", "fpga_temperature").value, Value::Implausible(151_000));
    // A fan that stands is there.
    assert_eq!(find(&readings, "cms", "fan_speed").value, Value::Good(0));
    assert_eq!(alarms(&readings), [("cms", "fpga_temperature")]);
    cms.set_sensor(0xf8, [90, 50, 40]);
    cms.stop_heartbeat(true);
    let readings = Readings::of(&function).unwrap();
    assert_eq!(find(&readings, "cms", "fpga_temperature").value, Value::Stale(40_000));
    assert_eq!(find(&readings, "cms", "12v_pex").value, Value::Absent);
    assert!(alarms(&readings).len() > 5);
    cms.stop_heartbeat(false);
    assert_eq!(alarms(&Readings::of(&function).unwrap()), []);
}

#[test]
fn the_board_says_what_it_is() {
    let (cards, function) = alveo();
    let list =
        [&[0x21, 4][..], b"1234", &[0x27, 5], b"U280\0", &[0x23, 6, 1, 2, 3, 4, 5, 0xff, 0x2a, 1, b'P']].concat();
    cards.cms(0).set_board(Some(list));
    let readings = Readings::of(&function).unwrap();
    let expected = [("serial_number", "1234"), ("name", "U280"), ("mac_1", "01:02:03:04:05:ff"), ("fan_present", "80")];
    assert_eq!(readings.board, expected.map(|(name, value)| (name, value.to_owned())));
    // The longest that a message can be.
    let long: Vec<u8> = (0..16).flat_map(|_| [&[0x99, 253][..], &[0xff; 253]].concat()).take(4080).collect();
    cards.cms(0).set_board(Some(long));
    assert!(Readings::of(&function).unwrap().failures.is_empty());
}

/// What goes wrong with the mailbox costs no sensor, and is told in time.
#[test]
fn a_mailbox_that_fails_costs_no_sensor() {
    let (cards, function) = alveo();
    let cms = cards.cms(0);
    let failure = |expected: &str| {
        let began = Instant::now();
        let readings = Readings::of(&function).unwrap();
        assert!(began.elapsed() < PATIENCE);
        let [(part, error)] = readings.failures.as_slice() else { panic!("{:?}", readings.failures) };
        assert_eq!(*part, "cms");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(find(&readings, "cms", "fpga_temperature").value, Value::Good(44_000));
        assert!(readings.board.is_empty());
    };
    cms.set_board(None);
    failure("error 2: the board's information is missing");
    cms.set_board(Some(vec![0x27, 9, b'a']));
    failure("has 9 bytes, and 1 are left");
    cms.set_board(Some(vec![0x27]));
    failure("key 0x27 has no length");
    cms.silence_mailbox(true);
    failure("answer a message; last seen: CONTROL 0x20");
    // The message is still there when the next reader comes.
    failure("end an earlier message; last seen: CONTROL 0x20");
    cms.silence_mailbox(false);
    cms.set_board(Some(Vec::new()));
    assert!(Readings::of(&function).unwrap().failures.is_empty());
}

/// The mailbox is at 0x1000 of 0x2000 bytes, and its first word has the length.
#[test]
fn an_answer_longer_than_the_mailbox_is_told() {
    let cards = XdmaCards::new(1, Shape::default());
    let endpoint = altered(cards.endpoint(0), 0, &[(MAP + 0x1000, 0x0400_0fff)]);
    let function = in_process::attach(endpoint, &Domain::in_process(), "card 0").unwrap();
    let readings = Readings::of(&function).unwrap();
    let [(_, error)] = readings.failures.as_slice() else { panic!("{:?}", readings.failures) };
    assert!(error.to_string().contains("4095 bytes in its mailbox at 0x1000 of 0x2000 bytes"), "{error}");
}

#[test]
fn card_management_that_does_not_start_or_is_something_else_is_told() {
    let (cards, function) = alveo();
    let cms = cards.cms(0);
    for (is_withheld, id, expected) in [
        (true, 0x7465_7374, "start its card management; last seen: STATUS_2 0x0"),
        (false, 0x1234_5678, "map begins with 0x12345678; expected 0x74657374"),
    ] {
        cms.withhold_start(is_withheld);
        cms.set_id(id);
        let readings = Readings::of(&function).unwrap();
        let [(_, error)] = readings.failures.as_slice() else { panic!("{:?}", readings.failures) };
        assert!(error.to_string().contains(expected), "{error}");
        assert!(readings.rows.iter().all(|row| row.part != "cms") && !readings.rows.is_empty());
    }
}

/// Anything that a host may write into the subsystem leaves everything else as it is, and the firmware working.
#[test]
fn accesses_at_random_do_no_harm() {
    let (cards, function) = alveo();
    let bar = user_bar(&function);
    let list = bar.read_u64(0).unwrap();
    let accesses = prop::collection::vec((0..0x4_0000_u64 / 4, any::<u32>(), any::<bool>()), 1..400);
    proptest!(ProptestConfig::with_cases(64), |(accesses in accesses)| {
        for (word, value, is_write) in accesses {
            match is_write {
                true => bar.write_u32(CMS + 4 * word, value).unwrap(),
                false => drop(bar.read_u32(CMS + 4 * word).unwrap()),
            }
        }
    });
    assert_eq!(bar.read_u64(0).unwrap(), list);
    assert_eq!(cards.violations(0), []);
    function.reset().unwrap();
    assert!(Readings::of(&function).unwrap().failures.is_empty());
}
