//! What the streams of a fabric are for.

use crate::engine::streams::ResourceId;
use crate::fault::Fault;
use crate::net::transfers::StreamKey;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::one_sided::ServedId;

/// Numbers of streams of a lane that are no numbered send; the replies at each port follow.
const MULTICAST: usize = 1 << 16;
const WRITE: usize = MULTICAST + 1;
const REPLIES: usize = WRITE + 1;

/// Purpose of a stream, with the lane of its instruction.
#[derive(Debug)]
pub(crate) enum StreamPurpose {
    /// One send of the instruction, by index.
    Send { at: LaneId, send: usize },
    /// All sends of the instruction, and its own block, as one stream.
    Multicast { at: LaneId },
    /// The instruction's own block.
    Own { at: LaneId },
    /// From the receive buffer of a link to memory.
    Drain { at: LaneId, port: usize },
    /// From the receive buffers through the fold to memory.
    Fold { at: LaneId },
    /// A copy or fill within a card.
    Local { at: LaneId },
    /// A one-sided write, by the lane that issued it.
    Write { at: LaneId },
    /// What another card reads from this one.
    Reply(ServedId),
    /// The first part of one of these.
    Watched(Box<Watched>),
}

impl StreamPurpose {
    /// Returns the lane of the instruction; of a reply, the lane over which it came.
    pub(crate) fn at(&self) -> LaneId {
        match self {
            StreamPurpose::Reply(id) => id.at,
            StreamPurpose::Send { at, .. }
            | StreamPurpose::Multicast { at }
            | StreamPurpose::Own { at }
            | StreamPurpose::Drain { at, .. }
            | StreamPurpose::Fold { at }
            | StreamPurpose::Local { at }
            | StreamPurpose::Write { at } => *at,
            StreamPurpose::Watched(rest) => rest.purpose.at(),
        }
    }

    /// Tells the streams apart that leave a card; `None` for others.
    pub(crate) fn key(&self) -> Option<StreamKey> {
        let (at, number) = match self {
            StreamPurpose::Send { at, send } => (*at, *send),
            StreamPurpose::Multicast { at } => (*at, MULTICAST),
            StreamPurpose::Write { at } => (*at, WRITE),
            StreamPurpose::Reply(id) => (id.at, REPLIES + id.port),
            _ => return None,
        };
        Some((at.card, at.lane, number))
    }

    /// Returns the operation of another card that it serves.
    pub(crate) fn served(&self) -> Option<ServedId> {
        match self {
            StreamPurpose::Reply(id) => Some(*id),
            StreamPurpose::Watched(rest) => rest.purpose.served(),
            _ => None,
        }
    }
}

/// The rest of a stream, and the fault that strikes before it.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) purpose: StreamPurpose,
    pub(crate) fault: Fault,
    /// Epoch of the lane.
    pub(crate) epoch: u64,
    pub(crate) passes: Vec<ResourceId>,
    pub(crate) bytes: u64,
}
