//! HE-LB, the host exerciser of the shell: an accelerator that reads and writes host memory, to test the way there.
//!
//! Source: OFS `ofs-fim-common`, `HE-Loopback_CSR.xls` and `he_lb_csr.sv`; OPAE `host_exerciser.h`.

use super::register::Writes::{Ignored, Kept};
use super::register::registers;

/// GUID of the accelerator, `56e203e9-864f-49a7-b94b-12284c31e02b`.
pub const GUID: u128 = 0x56e203e9_864f_49a7_b94b_12284c31e02b;
/// Its header: the list ends with it.
pub const HEADER: u64 = 0x1000_0100_0000_0000;
/// Bytes of a line: addresses are numbers of lines.
pub const LINE_BYTES: u64 = 64;
/// Most lines of a run.
pub const LINES_MAX: u32 = 1024;

registers! {
    GUID_LO = 0x08, Ignored, Some(GUID as u64), "Lower half of the GUID.";
    GUID_HI = 0x10, Ignored, Some((GUID >> 64) as u64), "Upper half of the GUID.";
    SCRATCHPAD_0 = 0x100, Kept(u64::MAX), Some(0), "Anything.";
    SCRATCHPAD_1 = 0x108, Kept(u64::MAX), Some(0), "Anything.";
    STATUS_ADDRESS = 0x110, Kept(u64::MAX), Some(0), "Line of host memory where the status of a run is written.";
    SOURCE = 0x120, Kept(u64::MAX), Some(0), "Line of host memory from which is read.";
    DESTINATION = 0x128, Kept(u64::MAX), Some(0), "Line of host memory to which is written.";
    LINES = 0x130, Kept(0x3ff), Some(0), "Lines of a run, less one.";
    CONTROL = 0x138, Kept(7), Some(0), "Out of reset in 0; start in 1, at its rising edge; end a continuous run in 2.";
    CONFIG = 0x140, Kept(CONTINUOUS | MODE | LENGTH_LOW | LENGTH_HIGH | INTERLEAVE | INTERRUPT), Some(0), "Continuous in 1; mode in 4:2; lines of a request as a power of two in 6:5 and, higher, in 31:30; interleaving of mode 3 in 22:20; interrupt in 29.";
    INACTIVITY = 0x148, Kept(0xffff_ffff), Some(0), "Cycles without progress after which an error is noted.";
    INTERRUPT_0 = 0x150, Kept(0xffff_ffff), Some(0), "Vector in 31:16.";
    MESSAGE = 0x158, Kept(u64::MAX), Some(0), "For tests of software.";
    STATUS_0 = 0x160, Ignored, None, "Lines written in 31:0, read in 63:32.";
    STATUS_1 = 0x168, Ignored, Some(0), "Requests that are not answered: writes 15:0, reads 31:16.";
    ERROR = 0x170, Ignored, None, "What failed.";
    STRIDE = 0x178, Kept(0xffff_ffff), Some(0), "Distance of lines.";
    INFO = 0x180, Ignored, None, "Clock in MHz in 15:0, version of the registers in 23:16, no atomic operations in 24.";
}

/// Bit of CONTROL: out of reset.
pub const OUT_OF_RESET: u64 = 1 << 0;
/// Bit of CONTROL: start.
pub const START: u64 = 1 << 1;
/// Bit of CONTROL: end a continuous run.
pub const FORCE_END: u64 = 1 << 2;

/// Bit of CONFIG: repeat until it is ended.
pub const CONTINUOUS: u64 = 1 << 1;
/// Bits of CONFIG: the mode.
pub const MODE: u64 = 7 << MODE_SHIFT;
/// Place of the mode in CONFIG.
pub const MODE_SHIFT: u32 = 2;
/// Bits of CONFIG: lines of a request as a power of two, the lower two bits.
pub const LENGTH_LOW: u64 = 3 << LENGTH_LOW_SHIFT;
/// Place of the lower two bits of the length.
pub const LENGTH_LOW_SHIFT: u32 = 5;
/// Bits of CONFIG: the upper two bits of the length.
pub const LENGTH_HIGH: u64 = 3 << LENGTH_HIGH_SHIFT;
/// Place of the upper two bits of the length.
pub const LENGTH_HIGH_SHIFT: u32 = 30;
/// Bits of CONFIG: order of reads and writes in mode 3.
const INTERLEAVE: u64 = 7 << 20;
/// Bit of CONFIG: an interrupt at the end.
pub const INTERRUPT: u64 = 1 << 29;
/// Largest power of two of the lines of a request.
pub const LENGTH_MAX: u32 = 4;

/// Mode: what is read is written.
pub const LOOPBACK: u64 = 0;
/// Mode: only read.
pub const READ: u64 = 1;
/// Mode: only write.
pub const WRITE: u64 = 2;
/// Mode: read and write, independently.
pub const THROUGHPUT: u64 = 3;

/// Bytes of the status of a run in host memory.
pub const STATUS_BYTES: usize = 64;
/// Offset of its first word: ended in bit 0, number in 15:1, errors in 63:32.
pub const STATUS_ENDED: usize = 0;
/// Offset of its second word: cycles in 39:0; bits 39:32 of the lines read in 55:48, written in 63:56.
pub const STATUS_CYCLES: usize = 8;
/// Offset of its third word: lines read in 31:0, written in 63:32.
pub const STATUS_LINES: usize = 16;
