//! The channels of AMD's DMA engine through which a sequencer masters the bus: descriptor bypass.
//!
//! A channel that was built with descriptor bypass takes its descriptors from ports of user logic, and fetches none from host memory
//! (PG195, "Descriptor Bypass Mode"). The host gives it no list: it sets RUN, and the sequencer loads a descriptor for each of its
//! requests. No register of the engine tells which channels were built so; this block does. It says nothing that a host could change.

use crate::registers;

/// Bytes of the block.
pub const BLOCK_BYTES: u32 = 0x40;
/// What [`MAGIC`] reads: the letters BYPS.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"BYPS");
/// Version of this register block, major in the upper half. A host refuses a card of another major version.
pub const VERSION_VALUE: u32 = 0x0001_0000;
/// What [`INTERRUPT`] reads if the sequencer has none.
pub const NO_INTERRUPT: u32 = 0xff;

registers! {
    FEATURE_HEADER_LO = 0x00, ReadOnly, None, "Device Feature Header, bits 31:0.";
    FEATURE_HEADER_HI = 0x04, ReadOnly, None, "Device Feature Header, bits 63:32.";
    GUID_0 = 0x08, ReadOnly, None, "GUID of the block, low 64 bits, bits 31:0.";
    GUID_1 = 0x0c, ReadOnly, None, "GUID of the block, low 64 bits, bits 63:32.";
    GUID_2 = 0x10, ReadOnly, None, "GUID of the block, high 64 bits, bits 31:0.";
    GUID_3 = 0x14, ReadOnly, None, "GUID of the block, high 64 bits, bits 63:32.";
    MAGIC = 0x18, ReadOnly, None, "The letters BYPS, 0x53505942.";
    VERSION = 0x1c, ReadOnly, None, "Version of this register block: 31:16 major, 15:0 minor.";
    H2C_CHANNEL = 0x20, ReadOnly, None, "Number of the H2C channel through which the sequencer reads host memory.";
    C2H_CHANNEL = 0x24, ReadOnly, None, "Number of the C2H channel through which the sequencer writes host memory.";
    INTERRUPT = 0x28, ReadOnly, None, "Interrupt of user logic that is asserted while the sequencer's PENDING is not zero; 0xff: none.";
    reserved 0x2c..0x40;
}
