//! The ranges of its own memory that a card accesses.

use super::transfers::{one, own_sides, transfers};
use super::{CardRanges, Context, Range, RangeError, Transfer, Transfers};
use crate::{AddressSpace, Instruction, Operand, Operation};

/// Returns the ranges of its own memory that the card at `context` reads and writes in `instruction`.
///
/// # Errors
/// As [`transfers`], and for all operands of operations that move data on one card or read host memory.
pub fn card_ranges(instruction: &Instruction, context: &Context<'_>) -> Result<CardRanges, RangeError> {
    card_ranges_of(instruction, context, &transfers(instruction, context)?)
}

/// As [`card_ranges`], for an instruction that moves `transfers`.
pub(crate) fn card_ranges_of(
    instruction: &Instruction,
    context: &Context<'_>,
    transfers: &Transfers,
) -> Result<CardRanges, RangeError> {
    let streams = if transfers.multicast { 1 } else { transfers.sends.len() };
    // With room for the own block.
    let mut result = CardRanges {
        reads: Vec::with_capacity(streams.min(transfers.sends.len()) + 1),
        writes: Vec::with_capacity(transfers.receives.len() + 1),
        ..CardRanges::default()
    };
    result.reads.extend(transfers.sends.iter().take(streams).map(Transfer::range));
    match transfers.reduced {
        Some(reduced) => {
            let block = |address| Range { address, bytes: reduced.bytes };
            // The only result may overwrite the own contribution: only the fold reads it.
            let is_replaced = |own| own == reduced.destination && transfers.partials.is_empty();
            let own = reduced.own.filter(|own| !is_replaced(*own) && !transfers.own_is_sent());
            result.reads.extend(own.map(block));
            match transfers.partials.as_slice() {
                [] => result.writes.push(block(reduced.destination)),
                partials => result.writes.extend(partials.iter().copied().map(block)),
            }
        }
        None => result.writes.extend(transfers.receives.iter().map(Transfer::range)),
    }
    if let Some(own) = transfers.own {
        if !transfers.multicast || transfers.sends.is_empty() {
            result.reads.push(Range { address: own.source, bytes: own.bytes });
        }
        result.writes.push(Range { address: own.destination, bytes: own.bytes });
    }
    let side = |operand: &Operand| -> Result<Option<Range>, RangeError> {
        let block = one(instruction, operand, 0, context)?.filter(|_| operand.space == AddressSpace::Card);
        Ok(block.as_ref().map(Transfer::range))
    };
    match instruction.operation {
        Operation::Copy | Operation::User => {
            result.reads.extend(side(&instruction.source)?);
            result.writes.extend(side(&instruction.destination)?);
        }
        Operation::Fill => result.writes.extend(side(&instruction.destination)?),
        // They read host memory only.
        Operation::Group | Operation::Store | Operation::Table => drop(side(&instruction.source)?),
        Operation::Fold => {
            let result_range = side(&instruction.destination)?;
            let operands = [side(&instruction.source)?, side(&Operand::card(instruction.extent))?];
            // The result may replace an operand: both are read first.
            result.reads.extend(operands.into_iter().flatten().filter(|operand| Some(*operand) != result_range));
            result.writes.extend(result_range);
        }
        // A fold of several leaves no block in place, and an exscan keeps none.
        Operation::Exscan => {}
        _ if transfers.own.is_none() && transfers.reduced.is_none() => {
            result.in_place = own_sides(instruction, context)?.map(|[source, _]| source.range());
        }
        _ => {}
    }
    Ok(result)
}
