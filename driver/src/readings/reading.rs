//! One reading.

use fpga_regs::dfl::board::ABSENT;
use fpga_regs::sensor::{Sensor, Unit};
use fpga_regs::xdma::Status;

use crate::alveo::Sensed;
use crate::dfl::Reported;
use crate::meanings::meanings;
use crate::xdma::Direction;

/// Parts of readings, as commands print them.
pub(super) const LINK: &str = "link";
pub(super) const AER: &str = "aer";
/// Name of the errors of PCIe that were corrected.
pub(super) const CORRECTED: &str = "correctable";
const XDMA: &str = "xdma";
const CMS: &str = "cms";
const BOARD: &str = "board";
const EXERCISER: &str = "he-lb";

/// A value, and whether it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Read as it should be.
    Good(u64),
    /// The card lacks the sensor, or it failed.
    Absent,
    /// The firmware that measures has stopped: the value is an old one.
    Stale(u64),
    /// No part of a card can be like this.
    Implausible(u64),
}

impl Value {
    /// Returns the number, whatever it is worth.
    pub fn number(self) -> Option<u64> {
        match self {
            Value::Good(value) | Value::Stale(value) | Value::Implausible(value) => Some(value),
            Value::Absent => None,
        }
    }

    /// Returns the name of its state.
    pub fn state(self) -> &'static str {
        match self {
            Value::Good(_) => "good",
            Value::Absent => "absent",
            Value::Stale(_) => "stale",
            Value::Implausible(_) => "implausible",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Which part of the card: `link`, `aer`, `xdma`, `cms`, `board`, `he-lb`, or that of an error register of a control function.
    pub part: &'static str,
    /// What is measured.
    pub name: String,
    /// In which unit.
    pub unit: Unit,
    /// The value.
    pub value: Value,
    /// The largest value since the card counts; only card management of Alveo cards has it.
    pub largest: Option<u64>,
    /// The average; as `largest`.
    pub average: Option<u64>,
    pub(super) meanings: &'static [(u32, &'static str)],
}

impl Reading {
    pub(super) fn new(part: &'static str, name: &str, unit: Unit, value: Value) -> Self {
        Reading { part, name: name.to_owned(), unit, value, largest: None, average: None, meanings: &[] }
    }

    pub(super) fn of_bits(part: &'static str, name: &str, bits: u64, meanings: &'static [(u32, &'static str)]) -> Self {
        Reading { meanings, ..Reading::new(part, name, Unit::Bits, Value::Good(bits)) }
    }

    /// Returns whether it does not read as good: a sensor that fails, or an error register with bits.
    pub fn is_alarm(&self) -> bool {
        match self.value {
            // What was corrected did no harm.
            Value::Good(value) => self.unit == Unit::Bits && value != 0 && self.name != CORRECTED,
            Value::Absent => false,
            Value::Stale(_) | Value::Implausible(_) => true,
        }
    }

    /// Returns what the bits of an error register say; `None` of other readings, and without errors.
    pub fn meaning(&self) -> Option<String> {
        match (self.unit, self.value) {
            (Unit::Bits, Value::Good(bits)) if bits != 0 => Some(meanings(bits, self.meanings)),
            _ => None,
        }
    }
}

/// The largest value that a part of a card can have: more than any rating, and less than what a broken sensor reads.
fn plausible(unit: Unit) -> u64 {
    match unit {
        Unit::MilliCelsius => 150_000,
        Unit::Millivolts => 60_000,
        Unit::Milliamperes => 500_000,
        Unit::Milliwatts => 1_000_000,
        Unit::Rpm => 60_000,
        Unit::MegaTransfers | Unit::Lanes | Unit::Bits => u64::MAX,
    }
}

fn scaled(sensor: Sensor, raw: u32) -> u64 {
    u64::from(raw) * u64::from(sensor.scale)
}

fn judged(sensor: Sensor, raw: u32) -> Value {
    match scaled(sensor, raw) {
        value if value > plausible(sensor.unit) => Value::Implausible(value),
        value => Value::Good(value),
    }
}

/// A sensor of a D5005's board.
pub(super) fn of_board(sensor: Sensor, raw: u32) -> Reading {
    let value = if raw == ABSENT { Value::Absent } else { judged(sensor, raw) };
    Reading::new(BOARD, sensor.name, sensor.unit, value)
}

/// A sensor of card management.
pub(super) fn of_management(sensed: Sensed, is_alive: bool) -> Reading {
    let Sensed { sensor, largest, average, now } = sensed;
    let is_absent = [largest, average, now] == [0; 3];
    let value = match judged(sensor, now) {
        _ if is_absent => Value::Absent,
        Value::Good(value) if !is_alive => Value::Stale(value),
        value => value,
    };
    let known = |raw| (!is_absent).then(|| scaled(sensor, raw));
    let (largest, average) = (known(largest), known(average));
    Reading { largest, average, ..Reading::new(CMS, sensor.name, sensor.unit, value) }
}

/// An error register of a control function.
pub(super) fn of_register(reported: Reported) -> Reading {
    Reading::of_bits(reported.part, reported.register, reported.bits, reported.meanings)
}

/// What a host exerciser has noted. What its bits mean is not public.
pub(super) fn of_exerciser(errors: u64) -> Reading {
    Reading::of_bits(EXERCISER, "errors", errors, &[])
}

/// What a channel of a DMA engine has noted.
pub(super) fn of_channel((direction, number, status): (Direction, u32, Status)) -> Reading {
    let direction = match direction {
        Direction::H2c => "h2c",
        Direction::C2h => "c2h",
    };
    Reading::of_bits(XDMA, &format!("{direction}_{number}_errors"), status.bits().into(), &CHANNEL)
}

/// Number and meaning of the bits of a channel's status that are errors, whichever way its data goes (PG195).
const CHANNEL: [(u32, &str); 18] = [
    (3, "addresses not aligned"),
    (4, "no descriptor"),
    (5, "wrong length"),
    (9, "read of data refused"),
    (10, "read of data aborted"),
    (11, "parity of data read"),
    (12, "poisoned data read"),
    (13, "unexpected completion of a read"),
    (14, "write of data outside of card memory"),
    (15, "write of data answered with an error"),
    (16, "write error 2"),
    (17, "write error 3"),
    (18, "write error 4"),
    (19, "fetch of descriptors refused"),
    (20, "fetch of descriptors aborted"),
    (21, "parity of descriptors"),
    (22, "poisoned descriptors"),
    (23, "unexpected completion of a fetch"),
];
