//! What one card runs, and the communicators it runs on.

use crate::{Instruction, Tables};

/// A range of card memory that holds a range of a rank's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where the range begins in the rank's data, bytes.
    pub offset: u64,
    /// Where it lies in card memory, bytes.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// One card's part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// What the card runs, in order.
    pub instructions: Vec<Instruction>,
    /// Where the rank's input must lie before; empty if it has none. In order of `offset`, without gaps.
    pub input: Vec<Piece>,
    /// Where the rank's output lies after; empty if it has none.
    pub output: Vec<Piece>,
    /// What must be in the card's tables before it starts, by slot.
    pub tables: Tables,
}

/// A communicator that the programs name, to be defined on its members before.
///
/// It is defined on its members only, so several communicators of one plan may have one id if no card is a member of two
/// of them: the rows of a Dragonfly are one id, and its columns another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communicator {
    /// Index in the card's table.
    pub id: u16,
    /// Nodes by rank.
    pub members: Vec<u32>,
}

/// Pieces with those put together that lie one after another.
pub(crate) fn joined(pieces: &[Piece]) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.offset + last.bytes == piece.offset && last.address + last.bytes == piece.address => {
                last.bytes += piece.bytes;
            }
            _ => joined.push(*piece),
        }
    }
    joined
}
