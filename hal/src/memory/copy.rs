//! Copies between this program's memory and memory that others write while we look.
//!
//! Such memory is never lent as a reference to bytes. Small accesses are atomic words, so that a word the other side
//! stores is seen whole; larger ones are bulk, whose bytes mean something only once a word stored after them was seen. The
//! references formed here are to atomics, and live for one load or store.
//!
//! Bulk is no `memcpy`: to the language that is an ordinary access, which must not race. The compiler could read a byte
//! twice, and find another value after a check, or leave a copy out because nobody seems to write. On x86-64 bulk is one
//! `rep movsb`, which the compiler cannot see into; it is as fast as the C library's `memcpy`, which does the same beyond a few KiB,
//! where relaxed words have a fifth of its speed in the caches. Elsewhere it is relaxed words.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies up to this many bytes go word by word; beyond it, bulk is the faster.
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
        // SAFETY: the caller vouches for both ranges.
        unsafe { bulk_out(source, data) }
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
        unsafe { bulk_in(target, &data[..bulk]) }
    }
    // SAFETY: as above; `bulk` bytes further on there are `data.len() - bulk` left.
    let rest = unsafe { target.add(bulk) };
    // SAFETY: as above.
    unsafe { store_ascending(rest, &data[bulk..]) }
}

/// Sets `bytes` bytes of shared memory to `value`.
///
/// # Safety
/// `target` is valid for reads and writes of `bytes` bytes of a live mapping.
pub(crate) unsafe fn fill(target: *mut u8, bytes: usize, value: u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for `bytes` bytes at `target`. The instruction writes them and nothing else; the direction
    // flag is clear, as everywhere, so it goes upwards.
    unsafe {
        std::arch::asm!(
            "rep stosb",
            inout("rcx") bytes => _, inout("rdi") target => _, in("al") value,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        words::fill(target, bytes, value)
    }
}

/// Copies out in any order, by accesses of any width.
///
/// # Safety
/// As [`copy_out`].
#[inline]
unsafe fn bulk_out(source: *mut u8, data: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for `data.len()` bytes at `source`, and `data` is borrowed here alone.
    unsafe {
        move_bytes(source, data.as_mut_ptr(), data.len())
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        words::copy_out(source, data)
    }
}

/// Copies in, in any order, by accesses of any width. Stores that follow in the program are seen after it.
///
/// # Safety
/// As [`copy_in`].
#[inline]
unsafe fn bulk_in(target: *mut u8, data: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for `data.len()` bytes at `target`, and nobody writes `data` while it is borrowed.
    unsafe {
        move_bytes(data.as_ptr(), target, data.len())
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        words::copy_in(target, data)
    }
}

/// Moves bytes upwards. Stores of one such instruction are seen in any order, and those that follow it after all of them
/// (Intel SDM volume 3, "Fast-String Operation and Out-of-Order Stores").
///
/// # Safety
/// `source` is valid for reads and `target` for writes of `bytes` bytes, and they do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn move_bytes(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the instruction reads and writes what the caller vouches for and nothing else; the direction flag is clear, as
    // everywhere, so it goes upwards. Without `nomem` the compiler keeps other accesses on their side of it.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _, inout("rsi") source => _, inout("rdi") target => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Bulk where no instruction does it: relaxed words of the shared side, and bytes before and after them.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    use super::{AtomicU8, AtomicU64, Ordering};

    /// Bytes before the first aligned word of `bytes` bytes at `start`.
    fn head(start: *mut u8, bytes: usize) -> usize {
        (start.addr().wrapping_neg() % 8).min(bytes)
    }

    /// # Safety
    /// As [`copy_out`](super::copy_out).
    pub(super) unsafe fn copy_out(source: *mut u8, data: &mut [u8]) {
        let byte = |at: usize| {
            // SAFETY: `at` counts bytes of `data`, and the caller vouches for as many at `source`.
            let at = unsafe { source.add(at) };
            // SAFETY: as above; a byte is always aligned.
            unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed)
        };
        let mut next = head(source, data.len());
        (0..next).for_each(|at| data[at] = byte(at));
        let (chunks, _) = data[next..].as_chunks_mut::<8>();
        for chunk in chunks {
            // SAFETY: `next` counts bytes of `data`, eight more of which `chunk` is.
            let at = unsafe { source.add(next) };
            // SAFETY: as above; aligned because `head` ended where words begin.
            *chunk = unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed).to_ne_bytes();
            next += 8;
        }
        (next..data.len()).for_each(|at| data[at] = byte(at));
    }

    /// # Safety
    /// As [`copy_in`](super::copy_in).
    pub(super) unsafe fn copy_in(target: *mut u8, data: &[u8]) {
        // SAFETY: as the caller promises: as many bytes are stored as `data` has.
        unsafe {
            store(target, data.len(), |at| data[at], |at| u64::from_ne_bytes(std::array::from_fn(|i| data[at + i])))
        }
    }

    /// # Safety
    /// As [`fill`](super::fill).
    pub(super) unsafe fn fill(target: *mut u8, bytes: usize, value: u8) {
        // SAFETY: as the caller promises.
        unsafe { store(target, bytes, |_| value, |_| u64::from_ne_bytes([value; 8])) }
    }

    /// Stores `bytes` bytes, of which `byte` and `word` give those at an offset.
    ///
    /// # Safety
    /// `target` is valid for reads and writes of `bytes` bytes of a live mapping.
    #[inline]
    unsafe fn store(target: *mut u8, bytes: usize, byte: impl Fn(usize) -> u8, word: impl Fn(usize) -> u64) {
        let store = |offset: usize| {
            // SAFETY: offsets are below `bytes`, for which the caller vouches.
            let at = unsafe { target.add(offset) };
            // SAFETY: as above; a byte is always aligned.
            unsafe { AtomicU8::from_ptr(at) }.store(byte(offset), Ordering::Relaxed);
        };
        let first = head(target, bytes);
        let end = first + (bytes - first) / 8 * 8;
        (0..first).for_each(store);
        for offset in (first..end).step_by(8) {
            // SAFETY: eight bytes from `offset` on lie before `end`, which is at most `bytes`.
            let at = unsafe { target.add(offset) };
            // SAFETY: as above; aligned because `head` ended where words begin.
            unsafe { AtomicU64::from_ptr(at.cast()) }.store(word(offset), Ordering::Relaxed);
        }
        (end..bytes).for_each(store);
    }
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

    /// Bulk of this machine, and that of those without an instruction for it.
    #[test]
    fn bulk_is_exactly_its_bytes_on_every_machine() {
        type Out = unsafe fn(*mut u8, &mut [u8]);
        type In = unsafe fn(*mut u8, &[u8]);
        type Fill = unsafe fn(*mut u8, usize, u8);
        let all: [(Out, In, Fill); 2] = [(bulk_out, bulk_in, fill), (words::copy_out, words::copy_in, words::fill)];
        let data: Vec<u8> = (0..600u32).map(|i| (i * 7 + 1) as u8 | 1).collect();
        for (copy_out, copy_in, fill) in all {
            for len in (0..=40).chain([255, 256, 257, 263, 519]) {
                for start in 0..9 {
                    let mut memory = vec![0u64; 80];
                    let base = memory.as_mut_ptr().cast::<u8>();
                    // SAFETY: 640 bytes were allocated, and `start + len` is at most 528.
                    let at = unsafe { base.add(start) };
                    let whole = || {
                        let mut all = vec![0xaa; 640];
                        // SAFETY: all of the 640 bytes.
                        unsafe { copy_out(base, &mut all) };
                        all
                    };
                    let inside = start..start + len;
                    // SAFETY: as for `at`.
                    unsafe { copy_in(at, &data[..len]) };
                    let outside = |all: &[u8]| all[..start].iter().chain(&all[start + len..]).all(|&b| b == 0);
                    assert!(whole()[inside.clone()] == data[..len] && outside(&whole()), "start {start}, len {len}");
                    let mut part = vec![0; len];
                    // SAFETY: as for `at`.
                    unsafe { copy_out(at, &mut part) };
                    assert_eq!(part, data[..len], "start {start}, len {len}");
                    // SAFETY: as for `at`.
                    unsafe { fill(at, len, 0x5a) };
                    assert!(
                        whole()[inside].iter().all(|&b| b == 0x5a) && outside(&whole()),
                        "start {start}, len {len}"
                    );
                }
            }
        }
    }
}
