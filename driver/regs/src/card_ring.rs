//! Memory on the card for the rings of a sequencer that does not master the bus: where it is for each who uses it.
//!
//! The block says nothing that a host could change. The memory has three sides: the host sees it in a BAR, the
//! sequencer fetches instructions from it and writes completions to it, and the shell's DMA engine reaches it as it reaches card
//! memory. If [`BAR`] is the BAR of the sequencer's registers, both are behind one AXI4-Lite master, which keeps the order of the host's
//! writes: a word is in the memory before the doorbell behind it acts. In another BAR the memory is behind another master, and a doorbell
//! may overtake a word: a host reads the last word back before it rings. The engine's side is a master of its own, and keeps no order
//! with them.

use crate::registers;

/// Bytes of the block.
pub const BLOCK_BYTES: u32 = 0x40;
/// What [`MAGIC`] reads: the letters RING.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"RING");
/// Version of this register block, major in the upper half. A host refuses a card of another major version.
pub const VERSION_VALUE: u32 = 0x0002_0000;
/// What [`INTERRUPT`] reads if the sequencer has none.
pub const NO_INTERRUPT: u32 = 0xff;

registers! {
    FEATURE_HEADER_LO = 0x00, ReadOnly, None, "Device Feature Header, bits 31:0.";
    FEATURE_HEADER_HI = 0x04, ReadOnly, None, "Device Feature Header, bits 63:32.";
    GUID_0 = 0x08, ReadOnly, None, "GUID of the block, low 64 bits, bits 31:0.";
    GUID_1 = 0x0c, ReadOnly, None, "GUID of the block, low 64 bits, bits 63:32.";
    GUID_2 = 0x10, ReadOnly, None, "GUID of the block, high 64 bits, bits 31:0.";
    GUID_3 = 0x14, ReadOnly, None, "GUID of the block, high 64 bits, bits 63:32.";
    MAGIC = 0x18, ReadOnly, None, "The letters RING, 0x474e4952.";
    VERSION = 0x1c, ReadOnly, None, "Version of this register block: 31:16 major, 15:0 minor.";
    OFFSET = 0x20, ReadOnly, None, "Where the memory is in BAR, from the beginning of the BAR: a multiple of 64.";
    BYTES = 0x24, ReadOnly, None, "Bytes of the memory.";
    SEQUENCER_LO = 0x28, ReadOnly, None, "Address of the memory for the sequencer, bits 31:0; a multiple of 64.";
    SEQUENCER_HI = 0x2c, ReadOnly, None, "Address of the memory for the sequencer, bits 63:32.";
    ENGINE_LO = 0x30, ReadOnly, None, "Address of the memory for the DMA engine, bits 31:0; a multiple of 64.";
    ENGINE_HI = 0x34, ReadOnly, None, "Address of the memory for the DMA engine, bits 63:32.";
    INTERRUPT = 0x38, ReadOnly, None, "Interrupt of user logic that is asserted while the sequencer's PENDING is not zero; 0xff: none.";
    BAR = 0x3c, ReadOnly, None, "BAR of the memory, 0 to 5. If it is not the BAR of this block, a doorbell may overtake a word: read the word back before.";
}
