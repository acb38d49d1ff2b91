//! The interface between the host side of a function and the bus that reaches it.

mod kind;
mod piece;

pub use kind::BusKind;
pub(crate) use piece::Piece;

use std::sync::Arc;

use fpga_pci::{BarLayout, InterruptKind, ResetOutcome};

use crate::removal::Removal;
use crate::{BarIndex, Interrupt, Result};

/// Operations of a bus on one function.
///
/// The caller checks that accesses are aligned and inside. A function that is gone reads as all-ones and ignores writes,
/// without an error: [`Function`](crate::Function) turns that into [`Removed`](crate::Error::Removed) in one place. Errors
/// are for refusals by the bus.
pub(crate) trait Bus: Send + Sync {
    /// Returns the kind of bus.
    fn kind(&self) -> BusKind;

    /// Reads configuration space. `data` is all-ones on entry.
    fn config_read(&self, offset: u16, data: &mut [u8]) -> Result<()>;

    /// Writes configuration space.
    fn config_write(&self, offset: u16, data: &[u8]) -> Result<()>;

    /// Returns the layout of a BAR, or `None` if it is not implemented.
    fn bar(&self, bar: BarIndex) -> Option<BarLayout>;

    /// Returns the mapped parts of a BAR, ascending and disjoint.
    fn bar_pieces(&self, bar: BarIndex) -> Result<Vec<Piece>>;

    /// Reads an unmapped part of a BAR, in one access or not at all. `data` is all-ones on entry.
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Writes an unmapped part of a BAR, in one access or not at all.
    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) -> Result<()>;

    /// Returns the number of interrupt vectors of a kind.
    fn vectors(&self, kind: InterruptKind) -> Result<u16>;

    /// Connects the first vectors to `interrupts`, one each. The caller checks their number, and disables enabled interrupts
    /// first.
    fn enable_interrupts(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> Result<()>;

    /// Disconnects all vectors of `kind`.
    fn disable_interrupts(&self, kind: InterruptKind) -> Result<()>;

    /// Raises an enabled vector, as if the function had raised it.
    fn trigger(&self, kind: InterruptKind, vector: u16) -> Result<()>;

    /// Unmasks the INTx interrupt.
    fn unmask_intx(&self) -> Result<()>;

    /// Returns the scope that [`reset`](Self::reset) would have now. Changes nothing.
    fn can_reset(&self) -> ResetOutcome;

    /// Resets the function, and disconnects its interrupts. Called only if [`can_reset`](Self::can_reset) is not
    /// [`ResetOutcome::None`].
    fn reset(&self) -> Result<ResetOutcome>;

    /// Detaches the host from the device. The caller resets the function first.
    fn close(&self);

    /// Returns the state that reports removal and release requests.
    fn removal(&self) -> &Arc<Removal>;

    /// Returns whether the function reported an uncorrected error since the last call.
    fn take_error(&self) -> bool {
        false
    }
}
