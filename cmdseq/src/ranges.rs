//! What one instruction makes one card read, send, receive and write: the ranges of its memory, block by block.
//!
//! Planner, verifier and card go by the same answer, so that what was verified is what runs.

use crate::table::{Entry, Table, Tables};
use crate::{AddressSpace, Instruction, Layout, Operand, Operation};

/// A block that one card sends to, or receives from, another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Rank of the other card in the communicator.
    pub peer_rank: u32,
    /// Where the block lies in the memory of this card, bytes.
    pub address: u64,
    /// Its length; never zero.
    pub bytes: u64,
}

/// The block that a card keeps for itself: read at one address and written at another, without a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnBlock {
    /// Where it is read, bytes.
    pub source: u64,
    /// Where it is written, bytes; never equal to `source`.
    pub destination: u64,
    /// Its length; never zero.
    pub bytes: u64,
}

/// A fold on one card: of what comes in, in order of the senders, and of the card's own contribution in the place of its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduced {
    /// Where the own contribution is read; `None` if it is not part of the fold.
    pub own: Option<u64>,
    /// Where the result is written. Equal to `own` if it takes the place of the own contribution.
    pub destination: u64,
    /// Length of each contribution and of the result; never zero.
    pub bytes: u64,
}

/// What one instruction makes one card do. Empty blocks are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transfers {
    /// What it sends, by rank of the receiver.
    pub sends: Vec<Transfer>,
    /// What it receives, by rank of the sender.
    pub receives: Vec<Transfer>,
    /// The block that stays on the card; `None` if there is none, or it lies in place.
    pub own: Option<OwnBlock>,
    /// The fold of all `receives`, which then have the address of the result; `None` if nothing is folded.
    pub reduced: Option<Reduced>,
    /// What is read or written in the memory of the peer of an RDMA operation, which runs no instruction for it.
    pub remote: Option<Transfer>,
    /// All `sends` are copies of one stream that is read once (broadcast, allgather, allreduce, scan, exscan, and a
    /// sendrecv_reduce that sends its own contribution); an own
    /// contribution to a fold is of the same stream.
    pub multicast: bool,
}

/// A block of the instruction would end past the last address that 64 bits can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("block {block} of {bytes} B, counted from address {address:#x}, ends past the last 64-bit address")]
pub struct AddressOverflow {
    /// Address in the operand.
    pub address: u64,
    /// Number of the block.
    pub block: u32,
    /// Bytes of the block.
    pub bytes: u64,
}

/// Why it cannot be said what an instruction moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RangeError {
    /// A block has no address.
    #[error(transparent)]
    Address(#[from] AddressOverflow),
    /// A vector form without its table.
    #[error("there is no table in slot {slot}; it has to be loaded before")]
    NoTable {
        /// What the instruction says.
        slot: u64,
    },
    /// A table of another communicator.
    #[error("the table in slot {slot} has {entries} entries, and the communicator {ranks} ranks")]
    Entries {
        /// Of the table.
        slot: u16,
        /// How many it has.
        entries: usize,
        /// How many it needs.
        ranks: u32,
    },
    /// A table that says another length of the own block than the instruction.
    #[error("the table in slot {slot} says that the own block has {listed} B, and the instruction says {bytes} B")]
    OwnBlock {
        /// Of the table.
        slot: u16,
        /// In the table.
        listed: u64,
        /// In the instruction, or in the table of the other direction.
        bytes: u64,
    },
}

/// Where an instruction runs.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The card's rank in the communicator.
    pub rank: u32,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// 2K, bytes: from one stripe of card memory to the next.
    pub stripe_bytes: u64,
    /// The tables in the card's slots when it runs.
    pub tables: &'a Tables,
}

/// A range of card memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// First byte.
    pub address: u64,
    /// Number of bytes; `address + bytes` does not overflow.
    pub bytes: u64,
}

impl Range {
    /// The byte after the last.
    pub const fn end(self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    /// Whether some byte is in both.
    pub const fn overlaps(self, other: Range) -> bool {
        self.bytes != 0 && other.bytes != 0 && self.address < other.end() && other.address < self.end()
    }
}

/// Ranges of card memory that one card reads and writes in one instruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CardRanges {
    /// Read, each stream once.
    pub reads: Vec<Range>,
    /// Written.
    pub writes: Vec<Range>,
    /// The own block is read and written at the same address, that is, not touched.
    pub in_place: Option<Range>,
}

/// What `instruction` makes the card at `context` send, receive and keep.
///
/// Block i of a side of several blocks lies at `address + i * bytes`, or striped at `address + i * stripe_bytes`. A side of
/// one block lies at `address`; striped, the block exchanged with rank i lies at `address + i * stripe_bytes`, where i is the
/// card's own rank for a block that goes to all (the sources of broadcast and allgather). Launch arguments are not added.
///
/// Ranks are not checked: root or peer outside the communicator, or a send to oneself, come back as they are. A sendrecv to
/// and from oneself is an own block. Operations that name no other rank give nothing.
///
/// # Errors
/// [`AddressOverflow`] for the first block that wraps around the address space; of a vector form, a table that is missing
/// or does not fit.
pub fn transfers(instruction: &Instruction, context: &Context<'_>) -> Result<Transfers, RangeError> {
    let Context { rank, ranks, stripe_bytes, .. } = *context;
    let side = Side { instruction, stripe_bytes };
    let root = u32::from(instruction.root);
    let peer = u32::from(instruction.peer);
    let others = || (0..ranks).filter(|other| *other != rank);
    let mut result = Transfers::default();
    match instruction.operation {
        Operation::Send => result.sends.extend(side.source().one(peer)?),
        Operation::Recv => result.receives.extend(side.destination().one(peer)?),
        Operation::Sendrecv if peer == rank && root == rank => {
            result.own = own(side.source().one(rank)?, side.destination().one(rank)?);
        }
        Operation::Sendrecv => {
            result.sends.extend(side.source().one(peer)?);
            result.receives.extend(side.destination().one(root)?);
        }
        Operation::Scatter if rank == root => {
            for other in others() {
                result.sends.extend(side.source().of_many(other, other)?);
            }
            result.own = own(side.source().of_many(rank, rank)?, side.destination().single(rank, rank)?);
        }
        Operation::Scatter => result.receives.extend(side.destination().single(root, rank)?),
        Operation::Gather if rank == root => {
            for other in others() {
                result.receives.extend(side.destination().of_many(other, other)?);
            }
            result.own = own(side.source().single(rank, rank)?, side.destination().of_many(rank, rank)?);
        }
        Operation::Gather => result.sends.extend(side.source().single(root, rank)?),
        Operation::Broadcast if rank == root => {
            result.multicast = true;
            if let Some(stream) = side.source().one(rank)? {
                result.sends.extend(others().map(|other| Transfer { peer_rank: other, ..stream }));
            }
            result.own = own(side.source().one(rank)?, side.destination().one(rank)?);
        }
        Operation::Broadcast => {
            result.multicast = true;
            result.receives.extend(side.destination().one(root)?);
        }
        Operation::Alltoall => {
            for other in others() {
                result.sends.extend(side.source().of_many(other, other)?);
                result.receives.extend(side.destination().of_many(other, other)?);
            }
            result.own = own(side.source().of_many(rank, rank)?, side.destination().of_many(rank, rank)?);
        }
        Operation::Allgather => {
            result.multicast = true;
            let stream = side.source().single(rank, rank)?;
            for other in others() {
                result.sends.extend(stream.map(|stream| Transfer { peer_rank: other, ..stream }));
                result.receives.extend(side.destination().of_many(other, other)?);
            }
            result.own = own(stream, side.destination().of_many(rank, rank)?);
        }
        Operation::Reduce if rank == root => {
            result.fold(others(), side.source().one(rank)?, side.destination().one(rank)?);
        }
        Operation::Reduce => result.sends.extend(side.source().one(root)?),
        Operation::Allreduce => {
            result.multicast = true;
            let stream = side.source().one(rank)?;
            result.copy_to(others(), stream);
            result.fold(others(), stream, side.destination().one(rank)?);
        }
        Operation::ReduceScatter => {
            for other in others() {
                result.sends.extend(side.source().of_many(other, other)?);
            }
            result.fold(others(), side.source().of_many(rank, rank)?, side.destination().single(rank, rank)?);
        }
        Operation::Scan => {
            result.multicast = true;
            let stream = side.source().one(rank)?;
            result.copy_to(rank.saturating_add(1)..ranks, stream);
            result.fold(0..rank, stream, side.destination().one(rank)?);
        }
        Operation::Exscan => {
            result.multicast = true;
            result.copy_to(rank.saturating_add(1)..ranks, side.source().one(rank)?);
            result.fold(0..rank, None, side.destination().one(rank)?);
        }
        Operation::Scatterv if rank == root => {
            let source = context.listed(instruction.extent, &instruction.source)?;
            for other in others() {
                result.sends.extend(source.block(other)?);
            }
            source.check_own(rank, instruction.bytes)?;
            result.own = own(source.block(rank)?, side.destination().one(rank)?);
        }
        Operation::Scatterv => result.receives.extend(side.destination().one(root)?),
        Operation::Gatherv if rank == root => {
            let destination = context.listed(instruction.extent, &instruction.destination)?;
            for other in others() {
                result.receives.extend(destination.block(other)?);
            }
            destination.check_own(rank, instruction.bytes)?;
            result.own = own(side.source().one(rank)?, destination.block(rank)?);
        }
        Operation::Gatherv => result.sends.extend(side.source().one(root)?),
        Operation::Allgatherv => {
            result.multicast = true;
            let destination = context.listed(instruction.extent, &instruction.destination)?;
            destination.check_own(rank, instruction.bytes)?;
            let stream = side.source().one(rank)?;
            result.copy_to(others(), stream);
            for other in others() {
                result.receives.extend(destination.block(other)?);
            }
            result.own = own(stream, destination.block(rank)?);
        }
        Operation::Alltoallv => {
            let (sends, receives) = alltoallv_slots(instruction.extent);
            let source = context.listed(sends, &instruction.source)?;
            let destination = context.listed(receives, &instruction.destination)?;
            for other in others() {
                result.sends.extend(source.block(other)?);
                result.receives.extend(destination.block(other)?);
            }
            destination.check_own(rank, source.bytes(rank))?;
            result.own = own(source.block(rank)?, destination.block(rank)?);
        }
        Operation::RdmaRead => {
            result.receives.extend(side.destination().one(peer)?);
            result.remote = remote(instruction, context)?;
        }
        Operation::RecvReduce => {
            result.fold([peer].into_iter(), side.source().one(peer)?, side.destination().one(peer)?);
        }
        Operation::SendrecvReduce => {
            result.sends.extend(side.source().one(peer)?);
            // What is sent and folded is read once.
            result.multicast = instruction.extent == instruction.source.address;
            let own = Operand::card(instruction.extent);
            result.fold([root].into_iter(), side.at(&own).one(root)?, side.destination().one(root)?);
        }
        Operation::RdmaWrite | Operation::PutSignal => {
            result.sends.extend(side.source().one(peer)?);
            result.remote = remote(instruction, context)?;
        }
        Operation::Nop
        | Operation::Barrier
        | Operation::Copy
        | Operation::Fill
        | Operation::Delay
        | Operation::Group
        | Operation::Store
        | Operation::Launch
        | Operation::WaitSignal
        | Operation::Table
        | Operation::Free
        | Operation::Loop
        | Operation::User => {}
    }
    Ok(result)
}

/// What a one-sided instruction touches in the memory of its peer: the same as [`Transfers::remote`] alone.
pub(crate) fn remote(instruction: &Instruction, context: &Context<'_>) -> Result<Option<Transfer>, AddressOverflow> {
    let side = Side { instruction, stripe_bytes: context.stripe_bytes };
    let there = match instruction.operation {
        Operation::RdmaRead => side.source(),
        Operation::RdmaWrite | Operation::PutSignal => side.destination(),
        _ => return Ok(None),
    };
    let block = there.one(context.rank)?;
    Ok(block.map(|block| Transfer { peer_rank: u32::from(instruction.peer), ..block }))
}

/// Lengths of the blocks that go one way in a vector form, by rank of the communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lengths<'a> {
    /// No block goes that way.
    None,
    /// One block, of this rank.
    One(u32, u64),
    /// The same for all ranks.
    All(u64),
    /// As a table says.
    Listed(&'a Table),
}

impl Lengths<'_> {
    /// Of the block that is exchanged with `other`.
    pub(crate) fn of(&self, other: u32) -> u64 {
        match *self {
            Lengths::None => 0,
            Lengths::One(rank, bytes) => {
                if rank == other {
                    bytes
                } else {
                    0
                }
            }
            Lengths::All(bytes) => bytes,
            Lengths::Listed(table) => table.get(other).unwrap_or_default().bytes,
        }
    }
}

/// What the card at `context` sends and receives in a vector form, own blocks included: lengths alone, without the blocks
/// of [`transfers`]. `None` of other operations, and if a table is missing or does not fit.
pub(crate) fn lengths<'a>(instruction: &Instruction, context: &Context<'a>) -> Option<[Lengths<'a>; 2]> {
    use Lengths::{All, Listed, None as Nothing, One};
    let Instruction { operation, bytes, extent, .. } = *instruction;
    let root = u32::from(instruction.root);
    let is_root = context.rank == root;
    let listed = |slot: u64| {
        let table = context.tables.get(&u16::try_from(slot).ok()?)?;
        (table.entries.len() as u64 == u64::from(context.ranks)).then_some(Listed(table))
    };
    match operation {
        Operation::Scatterv if is_root => Some([listed(extent)?, Nothing]),
        Operation::Scatterv => Some([Nothing, One(root, bytes)]),
        Operation::Gatherv if is_root => Some([Nothing, listed(extent)?]),
        Operation::Gatherv => Some([One(root, bytes), Nothing]),
        Operation::Allgatherv => Some([All(bytes), listed(extent)?]),
        Operation::Alltoallv => {
            let (sends, receives) = alltoallv_slots(extent);
            Some([listed(sends)?, listed(receives)?])
        }
        _ => None,
    }
}

impl Transfers {
    /// Bytes of the longest block that is sent or received.
    pub fn longest(&self) -> u64 {
        self.sends.iter().chain(&self.receives).map(|block| block.bytes).max().unwrap_or(0)
    }

    /// Whether the own contribution is also what is sent: then it is read once, and must outlast the fold.
    pub const fn own_is_sent(&self) -> bool {
        self.multicast && !self.sends.is_empty()
    }

    /// Where the own contribution to a fold is read, and its length, if it is a stream of its own.
    pub fn contribution(&self) -> Option<(u64, u64)> {
        let reduced = self.reduced.filter(|_| !self.own_is_sent())?;
        reduced.own.map(|address| (address, reduced.bytes))
    }

    /// Sends `stream` to each of `ranks`.
    fn copy_to(&mut self, ranks: impl Iterator<Item = u32>, stream: Option<Transfer>) {
        if let Some(stream) = stream {
            self.sends.extend(ranks.map(|rank| Transfer { peer_rank: rank, ..stream }));
        }
    }

    /// Folds a block of each of `ranks`, and the own contribution, at `destination`. The own one alone is copied there.
    fn fold(
        &mut self,
        ranks: impl Iterator<Item = u32>,
        contribution: Option<Transfer>,
        destination: Option<Transfer>,
    ) {
        let Some(result) = destination else { return };
        self.receives.extend(ranks.map(|rank| Transfer { peer_rank: rank, ..result }));
        if self.receives.is_empty() {
            self.own = own(contribution, destination);
            return;
        }
        let own = contribution.map(|one| one.address);
        self.reduced = Some(Reduced { own, destination: result.address, bytes: result.bytes });
    }
}

/// The ranges of its own memory that the card at `context` reads and writes in `instruction`.
///
/// # Errors
/// As [`transfers`], and for the two sides of copy, fill and user.
pub fn card_ranges(instruction: &Instruction, context: &Context<'_>) -> Result<CardRanges, RangeError> {
    let transfers = transfers(instruction, context)?;
    let stripe_bytes = context.stripe_bytes;
    let range = |transfer: &Transfer| Range { address: transfer.address, bytes: transfer.bytes };
    let mut result = CardRanges::default();
    let streams = if transfers.multicast { 1 } else { transfers.sends.len() };
    result.reads.extend(transfers.sends.iter().take(streams).map(range));
    match transfers.reduced {
        Some(reduced) => {
            // Over the own contribution, a result is written where only the fold itself has read.
            let own = reduced.own.filter(|own| *own != reduced.destination && !transfers.own_is_sent());
            result.reads.extend(own.map(|address| Range { address, bytes: reduced.bytes }));
            result.writes.push(Range { address: reduced.destination, bytes: reduced.bytes });
        }
        None => result.writes.extend(transfers.receives.iter().map(range)),
    }
    if let Some(own) = transfers.own {
        if !transfers.multicast || transfers.sends.is_empty() {
            result.reads.push(Range { address: own.source, bytes: own.bytes });
        }
        result.writes.push(Range { address: own.destination, bytes: own.bytes });
    }
    let side = Side { instruction, stripe_bytes };
    match instruction.operation {
        Operation::Copy | Operation::User => {
            let on_card = |operand: &Operand| operand.space == AddressSpace::Card;
            let block = |side: Blocks<'_>| -> Result<Option<Range>, AddressOverflow> {
                Ok(side.one(0)?.map(|block| range(&block)).filter(|_| on_card(side.operand)))
            };
            result.reads.extend(block(side.source())?);
            result.writes.extend(block(side.destination())?);
        }
        Operation::Fill => result.writes.extend(side.destination().one(0)?.map(|block| range(&block))),
        _ => result.in_place = in_place(&side, context, &transfers)?,
    }
    Ok(result)
}

/// Where the own block lies, if it is read and written at one address.
fn in_place(side: &Side<'_>, context: &Context<'_>, transfers: &Transfers) -> Result<Option<Range>, RangeError> {
    if transfers.own.is_some() {
        return Ok(None);
    }
    let rank = context.rank;
    let (root, extent) = (u32::from(side.instruction.root), side.instruction.extent);
    let listed = |slot| context.listed(slot, &side.instruction.source)?.block(rank).map_err(RangeError::from);
    let block = match side.instruction.operation {
        Operation::Scatter if rank == root => side.source().of_many(rank, rank)?,
        Operation::Gather if rank == root => side.source().single(rank, rank)?,
        Operation::Broadcast if rank == root => side.source().one(rank)?,
        Operation::Alltoall => side.source().of_many(rank, rank)?,
        Operation::Allgather => side.source().single(rank, rank)?,
        Operation::Scatterv if rank == root => listed(extent)?,
        Operation::Gatherv if rank == root => side.source().one(rank)?,
        Operation::Allgatherv => side.source().one(rank)?,
        Operation::Alltoallv => listed(alltoallv_slots(extent).0)?,
        Operation::Sendrecv if rank == root && rank == u32::from(side.instruction.peer) => side.source().one(rank)?,
        // Alone in a fold, or the first of a scan: a result elsewhere would be an own block.
        Operation::Reduce if rank == root && transfers.receives.is_empty() => side.source().one(rank)?,
        Operation::Allreduce | Operation::Scan if transfers.receives.is_empty() => side.source().one(rank)?,
        Operation::ReduceScatter if transfers.receives.is_empty() => side.source().of_many(rank, rank)?,
        _ => None,
    };
    Ok(block.map(|block| Range { address: block.address, bytes: block.bytes }))
}

fn own(source: Option<Transfer>, destination: Option<Transfer>) -> Option<OwnBlock> {
    let (source, destination) = (source?, destination?);
    (source.address != destination.address).then_some(OwnBlock {
        source: source.address,
        destination: destination.address,
        bytes: source.bytes,
    })
}

/// The slots that the extent of an alltoallv names: of the table of its source, and of that of its destination.
pub(crate) const fn alltoallv_slots(extent: u64) -> (u64, u64) {
    // Bits that name nothing stay, so that no slot is found.
    (extent & 0xffff, extent >> 16)
}

impl<'a> Context<'a> {
    /// The blocks that lie at `operand` as the table in `slot` says.
    fn listed(&self, slot: u64, operand: &'a Operand) -> Result<Listed<'a>, RangeError> {
        let known = u16::try_from(slot).ok().and_then(|slot| self.tables.get_key_value(&slot));
        let (slot, table) = known.ok_or(RangeError::NoTable { slot })?;
        if table.entries.len() as u64 != u64::from(self.ranks) {
            return Err(RangeError::Entries { slot: *slot, entries: table.entries.len(), ranks: self.ranks });
        }
        Ok(Listed { operand, slot: *slot, table })
    }
}

/// The blocks of a vector form that a table lists.
struct Listed<'a> {
    operand: &'a Operand,
    slot: u16,
    table: &'a Table,
}

impl Listed<'_> {
    /// The block exchanged with `other`.
    fn block(&self, other: u32) -> Result<Option<Transfer>, AddressOverflow> {
        let Entry { displacement, bytes } = self.table.get(other).unwrap_or_default();
        if bytes == 0 {
            return Ok(None);
        }
        self.operand
            .address
            .checked_add(displacement)
            .filter(|address| address.checked_add(bytes).is_some())
            .map(|address| Some(Transfer { peer_rank: other, address, bytes }))
            .ok_or(AddressOverflow { address: self.operand.address, block: other, bytes })
    }

    /// Length of the block exchanged with `other`.
    fn bytes(&self, other: u32) -> u64 {
        self.table.get(other).unwrap_or_default().bytes
    }

    /// Refuses a block of the card's own `rank` that is not of `bytes`.
    fn check_own(&self, rank: u32, bytes: u64) -> Result<(), RangeError> {
        let listed = self.bytes(rank);
        if listed == bytes { Ok(()) } else { Err(RangeError::OwnBlock { slot: self.slot, listed, bytes }) }
    }
}

struct Side<'a> {
    instruction: &'a Instruction,
    stripe_bytes: u64,
}

impl Side<'_> {
    fn source(&self) -> Blocks<'_> {
        self.at(&self.instruction.source)
    }

    fn destination(&self) -> Blocks<'_> {
        self.at(&self.instruction.destination)
    }

    fn at<'b>(&'b self, operand: &'b Operand) -> Blocks<'b> {
        Blocks { operand, instruction: self.instruction, stripe_bytes: self.stripe_bytes }
    }
}

/// The blocks that lie at one operand.
struct Blocks<'a> {
    operand: &'a Operand,
    instruction: &'a Instruction,
    stripe_bytes: u64,
}

impl Blocks<'_> {
    /// A block of [`Instruction::bytes`], alone on its side and exchanged with `other`.
    fn one(&self, other: u32) -> Result<Option<Transfer>, AddressOverflow> {
        let distance = if self.operand.layout == Layout::Striped { self.stripe_bytes } else { 0 };
        self.at(other, distance, other, self.instruction.bytes)
    }

    /// Block `number` of a vector that may be divided, alone on its side and exchanged with `other`.
    fn single(&self, other: u32, number: u32) -> Result<Option<Transfer>, AddressOverflow> {
        let distance = if self.operand.layout == Layout::Striped { self.stripe_bytes } else { 0 };
        self.at(other, distance, other, self.instruction.block_bytes(u64::from(number)))
    }

    /// Block `number` of several, exchanged with `other`.
    fn of_many(&self, other: u32, number: u32) -> Result<Option<Transfer>, AddressOverflow> {
        let distance = if self.operand.layout == Layout::Striped { self.stripe_bytes } else { self.instruction.bytes };
        self.at(other, distance, number, self.instruction.block_bytes(u64::from(number)))
    }

    fn at(&self, other: u32, distance: u64, block: u32, bytes: u64) -> Result<Option<Transfer>, AddressOverflow> {
        if bytes == 0 {
            return Ok(None);
        }
        distance
            .checked_mul(u64::from(block))
            .and_then(|offset| self.operand.address.checked_add(offset))
            .filter(|address| address.checked_add(bytes).is_some())
            .map(|address| Some(Transfer { peer_rank: other, address, bytes }))
            .ok_or(AddressOverflow { address: self.operand.address, block, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TABLES: &Tables = &Tables::new();

    fn at(rank: u32, ranks: u32) -> Context<'static> {
        Context { rank, ranks, stripe_bytes: STRIPE, tables: NO_TABLES }
    }

    const STRIPE: u64 = 512 << 20;

    #[test]
    fn a_striped_block_lies_in_the_stripe_of_the_rank_it_is_exchanged_with() {
        let striped = Operand::card(64).striped();
        let scatter = Instruction::scatter(2, striped, striped, 32);
        let root = transfers(&scatter, &at(2, 4)).unwrap();
        let addresses: Vec<u64> = root.sends.iter().map(|send| send.address).collect();
        assert_eq!(addresses, [64, 64 + STRIPE, 64 + 3 * STRIPE]);
        assert_eq!(root.own, None, "the own block is in place");
        let other = transfers(&scatter, &at(1, 4)).unwrap();
        assert_eq!(other.receives, [Transfer { peer_rank: 2, address: 64 + 2 * STRIPE, bytes: 32 }]);
        assert!(other.sends.is_empty() && other.own.is_none());
    }

    #[test]
    fn divided_vectors_end_with_short_and_empty_blocks() {
        let allgather = Instruction::allgather(Operand::card(0), Operand::card(4096), 64).dividing(100);
        let last = transfers(&allgather, &at(3, 4)).unwrap();
        assert!(last.sends.is_empty() && last.multicast);
        let blocks: Vec<(u32, u64)> = last.receives.iter().map(|one| (one.peer_rank, one.bytes)).collect();
        assert_eq!(blocks, [(0, 64), (1, 36)]);
        let ranges = card_ranges(&allgather, &at(0, 4)).unwrap();
        assert_eq!(ranges.reads, [Range { address: 0, bytes: 64 }], "one stream is read once");
        assert_eq!(ranges.writes.len(), 2, "the block of rank 1 and the own one");
    }

    #[test]
    fn blocks_of_vector_forms_lie_where_tables_say() {
        let tables = Tables::from([(2, Table::packed([10, 0, 30, 5], 64)), (3, Table::packed([1, 2, 30, 4], 1))]);
        let context = |rank| Context { tables: &tables, ..at(rank, 4) };
        let (here, there) = (Operand::card(1000), Operand::card(5000));
        let blocks = |list: &[Transfer]| -> Vec<(u32, u64, u64)> {
            list.iter().map(|one| (one.peer_rank, one.address, one.bytes)).collect()
        };
        let scatterv = transfers(&Instruction::scatterv(2, here, there, 30, 2), &context(2)).unwrap();
        assert_eq!(blocks(&scatterv.sends), [(0, 1000, 10), (3, 1128, 5)]);
        assert_eq!(scatterv.own, Some(OwnBlock { source: 1064, destination: 5000, bytes: 30 }));
        let gatherv = transfers(&Instruction::gatherv(0, here, there, 5, 0), &context(3)).unwrap();
        assert_eq!(blocks(&gatherv.sends), [(0, 1000, 5)], "only the root reads a table");
        let allgatherv = transfers(&Instruction::allgatherv(here, there, 0, 2), &context(1)).unwrap();
        assert!(allgatherv.sends.is_empty() && allgatherv.own.is_none());
        assert_eq!(blocks(&allgatherv.receives), [(0, 5000, 10), (2, 5064, 30), (3, 5128, 5)]);
        let alltoallv = transfers(&Instruction::alltoallv(here, there, 2, 3), &context(2)).unwrap();
        assert_eq!(blocks(&alltoallv.sends), [(0, 1000, 10), (3, 1128, 5)]);
        assert_eq!(blocks(&alltoallv.receives), [(0, 5000, 1), (1, 5001, 2), (3, 5033, 4)]);
        let in_place = card_ranges(&Instruction::scatterv(2, here, Operand::card(1064), 30, 2), &context(2)).unwrap();
        assert_eq!(in_place.in_place, Some(Range { address: 1064, bytes: 30 }));
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let tables = Tables::from([(2, Table::packed([10, 20, 30], 1)), (3, Table::packed([10, 21, 30], 1))]);
        let context = Context { tables: &tables, ..at(1, 3) };
        let zero = Operand::card(0);
        let refused = |instruction| transfers(&instruction, &context).unwrap_err();
        let allgatherv = |bytes, table| refused(Instruction::allgatherv(zero, Operand::card(100), bytes, table));
        assert_eq!(allgatherv(20, 4), RangeError::NoTable { slot: 4 });
        assert_eq!(allgatherv(19, 2), RangeError::OwnBlock { slot: 2, listed: 20, bytes: 19 });
        let other = Instruction { extent: 1 << 32 | 3 << 16 | 2, ..Instruction::alltoallv(zero, zero, 0, 0) };
        assert_eq!(refused(other), RangeError::NoTable { slot: 1 << 16 | 3 });
        let uneven = Instruction::alltoallv(zero, zero, 2, 3);
        assert_eq!(refused(uneven), RangeError::OwnBlock { slot: 3, listed: 21, bytes: 20 });
        let four = Context { ranks: 4, ..context };
        let entries = transfers(&Instruction::scatterv(1, zero, zero, 20, 2), &four).unwrap_err();
        assert_eq!(entries, RangeError::Entries { slot: 2, entries: 3, ranks: 4 });
        let high = Instruction::gatherv(1, zero, Operand::card(u64::MAX - 20), 20, 2);
        assert!(matches!(refused(high), RangeError::Address(AddressOverflow { block: 2, .. })));
    }

    #[test]
    fn addresses_do_not_wrap() {
        let near_the_end = Operand::card(u64::MAX - 100);
        let gather = Instruction::gather(0, Operand::card(0), near_the_end, 64);
        let overflow = transfers(&gather, &at(0, 2)).unwrap_err();
        let expected = AddressOverflow { address: u64::MAX - 100, block: 1, bytes: 64 };
        assert_eq!(overflow, RangeError::Address(expected));
        assert!(transfers(&gather, &at(1, 2)).is_ok(), "the other rank only reads at 0");
        let copy = Instruction::copy(near_the_end, Operand::card(0), 200);
        assert!(card_ranges(&copy, &at(0, 1)).is_err());
        let huge = Instruction::alltoall(Operand::card(0), Operand::card(0), u64::MAX);
        assert!(transfers(&huge, &at(0, 3)).is_err());
    }
}
