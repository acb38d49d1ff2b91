//! The lanes of a card: each runs one instruction at a time, and exchanges in several lanes run side by side.

use crate::engine::Time;
use crate::fabric::Core;
use crate::sequencer::Running;

/// Names a lane of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneId {
    pub(crate) card: usize,
    pub(crate) lane: usize,
}

impl LaneId {
    /// The lane of all operations that are no exchange.
    pub(crate) fn first(card: usize) -> Self {
        LaneId { card, lane: 0 }
    }
}

/// What an instruction occupies while it runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Claim {
    pub(crate) lane: usize,
    /// Links on which it sends, and on which it receives: one bit for each port.
    pub(crate) out: u64,
    pub(crate) into: u64,
    /// The operation is no exchange: nothing runs beside it.
    pub(crate) is_alone: bool,
}

impl Claim {
    /// The claim of an instruction that runs alone.
    pub(crate) const ALONE: Claim = Claim { lane: 0, out: 0, into: 0, is_alone: true };

    /// Returns whether an instruction with this claim waits for an earlier one with claim `earlier`.
    pub(crate) fn waits_for(&self, earlier: &Claim) -> bool {
        let shares_link = self.out & earlier.out != 0 || self.into & earlier.into != 0;
        self.is_alone || earlier.is_alone || self.lane == earlier.lane || shares_link
    }
}

/// State of one lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) running: Option<Running>,
    /// Claim of the running instruction, or of the last one.
    pub(crate) claim: Claim,
    /// Earliest issue of an instruction that waits for the last one of this lane.
    pub(crate) free_at: Time,
    /// Incremented by all that voids earlier events of the lane: the end of an instruction, a reset, a stop.
    pub(crate) epoch: u64,
}

impl Lane {
    /// Clears the lane. Events of its last instruction are void.
    pub(crate) fn reset(&mut self) {
        *self = Lane { epoch: self.epoch + 1, ..Lane::default() };
    }
}

impl Core {
    pub(crate) fn lane(&self, at: LaneId) -> &Lane {
        &self.cards[at.card].lanes[at.lane]
    }

    pub(crate) fn lane_mut(&mut self, at: LaneId) -> &mut Lane {
        &mut self.cards[at.card].lanes[at.lane]
    }

    /// Returns the instruction that runs in the lane.
    pub(crate) fn running(&self, at: LaneId) -> Option<&Running> {
        self.lane(at).running.as_ref()
    }

    pub(crate) fn running_mut(&mut self, at: LaneId) -> Option<&mut Running> {
        self.lane_mut(at).running.as_mut()
    }
}
