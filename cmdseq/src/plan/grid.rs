//! Rows and columns of a Dragonfly.

use crate::program::Communicator;

/// Id of the communicator of a card's row: one for each row, with disjoint members.
pub(super) const ROW: u16 = 1;
/// Id of the communicator of a card's column.
pub(super) const COLUMN: u16 = 2;

/// All cards of a Dragonfly, in the order of their nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    /// Rows.
    pub(super) groups: u32,
    /// Cards of a row.
    pub(super) size: u32,
}

impl Grid {
    /// Row and column of a rank.
    pub(super) const fn place(self, rank: u32) -> (u32, u32) {
        (rank / self.size, rank % self.size)
    }

    /// The rows, and the columns.
    pub(super) fn communicators(self) -> Vec<Communicator> {
        let row = |row: u32| Communicator { id: ROW, members: (row * self.size..(row + 1) * self.size).collect() };
        let column = |column: u32| {
            let members = (0..self.groups).map(|row| row * self.size + column).collect();
            Communicator { id: COLUMN, members }
        };
        (0..self.groups).map(row).chain((0..self.size).map(column)).collect()
    }
}
