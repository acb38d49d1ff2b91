//! Names of lanes, and what an instruction occupies in them.

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
