//! Rings: DMA buffers divided into entries that a driver and a device count.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer::DmaBuffer;
use super::{barrier, copy};
use crate::owner::Owner;
use crate::{Error, Result};

/// Bytes of the words that accesses are made of.
const WORD: usize = 8;

/// A [`DmaBuffer`] divided into entries of `BYTES` bytes, a power of two of them. Entry `count` is the one at `count` modulo
/// their number, so every count names an entry, and only the process is checked at an access.
#[derive(Debug)]
pub struct Ring<const BYTES: usize> {
    /// First byte of `buffer`.
    start: *mut u8,
    /// Number of entries less one.
    mask: u32,
    owner: Owner,
    buffer: Arc<DmaBuffer>,
}

// SAFETY: `start` points to memory of `buffer`, which the ring keeps and which stays in place. Accesses are atomic words, which
// may race as a device's may.
unsafe impl<const BYTES: usize> Send for Ring<BYTES> {}
// SAFETY: a shared ring allows no more than an owned one: atomic words, which may race.
unsafe impl<const BYTES: usize> Sync for Ring<BYTES> {}

impl<const BYTES: usize> Ring<BYTES> {
    /// Divides `buffer`, whose length must be `BYTES` times a power of two of at most 2^31.
    ///
    /// # Errors
    /// [`Error::BufferSize`] for another length, or if `BYTES` is not a multiple of 8.
    pub fn new(buffer: Arc<DmaBuffer>) -> Result<Self> {
        let entries = buffer.len().checked_div(BYTES).unwrap_or(0);
        let last = u32::try_from(entries).ok().filter(|entries| entries.is_power_of_two()).map(|entries| entries - 1);
        match last {
            Some(mask) if BYTES.is_multiple_of(WORD) && entries * BYTES == buffer.len() => {
                let region = buffer.region();
                Ok(Ring { start: region.base(), mask, owner: region.owner(), buffer })
            }
            _ => Err(Error::BufferSize { bytes: buffer.len() as u64 }),
        }
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &Arc<DmaBuffer> {
        &self.buffer
    }

    /// Returns the number of entries.
    #[inline]
    pub fn entries(&self) -> u32 {
        // A mask is below 2^31.
        self.mask + 1
    }

    /// Returns the address of entry `count`, valid for `BYTES` bytes and aligned to 8, if this process owns the memory.
    #[inline(always)]
    fn entry(&self, count: u32) -> Result<*mut u8> {
        self.owner.check()?;
        // SAFETY: the index is at most `mask`, and `mask + 1` entries are the length of the buffer (`Ring::new`), whose memory
        // `buffer` keeps.
        Ok(unsafe { self.start.add((count & self.mask) as usize * BYTES) })
    }

    /// Stores entry `count` as 64-bit words, ascending, the last with release order.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    #[inline(always)]
    pub fn store(&self, count: u32, entry: &[u8; BYTES]) -> Result<()> {
        let target = self.entry(count)?;
        let (words, _) = entry.as_chunks::<WORD>();
        for (index, word) in words.iter().enumerate() {
            let order = if index + 1 == words.len() { Ordering::Release } else { Ordering::Relaxed };
            // SAFETY: `index` counts whole words of `BYTES` bytes, which are valid (`Ring::entry`).
            let at = unsafe { target.add(index * WORD) };
            // SAFETY: valid (line before). Aligned: a buffer starts on a page, and `BYTES` is a multiple of 8.
            unsafe { copy::store_u64(at, u64::from_ne_bytes(*word), order) };
        }
        Ok(())
    }

    /// Loads the aligned little-endian 64-bit word `WORD_AT` bytes into entry `count` with acquire order: data that the device
    /// wrote before the word is then visible.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    #[inline(always)]
    pub fn load_acquire<const WORD_AT: usize>(&self, count: u32) -> Result<u64> {
        const { assert!(WORD_AT.is_multiple_of(WORD) && WORD_AT + WORD <= BYTES, "not a word of the entry") };
        // SAFETY: a word at `WORD_AT` lies in the entry (line before), which is valid (`Ring::entry`).
        let at = unsafe { self.entry(count)?.add(WORD_AT) };
        // SAFETY: valid (line before). Aligned: the entry is, and `WORD_AT` is a multiple of 8.
        let word = u64::from_le(unsafe { copy::load_u64(at) });
        // An acquire load orders accesses of processors only. A device may be in another shareability domain.
        barrier::device_word_before_data();
        Ok(word)
    }

    /// Copies entry `count` out, as 64-bit words.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    #[inline(always)]
    pub fn load(&self, count: u32, entry: &mut [u8; BYTES]) -> Result<()> {
        let source = self.entry(count)?;
        let (words, _) = entry.as_chunks_mut::<WORD>();
        for (index, word) in words.iter_mut().enumerate() {
            // SAFETY: `index` counts whole words of `BYTES` bytes, which are valid (`Ring::entry`).
            let at = unsafe { source.add(index * WORD) };
            // SAFETY: valid (line before). Aligned: a buffer starts on a page, and `BYTES` is a multiple of 8.
            *word = unsafe { copy::load_u64(at) }.to_ne_bytes();
        }
        Ok(())
    }
}
