//! One end of a link: both halves of the reliability layer, and how a link restarts.
//!
//! A restarted end has forgotten its sequence numbers. It sends restart flits with its session until the other end answers
//! with this session, and discards all other flits until then: they may be older than the restart. The link is a FIFO, so
//! what follows the answer is new.
//!
//! A cable that was unplugged is no restart: both ends keep their numbers, and the sender replays what was lost.

use std::collections::VecDeque;

use super::flit::{Acknowledgement, Datum, Flit, Payload, Session, Violation};
use super::receiver::{Received, Receiver};
use super::sender::Sender;

/// Sizes and times of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndConfig {
    /// Time without an acknowledgement after which a flit is replayed, in the caller's unit.
    pub timeout: u64,
    /// Flits of the input FIFO.
    pub input: usize,
    /// Flits of the receive buffer.
    pub receive_buffer: usize,
}

/// What a received flit has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A flit with payload arrived.
    Data(Received),
    /// An empty flit arrived.
    Acknowledged,
    /// The link carries data from now on.
    Joined,
    /// The other end still restarts, or a flit from before a restart was discarded.
    Joining,
    /// The other end has restarted. What was given to this end and not acknowledged is dropped: the other end may have
    /// forgotten it.
    NeighbourRestarted {
        /// Flits sent and not acknowledged: each may have arrived before the restart.
        unacknowledged: usize,
        /// Flits that were not sent yet.
        unsent: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Restart flits are sent; the next one at this time.
    Joining {
        next_at: u64,
    },
    Up,
    Failed(Violation),
}

/// One end of a link.
#[derive(Debug, Clone)]
pub struct End<P = u64> {
    config: EndConfig,
    state: State,
    own: Session,
    heard: Option<Session>,
    /// The other end restarts and waits for an answer.
    is_answer_owed: bool,
    input: VecDeque<Datum<P>>,
    sender: Sender<P>,
    receiver: Receiver<P>,
}

impl<P: Payload> End<P> {
    /// An end that has just started. `session` must differ from those of earlier ends of this link in the same place.
    pub fn new(config: EndConfig, session: Session) -> Self {
        End {
            config,
            state: State::Joining { next_at: 0 },
            own: session,
            heard: None,
            is_answer_owed: false,
            input: VecDeque::with_capacity(config.input),
            sender: Sender::new(config.timeout),
            receiver: Receiver::new(config.receive_buffer),
        }
    }

    /// Puts a flit in the input FIFO.
    ///
    /// # Errors
    /// The flit, if the FIFO is full.
    pub fn send(&mut self, datum: Datum<P>) -> Result<(), Datum<P>> {
        if self.input.len() >= self.config.input {
            return Err(datum);
        }
        self.input.push_back(datum);
        Ok(())
    }

    /// Removes and returns the oldest received flit.
    pub fn take(&mut self) -> Option<Datum<P>> {
        self.receiver.take()
    }

    /// Returns the oldest received flit.
    pub fn peek(&self) -> Option<&Datum<P>> {
        self.receiver.peek()
    }

    /// Returns the free flits of the input FIFO.
    pub fn input_room(&self) -> usize {
        self.config.input.saturating_sub(self.input.len())
    }

    /// Returns the number of flits given to this end that the other end has not acknowledged.
    pub fn pending(&self) -> usize {
        self.input.len() + self.sender.unacknowledged()
    }

    /// Returns whether the link carries data.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Returns the violation that has stopped this end.
    pub fn violation(&self) -> Option<Violation> {
        match self.state {
            State::Failed(violation) => Some(violation),
            State::Joining { .. } | State::Up => None,
        }
    }

    /// Returns the flit to send at `now`, if there is one.
    pub fn transmit(&mut self, now: u64) -> Option<Flit<P>> {
        match self.state {
            State::Failed(_) => None,
            State::Joining { next_at } if now < next_at && !self.is_answer_owed => None,
            State::Joining { .. } => {
                self.state = State::Joining { next_at: now.saturating_add(self.config.timeout) };
                Some(self.restart())
            }
            State::Up if self.is_answer_owed => Some(self.restart()),
            State::Up => {
                let input = &mut self.input;
                if let Some((datum, sequence)) = self.sender.transmit(now, || input.pop_front()) {
                    return Some(Flit::Data { datum, sequence, acknowledgement: self.receiver.acknowledgement() });
                }
                self.receiver.is_owed().then(|| Flit::Empty(self.receiver.acknowledgement()))
            }
        }
    }

    /// Returns from when on [`End::transmit`] returns a flit if nothing arrives.
    pub fn wakes_at(&self) -> Option<u64> {
        match self.state {
            State::Failed(_) => None,
            _ if self.is_answer_owed => Some(0),
            State::Joining { next_at } => Some(next_at),
            State::Up if self.receiver.is_owed() => Some(0),
            State::Up => self.sender.wakes_at(!self.input.is_empty()),
        }
    }

    /// Takes a flit that arrived undamaged at `now`.
    ///
    /// # Errors
    /// [`Violation`]. The flit has changed nothing else, and this end stays stopped until it is made anew.
    pub fn receive(&mut self, now: u64, flit: Flit<P>) -> Result<Event, Violation> {
        match (self.state, flit) {
            (State::Failed(violation), _) => Err(violation),
            (_, Flit::Restart { own, heard, has_joined }) => Ok(self.receive_restart(now, own, heard, has_joined)),
            (State::Joining { .. }, _) => Ok(Event::Joining),
            (State::Up, Flit::Data { datum, sequence, acknowledgement }) => {
                self.receiver.check(sequence).inspect_err(|violation| self.fail(*violation))?;
                self.acknowledge(now, acknowledgement)?;
                Ok(Event::Data(self.receiver.receive(sequence, datum)))
            }
            (State::Up, Flit::Empty(acknowledgement)) => {
                self.acknowledge(now, acknowledgement)?;
                Ok(Event::Acknowledged)
            }
        }
    }

    /// Stops the end: the other end has broken the protocol.
    pub fn fail(&mut self, violation: Violation) {
        self.state = State::Failed(violation);
    }

    fn acknowledge(&mut self, now: u64, acknowledgement: Acknowledgement) -> Result<(), Violation> {
        self.sender.acknowledge(now, acknowledgement).map(drop).inspect_err(|violation| self.fail(*violation))
    }

    fn restart(&mut self) -> Flit<P> {
        self.is_answer_owed = false;
        Flit::Restart { own: self.own, heard: self.heard, has_joined: self.is_up() }
    }

    fn receive_restart(&mut self, now: u64, own: Session, heard: Option<Session>, has_joined: bool) -> Event {
        let was_up = self.is_up();
        let is_new = self.heard != Some(own);
        let (unacknowledged, unsent) = (self.sender.unacknowledged(), self.input.len());
        self.heard = Some(own);
        if is_new {
            self.sender = Sender::new(self.config.timeout);
            self.receiver.restart();
            self.state = State::Joining { next_at: now.saturating_add(self.config.timeout) };
        }
        if heard == Some(self.own) {
            self.state = State::Up;
        }
        // Two ends that carry data do not answer each other, or they would for ever.
        self.is_answer_owed = is_new || !has_joined;
        if is_new && was_up {
            self.input.clear();
            return Event::NeighbourRestarted { unacknowledged, unsent };
        }
        if self.is_up() && !was_up { Event::Joined } else { Event::Joining }
    }
}
