//! Converts program sets, as planners make them, to programs for a file.

use super::program::{Assembly, Buffer, RankProgram};
use crate::program::{Communicator, Piece, ProgramSet, joined};
use crate::{AddressSpace, Layout};

impl Assembly {
    /// Returns the programs of `set` for the cards of `nodes`, by rank of the assembly. Cards outside of the set get empty
    /// programs.
    ///
    /// Each rank has buffers `input` and `output`, or `input0`, `input1` and so on if its data is in several ranges, such as
    /// striped blocks.
    ///
    /// # Errors
    /// If a node of the set is not in `nodes`.
    pub fn of(set: &ProgramSet, nodes: &[u32]) -> Result<Self, String> {
        let rank_of = |node: &u32| {
            let place = nodes.iter().position(|other| other == node);
            place.map(|rank| rank as u32).ok_or_else(|| format!("node {node} of the plan is not one of the cards"))
        };
        let ranks = nodes.len() as u32;
        let mut programs: Vec<RankProgram> =
            (0..ranks).map(|rank| RankProgram { rank, ..RankProgram::default() }).collect();
        for (node, program) in set.nodes.iter().zip(&set.programs) {
            let rank = rank_of(node)?;
            let whole = &mut programs[rank as usize];
            whole.instructions = program.instructions.clone();
            whole.tables = program.tables.clone();
            whole.buffers.extend(buffers("input", &program.input));
            whole.buffers.extend(buffers("output", &program.output));
        }
        for Communicator { id, members } in &set.communicators {
            let members = members.iter().map(rank_of).collect::<Result<Vec<u32>, String>>()?;
            for member in &members {
                let communicator = Communicator { id: *id, members: members.clone() };
                programs[*member as usize].communicators.push(communicator);
            }
        }
        let assembly = Assembly { ranks, programs };
        assembly.check()?;
        Ok(assembly)
    }
}

fn buffers(name: &str, pieces: &[Piece]) -> Vec<Buffer> {
    let mut pieces = joined(pieces);
    // Blocks of a vector form may be empty.
    pieces.retain(|piece| piece.bytes > 0);
    let is_whole = pieces.len() == 1;
    let buffer = |(number, piece): (usize, &Piece)| Buffer {
        name: if is_whole { name.to_owned() } else { format!("{name}{number}") },
        space: AddressSpace::Card,
        layout: Layout::Block,
        address: piece.address,
        bytes: piece.bytes,
    };
    pieces.iter().enumerate().map(buffer).collect()
}
