//! The block of the user logic that transforms lines of three-dimensional arrays, on a card of Novo-G#.
//!
//! The points of a card are in its memory, 8 bytes each: two single-precision numbers, little-endian. Its lines along X follow each
//! other. The packets of a corner turn enter the network by the sources of the card's router block: an entry for each card that points go
//! to in the XY corner turn, the farthest first, then in the YZ corner turn (`docs/novo-g.md`).
//!
//! A host writes the registers from [`SIDE`] to [`EXPECTED_YZ`] and then a number to [`ARM`], on every card. As soon as every card reads
//! that number, one write to [`START`] of any card starts all.

use crate::registers;

/// Bytes of the whole block.
pub const BLOCK_BYTES: u32 = 0x1000;
/// What [`MAGIC`] reads: the letters FFT3.
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"FFT3");
/// Version of this register block, major in the upper half. A host refuses a card of another major version.
pub const VERSION_VALUE: u32 = 0x0001_0000;
/// [`STATE`]: nothing to do.
pub const IDLE: u32 = 0;
/// [`STATE`]: waits for the start.
pub const ARMED: u32 = 1;
/// [`STATE`]: transforms lines, or waits for points.
pub const RUNNING: u32 = 2;
/// [`STATE`]: the result is in memory.
pub const DONE: u32 = 3;
/// [`REFUSED`]: the last start was done.
pub const STARTED: u32 = 0;
/// [`REFUSED`]: a card, in 31:16, is not armed with this number and the same transform.
pub const NOT_ARMED: u32 = 1;
/// [`REFUSED`]: the sources of a card, in 31:16, are not those of this transform.
pub const NO_SOURCES: u32 = 2;
/// [`REFUSED`]: the cards do not hold a transform of this size, or have fewer cores.
pub const NO_FIT: u32 = 3;
/// [`REFUSED`]: the memory of a card, in 31:16, does not have the range, or has an error there.
pub const MEMORY: u32 = 4;
/// Lengths of lines, by register from [`CORES_16`] on.
pub const SIDES: [u32; 5] = [16, 32, 64, 128, 256];

registers! {
    FEATURE_HEADER_LO = 0x000, ReadOnly, None, "Device Feature Header, bits 31:0.";
    FEATURE_HEADER_HI = 0x004, ReadOnly, None, "Device Feature Header, bits 63:32.";
    GUID_0 = 0x008, ReadOnly, None, "GUID of the FFT block, low 64 bits, bits 31:0.";
    GUID_1 = 0x00c, ReadOnly, None, "GUID of the FFT block, low 64 bits, bits 63:32.";
    GUID_2 = 0x010, ReadOnly, None, "GUID of the FFT block, high 64 bits, bits 31:0.";
    GUID_3 = 0x014, ReadOnly, None, "GUID of the FFT block, high 64 bits, bits 63:32.";
    reserved 0x018..0x020;
    MAGIC = 0x020, ReadOnly, None, "The letters FFT3, 0x33544646.";
    VERSION = 0x024, ReadOnly, None, "Version of this register block: 31:16 major, 15:0 minor.";
    CORES_16 = 0x028, ReadOnly, None, "Cores for lines of 16 points that fit the card; 0 none.";
    CORES_32 = 0x02c, ReadOnly, None, "Cores for lines of 32 points that fit the card; 0 none.";
    CORES_64 = 0x030, ReadOnly, None, "Cores for lines of 64 points that fit the card; 0 none.";
    CORES_128 = 0x034, ReadOnly, None, "Cores for lines of 128 points that fit the card; 0 none.";
    CORES_256 = 0x038, ReadOnly, None, "Cores for lines of 256 points that fit the card; 0 none.";
    CORE_KHZ = 0x03c, ReadOnly, None, "Clock of the cores.";
    ROUTER_KHZ = 0x040, ReadOnly, None, "Clock of the router.";
    reserved 0x044..0x100;
    SIDE = 0x100, ReadWrite, Some(0), "Points of a line. Fixed while ARM is not 0, as are the registers up to EXPECTED_YZ.";
    CORES = 0x104, ReadWrite, Some(0), "Cores to use.";
    INPUT_LO = 0x108, ReadWrite, Some(0), "Address of the card's points in its memory, bits 31:0.";
    INPUT_HI = 0x10c, ReadWrite, Some(0), "Address of the card's points, bits 63:32.";
    OUTPUT_LO = 0x110, ReadWrite, Some(0), "Address for the result, bits 31:0: lines along Z.";
    OUTPUT_HI = 0x114, ReadWrite, Some(0), "Address for the result, bits 63:32.";
    EXPECTED_XY = 0x118, ReadWrite, Some(0), "Packets that the card gets in the XY corner turn. The result counts only if the card has seen as many.";
    EXPECTED_YZ = 0x11c, ReadWrite, Some(0), "Packets that the card gets in the YZ corner turn.";
    ARM = 0x120, ReadWrite, Some(0), "Number of the run that the card is ready for. Writing it clears what the last run left; 0 ends a run that has not ended.";
    START = 0x124, WriteOnly, Some(0), "Writing a number starts all cards of the torus at once, if ARM of every card has it, with the same SIDE and CORES. Else none starts, and REFUSED says why.";
    STATE = 0x128, ReadOnly, Some(0), "0 idle; 1 armed; 2 running, or waiting for points; 3 done.";
    REFUSED = 0x12c, ReadOnly, Some(0), "15:0 why the last START of this card started nothing: 0 it did; 1 the card in 31:16 is not armed with this number and transform; 2 the sources of the card in 31:16 are not those of the transform; 3 the transform does not fit; 4 the memory of the card in 31:16 lacks the range or has an error there.";
    SEEN_XY = 0x130, ReadOnly, Some(0), "Packets of the XY corner turn that the card got.";
    SEEN_YZ = 0x134, ReadOnly, Some(0), "Packets of the YZ corner turn that the card got.";
    MISSING_XY = 0x138, ReadOnly, Some(0), "Points that the card lacks after the XY corner turn.";
    MISSING_YZ = 0x13c, ReadOnly, Some(0), "Points that the card lacks after the YZ corner turn.";
    FIRST_XY = 0x140, ReadOnly, Some(0), "The first point that the card lacks after the XY corner turn: line times SIDE, and place in the line.";
    FIRST_YZ = 0x144, ReadOnly, Some(0), "The first point that the card lacks after the YZ corner turn.";
    X_BEGIN = 0x148, ReadOnly, Some(0), "Lines along X, from the cycle of the cores after START in which the first began. More than X_END if there was none.";
    X_END = 0x14c, ReadOnly, Some(0), "Lines along X: the cycle of the cores in which the last one ended.";
    Y_BEGIN = 0x150, ReadOnly, Some(0), "Lines along Y, begin, as for X.";
    Y_END = 0x154, ReadOnly, Some(0), "Lines along Y, end.";
    Z_BEGIN = 0x158, ReadOnly, Some(0), "Lines along Z, begin, as for X.";
    Z_END = 0x15c, ReadOnly, Some(0), "Lines along Z, end.";
    XY_BEGIN = 0x160, ReadOnly, Some(0), "XY corner turn: the cycle of the router after START in which the card sent or got the first packet. More than XY_END if there was none.";
    XY_END = 0x164, ReadOnly, Some(0), "XY corner turn: the cycle of the router of the card's last packet.";
    YZ_BEGIN = 0x168, ReadOnly, Some(0), "YZ corner turn, begin, as for XY.";
    YZ_END = 0x16c, ReadOnly, Some(0), "YZ corner turn, end.";
    reserved 0x170..0x1000;
}
