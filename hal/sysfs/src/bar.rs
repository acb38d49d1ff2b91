//! Base address registers as the kernel lists them.

use fpga_pci::BarIndex;

/// A base address register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// Index of the BAR.
    pub index: BarIndex,
    /// Bus address; `None`: not assigned.
    pub address: Option<u64>,
    /// Length in bytes.
    pub bytes: u64,
    /// Type of the addresses.
    pub kind: BarKind,
    /// Whether reads have no side effects.
    pub is_prefetchable: bool,
}

/// Type of the addresses that a BAR decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarKind {
    /// I/O ports.
    Ports,
    /// Memory below 4 GiB.
    Memory32,
    /// Memory at any address.
    Memory64,
}

impl BarKind {
    /// Returns the name for output.
    pub const fn name(self) -> &'static str {
        match self {
            BarKind::Ports => "ports",
            BarKind::Memory32 => "memory 32-bit",
            BarKind::Memory64 => "memory 64-bit",
        }
    }
}
