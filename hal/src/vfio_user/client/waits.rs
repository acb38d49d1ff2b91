//! How long a client waits for its servers.
//!
//! A limit for each answer alone would let a server that uses it up each time hold a command for as long as the command
//! has questions. So opening has one limit for all its questions, and after that slow answers share one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::vfio_user::wire::debt::Debt;

/// An answer that takes at most this fraction of the patience is not slow, and is always waited for.
const QUICK: u32 = 50;

/// What slow answers of all servers of one domain have taken.
#[derive(Debug, Default)]
pub(crate) struct Slowness {
    /// `None`: none was slow.
    debt: Mutex<Option<Debt>>,
    /// Whether there is any.
    is_some: AtomicBool,
}

impl Slowness {
    fn at(&self, now: Instant) -> Duration {
        if !self.is_some.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        self.debt.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(Duration::ZERO, |debt| debt.at(now))
    }

    fn add(&self, waited: Duration, now: Instant) {
        self.debt.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| Debt::new(now)).add(waited, now);
        self.is_some.store(true, Ordering::Relaxed);
    }
}

/// The waits of one connection.
#[derive(Debug)]
pub(crate) struct Waits {
    slowness: Arc<Slowness>,
    patience: Duration,
    /// When opening must be over.
    open_by: Option<Instant>,
    is_open: AtomicBool,
    /// Whether an answer was given up.
    too_long: AtomicBool,
}

impl Waits {
    /// Of a connection that is being opened since `begin`.
    pub(crate) fn new(slowness: Arc<Slowness>, patience: Duration, begin: Instant) -> Self {
        let (is_open, too_long) = (AtomicBool::new(false), AtomicBool::new(false));
        Waits { slowness, patience, open_by: begin.checked_add(patience), is_open, too_long }
    }

    /// Opening is over.
    pub(crate) fn opened(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Until when what is asked at `now` must be answered.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let left = self.patience.saturating_sub(self.slowness.at(now)).max(self.patience / QUICK);
        // A patience without end is one of a year.
        let year = Duration::from_secs(365 * 24 * 3600);
        let deadline = now + left.min(year);
        match self.open_by {
            Some(open_by) if !self.is_open.load(Ordering::Relaxed) => deadline.min(open_by),
            _ => deadline,
        }
    }

    /// What was asked at `begin` is over at `now`.
    pub(crate) fn note(&self, begin: Instant, now: Instant) {
        let waited = now.saturating_duration_since(begin);
        if waited > self.patience / QUICK {
            self.slowness.add(waited, now);
        }
    }

    /// An answer is given up.
    pub(crate) fn end(&self) {
        self.too_long.store(true, Ordering::Relaxed);
    }

    /// Whether an answer was given up.
    pub(crate) fn were_too_long(&self) -> bool {
        self.too_long.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn opening_and_slow_answers_have_a_limit_together() {
        let (slowness, begin) = (Arc::<Slowness>::default(), Instant::now());
        let waits = Waits::new(Arc::clone(&slowness), SECOND * 5, begin);
        assert_eq!(waits.deadline(begin + SECOND * 3), begin + SECOND * 5, "opening");
        waits.opened();
        assert_eq!(waits.deadline(begin + SECOND * 3), begin + SECOND * 8);
        slowness.add(SECOND * 4, begin + SECOND * 7);
        assert_eq!(waits.deadline(begin + SECOND * 7), begin + SECOND * 8);
        slowness.add(SECOND * 9, begin + SECOND * 8);
        // Another server of the domain is waited for a moment at least, and as long as ever once that is forgiven.
        let other = Waits::new(slowness, SECOND * 5, begin);
        other.opened();
        assert_eq!(other.deadline(begin + SECOND * 8), begin + SECOND * 8 + SECOND / 10);
        assert_eq!(other.deadline(begin + SECOND * 500), begin + SECOND * 505);
    }

    #[test]
    fn an_answer_is_slow_that_takes_more_than_a_fiftieth() {
        let (slowness, begin) = (Arc::<Slowness>::default(), Instant::now());
        let waits = Waits::new(Arc::clone(&slowness), SECOND * 5, begin);
        let left = |now| {
            waits.opened();
            waits.deadline(now) - now
        };
        for quick in [Duration::ZERO, SECOND / 20, SECOND / 10] {
            waits.note(begin, begin + quick);
            assert_eq!(left(begin + quick), SECOND * 5, "{quick:?}");
        }
        let slow = SECOND / 10 + Duration::from_nanos(1);
        waits.note(begin, begin + slow);
        assert_eq!(left(begin + slow), SECOND * 5 - slow);
        assert!(!waits.were_too_long());
        waits.end();
        assert!(waits.were_too_long());
    }

    #[test]
    fn a_patience_without_end_is_no_overflow() {
        let waits = Waits::new(Arc::default(), Duration::MAX, Instant::now());
        let now = Instant::now();
        assert_eq!(waits.deadline(now), now + SECOND * 31_536_000);
    }
}
