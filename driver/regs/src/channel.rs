//! The channel block of a CIRCUS card: its place in the network, its routing table, and the host's ends of channels.
//!
//! The block is 8 KiB. Its first 24 bytes are its Device Feature Header (see [`crate::feature_list`]); capabilities follow,
//! then control and counters, then one page of registers for each end at [`ENDS_OFFSET`], and the routing table at
//! [`ROUTES_OFFSET`].
//!
//! Data moves through a ring of slots in host memory, one ring for each end. A slot begins with its header, [`slot`]; whole
//! words follow. Data paths read no register:
//!
//! - An end that writes to the network: the host fills slots and rings [`end::DOORBELL`]. The card reads them, and writes the number of slots
//!   it has taken to the 8 bytes at [`end::COUNT_BASE_LO`].
//! - An end that reads from the network: the card writes the bytes of a slot, then its header, whose sequence number shows
//!   that the slot is complete. The host rings [`end::DOORBELL`] with the number of slots that it has taken.

use crate::registers;

/// Bytes of the whole block.
pub const BLOCK_BYTES: u32 = 0x2000;
/// Where the registers of the ends begin.
pub const ENDS_OFFSET: u32 = 0x200;
/// Where the routing table begins: one register for each destination.
pub const ROUTES_OFFSET: u32 = 0x1000;
/// Destinations that the routing table has room for.
pub const ROUTES_MAX: u32 = 256;
/// What [`MAGIC`] reads: the letters CHAN.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"CHAN");
/// Version of this register block, major in the upper half. A host refuses a card of another major version.
pub const VERSION_VALUE: u32 = 0x0001_0001;
/// What must be written to [`ROUTES_LOAD`] to take effect.
pub const LOAD_VALUE: u32 = u32::from_le_bytes(*b"LOAD");
/// Entry of the routing table for a destination without a route.
pub const NO_ROUTE: u32 = 0xff;

registers! {
    FEATURE_HEADER_LO = 0x000, ReadOnly, None, "Device Feature Header, bits 31:0.";
    FEATURE_HEADER_HI = 0x004, ReadOnly, None, "Device Feature Header, bits 63:32.";
    GUID_0 = 0x008, ReadOnly, None, "GUID of the channel block, low 64 bits, bits 31:0.";
    GUID_1 = 0x00c, ReadOnly, None, "GUID of the channel block, low 64 bits, bits 63:32.";
    GUID_2 = 0x010, ReadOnly, None, "GUID of the channel block, high 64 bits, bits 31:0.";
    GUID_3 = 0x014, ReadOnly, None, "GUID of the channel block, high 64 bits, bits 63:32.";
    reserved 0x018..0x020;
    MAGIC = 0x020, ReadOnly, None, "The letters CHAN, 0x4e414843.";
    VERSION = 0x024, ReadOnly, None, "Version of this register block: 31:16 major, 15:0 minor.";
    NODE = 0x028, ReadOnly, None, "Number of this card in the network, from 0.";
    COLUMNS = 0x02c, ReadOnly, None, "Columns of the torus. Node n stands in column n modulo COLUMNS.";
    ROWS = 0x030, ReadOnly, None, "Rows of the torus.";
    PORTS = 0x034, ReadOnly, None, "Ports of the router, with the one to the card's own kernels, which is the last: east, west, north, south, own.";
    PACKET_BYTES = 0x038, ReadOnly, None, "Bytes of a packet.";
    PAYLOAD_BYTES = 0x03c, ReadOnly, None, "Bytes of the payload of a packet.";
    WORD_BYTES_MAX = 0x040, ReadOnly, None, "Most bytes of a word of a channel.";
    ENDS = 0x044, ReadOnly, None, "Ends of channels that the host can open.";
    SLOT_BYTES_MAX = 0x048, ReadOnly, None, "Most bytes of a slot; a power of two.";
    SLOTS_MAX = 0x04c, ReadOnly, None, "Most slots of a ring; a power of two.";
    DMA_BITS = 0x050, ReadOnly, None, "Address bits of the card's DMA: host memory must be below 2^DMA_BITS.";
    FEATURES = 0x054, ReadOnly, None, "Features of the card: see the bits of FEATURES of a channel block. Reads 0 before version 1.1.";
    reserved 0x058..0x100;
    STATUS = 0x100, ReadOnly, None, "State of the block: see the bits of STATUS of a channel block.";
    ROUTES_LOAD = 0x104, WriteOnly, Some(0), "Writing the letters LOAD (0x44414f4c) makes the entries at ROUTES the router's table, all at once. The router keeps its table over a reset of the function, because packets of other cards pass.";
    PENDING = 0x108, WriteOneToClear, Some(0), "Bit n: vector n was raised and not delivered. If MSI-X is off, INTx is asserted while a bit is set.";
    LOST_FULL = 0x10c, ReadOnly, None, "Packets lost because the buffer of an input of the router was full, modulo 2^32. A reset of the function does not clear it.";
    LOST_NO_ROUTE = 0x110, ReadOnly, None, "Packets lost because the router's table has no entry for their destination, or because they have crossed as many links as there are cards, modulo 2^32. A reset of the function does not clear it.";
    LOST_NO_CHANNEL = 0x114, ReadOnly, None, "Packets lost because no open end and no kernel of the card reads their channel, or because what reads it misses packets before them in their message, modulo 2^32. A reset of the function does not clear it.";
    reserved 0x118..0x200;
}

/// The registers of one end; end `n` lies at [`end::base`]`(n)` in the block.
pub mod end {
    use crate::registers;

    /// Bytes from one end's registers to the next's.
    pub const STRIDE: u32 = 0x40;
    /// Ends that fit before the routing table.
    pub const MAX: u32 = (super::ROUTES_OFFSET - super::ENDS_OFFSET) / STRIDE;
    /// [`DIRECTION`] of an end at which the host writes to the network.
    pub const WRITES: u32 = 0;
    /// [`DIRECTION`] of an end at which the host reads from the network.
    pub const READS: u32 = 1;

    /// Offset of end `n`'s registers in the block.
    pub const fn base(n: u32) -> u32 {
        super::ENDS_OFFSET + n * STRIDE
    }

    registers! {
        DIRECTION = 0x00, ReadWrite, Some(0), "0: the host writes to the network; 1: it reads from it. Fixed while enabled.";
        CHANNEL = 0x04, ReadWrite, Some(0), "Id of the channel, 0 to 255. Fixed while enabled.";
        PEER = 0x08, ReadWrite, Some(0), "Node of the end that reads, if this one writes. Fixed while enabled.";
        WORD_BYTES = 0x0c, ReadWrite, Some(0), "Bytes of a word, 1 to WORD_BYTES_MAX. Fixed while enabled.";
        RING_BASE_LO = 0x10, ReadWrite, Some(0), "IOVA of the ring, bits 31:0; 64-byte aligned. Fixed while enabled.";
        RING_BASE_HI = 0x14, ReadWrite, Some(0), "IOVA of the ring, bits 63:32. Fixed while enabled.";
        COUNT_BASE_LO = 0x18, ReadWrite, Some(0), "IOVA of the 8 bytes to which an end that writes reports the slots it has taken, modulo 2^32, bits 31:0; 8-byte aligned. Fixed while enabled.";
        COUNT_BASE_HI = 0x1c, ReadWrite, Some(0), "IOVA of the 8 bytes for the slots taken, bits 63:32. Fixed while enabled.";
        SLOT_BYTES = 0x20, ReadWrite, Some(0), "Bytes of a slot, a power of two from 64 to SLOT_BYTES_MAX, with room for the header and a word. Fixed while enabled.";
        SLOTS = 0x24, ReadWrite, Some(0), "Slots of the ring, a power of two from 2 to SLOTS_MAX. Fixed while enabled.";
        VECTOR = 0x28, ReadWrite, Some(0), "MSI-X vector of the end.";
        ENABLE = 0x2c, ReadWrite, Some(0), "Bit 0: the end is open. Setting it zeroes all counts; it stays 0 if a register above is invalid, if another end or a kernel reads the channel, or if words that this end took before wait to be sent. After clearing it, it reads 1 until the card makes no more access to the host memory of this end.";
        DOORBELL = 0x30, WriteOnly, Some(0), "Slots since ENABLE, modulo 2^32: those that the host has filled if it writes, those that it has taken if it reads.";
        INTERRUPT_ARM = 0x34, WriteOnly, Some(0), "Raises the vector once, when COUNT is more than the value written; at once if it already is.";
        COUNT = 0x38, ReadOnly, Some(0), "Slots since ENABLE, modulo 2^32: those that the card has taken or filled.";
        FAULT = 0x3c, ReadOnly, Some(0), "Why the end has stopped; setting ENABLE clears it. 0 it has not; 1 the bus refused a read of host memory; 2 the bus refused a write; 3 a slot has an invalid header; 4 a doorbell announced more slots than the ring has, or went backwards.";
    }
}

/// The header of a slot: its first 8 bytes, little-endian.
pub mod slot {
    /// Bytes of the header.
    pub const HEADER_BYTES: u32 = 8;
    /// Fewest bytes of a slot.
    pub const BYTES_MIN: u32 = 64;
    /// Bit of the upper word: the last word in the slot ends a message. Only in slots that the host fills.
    pub const LAST: u32 = 1 << 31;

    /// Puts a header together: bits 31:0 the number of the slot since ENABLE, from 1, modulo 2^32; 62:32 the bytes behind the
    /// header; 63 [`LAST`].
    pub const fn encode(sequence: u32, bytes: u32, is_last: bool) -> u64 {
        let upper = bytes | if is_last { LAST } else { 0 };
        sequence as u64 | (upper as u64) << 32
    }

    /// Takes a header apart: sequence number, bytes, and whether a message ends.
    pub const fn decode(header: u64) -> (u32, u32, bool) {
        let upper = (header >> 32) as u32;
        (header as u32, upper & !LAST, upper & LAST != 0)
    }
}
