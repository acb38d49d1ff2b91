//! The port, through which an accelerator reaches the host, and the features below it.
//!
//! Source: OFS `ofs-fim-common`, `PG_CSR.xls` of the Stratix 10, `port_reset_fsm.sv`, `pg_csr.sv`; Linux `drivers/fpga/dfl.h`.

use super::register::Writes::{Control, Ignored, Kept};
use super::register::registers;

/// GUID of the port, `3ab49893-138d-42eb-9642-b06c6b355b87`.
pub const GUID: u128 = 0x3ab49893_138d_42eb_9642_b06c6b355b87;
/// Id of its header: type FIU, id 1.
pub const ID: u16 = 1;

registers! {
    GUID_LO = 0x08, Ignored, Some(GUID as u64), "Lower half of the GUID.";
    GUID_HI = 0x10, Ignored, Some((GUID >> 64) as u64), "Upper half of the GUID.";
    NEXT_AFU = 0x18, Ignored, Some(0), "Offset of the accelerator's header, 0 if it is in another function.";
    MAILBOX = 0x20, Kept(u64::MAX), Some(0), "Anything.";
    SCRATCHPAD = 0x28, Kept(u64::MAX), Some(0), "Anything.";
    CAP = 0x30, Ignored, Some(0x4_0001_0000), "Number in 1:0, KiB of the accelerator's registers in 23:8, interrupts in 35:32.";
    CONTROL = 0x38, Control(SOFT_RESET | 1 << 2, 0), Some(5), "Soft reset in 0, latency tolerance in 2; read-only: reset by a function in 3, soft reset acknowledged in 4.";
    STATUS = 0x40, Ignored, Some(0), "Frozen in 0, power state in 11:8.";
}

/// Bit of CONTROL: the accelerator is held in reset.
pub const SOFT_RESET: u64 = 1 << 0;
/// Bit of CONTROL: the soft reset is in force.
pub const SOFT_RESET_ACK: u64 = 1 << 4;

/// Place of the power state in STATUS, 4 bits.
pub const POWER_SHIFT: u32 = 8;
/// Power state in which the accelerator is switched off.
pub const POWER_OFF: u64 = 6;

/// The clock of the accelerator.
pub mod clock {
    use super::{Ignored, Kept, registers};

    /// Feature id.
    pub const ID: u16 = 0x14;

    registers! {
        COMMAND_0 = 0x08, Kept(0x0313_13ff_ffff_ffff), Some(0), "Access to the clock's own registers: data 31:0, address 41:32, write 44, sequence 49:48, resets 56, 57, and 52, which is active low.";
        COMMAND_1 = 0x10, Kept(1 << 32), Some(0), "Clock that STATUS_1 measures: 0 half, 1 full rate (bit 32).";
        STATUS_0 = 0x18, Ignored, Some(1 << 60), "Data 31:0, sequence 49:48, locked 60, error 63.";
        STATUS_1 = 0x20, Ignored, None, "Frequency in 10 kHz in 16:0, of the clock in 32; reference in 10 kHz in 50:33; version in 63:60.";
    }
}

/// Errors of the port.
pub mod errors {
    use super::super::register::Writes::Clear;
    use super::{Kept, registers};

    /// Feature id.
    pub const ID: u16 = 0x10;
    /// Bits of ERROR.
    pub const BITS: u64 = 0x8000_0000 | 0x07fe_799e;
    /// Bit of ERROR: the accelerator did not answer an access.
    pub const MMIO_TIMEOUT: u64 = 1 << 7;

    registers! {
        SCRATCHPAD = 0x08, Kept(u64::MAX), Some(0), "Anything; a mask of errors on cards without OFS.";
        ERROR = 0x10, Clear(BITS), Some(0), "Write too short 1, too long 2, answer too short 3, too long 4, no answer 7, unexpected answer 8, tag 11, read request size 12, payload size 13, malformed packet 14, access in a function reset 17 (function in 26:18), blocked 31.";
        FIRST = 0x18, Clear(BITS), Some(0), "The errors that came first.";
    }

    /// Number and meaning of bits of ERROR.
    pub const MEANINGS: [(u32, &str); 12] = [
        (1, "write shorter than it says"),
        (2, "write longer than it says"),
        (3, "answer shorter than it says"),
        (4, "answer longer than it says"),
        (7, "the accelerator did not answer an access"),
        (8, "answer to no access"),
        (11, "tag of a read that is in flight"),
        (12, "read longer than the host allows"),
        (13, "write longer than the host allows"),
        (14, "malformed packet"),
        (17, "access during a reset of the function"),
        (31, "the accelerator is cut off until the port is reset"),
    ];
}
