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

    /// Calls `look` until it finds something, and once more when no time is left. Sleeps for `pause` between two calls, or spins.
    /// `Ok(None)`: the time is over.
    pub(crate) fn poll<T, E>(
        &self,
        pause: Option<Duration>,
        mut look: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        loop {
            let is_last = self.left().is_zero();
            if let found @ Some(_) = look()? {
                return Ok(found);
            }
            match pause {
                _ if is_last => return Ok(None),
                Some(pause) => std::thread::sleep(pause),
                None => std::hint::spin_loop(),
            }
        }
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
    fn whoever_polls_looks_once_more_when_the_time_is_over() {
        let mut looks = 0;
        let found = Deadline::after(Duration::ZERO).poll(None, || {
            looks += 1;
            Ok::<_, ()>(None::<()>)
        });
        assert_eq!((found, looks), (Ok(None), 1));
        assert_eq!(Deadline::after(Duration::MAX).poll(None, || Ok::<_, ()>(Some(7))), Ok(Some(7)));
        assert_eq!(Deadline::after(Duration::MAX).poll(None, || Err::<Option<()>, _>("gone")), Err("gone"));
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
