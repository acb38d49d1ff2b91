//! Lengths of the blocks of vector forms, without their addresses.

use super::Context;
use super::exchange::{Blocks, Exchange};
use crate::Instruction;
use crate::instruction::takes_tables;
use crate::table::Table;

/// Lengths of the blocks of a vector form in one direction, by rank of the communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lengths<'a> {
    /// No blocks.
    None,
    /// One block, of this rank.
    One(u32, u64),
    /// The same for all ranks.
    All(u64),
    /// Those of a table.
    Listed(&'a Table),
}

impl Lengths<'_> {
    /// Returns the length of the block exchanged with `other`.
    pub(crate) fn of(&self, other: u32) -> u64 {
        match *self {
            Lengths::None => 0,
            Lengths::One(rank, bytes) if rank == other => bytes,
            Lengths::One(..) => 0,
            Lengths::All(bytes) => bytes,
            Lengths::Listed(table) => table.get(other).unwrap_or_default().bytes,
        }
    }
}

/// Returns the lengths that the card at `context` sends and receives in a vector form, own blocks included. `None` for other
/// operations, and if a table is missing or does not fit.
pub(crate) fn lengths<'a>(instruction: &Instruction, context: &Context<'a>) -> Option<[Lengths<'a>; 2]> {
    let exchange = Exchange::of(instruction).filter(|_| takes_tables(instruction.operation))?;
    let side = |blocks: Option<Blocks>| match blocks {
        None => Some(Lengths::None),
        Some(Blocks::Listed(slot)) => {
            let table = context.tables.get(&u16::try_from(slot).ok()?)?;
            (table.entries.len() as u64 == u64::from(context.ranks)).then_some(Lengths::Listed(table))
        }
        Some(_) => {
            let one = |root| Lengths::One(root, instruction.bytes);
            Some(exchange.hub().map_or(Lengths::All(instruction.bytes), one))
        }
    };
    Some([side(exchange.source(context.rank))?, side(exchange.destination(context.rank))?])
}
