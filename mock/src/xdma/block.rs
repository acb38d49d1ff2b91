//! Blocks of registers in the user BAR.

use fpga_regs::feature_list::Header;

use crate::card::feature_list::feature_bytes;

/// A block of registers in the user BAR. Offsets count from its beginning and are multiples of 4.
pub(super) trait Block: Send {
    /// Reads a register.
    fn read32(&mut self, offset: u32) -> u32;

    /// Writes a register.
    fn write32(&mut self, offset: u32, value: u32);

    /// The function was reset.
    fn reset(&mut self) {}
}

/// A header of the feature list, and the GUID behind it.
pub(super) struct ListHeader {
    pub(super) header: Header,
    pub(super) guid: u128,
}

impl ListHeader {
    /// Returns the word at `offset`; behind the GUID, zero.
    pub(super) fn word(&self, offset: u32) -> u32 {
        let list = feature_bytes(self.header, self.guid);
        list.as_chunks().0.get(offset as usize / 4).map_or(0, |word| u32::from_le_bytes(*word))
    }
}

impl Block for ListHeader {
    fn read32(&mut self, offset: u32) -> u32 {
        self.word(offset)
    }

    fn write32(&mut self, _offset: u32, _value: u32) {}
}
