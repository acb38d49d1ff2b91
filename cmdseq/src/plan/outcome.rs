//! Plans and predictions.

use crate::cost::Terms;
use crate::program::ProgramSet;
use crate::request::{Algorithm, Request};

/// Predicted times, in picoseconds from the issue of the first instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prediction {
    /// All beats counted out.
    pub t1_ps: u64,
    /// Complete.
    pub t2_ps: u64,
    /// Last byte counted in at the last destination.
    pub arrival_ps: u64,
    /// The terms of the arrival.
    pub terms: Terms,
}

/// What ranks share of the links between routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedLinks {
    /// Most links on the way from one card to another that it sends to.
    pub farthest: u32,
    /// Most pairs of cards, sender and receiver, whose way leads over one link in one direction.
    pub pairs: u32,
}

/// The plan of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The request.
    pub request: Request,
    /// The selected algorithm.
    pub algorithm: Algorithm,
    /// What runs: one program per rank of the request's group, then one per [relay](Plan::relays).
    pub set: ProgramSet,
    /// The predicted times.
    pub predicted: Prediction,
    /// Bytes that cross the busiest link in one direction.
    pub busiest_link_bytes: u64,
    /// What the ranks share of the links between routers; `None` without routers.
    pub shared_links: Option<SharedLinks>,
    /// Bytes from other ranks at the destination that receives most.
    pub bytes_per_destination: u64,
    /// The planner has put the output in the place of the input, because a card has no room for both: the programs cannot run again
    /// before the input is written again.
    pub replaces_input: bool,
    /// Notes for users, such as extrapolated times.
    pub notes: Vec<String>,
}

impl Plan {
    /// Returns the nodes outside of the group whose cards relay between ranks that are not linked, or complete a grid. They have no
    /// input and no output, and overwrite only the intermediate memory of the request's placement, if it has one.
    pub fn relays(&self) -> &[u32] {
        self.set.nodes.get(self.request.group.len()..).unwrap_or_default()
    }
}
