//! Plans and predictions.

use crate::cost::Terms;
use crate::program::{Communicator, Piece, Program};
use crate::request::{Algorithm, Collective, Request};

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

/// The plan of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The request.
    pub request: Request,
    /// The selected algorithm.
    pub algorithm: Algorithm,
    /// One program per rank of the request's group, then one per relay.
    pub programs: Vec<Program>,
    /// Nodes outside of the group whose cards relay between ranks that are not linked, or complete a grid. They have no input and no
    /// output, and overwrite only the intermediate memory of the request's placement, if it has one.
    pub relays: Vec<u32>,
    /// Communicators to define first, with the same id on all members, without the permanent
    /// [`WORLD`](crate::instruction::WORLD).
    pub communicators: Vec<Communicator>,
    /// The predicted times.
    pub predicted: Prediction,
    /// Bytes that cross the busiest link in one direction.
    pub busiest_link_bytes: u64,
    /// Bytes from other ranks at the destination that receives most.
    pub bytes_per_destination: u64,
    /// Notes for users, such as extrapolated times.
    pub notes: Vec<String>,
}

impl Plan {
    /// Returns the node of each program: those of the ranks, then the relays.
    pub fn nodes(&self) -> Vec<u32> {
        self.request.group.iter().chain(&self.relays).copied().collect()
    }

    /// Whether the planner has put the output in the place of the input, because a card has no room for both: then the programs
    /// cannot run again before the input is written again.
    pub fn replaces_input(&self) -> bool {
        let begin = |pieces: &[Piece]| pieces.first().map(|piece| piece.address);
        let in_place = |program: &Program| !program.input.is_empty() && begin(&program.input) == begin(&program.output);
        let is_placed = self.request.placement.is_some();
        self.request.collective == Collective::Alltoall && !is_placed && self.programs.first().is_some_and(in_place)
    }
}
