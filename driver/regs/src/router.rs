//! The router block of a card of Novo-G#: the tables of its statically scheduled router, in two banks.
//!
//! Formats of entries and what they mean are in `docs/novo-g.md`. One bank is in force, and the host writes to the other one, which
//! is staged. A commit exchanges the banks of all cards of the torus at once.
//!
//! A host loads tables like this: it writes counts and entries, reads them back, and writes a number to [`STAGED`], on every card. As
//! soon as every card reads that number there, one write to [`COMMIT`] of any card takes the tables into force. Until then nothing
//! has changed for packets.

use crate::registers;

/// Bytes of the whole block.
pub const BLOCK_BYTES: u32 = 0x2000;
/// Where the window to a table begins.
pub const WINDOW_OFFSET: u32 = 0x1000;
/// Bytes of an entry in the window.
pub const ENTRY_BYTES: u32 = 16;
/// Entries in the window.
pub const WINDOW_ENTRIES: u32 = (BLOCK_BYTES - WINDOW_OFFSET) / ENTRY_BYTES;
/// What [`MAGIC`] reads: the letters ROUT.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"ROUT");
/// Version of this register block, major in the upper half. A host refuses a card of another major version.
pub const VERSION_VALUE: u32 = 0x0001_0000;
/// Bit of [`SELECT`]: the window and the counts are those of the bank in force, for reads.
pub const IN_FORCE: u32 = 1 << 8;
/// Words of an entry of each table, by its number in [`SELECT`].
pub const ENTRY_WORDS: [u32; 4] = [1, 4, 1, 1];
/// Registers with the number of entries of each table, by its number in [`SELECT`].
pub const COUNTS: [u32; 4] = [ROUTES, MULTICASTS, REDUCTIONS, SOURCES];
/// [`REFUSED`]: the last commit was done.
pub const COMMITTED: u32 = 0;
/// [`REFUSED`]: a card, in 31:16, has not staged tables under this number.
pub const NOT_STAGED: u32 = 1;
/// [`REFUSED`]: user logic of a card, in 31:16, has not ended a run.
pub const RUN_UNDER_WAY: u32 = 2;

registers! {
    FEATURE_HEADER_LO = 0x000, ReadOnly, None, "Device Feature Header, bits 31:0.";
    FEATURE_HEADER_HI = 0x004, ReadOnly, None, "Device Feature Header, bits 63:32.";
    GUID_0 = 0x008, ReadOnly, None, "GUID of the router block, low 64 bits, bits 31:0.";
    GUID_1 = 0x00c, ReadOnly, None, "GUID of the router block, low 64 bits, bits 63:32.";
    GUID_2 = 0x010, ReadOnly, None, "GUID of the router block, high 64 bits, bits 31:0.";
    GUID_3 = 0x014, ReadOnly, None, "GUID of the router block, high 64 bits, bits 63:32.";
    reserved 0x018..0x020;
    MAGIC = 0x020, ReadOnly, None, "The letters ROUT, 0x54554f52.";
    VERSION = 0x024, ReadOnly, None, "Version of this register block: 31:16 major, 15:0 minor.";
    NODE = 0x028, ReadOnly, None, "Number of this card in the torus, from 0.";
    SIDES = 0x02c, ReadOnly, None, "Cards along each dimension: 7:0 X, 15:8 Y, 23:16 Z. Node x + X (y + Y z) stands at (x, y, z).";
    ENTRIES = 0x030, ReadOnly, None, "Entries that each table holds.";
    INPUT_PACKETS = 0x034, ReadOnly, None, "Packets that the buffer of a link's input holds.";
    reserved 0x038..0x100;
    SELECT = 0x100, ReadWrite, Some(0), "7:0 the table in the window: 0 routing, 1 multicast, 2 reduction, 3 sources; bit 8: counts and window read from the bank in force. Writes go to the staged bank.";
    PAGE = 0x104, ReadWrite, Some(0), "The window shows the entries of the table from 256 * PAGE on.";
    ROUTES = 0x108, ReadWrite, Some(0), "Entries of the routing table. New ones are zero.";
    MULTICASTS = 0x10c, ReadWrite, Some(0), "Entries of the multicast table.";
    REDUCTIONS = 0x110, ReadWrite, Some(0), "Entries of the reduction table.";
    SOURCES = 0x114, ReadWrite, Some(0), "Entries of the table of sources.";
    STAGED = 0x118, ReadWrite, Some(0), "Number under which the staged tables are complete; 0 while they are not. It stays 0 if an entry is not in the format of its table. A write to a count or to the window zeroes it.";
    COMMIT = 0x11c, WriteOnly, Some(0), "Writing the number of the staged tables takes them into force on all cards of the torus at once, if STAGED of every card has it, and no user logic is running. Else no card changes, and REFUSED says why.";
    GENERATION = 0x120, ReadOnly, Some(0), "Number of the tables in force; 0 none. Like the tables, it stays over a reset of the function, because packets of other cards pass.";
    REFUSED = 0x124, ReadOnly, Some(0), "15:0 why the last COMMIT of this card changed nothing: 0 it did; 1 the card in 31:16 has not staged tables under this number; 2 the user logic of the card in 31:16 has not ended a run.";
    SENT = 0x128, ReadOnly, Some(0), "Packets that the router sent over links in the last run.";
    DEPTH_MAX = 0x12c, ReadOnly, Some(0), "Most packets that waited in the buffer of one link's input in the last run.";
    LOST = 0x130, ReadOnly, Some(0), "Packets lost in the last run because the buffer of an input was full: nothing holds a sender back.";
    STRAY = 0x134, ReadOnly, Some(0), "Packets lost in the last run because they had no entry, or passed more cards than the torus has.";
    DROPPED = 0x138, ReadOnly, Some(0), "Packets that links brought with a wrong checksum in the last run, and that were dropped.";
    reserved 0x13c..0x1000;
}

/// Entries of the table of sources: where the packets of the card's user logic enter the network.
pub mod source {
    /// Puts an entry together: 15:0 index in the card's routing table, 18:16 input of the router, one for each link.
    pub const fn encode(index: u16, input: u8) -> u32 {
        index as u32 | (input as u32 & 7) << 16
    }

    /// Takes an entry apart: index and input. `None` for an input that no router has, or set bits above.
    pub const fn decode(entry: u32) -> Option<(u16, u8)> {
        match entry >> 16 {
            input @ 0..=5 => Some((entry as u16, input as u8)),
            _ => None,
        }
    }
}
