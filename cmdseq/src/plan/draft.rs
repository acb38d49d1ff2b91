//! Programs before they are checked and timed.

use crate::Capabilities;
use crate::instruction::WORLD;
use crate::program::{Communicator, Piece, Program};
use crate::request::Request;

/// Programs before they are checked and timed.
pub(super) struct Draft {
    pub(super) programs: Vec<Program>,
    pub(super) communicators: Vec<Communicator>,
    /// The communicator of all ranks, if there is one.
    pub(super) communicator: u16,
}

impl Draft {
    pub(super) fn empty(request: &Request) -> Self {
        let programs = vec![Program::default(); request.group.len()];
        Draft { programs, communicators: Vec::new(), communicator: WORLD }
    }

    /// With a communicator of all ranks and no other.
    pub(super) fn on_one_communicator(request: &Request, capabilities: &Capabilities) -> Self {
        Draft::empty(request).with_all(WORLD + 1, request, capabilities)
    }

    /// Adds a communicator of all ranks: the one that always exists if they are all nodes in order, else `id`.
    pub(super) fn with_all(mut self, id: u16, request: &Request, capabilities: &Capabilities) -> Self {
        if !request.group.iter().copied().eq(0..capabilities.nodes) {
            self.communicator = id;
            self.communicators.push(Communicator { id, members: request.group.clone() });
        }
        self
    }

    /// Says where the input and the output of each rank lie.
    pub(super) fn lies(&mut self, request: &Request, pieces: impl Fn(u32) -> (Vec<Piece>, Vec<Piece>)) {
        for (rank, program) in (0..request.ranks()).zip(&mut self.programs) {
            (program.input, program.output) = pieces(rank);
        }
    }
}
