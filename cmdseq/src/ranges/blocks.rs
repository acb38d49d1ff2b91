//! Addresses of blocks.

use super::exchange::Blocks;
use super::{Context, RangeError, Transfer};
use crate::table::{Entry, Table};
use crate::{Instruction, Layout, Operand};

/// The blocks at one operand of an instruction.
pub(super) struct Placed<'a> {
    operand: &'a Operand,
    instruction: &'a Instruction,
    /// From each block to the next; of a single block, from rank to rank.
    distance: u64,
    placement: Placement<'a>,
}

enum Placement<'a> {
    /// The block of rank `own`, striped as the one exchanged with rank `with`.
    One {
        own: u32,
        with: u32,
    },
    Each,
    Listed {
        slot: u16,
        table: &'a Table,
    },
}

impl<'a> Placed<'a> {
    /// The blocks at `operand`. A single block, if striped, is placed as the one exchanged with rank `with`.
    ///
    /// # Errors
    /// If a table is missing or does not fit.
    pub(super) fn new(
        instruction: &'a Instruction,
        operand: &'a Operand,
        blocks: Blocks,
        with: u32,
        context: &Context<'a>,
    ) -> Result<Self, RangeError> {
        let placement = match blocks {
            Blocks::One => Placement::One { own: context.rank, with },
            Blocks::Each => Placement::Each,
            Blocks::Listed(slot) => {
                let known = u16::try_from(slot).ok().and_then(|slot| context.tables.get_key_value(&slot));
                let (slot, table) = known.ok_or(RangeError::NoTable { slot })?;
                if table.entries.len() as u64 != u64::from(context.ranks) {
                    let entries = table.entries.len();
                    return Err(RangeError::Entries { slot: *slot, entries, ranks: context.ranks });
                }
                Placement::Listed { slot: *slot, table }
            }
        };
        let distance = match (operand.layout, &placement) {
            (Layout::Striped, _) => context.stripe_bytes,
            (Layout::Block, Placement::One { .. }) => 0,
            (Layout::Block, _) => instruction.bytes,
        };
        Ok(Placed { operand, instruction, distance, placement })
    }

    /// The block exchanged with rank `other`; `None` if it is empty.
    pub(super) fn block(&self, other: u32) -> Result<Option<Transfer>, RangeError> {
        let instruction = self.instruction;
        let (number, offset, bytes) = match self.placement {
            Placement::One { own, with } => {
                (with, self.distance.checked_mul(with.into()), instruction.block_bytes(own.into()))
            }
            Placement::Each => (other, self.distance.checked_mul(other.into()), instruction.block_bytes(other.into())),
            Placement::Listed { table, .. } => {
                let Entry { displacement, bytes } = table.get(other).unwrap_or_default();
                (other, Some(displacement), bytes)
            }
        };
        if bytes == 0 {
            return Ok(None);
        }
        let address = offset.and_then(|offset| self.operand.address.checked_add(offset));
        match address.filter(|address| address.checked_add(bytes).is_some()) {
            Some(address) => Ok(Some(Transfer { peer_rank: other, address, bytes })),
            None => Err(RangeError::Address { address: self.operand.address, block: number, bytes }),
        }
    }

    /// The length of the block exchanged with rank `other`, by the table or else the instruction.
    pub(super) fn listed_bytes(&self, other: u32) -> u64 {
        match self.placement {
            Placement::Listed { table, .. } => table.get(other).unwrap_or_default().bytes,
            Placement::One { .. } | Placement::Each => self.instruction.bytes,
        }
    }

    /// Refuses a table whose own block is not of `bytes`.
    pub(super) fn check_own(&self, rank: u32, bytes: u64) -> Result<(), RangeError> {
        match self.placement {
            Placement::Listed { slot, .. } if self.listed_bytes(rank) != bytes => {
                Err(RangeError::OwnBlock { slot, listed: self.listed_bytes(rank), bytes })
            }
            _ => Ok(()),
        }
    }
}
