//! The PAC D5005 with the shell that it is sold with: one function with management engine, port and accelerator.
//!
//! Source: OFS `ofs-fim-common`, `FME_CSR.xls`, "BAR Layout"; Linux `drivers/fpga/dfl-pci.c`, `dfl.h`, `dfl-afu-error.c`. Which
//! features BAR 0 has, and where, is not public: the model has those that Linux needs.

use super::{Feature, fme, listed, port, reconfiguration};
use crate::pci::Function;

/// BAR of the port and of the accelerator behind it.
pub const PORT_BAR: u8 = 2;
/// Offset of the accelerator's feature list in [`PORT_BAR`].
pub const ACCELERATOR: u32 = 0x4_0000;

/// The function.
pub const FUNCTION: Function = Function {
    device: 0x0b2b,
    bars: &[(0, 512 << 10), (PORT_BAR, 512 << 10), (4, super::MSIX_BAR_BYTES)],
    ..super::CONTROL
};

/// Errors of the port, which can be masked here.
pub mod port_errors {
    use super::super::register::Writes::{Clear, Ignored, Kept};
    use super::super::register::registers;
    use super::port::errors::BITS;

    registers! {
        MASK = 0x08, Kept(BITS), Some(0), "Bits of ERROR that are not reported.";
        ERROR = 0x10, Clear(BITS), Some(0), "As with an OFS shell.";
        FIRST = 0x18, Clear(BITS), Some(0), "The errors that came first.";
        MALFORMED_LO = 0x20, Ignored, Some(0), "The first request that was malformed.";
        MALFORMED_HI = 0x28, Ignored, Some(0), "Its upper half.";
    }
}

/// Interrupts of the accelerator.
pub mod interrupts {
    use super::super::register::Writes::Ignored;
    use super::super::register::registers;

    /// Feature id.
    pub const ID: u16 = 0x12;

    registers! {
        CAP = 0x08, Ignored, Some(4), "Interrupts in 11:0, the first one's vector in 23:12.";
    }
}

/// The feature lists: those of the management engine in BAR 0, and those of the port in BAR 2.
pub const FEATURES: [Feature; 9] = [
    Feature {
        resets: &[(fme::PORT_0, fme::PORT_IMPLEMENTED | (PORT_BAR as u64) << 32)],
        ..listed(0, 0x0000, 0x4000_0000_1000_0000, "management engine", fme::TABLE)
    },
    listed(0, 0x1000, 0x3000_0000_2000_0001, "temperature", fme::thermal::TABLE),
    listed(0, 0x3000, 0x3000_0000_1000_0007, "performance", &[]),
    listed(0, 0x4000, 0x3000_0000_1000_1004, "errors", fme::errors::TABLE),
    listed(0, 0x5000, 0x3000_0000_1000_1005, "partial reconfiguration", reconfiguration::TABLE),
    listed(0, 0x6000, 0x3000_0100_1000_000e, "board controller", fme::board::TABLE),
    Feature {
        resets: &[(port::NEXT_AFU, ACCELERATOR as u64)],
        ..listed(PORT_BAR, 0x0000, 0x4000_0000_1000_1001, "port", port::TABLE)
    },
    listed(PORT_BAR, 0x1000, 0x3000_0000_2000_1010, "port errors", port_errors::TABLE),
    listed(PORT_BAR, 0x3000, 0x3000_0100_1000_0012, "user interrupts", interrupts::TABLE),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature_list::Header;

    #[test]
    fn each_list_leads_to_its_next_feature_and_ends() {
        for bar in [0, PORT_BAR] {
            let list: Vec<Feature> = FEATURES.into_iter().filter(|feature| feature.bar == bar).collect();
            for pair in list.windows(2) {
                let header = Header::decode(pair[0].header);
                assert_eq!(pair[0].offset + header.next, pair[1].offset, "{}", pair[0].name);
                assert!(!header.end_of_list);
            }
            assert!(list.last().is_some_and(|last| Header::decode(last.header).end_of_list));
        }
    }
}
