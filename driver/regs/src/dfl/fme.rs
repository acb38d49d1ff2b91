//! The management engine (FME) and the features below it.
//!
//! Source: OFS `ofs-fim-common`, `FME_CSR.xls` of the D5005; Linux `drivers/fpga/dfl.h`.

use super::register::Writes::{Clear, Control, Ignored, Kept};
use super::register::registers;

/// GUID of the management engine, `bfaf2ae9-4a52-46e3-82fe-38f0f9e17764`.
pub const GUID: u128 = 0xbfaf2ae9_4a52_46e3_82fe_38f0f9e17764;
/// Id of its header: type FIU, id 0.
pub const ID: u16 = 0;

registers! {
    GUID_LO = 0x08, Ignored, Some(GUID as u64), "Lower half of the GUID.";
    GUID_HI = 0x10, Ignored, Some((GUID >> 64) as u64), "Upper half of the GUID.";
    NEXT_AFU = 0x18, Ignored, Some(0), "Offset of the accelerator's header, 0 if it is in another function.";
    SCRATCHPAD = 0x28, Kept(u64::MAX), Some(0), "Anything.";
    FAB_CAP = 0x30, Ignored, Some(0x1402_1000), "Version in 7:0, PCIe links in 13:12, IOMMU in 16, ports in 19:17, address bits in 29:24.";
    PORT_0 = 0x38, Ignored, Some(PORT_0_RESET), "Port 0: offset in 23:0, BAR in 34:32 (7: in this list), virtual functions in 55, implemented in 60.";
    PORT_1 = 0x40, Ignored, Some(0), "Port 1: not implemented.";
    PORT_2 = 0x48, Ignored, Some(0), "Port 2: not implemented.";
    PORT_3 = 0x50, Ignored, Some(0), "Port 3: not implemented.";
    FAB_STATUS = 0x58, Ignored, Some(0), "State of the fabric inside the card.";
    BITSTREAM_ID = 0x60, Ignored, None, "Version of the shell: major 63:60, minor 59:56, patch 55:52, variant 47:40, hash of its sources 31:0.";
    BITSTREAM_MD = 0x68, Ignored, None, "Date of the shell in decimal digits: year 27:20, month 19:12, day 11:4; seed 3:0.";
    BITSTREAM_INFO = 0x70, Ignored, Some(0), "More about the shell.";
}

/// PORT_0: implemented, with virtual functions, in this list.
const PORT_0_RESET: u64 = 1 << 60 | 1 << 55 | 7 << 32 | 0x9_1000;

/// Bit of a port register: it is implemented.
pub const PORT_IMPLEMENTED: u64 = 1 << 60;

/// BAR of a port that stands in the list of the management engine.
pub const PORT_IN_THIS_LIST: u32 = 7;

/// Returns the BAR of a port from its register.
pub const fn port_bar(port: u64) -> u32 {
    (port >> 32 & 7) as u32
}

/// Returns the offset of a port's header from its register.
pub const fn port_offset(port: u64) -> u64 {
    port & 0xff_ffff
}

/// Temperature. On a D5005 the sensor reads zero: the board's controller measures.
pub mod thermal {
    use super::{Ignored, Kept, registers};

    /// Feature id.
    pub const ID: u16 = 1;

    registers! {
        THRESHOLD = 0x08, Kept(0xffff), Some(0x5d << 24), "Thresholds 1 (6:0) and 2 (14:8) with their enable bits 7 and 15; trip point in 30:24 (degrees C).";
        READING = 0x10, Ignored, Some(0), "Degrees C in 6:0, valid in 24.";
    }
}

/// Errors of the whole card.
pub mod errors {
    use super::{Clear, Ignored, Kept, registers};

    /// Feature id.
    pub const ID: u16 = 4;
    /// Bits of ERROR.
    pub const BITS: u64 = 0x1ff;

    registers! {
        MASK = 0x08, Kept(BITS), Some(0), "Bits of ERROR that are not reported.";
        ERROR = 0x10, Clear(BITS), Some(0), "Errors of the management engine.";
        PCIE0_MASK = 0x18, Kept(super::pcie::BITS), Some(0), "Bits of PCIE0_ERROR that are not reported.";
        PCIE0_ERROR = 0x20, Clear(super::pcie::BITS), Some(0), "Errors of the PCIe link, as in the PCIe feature.";
        PCIE1_MASK = 0x28, Kept(super::pcie::BITS), Some(0), "Bits of PCIE1_ERROR that are not reported.";
        PCIE1_ERROR = 0x30, Clear(super::pcie::BITS), Some(0), "Errors of a second link.";
        FIRST = 0x38, Ignored, Some(0), "The first error: its register in 61:60, its bits in 59:0.";
        NEXT = 0x40, Ignored, Some(0), "The second error.";
        NONFATAL_MASK = 0x48, Kept(NONFATAL_INJECTED), Some(0), "Bits of NONFATAL that are not reported.";
        NONFATAL = 0x50, Ignored, Some(0), "Errors that the card survived; bit 6: injected.";
        CATFAT_MASK = 0x58, Kept(FATAL_INJECTED | CATASTROPHIC_INJECTED), Some(0), "Bits of CATFAT that are not reported.";
        CATFAT = 0x60, Ignored, Some(0), "Catastrophic and fatal errors; bits 9 and 11: injected.";
        INJECT = 0x68, Kept(7), Some(0), "While set: a catastrophic (0), fatal (1), nonfatal (2) error.";
        CAP = 0x70, Ignored, Some(0xd), "Interrupt: supported in 0, vector in 12:1.";
    }

    /// Bit of NONFATAL: INJECT holds such an error.
    pub const NONFATAL_INJECTED: u64 = 1 << 6;
    /// Number and meaning of bits of NONFATAL.
    pub const NONFATAL_MEANINGS: [(u32, &str); 1] = [(6, "injected")];
    /// Number and meaning of bits of CATFAT.
    pub const CATFAT_MEANINGS: [(u32, &str); 2] = [(9, "fatal, injected"), (11, "catastrophic, injected")];
    /// Bit of CATFAT: INJECT holds a fatal error.
    pub const FATAL_INJECTED: u64 = 1 << 9;
    /// Bit of CATFAT: INJECT holds a catastrophic error.
    pub const CATASTROPHIC_INJECTED: u64 = 1 << 11;
}

/// The controller of the board, behind a serial link.
pub mod board {
    use super::{Control, Ignored, Kept, registers};

    /// Feature id.
    pub const ID: u16 = 0xe;

    registers! {
        CORE = 0x08, Ignored, Some(25 << 22 | 1 << 8 | 8 << 2), "Data width in 7:2, selects in 13:8, clock in MHz in 31:22.";
        ADDRESS = 0x10, Control(7, super::super::board::WRITE_CORE | super::super::board::READ_CORE), Some(0), "Register of the serial core in 2:0; 8 writes it, 9 reads it.";
        READ_DATA = 0x18, Ignored, None, "What was read.";
        WRITE_DATA = 0x20, Kept(0xffff_ffff), Some(0), "What is to be written.";
    }
}

/// The PCIe link of the card.
pub mod pcie {
    use super::{Clear, registers};

    /// Feature id.
    pub const ID: u16 = 0x20;
    /// Bits of ERROR.
    pub const BITS: u64 = 0x1ef;
    /// Number and meaning of bits of ERROR.
    pub const MEANINGS: [(u32, &str); 8] = [
        (0, "format or type of a packet"),
        (1, "tag of a completion"),
        (2, "status of a completion"),
        (3, "no completion in time"),
        (5, "poisoned packet"),
        (6, "malformed start of a packet"),
        (7, "malformed end of a packet"),
        (8, "overflow of a queue"),
    ];

    registers! {
        ERROR = 0x20, Clear(BITS), Some(0), "Errors of the PCIe link.";
    }
}
