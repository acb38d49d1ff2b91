//! Card memory: large, zero at first, and costing only what is touched.

use memmap2::{Advice, MmapMut, MmapOptions};

/// The memory of one card.
#[derive(Debug, Default)]
pub struct CardMemory {
    bytes: u64,
    /// Reserved address space, made at the first write. Reads before it see zeros.
    pages: Option<MmapMut>,
    /// Nothing is kept of what cards write by themselves.
    is_hollow: bool,
}

/// Stretches at least this long are worth large pages.
const LARGE: usize = 4 << 20;

impl CardMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        CardMemory { bytes, pages: None, is_hollow: false }
    }

    /// Keeps nothing from now on of what comes from cards: blocks, folds, copies and fills.
    pub(crate) fn hollow_out(&mut self) {
        self.is_hollow = true;
    }

    pub(crate) fn is_hollow(&self) -> bool {
        self.is_hollow
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether `bytes` bytes at `address` are inside.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        address.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Forgets everything: zeros again, and no pages.
    pub(crate) fn clear(&mut self) {
        self.pages = None;
    }

    /// The `bytes` bytes at `address`, to read.
    ///
    /// # Panics
    /// If they are not inside: whoever takes an address from a host checks it with [`CardMemory::contains`].
    pub fn slice(&mut self, address: u64, bytes: u64) -> &[u8] {
        self.slice_mut(address, bytes)
    }

    /// The `bytes` bytes at `address`, to write.
    ///
    /// # Panics
    /// If they are not inside, or if the machine has no address space left.
    pub fn slice_mut(&mut self, address: u64, bytes: u64) -> &mut [u8] {
        assert!(self.contains(address, bytes), "{bytes} bytes at {address:#x} leave card memory");
        let (start, length) = (address as usize, bytes as usize);
        let pages = self.pages();
        if length >= LARGE {
            // Only advice: without large pages the same bytes come slower.
            let _ = pages.advise_range(Advice::HugePage, start, length);
        }
        &mut pages[start..start + length]
    }

    fn pages(&mut self) -> &mut MmapMut {
        let total = self.bytes as usize;
        self.pages.get_or_insert_with(|| {
            MmapOptions::new().len(total).no_reserve_swap().map_anon().expect("address space for card memory")
        })
    }

    /// Copies within the memory; the ranges may overlap.
    pub(crate) fn copy_within(&mut self, source: u64, destination: u64, bytes: u64) {
        assert!(self.contains(source, bytes) && self.contains(destination, bytes));
        if self.is_hollow {
            return;
        }
        let (from, to) = (source as usize, destination as usize);
        self.pages().copy_within(from..from + bytes as usize, to);
    }
}

/// Copies `bytes` bytes from one card's memory to another's.
pub(crate) fn copy_between(source: &mut CardMemory, from: u64, destination: &mut CardMemory, to: u64, bytes: u64) {
    if destination.is_hollow {
        return;
    }
    destination.slice_mut(to, bytes).copy_from_slice(source.slice(from, bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zero_until_written_and_after_clear() {
        let mut memory = CardMemory::new(8 << 30);
        assert_eq!(memory.slice((8 << 30) - 3, 3), [0, 0, 0]);
        memory.slice_mut(5 << 30, 2).copy_from_slice(&[7, 8]);
        assert_eq!(memory.slice((5 << 30) - 1, 4), [0, 7, 8, 0]);
        memory.clear();
        assert_eq!(memory.slice(5 << 30, 2), [0, 0]);
    }

    #[test]
    fn bounds_do_not_wrap() {
        let memory = CardMemory::new(1 << 20);
        assert!(memory.contains(0, 1 << 20));
        assert!(!memory.contains(1, 1 << 20));
        assert!(!memory.contains(u64::MAX, 2));
    }

    #[test]
    fn overlapping_copies_keep_the_bytes() {
        let mut memory = CardMemory::new(1 << 20);
        memory.slice_mut(10, 4).copy_from_slice(&[1, 2, 3, 4]);
        memory.copy_within(10, 12, 4);
        assert_eq!(memory.slice(10, 6), [1, 2, 1, 2, 3, 4]);
    }
}
