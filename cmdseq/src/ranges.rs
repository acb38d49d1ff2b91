//! What one instruction makes one card read, send, receive and write: the ranges of its memory, block by block.
//!
//! Planner, verifier and card go by the same answer, so that what was verified is what runs.

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

/// What one instruction makes one card do. Empty blocks are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transfers {
    /// What it sends, by rank of the receiver.
    pub sends: Vec<Transfer>,
    /// What it receives, by rank of the sender.
    pub receives: Vec<Transfer>,
    /// The block that stays on the card; `None` if there is none, or it lies in place.
    pub own: Option<OwnBlock>,
    /// What is read or written in the memory of the peer of an RDMA operation, which runs no instruction for it.
    pub remote: Option<Transfer>,
    /// All `sends` are copies of one stream that is read once (broadcast, allgather).
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

/// What `instruction` makes rank `rank` of `ranks` send, receive and keep, with stripes of `stripe_bytes` (2K).
///
/// Block i of a side of several blocks lies at `address + i * bytes`, or striped at `address + i * stripe_bytes`. A side of
/// one block lies at `address`; striped, the block exchanged with rank i lies at `address + i * stripe_bytes`, where i is the
/// card's own rank for a block that goes to all (the sources of broadcast and allgather). Launch arguments are not added.
///
/// Ranks are not checked: root or peer outside the communicator, or a send to oneself, come back as they are. A sendrecv to
/// and from oneself is an own block. Operations that name no other rank give nothing.
///
/// # Errors
/// [`AddressOverflow`] for the first block that wraps around the address space.
pub fn transfers(
    instruction: &Instruction,
    rank: u32,
    ranks: u32,
    stripe_bytes: u64,
) -> Result<Transfers, AddressOverflow> {
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
        Operation::RdmaRead => {
            result.receives.extend(side.destination().one(peer)?);
            result.remote = side.source().one(rank)?.map(|block| Transfer { peer_rank: peer, ..block });
        }
        Operation::RdmaWrite => {
            result.sends.extend(side.source().one(peer)?);
            result.remote = side.destination().one(rank)?.map(|block| Transfer { peer_rank: peer, ..block });
        }
        Operation::Nop
        | Operation::Barrier
        | Operation::Copy
        | Operation::Fill
        | Operation::Delay
        | Operation::Group
        | Operation::Store
        | Operation::Launch
        | Operation::User => {}
    }
    Ok(result)
}

/// The ranges of its own memory that rank `rank` of `ranks` reads and writes in `instruction`.
///
/// # Errors
/// As [`transfers`], and for the two sides of copy, fill and user.
pub fn card_ranges(
    instruction: &Instruction,
    rank: u32,
    ranks: u32,
    stripe_bytes: u64,
) -> Result<CardRanges, AddressOverflow> {
    let transfers = transfers(instruction, rank, ranks, stripe_bytes)?;
    let range = |transfer: &Transfer| Range { address: transfer.address, bytes: transfer.bytes };
    let mut result = CardRanges::default();
    let streams = if transfers.multicast { 1 } else { transfers.sends.len() };
    result.reads.extend(transfers.sends.iter().take(streams).map(range));
    result.writes.extend(transfers.receives.iter().map(range));
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
        _ => result.in_place = in_place(&side, rank, &transfers)?,
    }
    Ok(result)
}

/// Where the own block lies, if it is read and written at one address.
fn in_place(side: &Side<'_>, rank: u32, transfers: &Transfers) -> Result<Option<Range>, AddressOverflow> {
    if transfers.own.is_some() {
        return Ok(None);
    }
    let root = u32::from(side.instruction.root);
    let block = match side.instruction.operation {
        Operation::Scatter if rank == root => side.source().of_many(rank, rank)?,
        Operation::Gather if rank == root => side.source().single(rank, rank)?,
        Operation::Broadcast if rank == root => side.source().one(rank)?,
        Operation::Alltoall => side.source().of_many(rank, rank)?,
        Operation::Allgather => side.source().single(rank, rank)?,
        Operation::Sendrecv if rank == root && rank == u32::from(side.instruction.peer) => side.source().one(rank)?,
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

struct Side<'a> {
    instruction: &'a Instruction,
    stripe_bytes: u64,
}

impl Side<'_> {
    fn source(&self) -> Blocks<'_> {
        Blocks { operand: &self.instruction.source, instruction: self.instruction, stripe_bytes: self.stripe_bytes }
    }

    fn destination(&self) -> Blocks<'_> {
        Blocks {
            operand: &self.instruction.destination,
            instruction: self.instruction,
            stripe_bytes: self.stripe_bytes,
        }
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

    const STRIPE: u64 = 512 << 20;

    #[test]
    fn a_striped_block_lies_in_the_stripe_of_the_rank_it_is_exchanged_with() {
        let striped = Operand::card(64).striped();
        let scatter = Instruction::scatter(2, striped, striped, 32);
        let root = transfers(&scatter, 2, 4, STRIPE).unwrap();
        let addresses: Vec<u64> = root.sends.iter().map(|send| send.address).collect();
        assert_eq!(addresses, [64, 64 + STRIPE, 64 + 3 * STRIPE]);
        assert_eq!(root.own, None, "the own block is in place");
        let other = transfers(&scatter, 1, 4, STRIPE).unwrap();
        assert_eq!(other.receives, [Transfer { peer_rank: 2, address: 64 + 2 * STRIPE, bytes: 32 }]);
        assert!(other.sends.is_empty() && other.own.is_none());
    }

    #[test]
    fn divided_vectors_end_with_short_and_empty_blocks() {
        let allgather = Instruction::allgather(Operand::card(0), Operand::card(4096), 64).dividing(100);
        let last = transfers(&allgather, 3, 4, STRIPE).unwrap();
        assert!(last.sends.is_empty() && last.multicast);
        let blocks: Vec<(u32, u64)> = last.receives.iter().map(|one| (one.peer_rank, one.bytes)).collect();
        assert_eq!(blocks, [(0, 64), (1, 36)]);
        let ranges = card_ranges(&allgather, 0, 4, STRIPE).unwrap();
        assert_eq!(ranges.reads, [Range { address: 0, bytes: 64 }], "one stream is read once");
        assert_eq!(ranges.writes.len(), 2, "the block of rank 1 and the own one");
    }

    #[test]
    fn addresses_do_not_wrap() {
        let near_the_end = Operand::card(u64::MAX - 100);
        let gather = Instruction::gather(0, Operand::card(0), near_the_end, 64);
        let overflow = transfers(&gather, 0, 2, STRIPE).unwrap_err();
        assert_eq!(overflow, AddressOverflow { address: u64::MAX - 100, block: 1, bytes: 64 });
        assert!(transfers(&gather, 1, 2, STRIPE).is_ok(), "the other rank only reads at 0");
        let copy = Instruction::copy(near_the_end, Operand::card(0), 200);
        assert!(card_ranges(&copy, 0, 1, STRIPE).is_err());
        let huge = Instruction::alltoall(Operand::card(0), Operand::card(0), u64::MAX);
        assert!(transfers(&huge, 0, 3, STRIPE).is_err());
    }
}
