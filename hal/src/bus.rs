//! The seam between the host side of a function and the bus that reaches it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::endpoint::BarLayout;
use crate::interrupt::InterruptKind;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::{BarIndex, Interrupt, Result};

/// How the host reaches a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusKind {
    /// An endpoint in this process.
    InProcess,
    /// The kernel's VFIO driver.
    Vfio,
    /// A server on the far side of a socket.
    VfioUser,
}

impl fmt::Display for BusKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BusKind::InProcess => "in process",
            BusKind::Vfio => "on kernel VFIO",
            BusKind::VfioUser => "over vfio-user",
        })
    }
}

/// How much of a card a reset has reached.
///
/// Whatever it was, all that a function was told but its BARs is forgotten, its engines included, unless it is
/// [`None`](Self::None).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetOutcome {
    /// The function alone: a function-level reset, or another of its own that the kernel knows.
    Function,
    /// Every function of the slot or bus. All of them belong to this process, and no other of them was open.
    Hot,
    /// The bus, on which the function is alone.
    Bus,
    /// Nothing was reset: what the function's last user started may still run. It does not master the bus.
    None,
}

impl fmt::Display for ResetOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResetOutcome::Function => "function",
            ResetOutcome::Hot => "hot",
            ResetOutcome::Bus => "bus",
            ResetOutcome::None => "none",
        })
    }
}

/// What a bus does for one function.
///
/// Callers have checked that accesses are aligned and lie inside. What is read of a function that is gone is all-ones, and
/// what is written to it is lost, without an error: [`Function`](crate::Function) makes
/// [`Removed`](crate::Error::Removed) of it in one place. Errors are for what the bus itself refuses.
pub(crate) trait Bus: Send + Sync {
    /// How it reaches.
    fn kind(&self) -> BusKind;

    /// Reads configuration space; `data` comes filled with ones.
    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<()>;

    /// Writes configuration space.
    fn config_write(&self, offset: u16, data: &[u8]) -> Result<()>;

    /// Layout of a BAR, or `None` if it is not implemented.
    fn bar(&self, bar: BarIndex) -> Option<BarLayout>;

    /// The stretches of a BAR that lie in this process's address space, ascending and disjoint.
    fn bar_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>>;

    /// Reads of a BAR where it is not mapped, in one access or not at all; `data` comes filled with ones.
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Writes to a BAR where it is not mapped, in one access or not at all.
    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) -> Result<()>;

    /// Vectors of a kind that the function has, zero if none.
    fn vectors(&self, kind: InterruptKind) -> Result<u16>;

    /// Has the function raise `interrupts`, one a vector, from now on; there are as many at the least. None was enabled
    /// before, or [`disable_interrupts`](Self::disable_interrupts) was called since.
    fn enable_interrupts(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> Result<()>;

    /// Has the function raise nothing of `kind` any more.
    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()>;

    /// Raises a vector that is enabled, as if the function had.
    fn trigger(&self, kind: InterruptKind, vector: u16) -> Result<()>;

    /// Lets a level interrupt through again.
    fn unmask_intx(&self) -> Result<()>;

    /// What [`reset`](Self::reset) would reset now. Asking changes nothing.
    fn can_reset(&self) -> ResetOutcome;

    /// Resets the function: all it was told but its BARs is forgotten, as interrupts are by this side too. Called only
    /// where [`can_reset`](Self::can_reset) promised something.
    fn reset(&self) -> Result<ResetOutcome>;

    /// The host is gone, as far as the device can tell. The function was reset before.
    fn close(&self);

    /// What tells that the function is gone, or is to be given back.
    fn removal(&self) -> &Arc<Removal>;

    /// Whether the function has reported an error that is not corrected since this was last asked.
    fn take_error(&self) -> bool {
        false
    }
}

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
