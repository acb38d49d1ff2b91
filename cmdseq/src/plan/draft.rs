//! Programs before they are checked and timed.

use super::routing::{Routes, Timetable};
use crate::Capabilities;
use crate::instruction::WORLD;
use crate::program::{Communicator, Piece, Program};
use crate::ranges::Range;
use crate::refusal::Refusal;
use crate::request::Request;

/// Programs before they are checked and timed.
pub(super) struct Draft {
    pub(super) programs: Vec<Program>,
    pub(super) communicators: Vec<Communicator>,
    /// The communicator of all ranks, if there is one.
    pub(super) communicator: u16,
    /// The node of each program: those of the ranks, then those outside of the group that relay.
    pub(super) nodes: Vec<u32>,
    /// The hops of what goes between ranks, if not all of them are linked.
    pub(super) routed: Option<Routed>,
    /// Whether the output is in the place of the input.
    pub(super) replaces_input: bool,
}

/// What goes between ranks that are not linked.
pub(super) struct Routed {
    pub(super) timetable: Timetable,
    /// Memory that is left for what is relayed, on each card.
    pub(super) room: Range,
}

impl Draft {
    pub(super) fn empty(request: &Request) -> Self {
        Draft {
            programs: vec![Program::default(); request.group.len()],
            communicators: Vec::new(),
            communicator: WORLD,
            nodes: request.group.clone(),
            routed: None,
            replaces_input: false,
        }
    }

    /// With a communicator of all ranks and no other.
    pub(super) fn on_one_communicator(request: &Request, capabilities: &Capabilities) -> Self {
        Draft::empty(request).with_all(WORLD + 1, request, capabilities)
    }

    /// Adds a communicator of all ranks: the one that always exists if they are all nodes in order, else `id`.
    pub(super) fn with_all(self, id: u16, request: &Request, capabilities: &Capabilities) -> Self {
        self.with(Communicator { id, members: request.group.clone() }, capabilities)
    }

    /// As [`on_one_communicator`](Draft::on_one_communicator), of all ranks and of the cards that relay between ranks that are not
    /// linked.
    pub(super) fn with_routes(request: &Request, capabilities: &Capabilities) -> Result<Self, Refusal> {
        let Some(routes) = Routes::of(request, capabilities)? else {
            return Ok(Draft::on_one_communicator(request, capabilities));
        };
        let nodes = routes.nodes.clone();
        let room = Range { address: 0, bytes: capabilities.memory_bytes };
        let draft = Draft {
            programs: vec![Program::default(); nodes.len()],
            nodes: nodes.clone(),
            routed: Some(Routed { timetable: Timetable::new(routes), room }),
            ..Draft::empty(request)
        };
        Ok(draft.with(Communicator { id: WORLD + 1, members: nodes }, capabilities))
    }

    fn with(mut self, all: Communicator, capabilities: &Capabilities) -> Self {
        if !all.members.iter().copied().eq(0..capabilities.nodes) {
            self.communicator = all.id;
            self.communicators.push(all);
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
