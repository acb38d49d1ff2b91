//! The lanes of a card: each runs one instruction at a time, and exchanges in several lanes run side by side.

use crate::card::running::Running;
use crate::engine::Time;
use crate::proto::optweb::lane::Claim;

/// State of one lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) running: Option<Running>,
    /// Claim of the running instruction, or of the last one.
    pub(crate) claim: Claim,
    /// Earliest issue of an instruction that waits for the last one of this lane.
    pub(crate) free_at: Time,
    /// Incremented by all that voids earlier events of the lane: the end of an instruction, a reset, a freeze.
    pub(crate) epoch: u64,
}

impl Lane {
    /// Clears the lane. Events of its last instruction are void.
    pub(crate) fn reset(&mut self) {
        *self = Lane { epoch: self.epoch + 1, ..Lane::default() };
    }
}
