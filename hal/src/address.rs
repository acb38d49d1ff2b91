//! Addresses and indices of the bus, as types of their own so that they cannot be mixed up.

use std::fmt;

/// An address a card uses for host memory. It always goes through an IOMMU; it is never a physical address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Iova(pub u64);

impl Iova {
    /// The address `bytes` further on, or `None` past the end of the address space.
    pub fn checked_add(self, bytes: u64) -> Option<Iova> {
        self.0.checked_add(bytes).map(Iova)
    }
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Which of a function's base address registers: 0 to 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarIndex(u8);

impl BarIndex {
    /// Base address registers a function has.
    pub const COUNT: usize = 6;

    /// BAR `index`, or `None` if there is no such register.
    pub const fn new(index: u8) -> Option<Self> {
        if (index as usize) < Self::COUNT { Some(BarIndex(index)) } else { None }
    }

    /// The number, 0 to 5.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for BarIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BAR{}", self.0)
    }
}
