//! Base address registers as the kernel lists them.

use fpga_pci::BarIndex;

/// A base address register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// Which.
    pub index: BarIndex,
    /// Its bus address; `None` if it has not been given one.
    pub address: Option<u64>,
    /// Its length.
    pub bytes: u64,
    /// What it decodes.
    pub kind: BarKind,
    /// Whether reads have no side effects.
    pub is_prefetchable: bool,
}

/// What a BAR decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarKind {
    /// I/O ports.
    Ports,
    /// Memory below 4 GiB.
    Memory32,
    /// Memory anywhere.
    Memory64,
}

impl BarKind {
    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            BarKind::Ports => "ports",
            BarKind::Memory32 => "memory 32-bit",
            BarKind::Memory64 => "memory 64-bit",
        }
    }
}
