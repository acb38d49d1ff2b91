//! Layout of base address registers.

/// Size and type of one base address register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarLayout {
    /// Bytes, a power of two of at least 16.
    pub bytes: u64,
    /// Whether it takes two registers (a 64-bit address).
    pub is_64_bit: bool,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
}

impl BarLayout {
    /// Builds the layout of a BAR of `bytes` bytes from the low byte of its register. A BAR of I/O ports has no flags.
    pub fn from_register(low: u8, bytes: u64) -> Self {
        let is_memory = low & 1 == 0;
        BarLayout { bytes, is_64_bit: is_memory && low >> 1 & 3 == 2, prefetchable: is_memory && low >> 3 & 1 == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_byte_tells_width_and_prefetching() {
        // PCI Local Bus Specification 3.0, section 6.2.5.1.
        for (low, is_64_bit, prefetchable) in
            [(0x00, false, false), (0x04, true, false), (0x0c, true, true), (0x08, false, true), (0x0d, false, false)]
        {
            let expected = BarLayout { bytes: 64, is_64_bit, prefetchable };
            assert_eq!(BarLayout::from_register(low, 64), expected, "{low:#x}");
        }
    }
}
