//! What one instruction makes one card send, receive, keep and fold.

use super::blocks::Placed;
use super::exchange::{Blocks, Exchange};
use super::{Context, OwnBlock, Range, RangeError, Reduced, Transfer, Transfers};
use crate::{Instruction, Operand, Operation};

/// Returns what `instruction` makes the card at `context` send, receive and keep.
///
/// A side of several blocks has block i at `address + i * bytes`, or striped at `address + i * stripe_bytes`. A side of one block
/// has it at `address`; striped, the block exchanged with rank i is at `address + i * stripe_bytes`, where i is the own rank for
/// a block that goes to all (the sources of broadcast and allgather). Launch arguments are not added.
///
/// Ranks are not checked: a root or peer outside of the communicator, or a send to the own rank, is returned as it is. A sendrecv
/// with the own rank on both sides is an own block. Operations that name no other rank return nothing.
///
/// # Errors
/// [`RangeError::Address`] for the first block beyond 64-bit addresses; for a vector form, a table that is missing or does not fit.
pub fn transfers(instruction: &Instruction, context: &Context<'_>) -> Result<Transfers, RangeError> {
    if let Some(exchange) = Exchange::of(instruction) {
        return collective(&exchange, instruction, context);
    }
    let (rank, root, peer) = (context.rank, u32::from(instruction.root), u32::from(instruction.peer));
    let source = |with| one(instruction, &instruction.source, with, context);
    let destination = |with| one(instruction, &instruction.destination, with, context);
    let mut result = Transfers::default();
    match instruction.operation {
        Operation::Send => result.sends.extend(source(peer)?),
        Operation::Recv => result.receives.extend(destination(peer)?),
        Operation::Sendrecv if peer == rank && root == rank => result.own = own(source(rank)?, destination(rank)?),
        Operation::Sendrecv => {
            result.sends.extend(source(peer)?);
            result.receives.extend(destination(root)?);
        }
        Operation::RecvReduce => {
            let contribution = source(peer)?;
            result.receives.extend(destination(peer)?);
            result.fold(contribution, destination(peer)?);
        }
        Operation::SendrecvReduce => {
            result.sends.extend(source(peer)?);
            // Data that is sent and folded is read once.
            result.multicast = instruction.extent == instruction.source.address;
            let contribution = one(instruction, &Operand::card(instruction.extent), root, context)?;
            result.receives.extend(destination(root)?);
            result.fold(contribution, destination(root)?);
        }
        Operation::RdmaRead => {
            result.receives.extend(destination(peer)?);
            result.remote = remote(instruction, context)?;
        }
        Operation::RdmaWrite | Operation::PutSignal => {
            result.sends.extend(source(peer)?);
            result.remote = remote(instruction, context)?;
        }
        _ => {}
    }
    Ok(result)
}

fn collective(exchange: &Exchange, instruction: &Instruction, context: &Context<'_>) -> Result<Transfers, RangeError> {
    let rank = context.rank;
    let (source, destination) = sides(exchange, instruction, context)?;
    let mut result = Transfers { multicast: exchange.is_multicast(), ..Transfers::default() };
    let others = match exchange.hub() {
        Some(hub) if hub != rank => hub..hub + 1,
        _ => 0..context.ranks,
    };
    // An allocation is a good part of the work, so there is one for each side.
    result.sends = Vec::with_capacity(source.as_ref().map_or(0, |_| others.len()));
    result.receives = Vec::with_capacity(destination.as_ref().map_or(0, |_| others.len()));
    for other in others.filter(|other| *other != rank) {
        if let Some(source) = source.as_ref().filter(|_| exchange.goes(rank, other)) {
            result.sends.extend(source.block(other)?);
        }
        if let Some(destination) = destination.as_ref().filter(|_| exchange.goes(other, rank)) {
            result.receives.extend(destination.block(other)?);
        }
    }
    if let (Some(source), Some(destination)) = (&source, &destination) {
        destination.check_own(rank, source.listed_bytes(rank))?;
        source.check_own(rank, destination.listed_bytes(rank))?;
    }
    let block = |side: &Option<Placed<'_>>| side.as_ref().map_or(Ok(None), |side| side.block(rank));
    let (from, to) = (block(&source)?, block(&destination)?);
    let from = from.filter(|_| exchange.goes(rank, rank));
    if exchange.folds {
        result.fold(from, to);
        if let Some(destination) = destination.filter(|_| exchange.keeps_partials() && result.reduced.is_some()) {
            let partials = (0..context.ranks).map(|stage| destination.block(stage));
            result.partials = partials
                .filter_map(|block| Some(block.transpose()?.map(|block| block.address)))
                .collect::<Result<_, _>>()?;
        }
    } else {
        result.own = own(from, to);
    }
    Ok(result)
}

/// The blocks of both sides of a collective; `None` for a side that the card does not have.
pub(super) fn sides<'a>(
    exchange: &Exchange,
    instruction: &'a Instruction,
    context: &Context<'a>,
) -> Result<(Option<Placed<'a>>, Option<Placed<'a>>), RangeError> {
    let with = exchange.hub().unwrap_or(context.rank);
    let side = |operand, blocks: Option<Blocks>| {
        blocks.map(|blocks| Placed::new(instruction, operand, blocks, with, context)).transpose()
    };
    let source = side(&instruction.source, exchange.source(context.rank))?;
    Ok((source, side(&instruction.destination, exchange.destination(context.rank))?))
}

/// Returns the blocks that the card at `context` gives to a collective and gets from it, in the order of their numbers, its own
/// included, for switches that compute it.
///
/// # Errors
/// As [`transfers`].
pub fn given_and_got(instruction: &Instruction, context: &Context<'_>) -> Result<[Vec<Range>; 2], RangeError> {
    let Some(exchange) = Exchange::of(instruction) else { return Ok(Default::default()) };
    let (source, destination) = sides(&exchange, instruction, context)?;
    let blocks = |side: Option<Placed<'_>>, blocks: Option<Blocks>| -> Result<Vec<Range>, RangeError> {
        let Some(side) = side else { return Ok(Vec::new()) };
        let numbers = if blocks == Some(Blocks::Each) { 0..context.ranks } else { context.rank..context.rank + 1 };
        numbers.filter_map(|number| Some(side.block(number).transpose()?.map(|block| block.range()))).collect()
    };
    Ok([blocks(source, exchange.source(context.rank))?, blocks(destination, exchange.destination(context.rank))?])
}

/// The single block at `operand`, exchanged with rank `with`; `None` if it is empty.
pub(super) fn one(
    instruction: &Instruction,
    operand: &Operand,
    with: u32,
    context: &Context<'_>,
) -> Result<Option<Transfer>, RangeError> {
    Placed::new(instruction, operand, Blocks::One, with, context)?.block(with)
}

/// Returns what a one-sided instruction accesses in the memory of its peer: [`Transfers::remote`] alone.
pub(crate) fn remote(instruction: &Instruction, context: &Context<'_>) -> Result<Option<Transfer>, RangeError> {
    let there = match instruction.operation {
        Operation::RdmaRead => &instruction.source,
        Operation::RdmaWrite | Operation::PutSignal => &instruction.destination,
        _ => return Ok(None),
    };
    let block = one(instruction, there, context.rank, context)?;
    Ok(block.map(|block| Transfer { peer_rank: u32::from(instruction.peer), ..block }))
}

/// The own block on both sides of an exchange; `None` if it is not on both.
pub(super) fn own_sides(instruction: &Instruction, context: &Context<'_>) -> Result<Option<[Transfer; 2]>, RangeError> {
    let rank = context.rank;
    let (source, destination) = match Exchange::of(instruction) {
        Some(exchange) => {
            let (Some(source), Some(destination)) = sides(&exchange, instruction, context)? else { return Ok(None) };
            (source.block(rank)?, destination.block(rank)?)
        }
        // A sendrecv with itself.
        None if instruction.operation == Operation::Sendrecv
            && [instruction.root, instruction.peer].map(u32::from) == [rank; 2] =>
        {
            let side = |operand| one(instruction, operand, rank, context);
            (side(&instruction.source)?, side(&instruction.destination)?)
        }
        None => return Ok(None),
    };
    Ok(source.zip(destination).map(Into::into))
}

/// Whether the own block has one address on both sides of an exchange.
pub(crate) fn is_own_in_place(instruction: &Instruction, context: &Context<'_>) -> bool {
    let sides = own_sides(instruction, context).ok().flatten();
    sides.is_some_and(|[source, destination]| source.address == destination.address)
}

/// The own block, if it is not in place.
fn own(source: Option<Transfer>, destination: Option<Transfer>) -> Option<OwnBlock> {
    let (source, destination) = (source?, destination?);
    (source.address != destination.address).then_some(OwnBlock {
        source: source.address,
        destination: destination.address,
        bytes: source.bytes,
    })
}

impl Transfers {
    /// Folds all `receives` and the own `contribution` into `destination`. A contribution alone is copied.
    fn fold(&mut self, contribution: Option<Transfer>, destination: Option<Transfer>) {
        let Some(result) = destination else { return };
        if self.receives.is_empty() {
            self.own = own(contribution, destination);
            return;
        }
        let own = contribution.map(|one| one.address);
        self.reduced = Some(Reduced { own, destination: result.address, bytes: result.bytes });
    }
}
