//! Time that a peer has made others wait, which is forgiven with time.

use std::time::{Duration, Instant};

/// One second of debt is forgiven in this many seconds.
const REGAIN: u32 = 10;

/// A sum of times, less a tenth of the time since each was added.
#[derive(Debug)]
pub(crate) struct Debt {
    amount: Duration,
    since: Instant,
}

impl Debt {
    pub(crate) fn new(now: Instant) -> Self {
        Debt { amount: Duration::ZERO, since: now }
    }

    /// Returns what is left of the sum.
    pub(crate) fn at(&self, now: Instant) -> Duration {
        self.amount.saturating_sub(now.saturating_duration_since(self.since) / REGAIN)
    }

    /// Adds a time, and returns the sum.
    pub(crate) fn add(&mut self, amount: Duration, now: Instant) -> Duration {
        self.amount = self.at(now).saturating_add(amount);
        self.since = now;
        self.amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_time_is_forgiven() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut debt = Debt::new(begin);
        assert_eq!(debt.add(second * 3, begin + second * 100), second * 3);
        assert_eq!(debt.at(begin + second * 110), second * 2);
        assert_eq!(debt.add(second, begin + second * 110), second * 3);
        assert_eq!(debt.at(begin), second * 3, "time does not go back");
        assert_eq!(debt.at(begin + second * 1000), Duration::ZERO);
    }
}
