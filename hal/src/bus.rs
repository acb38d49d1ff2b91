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

    /// Reads of a BAR where it is not mapped; `data` comes filled with ones.
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Writes to a BAR where it is not mapped.
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

    /// Resets the function: all it was told but its BARs is forgotten, as interrupts are by this side too.
    fn reset(&self) -> Result<()>;

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
    /// Where it begins in the BAR.
    pub(crate) offset: u64,
    /// Its bytes.
    pub(crate) len: u64,
    /// Where it begins in memory; valid for `len` bytes as long as `memory` lives.
    pub(crate) start: *mut u8,
    /// The process that mapped it.
    pub(crate) owner: Owner,
    /// What holds the mapping.
    pub(crate) _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: `start` points into the mapping that `memory` owns and keeps in place. It is only used for volatile accesses,
// which may come from any thread just as a device's own may.
unsafe impl Send for Piece {}
// SAFETY: as for `Send`.
unsafe impl Sync for Piece {}
