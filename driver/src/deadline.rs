//! The moment by which a call ends.

use std::time::{Duration, Instant};

/// The moment by which a call ends. A timeout that no clock reaches, such as [`Duration::MAX`], never ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    began: Instant,
    end: Option<Instant>,
}

impl Deadline {
    /// The deadline of a call that begins now and may take `timeout`.
    pub(crate) fn after(timeout: Duration) -> Self {
        let began = Instant::now();
        Deadline { began, end: began.checked_add(timeout) }
    }

    /// How much time is left: zero once the deadline has passed.
    pub(crate) fn left(&self) -> Duration {
        self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }

    /// Time since the call began.
    pub(crate) fn waited(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_since_the_beginning_is_told() {
        let deadline = Deadline::after(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert!(deadline.waited() >= Duration::from_millis(2));
    }

    #[test]
    fn the_longest_timeout_saturates() {
        assert_eq!(Deadline::after(Duration::MAX).left(), Duration::MAX);
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
        let hour = Duration::from_secs(3600);
        let left = Deadline::after(hour).left();
        assert!(left <= hour && left > hour / 2, "{left:?}");
    }
}
