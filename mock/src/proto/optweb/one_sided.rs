//! One-sided operations: at the card that issues one, at the card that serves it, and what the link between them carries.

use cmdseq::instruction::{Rights, Window};

use crate::net::buffer::Way;
use crate::net::payload::Payload;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::signal::Signal;
use crate::proto::refusal::Refusal;

/// What a one-sided operation asks of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) window: Option<Window>,
    pub(crate) rights: Rights,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Permission for one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The card has no windows.
    Unchecked,
    /// Through the window in `slot` with this number.
    Window { slot: usize, number: u64 },
}

/// A one-sided operation that a card has issued.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) is_read: bool,
    /// Address in the card's own memory.
    pub(crate) own: u64,
    pub(crate) port: usize,
    pub(crate) peer: usize,
    pub(crate) request: Request,
    /// Added to the peer's signal when the data has arrived.
    pub(crate) signal: Option<Signal>,
    /// Whether the peer was told of it.
    pub(crate) is_announced: bool,
}

/// A one-sided operation of another card that a card serves, whatever its own sequencer does.
#[derive(Debug)]
pub(crate) struct Served {
    /// The port that it came from.
    pub(crate) port: usize,
    /// Its number there.
    pub(crate) number: u64,
    /// `None` if it is refused: the other card is told when the data would have been counted.
    pub(crate) admission: Option<Admission>,
    pub(crate) request: Request,
    /// Of a read.
    pub(crate) reader: Option<Reader>,
}

impl Served {
    /// Whether the operation is the one that `id` names.
    pub(crate) fn is(&self, id: ServedId) -> bool {
        (self.port, self.number) == (id.port, id.number)
    }
}

/// What the card that serves a read knows of its destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    /// Of the instruction.
    pub(crate) tag: u16,
    /// What the data passes there.
    pub(crate) way: Way,
}

/// An operation that a card serves: what came in at `port`, with this number. All one-sided operations run in the first lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServedId {
    pub(crate) at: LaneId,
    pub(crate) port: usize,
    pub(crate) number: u64,
}

/// What a link carries for one-sided operations. Each names an operation by its number at its issuer: an answer to one that has
/// ended is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OneSided {
    /// A write is to come.
    Announced { number: u64, request: Request },
    /// The last beat of its data, counted.
    Data { number: u64, payload: Payload, signal: Option<Signal> },
    /// A signal without data.
    Signal { number: u64, request: Request, signal: Signal },
    /// A read, by the instruction with this tag.
    Read { number: u64, tag: u16, request: Request, way: Way },
    /// The last beat of the data that was read, counted.
    Reply { number: u64, payload: Payload },
    /// To the issuer: the operation is over, and `bytes` were written.
    Over { number: u64, bytes: u64, result: Result<(), Refusal> },
    /// To the card that serves it: the issuer has given up.
    Cancelled { number: u64 },
}

impl OneSided {
    /// Returns the bytes on the link, in beats of `beat_bytes`; those of an announcement count with its data.
    pub(crate) fn bytes(&self, beat_bytes: u64) -> u64 {
        match self {
            OneSided::Data { payload, .. } | OneSided::Reply { payload, .. } => beat_bytes + payload.len(),
            OneSided::Signal { .. } | OneSided::Read { .. } => beat_bytes,
            OneSided::Announced { .. } | OneSided::Over { .. } | OneSided::Cancelled { .. } => 0,
        }
    }
}
