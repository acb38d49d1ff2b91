//! Mapped parts of a BAR.

use std::any::Any;
use std::sync::Arc;

use crate::Result;
use crate::owner::Owner;

/// A mapped part of a BAR.
#[derive(Clone)]
pub(crate) struct Piece {
    offset: u64,
    len: u64,
    start: *mut u8,
    owner: Owner,
    /// Keeps the mapping alive.
    _memory: Arc<dyn Any + Send + Sync>,
}

impl Piece {
    /// Describes `len` bytes at `offset` of a BAR, which `owner` mapped at `start`. `memory` keeps the mapping alive.
    ///
    /// # Safety
    /// As long as `memory` lives, in the process `owner`:
    /// - `start` is aligned to 8 and valid for reads and writes of `len` bytes;
    /// - the mapping stays in place, and no reference into it exists: a device may write it at any time;
    /// - no access faults, or a handler that the bus installed resolves the fault (see `sigbus`).
    ///
    /// `offset` is a multiple of 8, and `offset + len` does not overflow. So a register that is aligned in the BAR is aligned in
    /// memory.
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

    /// Returns whether `len` bytes at `base` of the BAR lie inside of the piece.
    pub(crate) fn holds(&self, base: u64, len: u64) -> bool {
        base >= self.offset && len <= self.len && base - self.offset <= self.len - len
    }

    /// Returns the address of the register at `at` of the BAR. Fails in a forked child, which has no mapping.
    ///
    /// # Safety
    /// The piece [`holds`](Self::holds) a `T` at `at`.
    #[inline]
    pub(crate) unsafe fn register<T>(&self, at: u64) -> Result<*mut T> {
        self.owner.check()?;
        // SAFETY: `at` lies inside of the piece (caller), and `len` bytes at `start` are valid (`Piece::new`).
        Ok(unsafe { self.start.add((at - self.offset) as usize) }.cast::<T>())
    }
}

// SAFETY: `start` points into the mapping that `_memory` keeps in place (`Piece::new`). All accesses are volatile, and may
// come from any thread, as those of a device may.
unsafe impl Send for Piece {}
// SAFETY: a shared piece allows no more than an owned one: volatile accesses to memory without references.
unsafe impl Sync for Piece {}
