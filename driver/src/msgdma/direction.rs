//! Which way data goes.

use std::fmt;

/// Which way data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From host memory to card memory.
    ToCard,
    /// From card memory to host memory.
    ToHost,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::ToCard, Direction::ToHost];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::ToCard => "to the card",
            Direction::ToHost => "to the host",
        })
    }
}
