//! Collectives that the switches of a network compute (Haghi et al., MPI-FPGA, 2021): what each switch does with a packet, and how
//! long it takes. `docs/mpi-fpga.md` has the formats, the algorithms and the order in which contributions are combined.
//!
//! Planner and switches use the same steps, so a predicted order of combination is the order that runs.

mod call;
mod carried;
mod fat;
mod forms;
mod loggp;
mod ports;

pub use crate::instruction::Form;
pub use crate::topology::{End, Shape, ShapeError};
pub use call::{BLOCK_BYTES_MAX, Call, CallError, Chunk, Collective, Head, PAYLOAD_BYTES, is_supported};
pub use fat::SwitchPosition;
pub use forms::{Member, PROCESSOR, Source, Step, Target};
pub use loggp::{Model, Outcome, Parameters, times};

pub(crate) use carried::each_hop;
pub(crate) use loggp::times_and_first;

use crate::reduction::{Combine, Element};

/// Bytes of a phit.
pub const PHIT_BYTES: usize = 32;
/// Bytes of the longest network packet.
pub const PACKET_BYTES: usize = 256;
/// Bytes of the header of a processor packet, and of the number of the call behind it.
pub const PROCESSOR_HEADER_BYTES: usize = 8 + NUMBER_BYTES;
/// Bytes of the header of a network packet.
pub const HEADER_BYTES: usize = 6;
/// Bytes after the header of a network packet that name block, chunk, root and call: our extension.
pub const NAMES_BYTES: usize = 6 + NUMBER_BYTES;
/// Bytes of the number of a call: our extension.
const NUMBER_BYTES: usize = 4;

/// Returns the phits of a network packet with so many bytes of data.
pub fn phits(payload: usize) -> u64 {
    let bytes = (HEADER_BYTES + NAMES_BYTES + payload).next_power_of_two();
    bytes.div_ceil(PHIT_BYTES) as u64
}

/// Returns the inputs of each of the two chains of a gather reduction unit, whose results it combines last (section 4.3):
/// ((a b) c) and (d e) of five.
pub fn fold_order(inputs: usize) -> (usize, usize) {
    (inputs.div_ceil(2), inputs / 2)
}

/// Returns the cycles of a switch of `radix` ports from the last input of a step to its result: those of the collective control,
/// and of a chain of aggregation units if it combines.
pub fn unit_cycles(radix: usize, combine: Option<Combine>, control_cycles: u64, float_cycles: u64) -> u64 {
    control_cycles
        + combine.map_or(0, |combine| {
            let is_float = matches!(combine.element, Element::F32 | Element::F64);
            let stages = radix.div_ceil(2) as u64 + 1;
            stages * if is_float { float_cycles } else { 1 }
        })
}
