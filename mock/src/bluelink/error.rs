//! Errors of a fabric.

use super::address::BOARDS_MAX;
use crate::proto::bluelink::Violation;

/// Ports of a board: a Stratix V GX A7 has 48 transceivers (BlueLink paper, section VIII).
pub const PORTS_MAX: usize = 48;

/// Error of a fabric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// A shape that cannot be built.
    #[error("invalid number of boards: {boards} (a fabric has 1 to {BOARDS_MAX})")]
    Boards {
        /// Requested number of boards.
        boards: usize,
    },
    /// A cable with an end nowhere, or both at one board.
    #[error("invalid cable from board {from} to board {to}: a cable joins two of the boards 0 to {}", boards - 1)]
    Cable {
        /// Board at one end.
        from: usize,
        /// Board at the other end.
        to: usize,
        /// Boards of the fabric.
        boards: usize,
    },
    /// More cables than ports.
    #[error("board {board} has too many cables: {cables} (a board has at most {PORTS_MAX} ports)")]
    Ports {
        /// The board.
        board: usize,
        /// Its cables.
        cables: usize,
    },
    /// A board that no cables lead to.
    #[error("no cables lead from board 0 to board {board}")]
    CutOff {
        /// The board.
        board: usize,
    },
    /// A board, channel or cable that is not there.
    #[error("invalid {what} {number}: the fabric has {count}")]
    Unknown {
        /// Kind of the thing.
        what: &'static str,
        /// Its number.
        number: usize,
        /// Number of such things.
        count: usize,
    },
    /// A neighbour has broken the protocol, and its link is stopped.
    #[error("board {board}, port {port}: {violation}")]
    Violation {
        /// The board that noticed it.
        board: usize,
        /// Its port.
        port: usize,
        /// What is wrong.
        violation: Violation,
    },
}
