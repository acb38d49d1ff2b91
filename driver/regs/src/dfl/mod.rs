//! Intel's PAC D5005 (Stratix 10) with an OFS shell: its functions, and the feature list of the control function.
//!
//! Source: OFS `ofs-d5005`, `ipss/pcie/qip/pcie_ep_g3x16.ip`, `src/interrupt/msix_csr.sv` and
//! `verification/tests/sequences/dfh_walking_seq.svh`; Linux `drivers/fpga/dfl-pci.c`.

pub mod board;
pub mod exerciser;
pub mod fme;
pub mod pac;
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
    /// BAR that it is in.
    pub bar: u8,
    /// Offset of its header in the BAR.
    pub offset: u32,
    /// The header.
    pub header: u64,
    /// Its registers, where they are known.
    pub registers: &'static [Register],
    /// Registers whose value after power-up is not that of the table: offset and value.
    pub resets: &'static [(u32, u64)],
}

impl Feature {
    /// Returns where its header is among all of the card: the BAR in 31:24, and the offset.
    pub const fn place(&self) -> u32 {
        (self.bar as u32) << 24 | self.offset
    }

    /// Returns the value of a register after power-up; `None` where the card says it.
    pub fn reset_of(&self, register: &Register) -> Option<u64> {
        let other = self.resets.iter().find(|(offset, _)| *offset == register.offset);
        other.map_or(register.reset, |(_, value)| Some(*value))
    }
}

/// The feature list of the control function of a D5005.
pub const FEATURES: [Feature; 13] = [
    listed(0, 0x0_0000, 0x4000_0000_1000_0000, "management engine", fme::TABLE),
    listed(0, 0x0_1000, 0x3000_0000_2000_0001, "temperature", fme::thermal::TABLE),
    listed(0, 0x0_3000, 0x3000_0000_1000_0007, "performance", &[]),
    listed(0, 0x0_4000, 0x3000_0000_c000_1004, "errors", fme::errors::TABLE),
    listed(0, 0x1_0000, 0x3000_0001_0000_000e, "board controller", fme::board::TABLE),
    listed(0, 0x2_0000, 0x3000_0001_0000_0020, "PCIe", fme::pcie::TABLE),
    listed(0, 0x3_0000, 0x3000_0001_0000_100f, "serial interfaces", &[]),
    listed(0, 0x4_0000, 0x3000_0005_0000_0009, "memory interfaces", &[]),
    listed(0, 0x9_0000, 0x3000_0000_1000_1005, "partial reconfiguration", reconfiguration::TABLE),
    listed(0, 0x9_1000, 0x4000_0000_1000_2001, "port", port::TABLE),
    listed(0, 0x9_2000, 0x3000_0000_1000_0014, "accelerator clock", port::clock::TABLE),
    listed(0, 0x9_3000, 0x3000_0000_d000_2013, "remote SignalTap", &[]),
    listed(0, 0xa_0000, 0x3000_0100_0000_2010, "port errors", port::errors::TABLE),
];

/// A feature whose registers have the values of their table after power-up.
const fn listed(bar: u8, offset: u32, header: u64, name: &'static str, registers: &'static [Register]) -> Feature {
    Feature { name, bar, offset, header, registers, resets: &[] }
}

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
        for feature in FEATURES.into_iter().chain(pac::FEATURES) {
            let offsets: Vec<u32> = feature.registers.iter().map(|register| register.offset).collect();
            assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]), "{}", feature.name);
            assert!(offsets.iter().all(|offset| offset % 8 == 0 && *offset >= 8 && *offset < 0x1000));
        }
    }
}
