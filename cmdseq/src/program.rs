//! The program of one card, and communicators.
//!
//! Planner and graph make programs; verifier, meaning and driver read them.

use std::collections::BTreeSet;

use crate::{Instruction, Operation, Tables};

/// A range of card memory that holds a range of a rank's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the range in the rank's data, bytes.
    pub offset: u64,
    /// Its address in card memory, bytes.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// The program of one card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    /// Where the rank's input is before; empty if it has none. By `offset`, without gaps.
    pub input: Vec<Piece>,
    /// Where the rank's output is after; empty if it has none.
    pub output: Vec<Piece>,
    /// Tables to load before the start, by slot.
    pub tables: Tables,
}

impl Program {
    /// Returns the slots of the windows that the program opens itself.
    pub fn opened_slots(&self) -> BTreeSet<u16> {
        let opens = self.instructions.iter().filter(|one| one.operation == Operation::Open);
        opens.filter_map(|one| Some(one.window()?.slot)).collect()
    }
}

/// A communicator to define on its members before the programs start.
///
/// Several communicators of one plan may have the same id if no card is a member of two of them: the rows of a Dragonfly have
/// one id, the columns another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communicator {
    /// Its id.
    pub id: u16,
    /// Nodes by rank.
    pub members: Vec<u32>,
}

/// Joins consecutive pieces.
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
