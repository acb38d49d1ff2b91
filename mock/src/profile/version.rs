//! Versions of the registers, and what older ones lack.

use fpga_regs::sequencer;

/// The oldest minor version that a mock card can have.
pub(crate) const OLDEST: u32 = 3;
/// The minor version of the registers in `fpga-regs`.
pub(crate) const CURRENT: u32 = sequencer::VERSION_VALUE & 0xffff;
/// The first minor version with lanes.
pub(crate) const LANES: u32 = 4;
/// The first minor version with windows.
pub(crate) const WINDOWS: u32 = 5;
/// The first minor version with routers.
pub(crate) const ROUTERS: u32 = 6;

/// The first minor version with switches that compute.
pub(crate) const SWITCHES: u32 = 7;

/// The first minor version that counts bit errors.
pub(crate) const BIT_ERRORS: u32 = 6;

/// Whether cards of minor version `minor` have the register at `offset` of the sequencer's block. Others read as zero.
pub(crate) const fn has_register(minor: u32, offset: u32) -> bool {
    match offset {
        sequencer::LANES => minor >= LANES,
        sequencer::WINDOWS => minor >= WINDOWS,
        sequencer::NETWORK_COLLECTIVES
        | sequencer::NETWORK_REDUCTIONS
        | sequencer::NETWORK_ELEMENT_TYPES
        | sequencer::NETWORK_CYCLES
        | sequencer::NETWORK_ENTRY_PS
        | sequencer::NETWORK_PHIT_PS
        | sequencer::NETWORK_FIFO_PHITS => minor >= SWITCHES,
        sequencer::HOP_PS => minor >= ROUTERS,
        sequencer::LINK_ERRORS | sequencer::MEMORY_CORRECTED => minor >= BIT_ERRORS,
        _ => true,
    }
}
