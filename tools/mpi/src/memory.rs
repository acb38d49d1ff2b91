//! Memory of `MPI_Alloc_mem`: the program uses it like any other, and the card reaches it.

use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};

use fpga_hal::DmaBuffer;
use memmap2::{MmapOptions, MmapRaw};

use crate::foreign::Word;

/// A buffer of the card, mapped once more for the program.
#[derive(Debug)]
pub(crate) struct Memory {
    buffer: Arc<DmaBuffer>,
    /// The buffer's memory file: the same bytes. The file is sealed against shrinking.
    map: MmapRaw,
}

impl Memory {
    /// The view of `buffer`; `None` if there is no room for it.
    pub(crate) fn of(buffer: Arc<DmaBuffer>) -> Option<Self> {
        let map = MmapOptions::new().map_raw(&buffer.as_fd()).ok()?;
        Some(Memory { buffer, map })
    }

    /// Where the program sees it.
    pub(crate) fn address(&self) -> Word {
        self.map.as_ptr().addr()
    }

    /// `bytes` bytes at `address`, if all of them are in this memory.
    pub(crate) fn reach(&self, address: Word, bytes: usize) -> Option<Reached> {
        let (at, len) = (address.checked_sub(self.address())?, self.buffer.len());
        (at <= len && bytes <= len - at).then(|| Reached { buffer: Arc::clone(&self.buffer), at, bytes })
    }
}

/// Data of the program in memory that the card reaches.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    pub(crate) buffer: Arc<DmaBuffer>,
    /// Bytes of the buffer before it.
    at: usize,
    bytes: usize,
}

impl Reached {
    /// The card's address of `bytes` bytes after `offset` bytes of the data, if all of them are in the data.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Option<u64> {
        let is_inside = offset.checked_add(bytes)? <= self.bytes as u64;
        is_inside.then(|| self.buffer.iova().0 + self.at as u64 + offset)
    }
}

/// The memory that the program has. The session ends before MPI calls the program for the last time, and before the program has freed all.
static MEMORIES: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

fn with<T>(of: impl FnOnce(&mut Vec<Memory>) -> T) -> T {
    of(&mut MEMORIES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Number of blocks that the program has.
pub(crate) fn blocks() -> usize {
    with(|all| all.len())
}

/// Keeps memory that the program is given.
pub(crate) fn add(memory: Memory) {
    with(|all| all.push(memory));
}

/// Takes back the memory that begins at `address`.
pub(crate) fn remove(address: Word) -> Option<Memory> {
    with(|all| {
        let index = all.iter().position(|memory| memory.address() == address)?;
        Some(all.swap_remove(index))
    })
}

/// `bytes` bytes at `address`, if the card reaches them.
pub(crate) fn reach(address: Word, bytes: usize) -> Option<Reached> {
    with(|all| all.iter().find_map(|memory| memory.reach(address, bytes)))
}
