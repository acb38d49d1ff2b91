//! Times of instructions.

use crate::cost::Moment;

/// Times of one instruction on one card, from the start of all programs.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) t1: Moment,
    pub(super) t2: Moment,
    /// `None` if nothing came.
    pub(super) arrival: Option<Moment>,
}

impl Times {
    pub(super) fn at_once(t2: Moment) -> Self {
        Times { t1: t2, t2, arrival: None }
    }

    pub(super) fn arrive(&mut self, at: Moment) {
        self.arrival = Some(self.arrival.map_or(at, |last| last.max(at)));
        self.t2 = self.t2.max(at);
    }
}
