//! The PCIe link of a function, and what its advanced error reporting has seen.

use fpga_hal::Function;
use fpga_hal::config::{self, Lanes, Space};
use fpga_regs::sensor::Unit;

use crate::error::{Error, Result};
use crate::readings::reading::{AER, CORRECTED, LINK, Reading, Value};
use crate::sequencer::block::bus_error;

/// Reads link and errors from the configuration space.
pub(super) fn read(function: &Function) -> Result<Vec<Reading>> {
    let name = &function.identity().name;
    let mut bytes = Vec::with_capacity(config::BYTES.into());
    for offset in (0..config::BYTES).step_by(4) {
        let word = function.config_read_u32(offset).map_err(|error| bus_error(name, error))?;
        bytes.extend(word.to_le_bytes());
    }
    // What was read of a function that vanished is garbage.
    let Some(space) = Space::new(bytes).filter(|_| !function.is_removed()) else {
        return Err(Error::removed(function));
    };
    let mut rows = Vec::new();
    // Virtual functions have no link of their own.
    if let Some(express) = space.express() {
        for (name, lanes) in [("link", express.link), ("link_capable", express.link_capable)] {
            rows.extend(lanes.into_iter().flat_map(|lanes| of_lanes(name, lanes)));
        }
    }
    if let Some(aer) = space.aer() {
        rows.push(Reading::of_bits(AER, "uncorrectable", aer.uncorrectable.into(), &UNCORRECTABLE));
        rows.push(Reading::of_bits(AER, CORRECTED, aer.correctable.into(), &CORRECTABLE));
    }
    Ok(rows)
}

fn of_lanes(name: &str, lanes: Lanes) -> [Reading; 2] {
    let row = |what: &str, unit, value| Reading::new(LINK, &format!("{name}_{what}"), unit, Value::Good(value));
    [
        row("speed", Unit::MegaTransfers, lanes.speed.mega_transfers().into()),
        row("width", Unit::Lanes, lanes.width.into()),
    ]
}

/// Number and meaning of errors that were not corrected (PCI Express Base Specification 5.0, section 7.8.4.2).
const UNCORRECTABLE: [(u32, &str); 17] = [
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
    (21, "ACS violation"),
    (22, "uncorrectable internal error"),
    (23, "multicast packet blocked"),
    (24, "atomic operation blocked"),
    (25, "packet prefix blocked"),
    (26, "poisoned packet blocked"),
];

/// Number and meaning of errors that were corrected (section 7.8.4.5).
const CORRECTABLE: [(u32, &str); 8] = [
    (0, "receiver error"),
    (6, "bad packet"),
    (7, "bad link packet"),
    (8, "replay number rollover"),
    (12, "replay timer timeout"),
    (13, "advisory non-fatal error"),
    (14, "corrected internal error"),
    (15, "header log overflow"),
];
