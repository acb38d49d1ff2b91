//! The decoupler of this project's shell for Alveo cards: cuts the region with the sequencer off while it is configured, and says what
//! it holds.

use crate::registers;

/// Bytes of the block.
pub const BLOCK_BYTES: u32 = 0x40;
/// What [`MAGIC`] reads: the letters DCPL.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"DCPL");

registers! {
    MAGIC = 0x00, ReadOnly, Some(MAGIC_VALUE), "Identifies the block.";
    CONTROL = 0x04, ReadWrite, Some(0), "The region is to be cut off in 0.";
    STATUS = 0x08, ReadOnly, Some(0), "The region is cut off in 0.";
    DEVICE = 0x0c, ReadOnly, None, "IDCODE of the FPGA.";
    LOGIC_0 = 0x10, ReadOnly, None, "GUID of what the region holds, bits 31:0; all 0 if it holds nothing.";
    LOGIC_1 = 0x14, ReadOnly, None, "Bits 63:32.";
    LOGIC_2 = 0x18, ReadOnly, None, "Bits 95:64.";
    LOGIC_3 = 0x1c, ReadOnly, None, "Bits 127:96.";
    INTERFACE_0 = 0x20, ReadOnly, None, "Id of the interface that images must be made for, bits 31:0.";
    INTERFACE_1 = 0x24, ReadOnly, None, "Bits 63:32.";
    INTERFACE_2 = 0x28, ReadOnly, None, "Bits 95:64.";
    INTERFACE_3 = 0x2c, ReadOnly, None, "Bits 127:96.";
    reserved 0x30..0x40;
}

/// Bit of [`CONTROL`] and [`STATUS`]: the region is cut off.
pub const CUT_OFF: u32 = 1 << 0;
