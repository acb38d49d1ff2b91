//! The sending half of the reliability layer: a window of flits in a replay buffer.
//!
//! It has no clock: whoever calls says what time it is, in any unit.

use super::flit::{Acknowledgement, Datum, Payload, Violation};
use super::sequence::{Sequence, WINDOW};

/// What a sender does with its next turn on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Sends new flits.
    Fresh,
    /// Sends the head of the replay buffer, until it is acknowledged.
    Head,
    /// Sends the other flits once, in order; this one is next. New flits wait until all are acknowledged.
    Others(usize),
}

/// The sending half of one end of a link.
#[derive(Debug, Clone)]
pub struct Sender<P = u64> {
    timeout: u64,
    /// Flits sent and not acknowledged; the oldest is at `first`.
    replay: [Option<Datum<P>>; WINDOW],
    first: Sequence,
    unacknowledged: usize,
    mode: Mode,
    /// The receiver has said "no more".
    is_stopped: bool,
    /// Since when nothing has gone forward: no acknowledgement, no first flit, no probe.
    waiting_since: u64,
}

impl<P: Payload> Sender<P> {
    /// A sender that replays after `timeout` without an acknowledgement. Shorter than a round trip, it replays in vain, but
    /// loses nothing.
    pub fn new(timeout: u64) -> Self {
        Sender {
            timeout: timeout.max(1),
            replay: [None; WINDOW],
            first: Sequence::FIRST,
            unacknowledged: 0,
            mode: Mode::Fresh,
            is_stopped: false,
            waiting_since: 0,
        }
    }

    /// Returns the number of flits sent and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// Returns the flit to send at `now`, if there is one. Calls `input` only if a new flit may be sent.
    pub fn transmit(&mut self, now: u64, input: impl FnOnce() -> Option<Datum<P>>) -> Option<(Datum<P>, Sequence)> {
        let is_late = now >= self.waiting_since.saturating_add(self.timeout);
        if is_late && self.unacknowledged > 0 {
            self.mode = Mode::Head;
        }
        match self.mode {
            // While the receiver is full, the head asks once a timeout whether that is still so.
            Mode::Head if is_late || !self.is_stopped => {
                if is_late {
                    self.waiting_since = now;
                }
                self.replayed(0)
            }
            Mode::Others(next) if next < self.unacknowledged && !self.is_stopped => {
                self.mode = Mode::Others(next + 1);
                self.replayed(next)
            }
            // A new flit asks if there is no old one: the flit that withdrew "no more" may be lost.
            Mode::Fresh if self.unacknowledged < WINDOW && (is_late || !self.is_stopped) => {
                let datum = input()?;
                if self.unacknowledged == 0 {
                    self.waiting_since = now;
                }
                let sequence = self.first.after(self.unacknowledged);
                *self.place(sequence) = Some(datum);
                self.unacknowledged += 1;
                Some((datum, sequence))
            }
            _ => None,
        }
    }

    /// Returns from when on [`Sender::transmit`] returns a flit if nothing arrives; `has_input` says whether a new flit waits.
    pub fn wakes_at(&self, has_input: bool) -> Option<u64> {
        let late_at = self.waiting_since.saturating_add(self.timeout);
        match self.mode {
            Mode::Head if !self.is_stopped => Some(0),
            Mode::Others(next) if next < self.unacknowledged && !self.is_stopped => Some(0),
            Mode::Fresh if has_input && !self.is_stopped && self.unacknowledged < WINDOW => Some(0),
            _ if self.unacknowledged > 0 || (has_input && self.is_stopped) => Some(late_at),
            _ => None,
        }
    }

    /// Takes an acknowledgement, and returns how many flits it is the first to acknowledge.
    ///
    /// # Errors
    /// [`Violation::NotSent`]. Acknowledgements arrive in order, so only the last one may come again.
    pub fn acknowledge(&mut self, now: u64, acknowledgement: Acknowledgement) -> Result<usize, Violation> {
        let Acknowledgement { last, no_more } = acknowledgement;
        let count = if last == self.first.before() { 0 } else { last.since(self.first) + 1 };
        if count > self.unacknowledged {
            return Err(Violation::NotSent { last, first: self.first, unacknowledged: self.unacknowledged });
        }
        if no_more && !self.is_stopped {
            self.waiting_since = now;
        }
        self.is_stopped = no_more;
        if count > 0 {
            self.first = self.first.after(count);
            self.unacknowledged -= count;
            self.waiting_since = now;
            self.mode = match self.mode {
                _ if self.unacknowledged == 0 => Mode::Fresh,
                Mode::Fresh => Mode::Fresh,
                Mode::Head => Mode::Others(0),
                Mode::Others(next) => Mode::Others(next.saturating_sub(count)),
            };
        }
        Ok(count)
    }

    fn place(&mut self, sequence: Sequence) -> &mut Option<Datum<P>> {
        &mut self.replay[usize::from(sequence.bits()) % WINDOW]
    }

    fn replayed(&mut self, offset: usize) -> Option<(Datum<P>, Sequence)> {
        let sequence = self.first.after(offset);
        Some(((*self.place(sequence))?, sequence))
    }
}
