//! The interface between the host side of a function and the bus that reaches it.

mod kind;
mod piece;

pub use kind::BusKind;
pub(crate) use piece::Piece;

use std::sync::Arc;

use fpga_pci::{BarLayout, InterruptKind, ResetOutcome};

use crate::removal::Removal;
use crate::{BarIndex, Interrupt, Result};

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
