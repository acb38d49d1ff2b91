//! Rows and columns of a Dragonfly or a torus.

use crate::program::Communicator;
use crate::refusal::Refusal;
use crate::request::{Algorithm, Request};
use crate::{Capabilities, Topology};

/// Id of the communicator of a card's row: one for each row, with disjoint members.
pub(super) const ROW: u16 = 1;
/// Id of the communicator of a card's column.
pub(super) const COLUMN: u16 = 2;
/// Id of the communicator of all ranks, where they are not all cards in order.
pub(super) const ALL: u16 = 3;

/// A group that is some rows of a Dragonfly or a torus, and in each the same columns, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    /// Rows.
    pub(super) groups: u32,
    /// Ranks of a row.
    pub(super) size: u32,
}

impl Grid {
    /// The grid of a group; `None` if it is none.
    pub(super) fn of(request: &Request, capabilities: &Capabilities) -> Option<Self> {
        Grid::found(request, capabilities).ok()
    }

    /// Refuses a group that is no grid, for an algorithm that needs one.
    pub(super) fn needed_by(
        algorithm: Algorithm,
        request: &Request,
        capabilities: &Capabilities,
    ) -> Result<Self, Refusal> {
        let subject = match algorithm {
            // Its trees need no grid.
            Algorithm::Lanes => format!("{algorithm} of {}", request.collective),
            _ => algorithm.to_string(),
        };
        Grid::found(request, capabilities).map_err(|why| Refusal::general(format!("{subject} {why}")))
    }

    /// The grid of a group, or what its algorithm needs instead.
    fn found(request: &Request, capabilities: &Capabilities) -> Result<Self, &'static str> {
        let one_line = match capabilities.topology {
            Topology::Switched(_) => return Err("is for a Dragonfly or a torus of two dimensions: use direct"),
            Topology::FullyConnected => {
                return Err("is for a Dragonfly or a torus: these cards are fully connected");
            }
            Topology::Dragonfly { .. } => {
                "needs two rows and two columns or more: these cards are fully connected, so use direct"
            }
            Topology::Torus { .. } => {
                "needs two rows and two columns or more: these cards are on one ring, so use direct"
            }
        };
        let places = request.group.iter().map_while(|node| capabilities.topology.place(*node, capabilities.nodes));
        let places: Vec<(u32, u32)> = places.collect();
        let size = places.iter().take_while(|place| place.0 == places[0].0).count();
        if size == 0 || places.len() != request.group.len() {
            return Err("needs a card in each group");
        }
        let is_like_the_first = |row: &[(u32, u32)]| {
            let same = |(place, like): (&(u32, u32), &(u32, u32))| place.0 == row[0].0 && place.1 == like.1;
            row.len() == size && row.iter().zip(&places).all(same)
        };
        if !places.chunks(size).all(is_like_the_first) {
            return Err("needs a grid: row by row the same columns, in the same order");
        }
        let groups = places.len() / size;
        if groups < 2 || size < 2 {
            return Err(one_line);
        }
        Ok(Grid { groups: groups as u32, size: size as u32 })
    }

    /// Row and column of a rank.
    pub(super) const fn place(self, rank: u32) -> (u32, u32) {
        (rank / self.size, rank % self.size)
    }

    /// The rows, and the columns.
    pub(super) fn communicators(self, request: &Request) -> Vec<Communicator> {
        let row = |members: &[u32]| Communicator { id: ROW, members: members.to_vec() };
        let column = |column: usize| {
            let members = request.group.iter().skip(column).step_by(self.size as usize).copied().collect();
            Communicator { id: COLUMN, members }
        };
        request.group.chunks(self.size as usize).map(row).chain((0..self.size as usize).map(column)).collect()
    }
}
