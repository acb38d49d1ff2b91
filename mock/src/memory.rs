//! Card memory: large, initially zero; uses host memory only for what is written.

use std::ops::Range;
use std::sync::Arc;

use cmdseq::Status;
use memmap2::{Advice, MmapMut, MmapOptions};

use crate::budget::{Budget, Charge};

/// Memory is charged to the fabric's budget in pieces of this size. No machine's ordinary pages are larger.
const GRANULE: u64 = 64 << 10;
/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;
/// Smallest range that gets large pages.
const LARGE: u64 = 4 << 20;
/// Most ranges of one card with large pages: each is a mapping in the kernel, and a process has 65 530.
const LARGE_STRETCHES: usize = 16;
/// Read where nothing was written.
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
const ZEROS_BYTES: usize = 1 << 20;

/// Error of an access to card memory. An instruction ends with [`Status::OutOfRange`] in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The range is outside card memory.
    #[error("range outside card memory: {bytes} bytes at {address:#x}")]
    OutOfRange {
        /// First byte.
        address: u64,
        /// Length.
        bytes: u64,
    },
    /// The fabric's memory budget is exhausted, or the machine refuses more memory.
    #[error("this machine has no memory for {bytes} bytes at {address:#x} of the mock card")]
    Exhausted {
        /// First byte.
        address: u64,
        /// Length.
        bytes: u64,
    },
}

impl From<MemoryError> for Status {
    fn from(_: MemoryError) -> Self {
        Status::OutOfRange
    }
}

/// The memory of one card.
#[derive(Debug)]
pub struct CardMemory {
    bytes: u64,
    node: u32,
    budget: Arc<Budget>,
    /// Created by the first write. Earlier reads return zeros.
    pages: Option<Pages>,
    /// Number of times the memory was cleared.
    clears: u64,
    /// Discards what cards write by themselves.
    is_hollow: bool,
    /// The lack of memory was logged.
    is_reported: bool,
}

/// Reserved address space, and its written parts. The pages are freed before their charge.
#[derive(Debug)]
pub(crate) struct Pages {
    map: MmapMut,
    charge: Charge,
    /// One bit a granule that was written.
    written: Vec<u64>,
    /// Ranges with large pages, disjoint.
    large: Vec<Range<usize>>,
}

impl CardMemory {
    pub(crate) fn new(bytes: u64, node: u32, budget: &Arc<Budget>) -> Self {
        let budget = Arc::clone(budget);
        CardMemory { bytes, node, budget, pages: None, clears: 0, is_hollow: false, is_reported: false }
    }

    /// Discards, from now on, what cards write: blocks, folds, copies and fills.
    pub(crate) fn hollow_out(&mut self) {
        self.is_hollow = true;
    }

    pub(crate) fn is_hollow(&self) -> bool {
        self.is_hollow
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns whether `bytes` bytes at `address` are inside.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        address.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Clears the memory to zeros. Returns the pages: freeing them takes long, so the caller frees them where nobody waits.
    pub(crate) fn clear(&mut self) -> Option<Pages> {
        self.clears += 1;
        self.pages.take()
    }

    /// Returns the number of times the memory was cleared.
    pub(crate) fn clears(&self) -> u64 {
        self.clears
    }

    /// Returns the `bytes` bytes at `address`, to read.
    ///
    /// # Errors
    /// [`MemoryError`] if the range is outside, or the machine has no address space left.
    pub fn slice(&mut self, address: u64, bytes: u64) -> Result<&[u8], MemoryError> {
        self.check(address, bytes)?;
        if bytes as usize <= ZEROS_BYTES && !self.is_written(address, bytes) {
            return Ok(&ZEROS[..bytes as usize]);
        }
        let (start, length) = (address as usize, bytes as usize);
        Ok(&self.pages(address, bytes)?.map[start..start + length])
    }

    /// Returns the `bytes` bytes at `address`, to write. The first write to a range is charged to the fabric's memory budget.
    ///
    /// # Errors
    /// [`MemoryError`] if the range is outside, or no memory is left for it.
    pub fn slice_mut(&mut self, address: u64, bytes: u64) -> Result<&mut [u8], MemoryError> {
        let pages = self.writable(address, bytes)?;
        let (start, length) = (address as usize, bytes as usize);
        Ok(&mut pages.map[start..start + length])
    }

    /// Announces a write to all of `bytes` at `address`: large pages make long ranges faster.
    pub(crate) fn expect_write(&mut self, address: u64, bytes: u64) {
        if bytes >= LARGE
            && !self.is_hollow
            && self.contains(address, bytes)
            && let Ok(pages) = self.pages(address, bytes)
        {
            pages.advise(address as usize..(address + bytes) as usize);
        }
    }

    /// Copies within the memory; the ranges may overlap.
    pub(crate) fn copy_within(&mut self, source: u64, destination: u64, bytes: u64) -> Result<(), MemoryError> {
        self.check(source, bytes)?;
        self.check(destination, bytes)?;
        if self.is_hollow || source == destination {
            return Ok(());
        }
        if !self.is_written(source, bytes) {
            return self.write_zeros(destination, bytes);
        }
        let (from, to) = (source as usize, destination as usize);
        self.writable(destination, bytes)?.map.copy_within(from..from + bytes as usize, to);
        Ok(())
    }

    /// Fills the range with repetitions of `pattern`.
    pub(crate) fn fill(&mut self, address: u64, bytes: u64, pattern: u64) -> Result<(), MemoryError> {
        if self.is_hollow {
            return Ok(());
        }
        if pattern == 0 {
            return self.write_zeros(address, bytes);
        }
        let pattern = pattern.to_le_bytes();
        let (whole, rest) = self.slice_mut(address, bytes)?.as_chunks_mut::<8>();
        whole.fill(pattern);
        rest.iter_mut().zip(pattern).for_each(|(byte, of_pattern)| *byte = of_pattern);
        Ok(())
    }

    /// Writes zeros; parts never written are skipped.
    fn write_zeros(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.check(address, bytes)?;
        let Some(pages) = &mut self.pages else { return Ok(()) };
        let end = address + bytes;
        let mut at = address;
        while at < end {
            let next = (at / GRANULE + 1).saturating_mul(GRANULE).min(end);
            if pages.is_written(at / GRANULE) {
                pages.map[at as usize..next as usize].fill(0);
            }
            at = next;
        }
        Ok(())
    }

    fn check(&self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        if self.contains(address, bytes) { Ok(()) } else { Err(MemoryError::OutOfRange { address, bytes }) }
    }

    /// Returns whether a granule of the range was written.
    fn is_written(&self, address: u64, bytes: u64) -> bool {
        self.pages.as_ref().is_some_and(|pages| granules(address, bytes).any(|granule| pages.is_written(granule)))
    }

    fn pages(&mut self, address: u64, bytes: u64) -> Result<&mut Pages, MemoryError> {
        if self.pages.is_none() {
            let charge = Charge::new(&self.budget, self.node);
            match Pages::new(self.bytes, charge) {
                Ok(pages) => self.pages = Some(pages),
                Err(error) => self.report(&format!("address space of {} bytes: {error}", self.bytes)),
            }
        }
        self.pages.as_mut().ok_or(MemoryError::Exhausted { address, bytes })
    }

    /// Returns the pages, after charging the range for a write.
    fn writable(&mut self, address: u64, bytes: u64) -> Result<&mut Pages, MemoryError> {
        self.check(address, bytes)?;
        if !self.pages(address, bytes)?.charge_for(address, bytes) {
            let total = self.budget.total();
            self.report(&format!("memory: the cards of this fabric may use {total} bytes together"));
            return Err(MemoryError::Exhausted { address, bytes });
        }
        self.pages(address, bytes)
    }

    /// Logs once what the machine lacks: hosts can ask again and again.
    fn report(&mut self, what: &str) {
        if !std::mem::replace(&mut self.is_reported, true) {
            log::warn!("card {} fails instructions for lack of {what}", self.node);
        }
    }
}

impl Pages {
    fn new(bytes: u64, charge: Charge) -> std::io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        let map = MmapOptions::new().len(length).no_reserve_swap().map_anon()?;
        // Memory charged in small pieces must not be allocated in large ones. A kernel without large pages may refuse.
        let _ = map.advise(Advice::NoHugePage);
        let written = vec![0; bytes.div_ceil(GRANULE).div_ceil(64) as usize];
        Ok(Pages { map, charge, written, large: Vec::new() })
    }

    fn is_written(&self, granule: u64) -> bool {
        self.written[(granule / 64) as usize] >> (granule % 64) & 1 == 1
    }

    /// Charges the parts of a range that were not written before. Returns `false` if the budget has less.
    fn charge_for(&mut self, address: u64, bytes: u64) -> bool {
        let missing = granules(address, bytes).filter(|granule| !self.is_written(*granule)).count() as u64;
        if missing == 0 {
            return true;
        }
        if !self.charge.add(missing * GRANULE) {
            return false;
        }
        for granule in granules(address, bytes) {
            self.written[(granule / 64) as usize] |= 1 << (granule % 64);
        }
        true
    }

    /// Requests large pages that lie completely inside `stretch`.
    fn advise(&mut self, stretch: Range<usize>) {
        let start = stretch.start.next_multiple_of(LARGE_PAGE);
        let end = stretch.end / LARGE_PAGE * LARGE_PAGE;
        let is_inside = self.large.iter().any(|large| large.start <= start && end <= large.end);
        if start >= end || is_inside {
            return;
        }
        let mut all = start..end;
        self.large.retain(|large| {
            let touches = large.start <= all.end && all.start <= large.end;
            if touches {
                all = all.start.min(large.start)..all.end.max(large.end);
            }
            !touches
        });
        self.large.push(all);
        if self.large.len() > LARGE_STRETCHES {
            self.large.pop();
            return;
        }
        // Only advice: without large pages the access is slower.
        let _ = self.map.advise_range(Advice::HugePage, start, end - start);
    }
}

/// Returns the granules that a range of card memory touches.
fn granules(address: u64, bytes: u64) -> Range<u64> {
    if bytes == 0 { 0..0 } else { address / GRANULE..(address + bytes).div_ceil(GRANULE) }
}

/// Copies `bytes` bytes from one card's memory to another's.
pub(crate) fn copy_between(
    source: &mut CardMemory,
    from: u64,
    destination: &mut CardMemory,
    to: u64,
    bytes: u64,
) -> Result<(), MemoryError> {
    if destination.is_hollow {
        return Ok(());
    }
    if !source.is_written(from, bytes) {
        return destination.write_zeros(to, bytes);
    }
    destination.slice_mut(to, bytes)?.copy_from_slice(source.slice(from, bytes)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn memory(bytes: u64) -> CardMemory {
        CardMemory::new(bytes, 0, &Budget::new(GIB, 1))
    }

    fn written(memory: &CardMemory) -> u64 {
        memory.pages.as_ref().map_or(0, |pages| pages.written.iter().map(|word| u64::from(word.count_ones())).sum())
    }

    #[test]
    fn reads_zero_until_written_and_after_clear() {
        let mut memory = memory(8 * GIB);
        assert_eq!(memory.slice(8 * GIB - 3, 3).unwrap(), [0, 0, 0]);
        memory.slice_mut(5 * GIB, 2).unwrap().copy_from_slice(&[7, 8]);
        assert_eq!(memory.slice(5 * GIB - 1, 4).unwrap(), [0, 7, 8, 0]);
        memory.clear();
        assert_eq!(memory.slice(5 * GIB, 2).unwrap(), [0, 0]);
    }

    #[test]
    fn bounds_do_not_wrap() {
        let mut memory = memory(1 << 20);
        assert!(memory.contains(0, 1 << 20));
        assert!(!memory.contains(1, 1 << 20));
        assert!(!memory.contains(u64::MAX, 2));
        let outside = MemoryError::OutOfRange { address: u64::MAX, bytes: 2 };
        assert_eq!(memory.slice(u64::MAX, 2).unwrap_err(), outside);
        assert_eq!(memory.slice_mut(u64::MAX, 2).unwrap_err(), outside);
        assert_eq!(memory.fill(u64::MAX, 2, 0).unwrap_err(), outside);
        assert_eq!(memory.copy_within(u64::MAX, 0, 2).unwrap_err(), outside);
        assert_eq!(memory.copy_within(0, u64::MAX, 2).unwrap_err(), outside);
    }

    #[test]
    fn overlapping_copies_keep_the_bytes() {
        let mut memory = memory(1 << 20);
        memory.slice_mut(10, 4).unwrap().copy_from_slice(&[1, 2, 3, 4]);
        memory.copy_within(10, 12, 4).unwrap();
        assert_eq!(memory.slice(10, 6).unwrap(), [1, 2, 1, 2, 3, 4]);
    }

    #[test]
    fn zeros_where_nothing_was_written_cost_nothing() {
        let budget = Budget::new(GIB, 2);
        let (mut memory, mut other) = (CardMemory::new(8 * GIB, 0, &budget), CardMemory::new(8 * GIB, 1, &budget));
        memory.fill(0, 8 * GIB, 0).unwrap();
        memory.copy_within(0, 4 * GIB, 4 * GIB).unwrap();
        copy_between(&mut other, 0, &mut memory, GIB, GIB).unwrap();
        assert_eq!(written(&memory), 0);
        memory.fill(GIB, GRANULE + 3, 0x0807_0605_0403_0201).unwrap();
        assert_eq!(memory.slice(GIB + GRANULE, 4).unwrap(), [1, 2, 3, 0]);
        assert_eq!(written(&memory), 2);
        // But over what was written they are written.
        memory.fill(GIB + 8, 8, 0).unwrap();
        assert_eq!(memory.slice(GIB + 7, 10).unwrap(), [8, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        copy_between(&mut other, 0, &mut memory, GIB, GIB).unwrap();
        memory.copy_within(GIB, 0, 16).unwrap();
        assert_eq!(memory.slice(GIB, 16).unwrap(), [0; 16]);
        assert_eq!(written(&other), 0);
    }

    #[test]
    fn what_the_budget_does_not_hold_is_an_error_and_leaves_the_rest() {
        let budget = Budget::new(4 * GRANULE, 1);
        let mut memory = CardMemory::new(8 * GIB, 0, &budget);
        memory.fill(0, 3 * GRANULE, 1).unwrap();
        let none_left = |address, bytes| Err(MemoryError::Exhausted { address, bytes });
        assert_eq!(memory.fill(2 * GRANULE, 3 * GRANULE, 2), none_left(2 * GRANULE, 3 * GRANULE));
        assert_eq!(memory.slice(2 * GRANULE, 2).unwrap(), [1, 0]);
        assert_eq!(memory.copy_within(0, GIB - 1, 2 + GRANULE), none_left(GIB - 1, 2 + GRANULE));
        memory.fill(2 * GRANULE, 2 * GRANULE, 2).unwrap();
        // Until the pages are back, so is nothing of the budget.
        let pages = memory.clear();
        assert!(memory.fill(0, 1, 1).is_err());
        drop(pages);
        memory.fill(0, 4 * GRANULE, 1).unwrap();
    }

    #[test]
    fn large_pages_are_asked_for_in_few_stretches() {
        let mut memory = memory(8 * GIB);
        memory.fill(0, 1, 1).unwrap();
        let step = 16 << 20;
        for place in 0..100 {
            memory.expect_write(place * step + 5, LARGE + 7);
        }
        let large = |memory: &CardMemory| memory.pages.as_ref().unwrap().large.clone();
        assert_eq!(large(&memory).len(), LARGE_STRETCHES);
        assert_eq!(large(&memory)[0], LARGE_PAGE..2 * LARGE_PAGE);
        // What joins them is one.
        memory.expect_write(0, 100 * step);
        assert_eq!((large(&memory).len(), large(&memory)[0].clone()), (1, 0..100 * step as usize));
    }
}
