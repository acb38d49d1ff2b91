//! Intel's PAC D5005 (Stratix 10) with an OFS shell: its functions, and the feature list of the control function.
//!
//! Source: OFS `ofs-d5005`, `ipss/pcie/qip/pcie_ep_g3x16.ip`, `src/interrupt/msix_csr.sv` and
//! `verification/tests/sequences/dfh_walking_seq.svh`; Linux `drivers/fpga/dfl-pci.c`.

pub mod exerciser;
pub mod fme;
pub mod port;
pub mod reconfiguration;
mod register;

pub use register::{Register, Writes};

use crate::pci::{Function, Msix};

/// Offset of the MSI-X table in BAR 4 of each function.
const MSIX_TABLE: u32 = 0x3000;
/// Offset of the pending bits of MSI-X in BAR 4.
const MSIX_PENDING: u32 = 0x2000;
/// Bytes of BAR 4.
const MSIX_BAR_BYTES: u64 = 16 << 10;

/// The function of an accelerator: a virtual function behind the port.
pub const ACCELERATOR: Function = Function {
    vendor: 0x8086,
    device: 0xbccf,
    subsystem_vendor: 0x8086,
    subsystem_device: 0x138d,
    class: 0x12_00_00,
    revision: 1,
    bars: &[(0, 256 << 10), (4, MSIX_BAR_BYTES)],
    is_prefetchable: true,
    msix: Msix { bar: 4, vectors: 5, table: MSIX_TABLE, pending: MSIX_PENDING },
};

/// The function of the host exerciser: a virtual function before the port.
pub const EXERCISER: Function = ACCELERATOR;

/// The control function: management engine, port, and what belongs to them.
pub const CONTROL: Function = Function {
    vendor: 0x8086,
    device: 0xbcce,
    subsystem_vendor: 0x8086,
    subsystem_device: 0x138d,
    class: 0x12_00_00,
    revision: 1,
    bars: &[(0, 1 << 20), (4, MSIX_BAR_BYTES)],
    is_prefetchable: true,
    msix: Msix { bar: 4, vectors: 7, table: MSIX_TABLE, pending: MSIX_PENDING },
};

/// A feature of the control function's list.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// Offset of its header in BAR 0.
    pub offset: u32,
    /// The header.
    pub header: u64,
    /// Its registers, where they are known.
    pub registers: &'static [Register],
}

/// The feature list of the control function of a D5005.
pub const FEATURES: [Feature; 13] = [
    Feature { name: "management engine", offset: 0x0_0000, header: 0x4000_0000_1000_0000, registers: fme::TABLE },
    Feature { name: "temperature", offset: 0x0_1000, header: 0x3000_0000_2000_0001, registers: fme::thermal::TABLE },
    Feature { name: "performance", offset: 0x0_3000, header: 0x3000_0000_1000_0007, registers: &[] },
    Feature { name: "errors", offset: 0x0_4000, header: 0x3000_0000_c000_1004, registers: fme::errors::TABLE },
    Feature { name: "board controller", offset: 0x1_0000, header: 0x3000_0001_0000_000e, registers: fme::board::TABLE },
    Feature { name: "PCIe", offset: 0x2_0000, header: 0x3000_0001_0000_0020, registers: fme::pcie::TABLE },
    Feature { name: "serial interfaces", offset: 0x3_0000, header: 0x3000_0001_0000_100f, registers: &[] },
    Feature { name: "memory interfaces", offset: 0x4_0000, header: 0x3000_0005_0000_0009, registers: &[] },
    Feature {
        name: "partial reconfiguration",
        offset: 0x9_0000,
        header: 0x3000_0000_1000_1005,
        registers: reconfiguration::TABLE,
    },
    Feature { name: "port", offset: 0x9_1000, header: 0x4000_0000_1000_2001, registers: port::TABLE },
    Feature {
        name: "accelerator clock",
        offset: 0x9_2000,
        header: 0x3000_0000_1000_0014,
        registers: port::clock::TABLE,
    },
    Feature { name: "remote SignalTap", offset: 0x9_3000, header: 0x3000_0000_d000_2013, registers: &[] },
    Feature { name: "port errors", offset: 0xa_0000, header: 0x3000_0100_0000_2010, registers: port::errors::TABLE },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature_list::Header;

    #[test]
    fn each_header_leads_to_the_next_feature() {
        for pair in FEATURES.windows(2) {
            assert_eq!(pair[0].offset + Header::decode(pair[0].header).next, pair[1].offset, "{}", pair[0].name);
            assert!(!Header::decode(pair[0].header).end_of_list);
        }
        assert!(Header::decode(FEATURES[12].header).end_of_list);
    }

    #[test]
    fn registers_rise_and_stay_before_the_next_feature() {
        for feature in FEATURES {
            let offsets: Vec<u32> = feature.registers.iter().map(|register| register.offset).collect();
            assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]), "{}", feature.name);
            assert!(offsets.iter().all(|offset| offset % 8 == 0 && *offset >= 8 && *offset < 0x1000));
        }
    }
}
