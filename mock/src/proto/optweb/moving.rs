//! A move of data into card memory, in progress.

use crate::net::payload::Payload;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::one_sided::ServedId;
use crate::proto::optweb::signal::Signal;
use crate::reduce::Fold;

/// Bytes that the clock reads or writes before it releases the lock: less than 1 ms of work.
pub(crate) const HOLD_BYTES: u64 = 1 << 20;

/// What is moved, and to which address.
#[derive(Debug)]
pub(crate) enum Data {
    /// Bytes that were carried here.
    Block { payload: Payload, to: u64 },
    /// A pattern.
    Pattern { bytes: u64, pattern: u64, to: u64 },
    /// The result of a fold.
    Result(Box<Fold>),
}

impl Data {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Data::Block { payload, .. } => payload.len(),
            Data::Pattern { bytes, .. } => *bytes,
            Data::Result(fold) => fold.reduced.bytes,
        }
    }
}

/// Follow-up of a complete move.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    /// A block from a link is received.
    Received { port: usize, place: usize },
    /// The card's own block is in place.
    OwnKept,
    /// A copy or fill within the card is over.
    LocalDone,
    /// The data of a one-sided read is in place.
    ReadDone,
    /// That of another card's write is.
    Written { id: ServedId, signal: Option<Signal> },
    /// All receives of a fold are over.
    Folded,
}

/// A move in progress, for one instruction or another card's write.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) at: LaneId,
    pub(crate) epoch: u64,
    /// How often the card's memory was cleared before.
    pub(crate) clears: u64,
    pub(crate) data: Data,
    pub(crate) then: Then,
    /// Bytes moved.
    pub(crate) done: u64,
}
