//! How long a client waits for its servers.
//!
//! With a limit for each reply alone, a server that always uses it up could delay a command by the limit times the number of
//! messages. So all replies while a function is opened share one limit, and so do slow replies after that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::vfio_user::wire::debt::Debt;

/// The longest patience: a year. An unlimited patience is as long.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// A reply within this fraction of the patience is not slow. The client always waits this long.
const QUICK: u32 = 50;

/// The time that slow replies of all servers of one domain have taken.
#[derive(Debug, Default)]
pub(crate) struct Slowness {
    /// `None`: no reply was slow.
    debt: Mutex<Option<Debt>>,
    /// Whether a reply was slow.
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
    /// Until when the function must be open.
    open_by: Instant,
    is_open: AtomicBool,
    /// Whether a reply came too late.
    too_long: AtomicBool,
}

impl Waits {
    /// Begins with opening, at `begin`. The patience is at most [`LONGEST`].
    pub(crate) fn new(slowness: Arc<Slowness>, patience: Duration, begin: Instant) -> Self {
        let patience = patience.min(LONGEST);
        let (is_open, too_long) = (AtomicBool::new(false), AtomicBool::new(false));
        Waits { slowness, patience, open_by: begin + patience, is_open, too_long }
    }

    /// Notes that the function is open.
    pub(crate) fn opened(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Whether the function is open.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns the time that all slow replies may take.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns until when the reply to a command sent at `now` must arrive.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let left = self.patience.saturating_sub(self.slowness.at(now)).max(self.patience / QUICK);
        let deadline = now + left;
        if self.is_open() { deadline } else { deadline.min(self.open_by) }
    }

    /// Notes that a command was sent at `begin` and ended at `now`.
    pub(crate) fn note(&self, begin: Instant, now: Instant) {
        let waited = now.saturating_duration_since(begin);
        if waited > self.patience / QUICK {
            self.slowness.add(waited, now);
        }
    }

    /// Notes that a reply came too late.
    pub(crate) fn end(&self) {
        self.too_long.store(true, Ordering::Relaxed);
    }

    /// Whether a reply came too late.
    pub(crate) fn were_too_long(&self) -> bool {
        self.too_long.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn opening_has_one_limit_and_slow_replies_share_another() {
        let (slowness, begin) = (Arc::<Slowness>::default(), Instant::now());
        let waits = Waits::new(Arc::clone(&slowness), SECOND * 5, begin);
        assert_eq!(waits.deadline(begin + SECOND * 3), begin + SECOND * 5, "opening");
        waits.opened();
        assert_eq!(waits.deadline(begin + SECOND * 3), begin + SECOND * 8);
        slowness.add(SECOND * 4, begin + SECOND * 7);
        assert_eq!(waits.deadline(begin + SECOND * 7), begin + SECOND * 8);
        slowness.add(SECOND * 9, begin + SECOND * 8);
        // Another server of the domain still has a fiftieth, and the full time once the debt is forgiven.
        let other = Waits::new(slowness, SECOND * 5, begin);
        other.opened();
        assert_eq!(other.deadline(begin + SECOND * 8), begin + SECOND * 8 + SECOND / 10);
        assert_eq!(other.deadline(begin + SECOND * 500), begin + SECOND * 505);
    }

    #[test]
    fn a_reply_is_slow_after_a_fiftieth_of_the_patience() {
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
    fn an_unlimited_patience_does_not_overflow() {
        let now = Instant::now();
        let waits = Waits::new(Arc::default(), Duration::MAX, now);
        let year = SECOND * 31_536_000;
        assert_eq!((waits.patience(), waits.deadline(now)), (year, now + year));
    }
}
