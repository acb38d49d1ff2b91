//! Mapped parts of a BAR.

use std::any::Any;
use std::sync::Arc;

use crate::Result;
use crate::owner::Owner;

/// A stretch of a BAR that lies in this process's address space.
#[derive(Clone)]
pub(crate) struct Piece {
    offset: u64,
    len: u64,
    start: *mut u8,
    owner: Owner,
    /// What holds the mapping.
    _memory: Arc<dyn Any + Send + Sync>,
}

impl Piece {
    /// A stretch of `len` bytes from `offset` of a BAR on, which `owner` has mapped at `start`. `memory` holds the mapping.
    ///
    /// # Safety
    /// As long as `memory` lives, and in the process `owner`:
    /// - `start` is aligned to 8 and valid for reads and writes of `len` bytes;
    /// - the mapping stays where it is, and no reference into it is made: a device may write it at any time;
    /// - an access faults never, or a handler that the bus has installed answers it (see `sigbus`).
    ///
    /// `offset` is a multiple of 8 and `offset + len` does not overflow, so that a register that is aligned in the BAR is
    /// aligned in memory.
    pub(crate) unsafe fn new(
        offset: u64,
        len: u64,
        start: *mut u8,
        owner: Owner,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        debug_assert!(offset.is_multiple_of(8) && start.addr().is_multiple_of(8) && offset.checked_add(len).is_some());
        Piece { offset, len, start, owner, _memory: memory }
    }

    /// Whether `len` bytes of the BAR, from `base` on, lie in it.
    pub(crate) fn holds(&self, base: u64, len: u64) -> bool {
        base >= self.offset && len <= self.len && base - self.offset <= self.len - len
    }

    /// Address of the register at `at` of the BAR. A forked child has no mapping.
    ///
    /// # Safety
    /// A `T` at `at` lies inside: the piece [`holds`](Self::holds) it.
    #[inline]
    pub(crate) unsafe fn register<T>(&self, at: u64) -> Result<*mut T> {
        self.owner.check()?;
        // SAFETY: the caller promises that `at` lies inside, and `new`'s caller that the memory is as long.
        Ok(unsafe { self.start.add((at - self.offset) as usize) }.cast::<T>())
    }
}

// SAFETY: `start` points into the mapping that `_memory` owns and keeps in place, as `Piece::new` demands. It is only used
// for volatile accesses, which may come from any thread just as a device's own may.
unsafe impl Send for Piece {}
// SAFETY: a shared `Piece` gives no more than an owned one: volatile accesses to memory that no reference points into.
unsafe impl Sync for Piece {}
