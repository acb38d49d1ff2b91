//! Replies that a client has not read.

use std::time::Instant;

use nix::poll::PollFlags;

/// Bytes of unread replies from which on the server reads no more from a client; half of what it may have, if that is less.
const ENOUGH_UNREAD: usize = 4 << 20;

/// Since when a client has read nothing, although replies wait.
#[derive(Default)]
pub(super) struct Unread(Option<(Instant, usize)>);

impl Unread {
    /// Notes that `bytes` bytes wait now, and returns since when that number has not decreased.
    pub(super) fn since(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let since = match self.0 {
            Some((since, before)) if bytes >= before => since,
            _ => now,
        };
        self.0 = (bytes > 0).then_some((since, bytes));
        self.0.map(|(since, _)| since)
    }
}

/// Returns what to wait for at the socket of a client that has `unread` bytes to read, of `limit` that it may have.
pub(super) fn wanted(unread: usize, limit: u64) -> PollFlags {
    let enough = usize::try_from(limit / 2).unwrap_or(usize::MAX).min(ENOUGH_UNREAD);
    let mut wanted = PollFlags::empty();
    wanted.set(PollFlags::POLLIN, unread == 0 || unread < enough);
    wanted.set(PollFlags::POLLOUT, unread > 0);
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_client_reads_nothing_since_its_last_byte() {
        let (begin, mut unread) = (Instant::now(), Unread::default());
        let steps = [
            (0, None),
            (5, Some(1)),
            (5, Some(1)),
            (9, Some(1)),
            (8, Some(4)),
            (8, Some(4)),
            (0, None),
            (0, None),
            (1, Some(8)),
            (2, Some(8)),
        ];
        for (second, (bytes, since)) in (0..).zip(steps) {
            let at = |second| begin + Duration::from_secs(second);
            assert_eq!(unread.since(bytes, at(second)), since.map(at), "{bytes} bytes after {second} s");
        }
    }

    #[test]
    fn the_server_stops_reading_from_a_client_that_does_not_read() {
        let (read, write) = (PollFlags::POLLIN, PollFlags::POLLOUT);
        let all = 4 << 20;
        for (limit, enough) in [(u64::MAX, all), (2 * all as u64, all), (2 * all as u64 - 2, all - 1), (20, 10)] {
            let found = [0, 1, enough - 1, enough].map(|unread| wanted(unread, limit));
            assert_eq!(found, [read, read | write, read | write, write], "{limit}");
        }
        assert_eq!([0, 1].map(|unread| wanted(unread, 0)), [read, write]);
    }
}
