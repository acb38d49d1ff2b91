//! Signals on their way between cards, for the prediction of times.

use std::collections::HashMap;

use crate::cost::Moment;

/// Signals that were sent and not yet waited for: time and value, by rank of the programs and id, in order of time.
#[derive(Default)]
pub(super) struct Signals {
    sent: HashMap<(usize, u16), Vec<(Moment, u32)>>,
}

impl Signals {
    pub(super) fn add(&mut self, rank: usize, id: u16, at: Moment, value: u32) {
        let sent = self.sent.entry((rank, id)).or_default();
        let behind = sent.partition_point(|(other, _)| other.ps <= at.ps);
        sent.insert(behind, (at, value));
    }

    /// Subtracts `value` from a signal and returns the time when the signal has that much; zero if it had it at the start.
    pub(super) fn take(&mut self, rank: usize, id: u16, value: u32) -> Moment {
        let mut missing = value;
        let mut at = Moment::default();
        let Some(sent) = self.sent.get_mut(&(rank, id)) else { return at };
        while let Some((when, left)) = sent.first_mut().filter(|_| missing > 0) {
            let taken = missing.min(*left);
            (missing, *left, at) = (missing - taken, *left - taken, at.max(*when));
            if *left == 0 {
                sent.remove(0);
            }
        }
        at
    }
}
