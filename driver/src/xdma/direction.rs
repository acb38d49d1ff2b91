//! Which way the data of a channel goes.

use fpga_regs::xdma::{Block, Control};

/// Which way the data of a channel goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From host memory to card memory.
    H2c,
    /// From card memory to host memory.
    C2h,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::H2c, Direction::C2h];

    pub(super) fn block(self) -> Block {
        match self {
            Direction::H2c => Block::H2c,
            Direction::C2h => Block::C2h,
        }
    }

    /// Returns the events that a channel of this direction can note.
    pub(super) const fn events(self) -> Control {
        match self {
            Direction::H2c => Control::EVENTS,
            Direction::C2h => Control::EVENTS.difference(Control::WRITE_ERRORS),
        }
    }

    pub(super) fn descriptors(self) -> Block {
        match self {
            Direction::H2c => Block::H2cDescriptors,
            Direction::C2h => Block::C2hDescriptors,
        }
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::H2c => "H2C channel",
            Direction::C2h => "C2H channel",
        })
    }
}
