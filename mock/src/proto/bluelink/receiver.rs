//! The receiving half of the reliability layer: takes flits in order, and says what it has taken.

use std::collections::VecDeque;

use super::flit::{Acknowledgement, Datum, Payload, Violation};
use super::sequence::{Sequence, WINDOW};

/// What became of a flit with payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It is in the receive buffer.
    Accepted,
    /// It is there since before: its acknowledgement was lost or is late. It is acknowledged again.
    Repeated,
    /// A flit before it is missing. It is dropped without an acknowledgement.
    Early,
    /// The receive buffer is full. It is dropped, and the sender told "no more".
    NoRoom,
}

/// The receiving half of one end of a link.
#[derive(Debug, Clone)]
pub struct Receiver<P = u64> {
    capacity: usize,
    buffer: VecDeque<Datum<P>>,
    /// The expected flit.
    next: Sequence,
    /// Flits accepted since the last restart, counted up to a window.
    accepted: usize,
    /// The sender waits for an acknowledgement.
    is_owed: bool,
    /// The last acknowledgement said "no more".
    has_said_no_more: bool,
}

impl<P: Payload> Receiver<P> {
    /// A receiver with a buffer for `capacity` flits, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let buffer = VecDeque::with_capacity(capacity);
        Receiver { capacity, buffer, next: Sequence::FIRST, accepted: 0, is_owed: false, has_said_no_more: false }
    }

    /// Expects the first flit of a new session. What the buffer holds stays: it was acknowledged.
    pub fn restart(&mut self) {
        self.next = Sequence::FIRST;
        self.accepted = 0;
        self.is_owed = false;
        self.has_said_no_more = false;
    }

    /// Checks the number of a flit with payload.
    ///
    /// # Errors
    /// [`Violation::NoReplay`].
    pub fn check(&self, sequence: Sequence) -> Result<(), Violation> {
        let is_old = sequence.since(self.next) >= WINDOW;
        if is_old && self.next.since(sequence) > self.accepted {
            return Err(Violation::NoReplay { sequence, expected: self.next, accepted: self.accepted });
        }
        Ok(())
    }

    /// Takes a flit with payload and good CRC, whose number was checked.
    pub fn receive(&mut self, sequence: Sequence, datum: Datum<P>) -> Received {
        let ahead = sequence.since(self.next);
        if (1..WINDOW).contains(&ahead) {
            return Received::Early;
        }
        self.is_owed = true;
        if ahead >= WINDOW {
            return Received::Repeated;
        }
        if self.buffer.len() == self.capacity {
            return Received::NoRoom;
        }
        self.buffer.push_back(datum);
        self.next = self.next.after(1);
        self.accepted = WINDOW.min(self.accepted + 1);
        Received::Accepted
    }

    /// Removes and returns the oldest flit of the receive buffer.
    pub fn take(&mut self) -> Option<Datum<P>> {
        let datum = self.buffer.pop_front()?;
        if self.has_said_no_more && !self.is_full() {
            self.is_owed = true;
        }
        Some(datum)
    }

    /// Returns the oldest flit of the receive buffer.
    pub fn peek(&self) -> Option<&Datum<P>> {
        self.buffer.front()
    }

    /// Returns whether the sender waits for an acknowledgement.
    pub fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Returns the acknowledgement of all that has arrived in order. It is about to be sent, so none is owed any more.
    pub fn acknowledgement(&mut self) -> Acknowledgement {
        self.is_owed = false;
        self.has_said_no_more = self.is_full();
        Acknowledgement { last: self.next.before(), no_more: self.has_said_no_more }
    }

    /// Returns whether no more flits may be sent: the window that may be on its way needs the rest. A buffer smaller than two
    /// windows keeps half of it.
    fn is_full(&self) -> bool {
        self.capacity - self.buffer.len() < WINDOW.min(self.capacity.div_ceil(2))
    }
}
