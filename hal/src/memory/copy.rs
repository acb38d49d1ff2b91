//! Copies between private memory and memory that devices or other processes write at the same time.
//!
//! No reference to bytes of such memory exists. Small copies are atomic words, so a word that the other side stores is never
//! torn. Larger copies are bulk copies, whose bytes are meaningful only after a word stored later was seen. References here
//! are to atomics, and live for one load or store.
//!
//! A bulk copy is no `memcpy`, which is an ordinary access and must not race: the compiler could read a byte twice and get
//! different values, or omit the copy. On x86-64 a bulk copy is one `rep movsb`, or `rep movsq` ([`is_slow_by_bytes`]), which is
//! opaque to the compiler. It is as fast as the C library's `memcpy`, which uses the same instruction beyond a few KiB; relaxed
//! words reach a fifth of that speed in the caches. Other processors use relaxed words.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Longest copy by words, in bytes. Bulk copies are faster beyond it.
const WORDWISE: usize = 256;

/// Loads the aligned 64-bit word at `source` with acquire order.
///
/// # Safety
/// `source` is aligned to 8 and valid for reads and writes of 8 bytes of a live mapping.
#[inline]
pub(crate) unsafe fn load_u64(source: *mut u8) -> u64 {
    // SAFETY: aligned and valid (caller). No reference to the memory exists except to atomics.
    unsafe { AtomicU64::from_ptr(source.cast()) }.load(Ordering::Acquire)
}

/// Stores the aligned 64-bit word at `target`.
///
/// # Safety
/// `target` is aligned to 8 and valid for reads and writes of 8 bytes of a live mapping.
#[inline]
pub(crate) unsafe fn store_u64(target: *mut u8, value: u64, order: Ordering) {
    // SAFETY: aligned and valid (caller). No reference to the memory exists except to atomics.
    unsafe { AtomicU64::from_ptr(target.cast()) }.store(value, order);
}

/// Copies `data.len()` bytes out of shared memory.
///
/// # Safety
/// `source` is valid for reads and writes of `data.len()` bytes of a live mapping. `data` is not part of the mapping.
#[inline]
pub(crate) unsafe fn copy_out(source: *mut u8, data: &mut [u8]) {
    if data.len() <= WORDWISE && source.addr().is_multiple_of(8) && data.len().is_multiple_of(8) {
        for (index, word) in data.chunks_exact_mut(8).enumerate() {
            // SAFETY: `index` counts whole words of the `data.len()` bytes, which are valid (caller).
            let at = unsafe { source.add(index * 8) };
            // SAFETY: valid (line before), and aligned because `source` is.
            word.copy_from_slice(&unsafe { load_u64(at) }.to_ne_bytes());
        }
    } else {
        // SAFETY: both ranges are valid (caller).
        unsafe { bulk_out(source, data) }
    }
}

/// Copies `data` into shared memory. The last aligned eight bytes and the bytes after them are stored last, ascending and
/// with release order. A copy of up to 256 bytes is ascending throughout.
///
/// # Safety
/// `target` is valid for reads and writes of `data.len()` bytes of a live mapping. `data` is not part of the mapping.
#[inline]
pub(crate) unsafe fn copy_in(target: *mut u8, data: &[u8]) {
    let bulk = if data.len() <= WORDWISE {
        0
    } else {
        let past_last_word = (target.addr() % 8 + data.len()) % 8;
        data.len() - past_last_word - 8
    };
    if bulk > 0 {
        // SAFETY: `bulk` is less than `data.len()`, and the target is valid for that many bytes (caller).
        unsafe { bulk_in(target, &data[..bulk]) }
    }
    // SAFETY: `bulk` is at most `data.len()`, and the target is valid for that many bytes (caller).
    let rest = unsafe { target.add(bulk) };
    // SAFETY: `data.len() - bulk` valid bytes follow `rest` (caller).
    unsafe { store_ascending(rest, &data[bulk..]) }
}

/// Sets `bytes` bytes of shared memory to `value`.
///
/// # Safety
/// `target` is valid for reads and writes of `bytes` bytes of a live mapping.
pub(crate) unsafe fn fill(target: *mut u8, bytes: usize, value: u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction writes `bytes` bytes at `target`, which are valid (caller), and nothing else. The direction flag
    // is clear, as the ABI demands, so addresses ascend.
    unsafe {
        std::arch::asm!(
            "rep stosb",
            inout("rcx") bytes => _, inout("rdi") target => _, in("al") value,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: `target` is valid for `bytes` bytes (caller).
    unsafe {
        words::fill(target, bytes, value)
    }
}

/// Copies bytes out, in any order and with accesses of any width.
///
/// # Safety
/// That of [`copy_out`].
#[inline]
unsafe fn bulk_out(source: *mut u8, data: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `source` is valid for `data.len()` bytes (caller), and `data` is an exclusive reference.
    unsafe {
        move_bytes(source, data.as_mut_ptr(), data.len())
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: `source` is valid for `data.len()` bytes (caller).
    unsafe {
        words::copy_out(source, data)
    }
}

/// Copies bytes in, in any order and with accesses of any width. Later stores of the program become visible after it.
///
/// # Safety
/// That of [`copy_in`].
#[inline]
unsafe fn bulk_in(target: *mut u8, data: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `target` is valid for `data.len()` bytes (caller), and `data` is a reference.
    unsafe {
        move_bytes(data.as_ptr(), target, data.len())
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: `target` is valid for `data.len()` bytes (caller).
    unsafe {
        words::copy_in(target, data)
    }
}

/// Moves bytes by string instructions. Their stores become visible in any order, and all of them before later stores (Intel SDM
/// volume 3, "Fast-String Operation and Out-of-Order Stores").
///
/// # Safety
/// `source` is valid for reads and `target` for writes of `bytes` bytes, and they do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn move_bytes(source: *const u8, target: *mut u8, bytes: usize) {
    if is_slow_by_bytes(source.addr(), target.addr()) {
        // SAFETY: the instructions read `bytes` bytes at `source` and write as many at `target`, which are valid (caller), and
        // nothing else: first words, then the rest. The direction flag is clear, as the ABI demands. Without `nomem` the
        // compiler moves no access across them.
        unsafe {
            std::arch::asm!(
                "rep movsq",
                "mov rcx, {rest}",
                "rep movsb",
                rest = in(reg) bytes % 8,
                inout("rcx") bytes / 8 => _, inout("rsi") source => _, inout("rdi") target => _,
                options(nostack, preserves_flags)
            );
        }
    } else {
        // SAFETY: as above, byte by byte.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") bytes => _, inout("rsi") source => _, inout("rdi") target => _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Whether the target begins up to 31 bytes behind the source in a page, as a large block of `malloc` does behind pages of DMA memory.
/// There `rep movsb` reaches 1.3 to 2.7 GB/s on Zen 3, and `rep movsq` 5 to 20 GB/s; elsewhere `rep movsb` is as fast, or faster.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_slow_by_bytes(source: usize, target: usize) -> bool {
    (1..32).contains(&(target.wrapping_sub(source) % 4096))
}

/// Bulk copies on other processors: relaxed words of the shared side, and bytes before and after them.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    use super::{AtomicU8, AtomicU64, Ordering};

    /// Returns the number of bytes before the first aligned word.
    fn head(start: *mut u8, bytes: usize) -> usize {
        (start.addr().wrapping_neg() % 8).min(bytes)
    }

    /// # Safety
    /// That of [`copy_out`](super::copy_out).
    pub(super) unsafe fn copy_out(source: *mut u8, data: &mut [u8]) {
        let byte = |at: usize| {
            // SAFETY: `at` counts bytes of `data`, and `source` is valid for as many (caller).
            let at = unsafe { source.add(at) };
            // SAFETY: valid (line before). A byte is always aligned.
            unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed)
        };
        let mut next = head(source, data.len());
        (0..next).for_each(|at| data[at] = byte(at));
        let (chunks, _) = data[next..].as_chunks_mut::<8>();
        for chunk in chunks {
            // SAFETY: `next` counts bytes of `data`, and the eight bytes of `chunk` follow.
            let at = unsafe { source.add(next) };
            // SAFETY: valid (line before). Aligned: `head` ends at the first aligned word.
            *chunk = unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed).to_ne_bytes();
            next += 8;
        }
        (next..data.len()).for_each(|at| data[at] = byte(at));
    }

    /// # Safety
    /// That of [`copy_in`](super::copy_in).
    pub(super) unsafe fn copy_in(target: *mut u8, data: &[u8]) {
        // SAFETY: `target` is valid for `data.len()` bytes (caller), and as many are stored.
        unsafe {
            store(target, data.len(), |at| data[at], |at| u64::from_ne_bytes(std::array::from_fn(|i| data[at + i])))
        }
    }

    /// # Safety
    /// That of [`fill`](super::fill).
    pub(super) unsafe fn fill(target: *mut u8, bytes: usize, value: u8) {
        // SAFETY: `target` is valid for `bytes` bytes (caller).
        unsafe { store(target, bytes, |_| value, |_| u64::from_ne_bytes([value; 8])) }
    }

    /// Stores `bytes` bytes. `byte` and `word` return the content at an offset.
    ///
    /// # Safety
    /// `target` is valid for reads and writes of `bytes` bytes of a live mapping.
    #[inline]
    unsafe fn store(target: *mut u8, bytes: usize, byte: impl Fn(usize) -> u8, word: impl Fn(usize) -> u64) {
        let store = |offset: usize| {
            // SAFETY: offsets are below `bytes`, and `target` is valid for as many (caller).
            let at = unsafe { target.add(offset) };
            // SAFETY: valid (line before). A byte is always aligned.
            unsafe { AtomicU8::from_ptr(at) }.store(byte(offset), Ordering::Relaxed);
        };
        let first = head(target, bytes);
        let end = first + (bytes - first) / 8 * 8;
        (0..first).for_each(store);
        for offset in (first..end).step_by(8) {
            // SAFETY: the eight bytes at `offset` end before `end`, which is at most `bytes`.
            let at = unsafe { target.add(offset) };
            // SAFETY: valid (line before). Aligned: `head` ends at the first aligned word.
            unsafe { AtomicU64::from_ptr(at.cast()) }.store(word(offset), Ordering::Relaxed);
        }
        (end..bytes).for_each(store);
    }
}

/// Stores `data` in ascending order by the widest aligned words, each with release order.
///
/// # Safety
/// That of [`copy_in`].
#[inline]
unsafe fn store_ascending(target: *mut u8, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        // SAFETY: `done` is less than `data.len()`, and `target` is valid for as many bytes (caller).
        let at = unsafe { target.add(done) };
        let rest = &data[done..];
        if let (Some(word), 0) = (rest.first_chunk::<8>(), at.addr() % 8) {
            // SAFETY: the branch checked alignment and length.
            unsafe { store_u64(at, u64::from_ne_bytes(*word), Ordering::Release) }
            done += 8;
        } else if let (Some(word), 0) = (rest.first_chunk::<4>(), at.addr() % 4) {
            // SAFETY: the branch checked alignment and length.
            unsafe { AtomicU32::from_ptr(at.cast()) }.store(u32::from_ne_bytes(*word), Ordering::Release);
            done += 4;
        } else if let (Some(word), 0) = (rest.first_chunk::<2>(), at.addr() % 2) {
            // SAFETY: the branch checked alignment and length.
            unsafe { AtomicU16::from_ptr(at.cast()) }.store(u16::from_ne_bytes(*word), Ordering::Release);
            done += 2;
        } else {
            // SAFETY: `done` is inside. A byte is always aligned.
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
                // SAFETY: `len` bytes at `start` lie in the 640 bytes.
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

    /// By bytes and by words: distances in a page of 0 to 40 bytes, and one less than a page.
    #[test]
    fn every_distance_in_a_page_copies_exactly_its_bytes() {
        let content: Vec<u8> = (0..519u32).map(|i| (i * 7 + 1) as u8 | 1).collect();
        let mut memory = vec![0u64; 80];
        let base = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: 640 bytes were allocated.
        unsafe { copy_in(base, &content) };
        for distance in (0..=40).chain([4095]) {
            for bytes in [1, 7, 8, 9, 257, 300, 519] {
                let mut data = vec![0; 8192];
                let start = (base.addr() + distance).wrapping_sub(data.as_ptr().addr()) % 4096;
                // SAFETY: `bytes` is at most 519.
                unsafe { bulk_out(base, &mut data[start..start + bytes]) };
                assert_eq!(data[start..start + bytes], content[..bytes], "distance {distance}, {bytes} bytes");
                let others = data[..start].iter().chain(&data[start + bytes..]);
                assert!(others.copied().all(|byte| byte == 0), "distance {distance}, {bytes} bytes");
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
