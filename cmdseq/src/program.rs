//! The programs of a group of cards, and their communicators.
//!
//! Planner, graph and assembler make program sets; verifier, meaning, prediction and driver take them.

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

impl From<Vec<Instruction>> for Program {
    fn from(instructions: Vec<Instruction>) -> Self {
        Program { instructions, ..Program::default() }
    }
}

/// A communicator to define on its members before the programs start.
///
/// Several communicators of one program set may have the same id if no card is a member of two of them: the rows of a Dragonfly have
/// one id, the columns another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communicator {
    /// Its id.
    pub id: u16,
    /// Nodes by rank.
    pub members: Vec<u32>,
}

/// The programs of a group of cards, which run together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramSet {
    /// The node of each program. The index of a program is its rank.
    pub nodes: Vec<u32>,
    /// One program per node, possibly empty.
    pub programs: Vec<Program>,
    /// Communicators to define first, with the same id on all members, without the permanent
    /// [`WORLD`](crate::instruction::WORLD). Members without a program here are allowed, but no instruction may need them.
    pub communicators: Vec<Communicator>,
}

impl ProgramSet {
    /// Returns one program for each of `nodes`, without communicators.
    pub fn new(nodes: impl Into<Vec<u32>>, programs: impl IntoIterator<Item = impl Into<Program>>) -> Self {
        let programs = programs.into_iter().map(Into::into).collect();
        ProgramSet { nodes: nodes.into(), programs, communicators: Vec::new() }
    }

    /// Adds communicators.
    pub fn with(mut self, communicators: impl IntoIterator<Item = Communicator>) -> Self {
        self.communicators.extend(communicators);
        self
    }

    /// Returns the instructions of all programs, rank by rank.
    pub fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.programs.iter().flat_map(|program| &program.instructions)
    }

    /// Returns the communicator that the card of `node` knows by `id`; `None` for the permanent one and for others' ids.
    pub fn communicator(&self, node: u32, id: u16) -> Option<&Communicator> {
        self.communicators.iter().find(|one| one.id == id && one.members.contains(&node))
    }
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
