//! AXI HWICAP, AMD's block that configures the FPGA from inside, and the words that configure it.
//!
//! Source: AMD PG134 and XAPP1338; UG570 for the configuration registers; Linux `drivers/char/xilinx_hwicap`.

use crate::registers;

/// Bytes of the block.
pub const BLOCK_BYTES: u32 = 0x120;

registers! {
    reserved 0x00..0x1c;
    INTERRUPT_GLOBAL = 0x1c, ReadWrite, Some(0), "Interrupts are enabled in 31.";
    INTERRUPT_STATUS = 0x20, WriteOneToClear, Some(0), "Causes of interrupts.";
    reserved 0x24..0x28;
    INTERRUPT_ENABLE = 0x28, ReadWrite, Some(0), "Enabled causes.";
    reserved 0x2c..0x100;
    WRITE_FIFO = 0x100, WriteOnly, Some(0), "The next word to be written.";
    READ_FIFO = 0x104, ReadOnly, Some(0), "The next word that was read.";
    SIZE = 0x108, ReadWrite, Some(0), "Words to be read.";
    CONTROL = 0x10c, ReadWrite, Some(0), "Write what is in the queue in 0, read SIZE words in 1, clear the queues in 2, reset in 3, abort in 4; the card clears them.";
    STATUS = 0x110, ReadOnly, Some(DONE | END_OF_STARTUP), "Nothing is under way in 0; the FPGA has started in 2.";
    VACANCY = 0x114, ReadOnly, Some(FIFO_WORDS), "Words that the write queue takes.";
    OCCUPANCY = 0x118, ReadOnly, Some(0), "Words in the read queue.";
    ABORT_STATUS = 0x11c, ReadOnly, Some(0), "State at the last abort.";
}

/// Words that the write queue of this project's shell takes.
pub const FIFO_WORDS: u32 = 1024;
/// Bit of [`CONTROL`]: write what is in the queue.
pub const WRITE: u32 = 1 << 0;
/// Bit of [`CONTROL`]: read [`SIZE`] words.
pub const READ: u32 = 1 << 1;
/// Bit of [`CONTROL`]: clear the queues.
pub const CLEAR: u32 = 1 << 2;
/// Bit of [`CONTROL`]: reset the block.
pub const RESET: u32 = 1 << 3;
/// Bit of [`CONTROL`]: abort what is under way.
pub const ABORT: u32 = 1 << 4;
/// Bit of [`STATUS`]: nothing is under way.
pub const DONE: u32 = 1 << 0;
/// Bit of [`STATUS`]: the FPGA has started.
pub const END_OF_STARTUP: u32 = 1 << 2;

/// Words that configure the FPGA: headers of packets, and the registers that they reach.
pub mod words {
    /// Nothing; comes before [`SYNC`].
    pub const DUMMY: u32 = 0xffff_ffff;
    /// Packets begin behind it.
    pub const SYNC: u32 = 0xaa99_5566;
    /// A packet without effect.
    pub const NOOP: u32 = 0x2000_0000;
    /// Checksum: a write compares it with that of what was written before.
    pub const CRC: u32 = 0;
    /// Data of the configuration memory.
    pub const FRAME_DATA: u32 = 2;
    /// Command.
    pub const COMMAND: u32 = 4;
    /// State.
    pub const STATUS: u32 = 7;
    /// Which device the data is for.
    pub const IDCODE: u32 = 12;
    /// Bits of an IDCODE that say which device it is: all but its revision, with which images for the device go all the same.
    pub const IDCODE_DEVICE: u32 = 0x0fff_ffff;
    /// Command: frame data is to be written.
    pub const WRITE_CONFIGURATION: u32 = 1;
    /// Command: the checksum begins anew.
    pub const RESET_CRC: u32 = 7;
    /// Command: no more packets.
    pub const DESYNC: u32 = 13;
    /// Bit of STATUS: the checksum was wrong.
    pub const CRC_ERROR: u32 = 1 << 0;
    /// Bit of STATUS: the data is for another device.
    pub const IDCODE_ERROR: u32 = 1 << 15;
    /// Number and meaning of the bits of STATUS that are errors.
    pub const ERRORS: [(u32, &str); 3] =
        [(0, "checksum of the image"), (15, "image for another device"), (16, "the device's security forbids it")];

    /// Returns the header of a packet that writes `count` words to a register.
    pub const fn write(register: u32, count: u32) -> u32 {
        1 << 29 | 2 << 27 | register << 13 | count
    }

    /// Returns the header of a packet that reads a word of a register.
    pub const fn read(register: u32) -> u32 {
        1 << 29 | 1 << 27 | register << 13 | 1
    }

    /// Returns the header of a packet with `count` more words for the register of the packet before.
    pub const fn more(count: u32) -> u32 {
        2 << 29 | 2 << 27 | count
    }
}
