//! The ranges of its own memory that a card accesses.

use super::exchange::Exchange;
use super::transfers::{one, sides, transfers};
use super::{CardRanges, Context, Range, RangeError, Transfer, Transfers};
use crate::{AddressSpace, Instruction, Operand, Operation};

/// Returns the ranges of its own memory that the card at `context` reads and writes in `instruction`.
///
/// # Errors
/// As [`transfers`], and for all operands of copy, fill, fold and user.
pub fn card_ranges(instruction: &Instruction, context: &Context<'_>) -> Result<CardRanges, RangeError> {
    card_ranges_of(instruction, context, &transfers(instruction, context)?)
}

/// As [`card_ranges`], for an instruction that moves `transfers`.
pub(crate) fn card_ranges_of(
    instruction: &Instruction,
    context: &Context<'_>,
    transfers: &Transfers,
) -> Result<CardRanges, RangeError> {
    let range = |transfer: &Transfer| Range { address: transfer.address, bytes: transfer.bytes };
    let streams = if transfers.multicast { 1 } else { transfers.sends.len() };
    // With room for the own block.
    let mut result = CardRanges {
        reads: Vec::with_capacity(streams.min(transfers.sends.len()) + 1),
        writes: Vec::with_capacity(transfers.receives.len() + 1),
        ..CardRanges::default()
    };
    result.reads.extend(transfers.sends.iter().take(streams).map(range));
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
        None => result.writes.extend(transfers.receives.iter().map(range)),
    }
    if let Some(own) = transfers.own {
        if !transfers.multicast || transfers.sends.is_empty() {
            result.reads.push(Range { address: own.source, bytes: own.bytes });
        }
        result.writes.push(Range { address: own.destination, bytes: own.bytes });
    }
    let side = |operand: &Operand| -> Result<Option<Range>, RangeError> {
        let block = one(instruction, operand, 0, context)?.filter(|_| operand.space == AddressSpace::Card);
        Ok(block.map(|block| range(&block)))
    };
    match instruction.operation {
        Operation::Copy | Operation::User => {
            result.reads.extend(side(&instruction.source)?);
            result.writes.extend(side(&instruction.destination)?);
        }
        Operation::Fill => result.writes.extend(side(&instruction.destination)?),
        Operation::Fold => {
            let result_range = side(&instruction.destination)?;
            let operands = [side(&instruction.source)?, side(&Operand::card(instruction.extent))?];
            // The result may replace an operand: both are read first.
            result.reads.extend(operands.into_iter().flatten().filter(|operand| Some(*operand) != result_range));
            result.writes.extend(result_range);
        }
        _ => result.in_place = in_place(instruction, context, transfers)?.as_ref().map(range),
    }
    Ok(result)
}

/// Returns the own block, if it is in place.
fn in_place(
    instruction: &Instruction,
    context: &Context<'_>,
    transfers: &Transfers,
) -> Result<Option<Transfer>, RangeError> {
    let rank = context.rank;
    // A fold of several leaves no block in place.
    if transfers.own.is_some() || transfers.reduced.is_some() {
        return Ok(None);
    }
    match Exchange::of(instruction) {
        Some(exchange) if exchange.goes(rank, rank) => {
            let (source, _) = sides(&exchange, instruction, context)?;
            Ok(source.map_or(Ok(None), |source| source.block(rank))?)
        }
        None if instruction.operation == Operation::Sendrecv
            && [instruction.root, instruction.peer].map(u32::from) == [rank; 2] =>
        {
            one(instruction, &instruction.source, rank, context)
        }
        _ => Ok(None),
    }
}
