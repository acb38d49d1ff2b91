//! Intel's PAC D5005 (Stratix 10) with an OFS shell: its functions.
//!
//! Source: OFS `ofs-d5005`, `ipss/pcie/qip/pcie_ep_g3x16.ip` and `src/interrupt/msix_csr.sv`; Linux `drivers/fpga/dfl-pci.c`.

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
