//! The board controller of a D5005: sensors by number, typed from Linux' `intel-m10-bmc-hwmon.c`, and what may go wrong with the
//! serial link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fpga_driver::dfl::Control;
use fpga_driver::readings::{Error, Readings, Unit, Value};
use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, Domain, Endpoint, Function, in_process};
use fpga_mock::dfl::{BoardFault, D5005};
use fpga_mock::{Fabric, Profile, Shell};

use super::{alarms, find};

/// Offset of a register, name, unit, and how many of the unit one step is.
const SENSORS: [(u32, &str, Unit, u64); 35] = [
    (0x100, "inlet_temperature", Unit::MilliCelsius, 500),
    (0x110, "fpga_temperature", Unit::MilliCelsius, 500),
    (0x11c, "exhaust_temperature", Unit::MilliCelsius, 500),
    (0x12c, "transceiver_temperature", Unit::MilliCelsius, 500),
    (0x138, "dimm_0_temperature", Unit::MilliCelsius, 500),
    (0x148, "dimm_1_temperature", Unit::MilliCelsius, 500),
    (0x158, "dimm_2_temperature", Unit::MilliCelsius, 500),
    (0x168, "dimm_3_temperature", Unit::MilliCelsius, 500),
    (0x178, "qsfp_0_temperature", Unit::MilliCelsius, 500),
    (0x188, "qsfp_1_temperature", Unit::MilliCelsius, 500),
    (0x1a0, "3v3_temperature", Unit::MilliCelsius, 500),
    (0x1bc, "vcceram_temperature", Unit::MilliCelsius, 500),
    (0x1d8, "vccr_temperature", Unit::MilliCelsius, 500),
    (0x1f4, "vcct_temperature", Unit::MilliCelsius, 500),
    (0x210, "1v8_temperature", Unit::MilliCelsius, 500),
    (0x22c, "12v_temperature", Unit::MilliCelsius, 500),
    (0x248, "12v_aux_temperature", Unit::MilliCelsius, 500),
    (0x184, "qsfp_0", Unit::Millivolts, 1),
    (0x194, "qsfp_1", Unit::Millivolts, 1),
    (0x198, "core", Unit::Millivolts, 1),
    (0x1ac, "3v3", Unit::Millivolts, 1),
    (0x1c8, "vcceram", Unit::Millivolts, 1),
    (0x1e4, "vccr", Unit::Millivolts, 1),
    (0x200, "vcct", Unit::Millivolts, 1),
    (0x21c, "1v8", Unit::Millivolts, 1),
    (0x238, "12v", Unit::Millivolts, 1),
    (0x254, "12v_aux", Unit::Millivolts, 1),
    (0x19c, "core_current", Unit::Milliamperes, 1),
    (0x1b8, "3v3_current", Unit::Milliamperes, 1),
    (0x1d4, "vcceram_current", Unit::Milliamperes, 1),
    (0x1f0, "vccr_current", Unit::Milliamperes, 1),
    (0x20c, "vcct_current", Unit::Milliamperes, 1),
    (0x228, "1v8_current", Unit::Milliamperes, 1),
    (0x240, "12v_current", Unit::Milliamperes, 1),
    (0x25c, "12v_aux_current", Unit::Milliamperes, 1),
];

/// Address of the controller's registers about the board.
const SYSTEM: u32 = 0x30_0800;

/// A card with this shell, and its control function.
fn card(shell: Shell) -> (D5005, Function) {
    let fabric = Fabric::new(Profile { shell, ..Profile::optweb(2) }).unwrap();
    let card = D5005::new(&fabric, 0);
    let function = in_process::attach(card.control(), &Domain::in_process(), "control of card 0").unwrap();
    (card, function)
}

#[test]
fn every_sensor_is_where_linux_has_it() {
    for shell in [Shell::S10Dfl, Shell::S10Pac] {
        let (card, function) = card(shell);
        for (number, (offset, ..)) in (0..).zip(SENSORS) {
            // Bytes that have a meaning on the link are among these.
            card.set_board_register(SYSTEM + offset, 0x40 + number);
        }
        let readings = Readings::of(&function).unwrap();
        assert!(readings.failures.is_empty(), "{:?}", readings.failures);
        for (number, (_, name, unit, step)) in (0..).zip(SENSORS) {
            let row = find(&readings, "board", name);
            assert_eq!((row.unit, row.value), (unit, Value::Good((0x40 + number) * step)), "{name}");
            assert_eq!((row.largest, row.average), (None, None));
        }
        assert_eq!(readings.rows.iter().filter(|row| row.part == "board").count(), SENSORS.len());
    }
}

/// Every byte, in every place of a register.
#[test]
fn bytes_with_a_meaning_on_the_link_arrive() {
    let (card, function) = card(Shell::S10Dfl);
    for byte in 0..=u8::MAX {
        let values = [[byte, 0, 0, 0], [0, byte, 0x7d, 0], [0x4a, 0x4d, byte, 0], [byte; 4]];
        for ((offset, name, unit, _), value) in SENSORS[19..23].iter().zip(values) {
            let value = u32::from_le_bytes(value);
            card.set_board_register(SYSTEM + offset, value);
            let expected = match u64::from(value) {
                0xffff_ffff => Value::Absent,
                value if value > 60_000 => Value::Implausible(value),
                value => Value::Good(value),
            };
            assert_eq!(*unit, Unit::Millivolts);
            let readings = Readings::of(&function).unwrap();
            assert!(readings.failures.is_empty(), "{value:#x}: {:?}", readings.failures);
            assert_eq!(find(&readings, "board", name).value, expected, "{name} {value:#x}");
        }
    }
}

/// The doorbell register, typed from Linux' `intel-m10-bmc.h`.
#[test]
fn the_state_of_a_flash_update_is_told() {
    let (card, function) = card(Shell::S10Dfl);
    let told = || Readings::of(&function).unwrap().board;
    assert_eq!(told(), [("flash update (RSU)", "idle".to_owned())]);
    card.set_board_register(0x30_0c00, 0x0003_0051);
    assert_eq!(told(), [("flash update (RSU)", "copying; the last update ended with: copying failed".to_owned())]);
}

#[test]
fn sensors_that_are_absent_or_broken_are_told_apart() {
    let (card, function) = card(Shell::S10Dfl);
    card.set_board_register(SYSTEM + 0x110, u32::MAX);
    card.set_board_register(SYSTEM + 0x11c, 301);
    card.set_board_register(SYSTEM + 0x238, 60_001);
    let readings = Readings::of(&function).unwrap();
    assert_eq!(find(&readings, "board", "fpga_temperature").value, Value::Absent);
    assert_eq!(find(&readings, "board", "exhaust_temperature").value, Value::Implausible(150_500));
    assert_eq!(alarms(&readings), [("board", "exhaust_temperature"), ("board", "12v")]);
}

#[test]
fn a_controller_that_fails_is_told_and_works_afterwards() {
    let (card, function) = card(Shell::S10Dfl);
    for (fault, expected) in [
        (BoardFault::Silent, "let the board's controller answer; last seen: 0 bytes of its answer"),
        (BoardFault::Dead, "send a word to the board's controller; last seen: serial STATUS 0x60"),
        (BoardFault::WrongChannel, "answered 0x300900 wrongly: a packet on channel 1"),
        (BoardFault::Short, "answered 0x300900 wrongly: 1 bytes; expected 4"),
        (BoardFault::Endless, "answered 0x300900 wrongly: no end after 4 bytes"),
    ] {
        card.fail_board(fault);
        let readings = Readings::of(&function).unwrap();
        let [(part, error)] = readings.failures.as_slice() else { panic!("{fault:?}: {:?}", readings.failures) };
        assert_eq!(*part, "board");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!readings.rows.is_empty() && readings.rows.iter().all(|row| row.part != "board"));
        card.fail_board(BoardFault::None);
        let readings = Readings::of(&function).unwrap();
        assert!(readings.failures.is_empty(), "after {fault:?}: {:?}", readings.failures);
    }
}

/// A function that is gone after a number of reads.
struct Vanishing {
    endpoint: Arc<dyn Endpoint>,
    reads_left: AtomicU64,
}

impl Vanishing {
    /// Counts a read. Returns whether the function is still there.
    fn answers(&self) -> bool {
        self.reads_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl Endpoint for Vanishing {
    fn layout(&self) -> Layout {
        self.endpoint.layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.endpoint.attach(dma, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        if self.answers() { self.endpoint.config_read(offset, data) } else { data.fill(0xff) }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.endpoint.config_write(offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        if self.answers() { self.endpoint.bar_read(bar, offset, data) } else { data.fill(0xff) }
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.endpoint.bar_write(bar, offset, data);
    }

    fn reset(&self, kind: ResetKind) {
        self.endpoint.reset(kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.endpoint.dma_complete(tag, result);
    }
}

#[test]
fn a_card_that_vanishes_while_it_is_read_is_gone() {
    // Returns how many reads were left as well.
    let read = |reads: u64| {
        let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) }).unwrap();
        let endpoint = D5005::new(&fabric, 0).control();
        let card = Arc::new(Vanishing { endpoint, reads_left: AtomicU64::new(u64::MAX) });
        let function = in_process::attach(card.clone(), &Domain::in_process(), "control of card 0").unwrap();
        card.reads_left.store(reads, Ordering::Relaxed);
        (Readings::of(&function), card.reads_left.load(Ordering::Relaxed))
    };
    let (readings, left) = read(u64::MAX);
    assert!(readings.unwrap().failures.is_empty());
    let all = u64::MAX - left;
    // Each register of the controller takes dozens of reads.
    assert!(all > 1024 + 35 * 12, "{all} reads");
    for reads in (0..all).step_by(all as usize / 40) {
        let (readings, _) = read(reads);
        let gone = matches!(readings, Err(Error::Card(fpga_driver::Error::Removed { .. })));
        assert!(gone, "after {reads} of {all} reads: {readings:?}");
    }
}

/// Error registers are rows of the same table.
#[test]
fn errors_of_the_shell_are_alarms() {
    let (card, function) = card(Shell::S10Dfl);
    card.set_errors(0xa_0010, 1 << 7);
    card.set_errors(0x2_0020, 1 << 5);
    let readings = Readings::of(&function).unwrap();
    assert_eq!(alarms(&readings), [("PCIe", "ERROR"), ("port", "ERROR"), ("port", "FIRST")]);
    let port = find(&readings, "port", "ERROR");
    assert_eq!(port.meaning().as_deref(), Some("the accelerator did not answer an access"));
    Control::open(function.clone()).unwrap().clear_errors().unwrap();
    assert_eq!(alarms(&Readings::of(&function).unwrap()), []);
}

/// The core of the serial link by number, as any driver sees it.
#[test]
fn the_serial_core_behaves_as_its_guide_says() {
    let (_card, function) = card(Shell::S10Dfl);
    let bar = function.window(BarIndex::new(0).unwrap()).unwrap();
    let write = |register: u64, value: u64| {
        bar.write_u64(0x1_0020, value).unwrap();
        bar.write_u64(0x1_0010, register | 1 << 8).unwrap();
        assert_eq!(bar.read_u64(0x1_0010).unwrap() >> 8, 0);
    };
    let read = |register: u64| {
        bar.write_u64(0x1_0010, register | 1 << 9).unwrap();
        assert_eq!(bar.read_u64(0x1_0010).unwrap(), register);
        bar.read_u64(0x1_0018).unwrap()
    };
    assert_eq!(read(2), 0x60);
    // Nobody is selected: what comes is not the bridge's.
    write(1, 0x7a);
    assert_eq!((read(2), read(0), read(2)), (0xe0, 0xff, 0x60));
    write(5, 1);
    write(3, 0x400);
    assert_eq!((read(5), read(3)), (1, 0x400));
    write(1, 0x4a);
    assert_eq!((read(0), read(2)), (0x4a, 0x60));
    // The FPGA's temperature at 0x300910, byte by byte.
    for byte in [0x7a, 0x7c, 0, 0x10, 0, 0, 4, 0, 0x30, 0x09, 0x7b, 0x10] {
        write(1, byte);
        assert_eq!(read(0), 0x4a);
    }
    let mut answer = Vec::new();
    while answer.len() < 9 {
        write(1, 0x4a);
        answer.push(read(0));
        answer.retain(|byte| *byte != 0x4a);
        if answer.len() == 8 {
            break;
        }
    }
    assert_eq!(answer, [0x7a, 0x7c, 0, 92, 0, 0, 0x7b, 0]);
    assert_eq!(read(7), 0);
}
