//! Copies between this program's memory and memory that others write while we look.
//!
//! Such memory is never lent as a reference to bytes. Small accesses are atomic words, so that a word the other side
//! stores is seen whole; larger ones are a `memcpy`, whose bytes mean something only once a word stored after them was
//! seen. The references formed here are to atomics, and live for one load or store.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies up to this many bytes go word by word; beyond it, `memcpy` is the faster.
const WORDWISE: usize = 256;

/// Loads the aligned 64-bit word at `source`, acquiring what was stored before it.
///
/// # Safety
/// `source` is aligned to 8 and valid for reads and writes of 8 bytes of a live mapping.
#[inline]
pub(crate) unsafe fn load_u64(source: *mut u8) -> u64 {
    // SAFETY: the caller's promise; the memory is only ever shared, never borrowed.
    unsafe { AtomicU64::from_ptr(source.cast()) }.load(Ordering::Acquire)
}

/// Stores the aligned 64-bit word at `target`.
///
/// # Safety
/// `target` is aligned to 8 and valid for reads and writes of 8 bytes of a live mapping.
#[inline]
pub(crate) unsafe fn store_u64(target: *mut u8, value: u64, order: Ordering) {
    // SAFETY: the caller's promise; the memory is only ever shared, never borrowed.
    unsafe { AtomicU64::from_ptr(target.cast()) }.store(value, order);
}

/// Copies `data.len()` bytes out of shared memory.
///
/// # Safety
/// `source` is valid for reads and writes of `data.len()` bytes of a live mapping, which `data` is no part of.
#[inline]
pub(crate) unsafe fn copy_out(source: *mut u8, data: &mut [u8]) {
    if data.len() <= WORDWISE && source.addr().is_multiple_of(8) && data.len().is_multiple_of(8) {
        for (index, word) in data.chunks_exact_mut(8).enumerate() {
            // SAFETY: `index` counts whole words of `data.len()` bytes, which the caller vouches for.
            let at = unsafe { source.add(index * 8) };
            // SAFETY: as above, and aligned because `source` is.
            word.copy_from_slice(&unsafe { load_u64(at) }.to_ne_bytes());
        }
    } else {
        // SAFETY: the caller vouches for both ranges, and that they do not overlap.
        unsafe { ptr::copy_nonoverlapping(source, data.as_mut_ptr(), data.len()) }
    }
}

/// Copies `data` into shared memory. The last aligned eight bytes, and what follows them, are stored last, in ascending
/// order and with release order; a copy of up to 256 bytes is in ascending order throughout.
///
/// # Safety
/// `target` is valid for reads and writes of `data.len()` bytes of a live mapping, which `data` is no part of.
#[inline]
pub(crate) unsafe fn copy_in(target: *mut u8, data: &[u8]) {
    let bulk = if data.len() <= WORDWISE {
        0
    } else {
        let past_last_word = (target.addr() % 8 + data.len()) % 8;
        data.len() - past_last_word - 8
    };
    if bulk > 0 {
        // SAFETY: `bulk` is less than `data.len()`, for which the caller vouches.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), target, bulk) }
    }
    // SAFETY: as above; `bulk` bytes further on there are `data.len() - bulk` left.
    let rest = unsafe { target.add(bulk) };
    // SAFETY: as above.
    unsafe { store_ascending(rest, &data[bulk..]) }
}

/// Stores `data` in ascending order by the widest aligned words, each with release order.
///
/// # Safety
/// As [`copy_in`].
#[inline]
unsafe fn store_ascending(target: *mut u8, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        // SAFETY: `done` is less than `data.len()`, for which the caller vouches.
        let at = unsafe { target.add(done) };
        let rest = &data[done..];
        if let (Some(word), 0) = (rest.first_chunk::<8>(), at.addr() % 8) {
            // SAFETY: aligned and inside, as just checked.
            unsafe { store_u64(at, u64::from_ne_bytes(*word), Ordering::Release) }
            done += 8;
        } else if let (Some(word), 0) = (rest.first_chunk::<4>(), at.addr() % 4) {
            // SAFETY: aligned and inside, as just checked.
            unsafe { AtomicU32::from_ptr(at.cast()) }.store(u32::from_ne_bytes(*word), Ordering::Release);
            done += 4;
        } else if let (Some(word), 0) = (rest.first_chunk::<2>(), at.addr() % 2) {
            // SAFETY: aligned and inside, as just checked.
            unsafe { AtomicU16::from_ptr(at.cast()) }.store(u16::from_ne_bytes(*word), Ordering::Release);
            done += 2;
        } else {
            // SAFETY: a byte inside, which is always aligned.
            unsafe { AtomicU8::from_ptr(at) }.store(rest[0], Ordering::Release);
            done += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_copies_exactly_its_bytes() {
        let data: Vec<u8> = (0..600u32).map(|i| (i * 7 + 1) as u8 | 1).collect();
        for len in (0..=40).chain([63, 64, 65, 255, 256, 257, 263, 264, 265, 519]) {
            for start in 0..9 {
                // Words, so that the memory is aligned.
                let mut memory = vec![0u64; 80];
                let base = memory.as_mut_ptr().cast::<u8>();
                // SAFETY: 640 bytes were allocated, and `start + len` is at most 528.
                let at = unsafe { base.add(start) };
                // SAFETY: as above.
                unsafe { copy_in(at, &data[..len]) };
                let mut all = vec![0xaa; 640];
                // SAFETY: all of the 640 bytes.
                unsafe { copy_out(base, &mut all) };
                assert_eq!(&all[start..start + len], &data[..len], "start {start}, len {len}");
                assert!(all[..start].iter().chain(&all[start + len..]).all(|&b| b == 0), "start {start}, len {len}");
                let mut part = vec![0; len];
                // SAFETY: as for `copy_in`.
                unsafe { copy_out(at, &mut part) };
                assert_eq!(part, data[..len], "start {start}, len {len}");
            }
        }
    }
}
