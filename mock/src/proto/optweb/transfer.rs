//! Barriers, and blocks out and in of one instruction.

use std::sync::Arc;

use cmdseq::ranges;

use crate::net::buffer::Way;
use crate::net::payload::Payload;
use crate::proto::optweb::one_sided::OneSided;
use crate::reduce::Fold;

/// A running barrier.
#[derive(Debug)]
pub(crate) struct Barrier {
    pub(crate) ports: Vec<usize>,
    /// Whether the signal of the peer at the same index in `ports` arrived.
    pub(crate) came: Vec<bool>,
    pub(crate) missing: usize,
    pub(crate) is_sent: bool,
}

impl Barrier {
    /// Whether a signal on the link at `port` is still to come or to go.
    pub(crate) fn needs(&self, port: usize) -> bool {
        let place = self.ports.iter().position(|other| *other == port);
        place.is_some_and(|place| !self.is_sent || !self.came[place])
    }
}

/// Blocks out and in of one instruction.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) is_rendezvous: bool,
    pub(crate) is_multicast: bool,
    pub(crate) sends: Vec<Send>,
    pub(crate) receives: Vec<Receive>,
    pub(crate) own: Option<ranges::OwnBlock>,
    /// The fold of the receives, for a reduction.
    pub(crate) fold: Option<Fold>,
    /// Address and length of the card's own contribution, if it is a separate stream.
    pub(crate) contribution: Option<(u64, u64)>,
    /// Address of the partial result to which the stream of the own contribution goes; `None` if it goes to the common one.
    pub(crate) partial: Option<u64>,
    pub(crate) is_set: bool,
    pub(crate) has_data: bool,
    pub(crate) has_started: bool,
    /// Destinations that are not ready.
    pub(crate) not_ready: usize,
    /// Moving streams, including that of the own block.
    pub(crate) moving: usize,
    pub(crate) not_acknowledged: usize,
    pub(crate) not_received: usize,
    pub(crate) own_is_pending: bool,
}

impl Transfer {
    /// Whether the link of these places among the sends and receives still has something to carry for the transfer.
    pub(crate) fn needs(&self, send: Option<usize>, receive: Option<usize>) -> bool {
        send.is_some_and(|place| self.sends[place].state != SendState::Done)
            || receive.is_some_and(|place| self.receives[place].state != ReceiveState::Done)
    }

    /// Returns whether the transfer reads memory.
    pub(crate) fn reads(&self) -> bool {
        !self.sends.is_empty() || self.own.is_some() || self.contribution.is_some()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Send {
    pub(crate) port: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) state: SendState,
    /// Id of the burst, if eager.
    pub(crate) burst: u64,
    /// What the block passes at its destination, if it is rendezvous and the destination is ready.
    pub(crate) way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    AwaitsReady,
    Ready,
    AwaitsAcknowledge,
    Done,
}

#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) port: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) state: ReceiveState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveState {
    Waiting,
    /// The receive buffer is being written to memory, or was and the last beat is in flight; or the data reached an unfinished
    /// fold.
    Draining,
    Done,
}

/// What a link carries to the card at its other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    /// A control signal; the one that a destination is ready brings the way.
    Control(Way),
    /// The first beat of a burst, at the receive buffer.
    BurstHead { id: u64, data: Arc<[u8]> },
    /// The last beat of a burst, at the receive buffer.
    BurstTail { id: u64 },
    /// The last beat of a block that bypasses the receive buffer, counted.
    Block(Box<Payload>),
    /// Anything for one-sided operations.
    OneSided(Box<OneSided>),
    /// Anything of these with a bit error: its checksum is wrong.
    Garbled {
        /// It has data.
        is_data: bool,
    },
}

impl Carried {
    /// Returns the bytes on the link, in beats of `beat_bytes`; those of a burst count with its first beat.
    pub(crate) fn bytes(&self, beat_bytes: u64) -> u64 {
        match self {
            Carried::Control(_) => beat_bytes,
            Carried::BurstHead { data, .. } => beat_bytes + data.len() as u64,
            Carried::Block(payload) => beat_bytes + payload.len(),
            Carried::OneSided(what) => what.bytes(beat_bytes),
            Carried::BurstTail { .. } | Carried::Garbled { .. } => 0,
        }
    }

    /// Whether it brings data that the other card waits for.
    pub(crate) fn is_data(&self) -> bool {
        match self {
            Carried::BurstHead { .. } | Carried::BurstTail { .. } | Carried::Block(_) => true,
            Carried::OneSided(what) => matches!(**what, OneSided::Reply { .. }),
            Carried::Control(_) => false,
            Carried::Garbled { is_data } => *is_data,
        }
    }
}
