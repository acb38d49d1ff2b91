//! Partial reconfiguration: a new accelerator behind the port.
//!
//! Source: OFS `ofs-fim-common`, `PG_CSR.xls`, `pr_ctrl.sv` and `pg_csr.sv` of the Stratix 10; Linux `drivers/fpga/dfl-fme-mgr.c`.

use super::register::Writes::{Clear, Control, Ignored, Pushed};
use super::register::registers;

/// Feature id.
pub const ID: u16 = 5;
/// Words that fit into the queue; also what CREDITS reads while the queue is empty, less one.
pub const QUEUE_WORDS: u32 = 512;
/// CREDITS while the queue is empty.
pub const CREDITS_IDLE: u32 = QUEUE_WORDS - 1;

registers! {
    CONTROL = 0x08, Control(KEPT, START | COMPLETE), Some(0), "Reset in 0, acknowledged in 4; region 9:7, ignored by the Stratix 10; start in 12, set until the end; complete in 13; kind in 14.";
    STATUS = 0x10, Ignored, Some(CREDITS_IDLE as u64), "Credits in 8:0; failed in 16; state of the controller in 22:20, of the host interface in 27:24.";
    DATA = 0x18, Pushed, Some(0), "The next 32 bits of the image.";
    ERROR = 0x20, Clear(ERROR_BITS), Some(0), "What failed. The Stratix 10 sets operation (0), protocol (3) and overflow (4).";
    INTERFACE_LO = 0xa8, Ignored, None, "Lower half of the id of the interface that an image must be made for.";
    INTERFACE_HI = 0xb0, Ignored, None, "Upper half of the id of the interface.";
}

/// Bit of CONTROL: reset of the engine.
pub const RESET: u64 = 1 << 0;
/// Bit of CONTROL: the reset is in force.
pub const RESET_ACK: u64 = 1 << 4;
/// Bits of CONTROL: the region.
pub const REGION: u64 = 7 << 7;
/// Bit of CONTROL: starts, and stays set until the end.
pub const START: u64 = 1 << 12;
/// Bit of CONTROL: the image has been pushed.
pub const COMPLETE: u64 = 1 << 13;
/// Bits of CONTROL that keep what was written.
pub const KEPT: u64 = RESET | REGION | 1 << 14;

/// Bits of STATUS: words that the queue takes.
pub const CREDITS: u64 = 0x1ff;
/// Bit of STATUS: ERROR is not zero.
pub const FAILED: u64 = 1 << 16;
/// Place of the controller's state in STATUS, 3 bits.
pub const CONTROLLER_SHIFT: u32 = 20;
/// Place of the host interface's state in STATUS, 4 bits.
pub const HOST_SHIFT: u32 = 24;

/// All bits of ERROR.
pub const ERROR_BITS: u64 = 0x7f;
/// Bit of ERROR: the operation failed, or was started while an error was pending.
pub const OPERATION: u64 = 1 << 0;
/// Bit of ERROR: a word was pushed into a full queue.
pub const OVERFLOW: u64 = 1 << 4;

/// Number and meaning of each bit of ERROR.
pub const ERRORS: [(u32, &str); 7] = [
    (0, "operation failed, or an error was pending"),
    (1, "checksum of the image"),
    (2, "image for another interface"),
    (3, "protocol of the controller"),
    (4, "a word was pushed into a full queue"),
    (5, "the host took too long"),
    (6, "the image is not signed as it must be"),
];
