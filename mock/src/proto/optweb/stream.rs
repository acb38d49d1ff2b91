//! What the streams of a fabric are for.

use crate::engine::streams::ResourceId;
use crate::fault::Fault;
use crate::proto::optweb::lane::LaneId;

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
    /// A one-sided transfer, by the lane that issued it.
    Rdma { issuer: LaneId },
    /// The first part of one of these.
    Watched(Box<Watched>),
}

impl StreamPurpose {
    pub(crate) fn at(&self) -> LaneId {
        match self {
            StreamPurpose::Send { at, .. }
            | StreamPurpose::Multicast { at }
            | StreamPurpose::Own { at }
            | StreamPurpose::Drain { at, .. }
            | StreamPurpose::Fold { at }
            | StreamPurpose::Local { at }
            | StreamPurpose::Rdma { issuer: at } => *at,
            StreamPurpose::Watched(rest) => rest.purpose.at(),
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
