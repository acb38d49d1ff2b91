//! A group as a product of dimensions, along each of which all ranks are linked.

use super::draft::Draft;
use super::grid::{COLUMN, Grid, ROW};
use crate::Capabilities;
use crate::program::Communicator;
use crate::refusal::Refusal;
use crate::request::{Algorithm, Request};

/// One dimension of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dimension {
    /// The communicator of the ranks that differ in this dimension only.
    pub(super) communicator: u16,
    /// Ranks of that communicator.
    pub(super) size: u32,
    /// From one of them to the next.
    stride: u32,
}

impl Dimension {
    /// The place of `rank` in this dimension: its rank in the communicator.
    pub(super) const fn digit(self, rank: u32) -> u32 {
        rank / self.stride % self.size
    }
}

/// The dimensions of a group, and the communicators to define.
pub(super) struct Factorisation {
    pub(super) dimensions: Vec<Dimension>,
    pub(super) communicators: Vec<Communicator>,
}

impl Factorisation {
    /// The dimensions of multipath: one if all ranks are linked, else the rows and the columns of a Dragonfly.
    pub(super) fn of(request: &Request, capabilities: &Capabilities) -> Result<Self, Refusal> {
        if capabilities.topology.all_reach(&request.group, capabilities.nodes) {
            let Draft { communicator, communicators, .. } = Draft::on_one_communicator(request, capabilities);
            let all = Dimension { communicator, size: request.ranks(), stride: 1 };
            return Ok(Factorisation { dimensions: vec![all], communicators });
        }
        let grid = Grid::needed_by(Algorithm::Multipath, request, capabilities)?;
        Ok(Factorisation { dimensions: vec![grid.row(), grid.column()], communicators: grid.communicators(request) })
    }
}

impl Grid {
    /// Empty programs, with the communicators of the rows and the columns.
    pub(super) fn draft(self, request: &Request) -> Draft {
        Draft { communicators: self.communicators(request), ..Draft::empty(request) }
    }

    pub(super) fn row(self) -> Dimension {
        Dimension { communicator: ROW, size: self.size, stride: 1 }
    }

    pub(super) fn column(self) -> Dimension {
        Dimension { communicator: COLUMN, size: self.groups, stride: self.size }
    }

    /// The dimensions in the order of the ranks: the blocks of a row are one behind the other.
    pub(super) fn in_rank_order(self, request: &Request) -> Factorisation {
        Factorisation { dimensions: vec![self.column(), self.row()], communicators: self.communicators(request) }
    }
}
