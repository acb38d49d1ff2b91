//! Kinds of interrupts.

use std::fmt;

/// How a function interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InterruptKind {
    /// Message-signalled, each vector with an entry in a table.
    Msix,
    /// Message-signalled, with consecutive vectors.
    Msi,
    /// One level-triggered line. The bus masks the line each time it is asserted, until the driver unmasks it.
    Intx,
}

impl InterruptKind {
    /// All kinds, best first.
    pub const ALL: [InterruptKind; 3] = [InterruptKind::Msix, InterruptKind::Msi, InterruptKind::Intx];
}

impl fmt::Display for InterruptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InterruptKind::Msix => "MSI-X",
            InterruptKind::Msi => "MSI",
            InterruptKind::Intx => "INTx",
        })
    }
}
