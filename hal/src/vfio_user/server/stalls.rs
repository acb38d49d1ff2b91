//! Bounds the time that a card waits for its clients' memory.
//!
//! A client that maps memory without a file replies to the card's DMA by messages. The fabric's clock stops meanwhile, so a
//! slow client delays all cards of the fabric. So each request has a limit, and all slow requests of one card have a limit
//! together, which stays when a client reconnects.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::vfio_user::wire::debt::Debt;

/// A request may take another patience for each so many bytes.
const BYTES_PER_PATIENCE: usize = 1 << 20;
/// A request that takes at most this fraction of the patience is not slow.
const QUICK: u32 = 10;
/// Slow requests may take this many patiences in total.
const MOST: u32 = 3;
/// Beyond that, DMA by message fails for this many patiences.
const PAUSE: u32 = 30;

/// The slow requests of one card, of all its clients.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// The name of the card, for the log.
    name: String,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The time that slow requests took.
    debt: Debt,
    barred_until: Option<Instant>,
}

impl Stalls {
    /// A card without slow requests so far.
    pub(crate) fn new(name: String, patience: Duration) -> Self {
        let state = State { debt: Debt::new(Instant::now()), barred_until: None };
        Stalls { name, patience, state: Mutex::new(state) }
    }

    /// Returns how long the client may take to reply to all messages of a request of `bytes` bytes.
    pub(crate) fn limit(&self, bytes: usize) -> Duration {
        let patiences = u32::try_from(bytes / BYTES_PER_PATIENCE).unwrap_or(u32::MAX).saturating_add(1);
        self.patience.saturating_mul(patiences)
    }

    /// Whether DMA by message fails at once.
    pub(crate) fn is_barred(&self) -> bool {
        self.is_barred_at(Instant::now())
    }

    fn is_barred_at(&self, now: Instant) -> bool {
        self.state().barred_until.is_some_and(|until| now < until)
    }

    /// Notes that a request has ended after waiting for its client for `waited`.
    pub(crate) fn note(&self, waited: Duration) {
        self.note_at(waited, Instant::now());
    }

    fn note_at(&self, waited: Duration, now: Instant) {
        if waited <= self.patience / QUICK {
            return;
        }
        let mut state = self.state();
        let debt = state.debt.add(waited, now);
        if debt >= self.patience.saturating_mul(MOST) && state.barred_until.is_none_or(|until| until <= now) {
            let pause = self.patience.saturating_mul(PAUSE);
            state.debt = Debt::new(now);
            state.barred_until = now.checked_add(pause);
            drop(state);
            log::error!("{}: slow replies to DMA took {debt:.1?}; DMA by message fails for {pause:?}", self.name);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn three_requests_that_time_out_bar_the_card_for_a_while() {
        let (stalls, begin) = (Stalls::new("card".into(), SECOND), Instant::now());
        for visit in 1..=4 {
            let now = begin + SECOND * visit;
            assert!(!stalls.is_barred_at(now), "{visit}");
            stalls.note_at(SECOND, now);
        }
        let barred = begin + SECOND * 4;
        assert!(stalls.is_barred_at(barred) && stalls.is_barred_at(barred + SECOND * 29));
        assert!(!stalls.is_barred_at(barred + SECOND * 30));
        // After the pause, the sum begins at zero.
        stalls.note_at(SECOND, barred + SECOND * 31);
        assert!(!stalls.is_barred_at(barred + SECOND * 31));
    }

    #[test]
    fn many_slow_replies_bar_the_card_too() {
        let (stalls, mut now) = (Stalls::new("card".into(), SECOND), Instant::now());
        let begin = now;
        while !stalls.is_barred_at(now) {
            now += SECOND / 5;
            stalls.note_at(SECOND / 5, now);
            assert!(now < begin + SECOND * 4, "it is not barred");
        }
    }

    #[test]
    fn quick_and_rarely_slow_replies_do_not_bar_the_card() {
        let (stalls, mut now) = (Stalls::new("card".into(), SECOND), Instant::now());
        for round in 0..100_000 {
            let waited = if round % 100 == 0 { SECOND / 2 } else { SECOND / 10 };
            now += waited;
            stalls.note_at(waited, now);
            assert!(!stalls.is_barred_at(now));
        }
    }

    #[test]
    fn a_request_is_slow_after_a_tenth_of_the_patience() {
        let begin = Instant::now();
        for (waited, bars) in [(SECOND / 10, false), (SECOND / 10 + Duration::from_nanos(1), true)] {
            let stalls = Stalls::new("card".into(), SECOND);
            // All at the same time, so that no debt is forgiven.
            for _ in 0..30 {
                stalls.note_at(waited, begin);
            }
            assert_eq!(stalls.is_barred_at(begin), bars, "{waited:?}");
        }
        let stalls = Stalls::new("card".into(), SECOND);
        stalls.note_at(SECOND * 3 - Duration::from_nanos(1), begin);
        assert!(!stalls.is_barred_at(begin));
        stalls.note_at(SECOND / 5, begin);
        assert!(stalls.is_barred_at(begin) && stalls.is_barred_at(begin + SECOND * 30 - Duration::from_nanos(1)));
        assert!(!stalls.is_barred_at(begin + SECOND * 30));
        // Slow requests during the pause do not extend it, but count towards the next.
        stalls.note_at(SECOND * 3, begin + SECOND * 10);
        assert!(!stalls.is_barred_at(begin + SECOND * 30));
        stalls.note_at(SECOND * 3, begin + SECOND * 30);
        assert!(stalls.is_barred_at(begin + SECOND * 59) && !stalls.is_barred_at(begin + SECOND * 60));
        // Without `_at`, the time is now.
        let stalls = Stalls::new("card".into(), SECOND);
        assert!(!stalls.is_barred());
        stalls.note(SECOND * 3);
        assert!(stalls.is_barred());
    }

    #[test]
    fn large_requests_may_take_longer() {
        let stalls = Stalls::new("card".into(), SECOND);
        let limits = [0, (1 << 20) - 1, 1 << 20, 4 << 20].map(|bytes| stalls.limit(bytes));
        assert_eq!(limits, [SECOND, SECOND, SECOND * 2, SECOND * 5]);
        assert_eq!(Stalls::new("card".into(), Duration::MAX).limit(usize::MAX), Duration::MAX);
    }
}
