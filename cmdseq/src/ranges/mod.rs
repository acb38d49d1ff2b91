//! The ranges of memory that an instruction makes a card read, send, receive and write, block by block.
//!
//! Planner, verifier and card use the same functions, so the verified accesses are those that run. `exchange` describes each
//! collective once; `blocks` computes addresses; `transfers`, `card`, `lengths` and `spans` answer the questions. The module uses
//! instructions and tables only.

mod blocks;
mod card;
mod exchange;
mod lengths;
mod spans;
mod transfers;

use crate::table::Tables;

pub use card::card_ranges;
pub(crate) use card::card_ranges_of;
pub(crate) use exchange::{Blocks, Exchange, alltoallv_slots, blocks_of};
pub(crate) use lengths::lengths;
pub(crate) use spans::{Span, Spans};
pub use transfers::{given_and_got, transfers};
pub(crate) use transfers::{is_own_in_place, remote};

/// A block that one card sends to, or receives from, another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Rank of the other card in the communicator.
    pub peer_rank: u32,
    /// Address of the block in the memory of this card, bytes.
    pub address: u64,
    /// Its length; never zero.
    pub bytes: u64,
}

impl Transfer {
    /// Returns where the block is.
    pub(crate) const fn range(&self) -> Range {
        Range { address: self.address, bytes: self.bytes }
    }
}

/// The block that a card keeps: copied from one address to another, without a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnBlock {
    /// Where it is read, bytes.
    pub source: u64,
    /// Where it is written, bytes; never equal to `source`.
    pub destination: u64,
    /// Its length; never zero.
    pub bytes: u64,
}

/// A fold on one card: of all received blocks and the card's own contribution, in rank order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduced {
    /// Where the own contribution is read; `None` without one.
    pub own: Option<u64>,
    /// Where the result is written; of several, that of the own rank. Equal to `own` if it replaces the own contribution.
    pub destination: u64,
    /// Length of each contribution and of each result; never zero.
    pub bytes: u64,
}

/// The transfers of one instruction on one card, without empty blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transfers {
    /// Blocks that it sends, by rank of the receiver.
    pub sends: Vec<Transfer>,
    /// Blocks that it receives, by rank of the sender.
    pub receives: Vec<Transfer>,
    /// The block that stays on the card; `None` without one, or if it is in place.
    pub own: Option<OwnBlock>,
    /// The fold of all `receives`, which then have the address of the result; `None` without a fold.
    pub reduced: Option<Reduced>,
    /// Where an alltoall_scan writes its results, by rank: the fold of the contributions of ranks 0 to i is the result of rank i,
    /// and a block received from rank i has its address. Empty if only the fold of all is written.
    pub partials: Vec<u64>,
    /// The block that a one-sided operation reads or writes in the memory of its peer.
    pub remote: Option<Transfer>,
    /// All `sends` are copies of one stream that is read once (broadcast, allgather, allreduce, scan, exscan, and a
    /// sendrecv_reduce that sends its own contribution), as is an own contribution to a fold.
    pub multicast: bool,
}

/// Why the transfers of an instruction are undefined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RangeError {
    /// A block exceeds 64-bit addresses.
    #[error("block {block} of {bytes} B, from address {address:#x} on, exceeds 64-bit addresses")]
    Address {
        /// Address of the operand.
        address: u64,
        /// Number of the block.
        block: u32,
        /// Bytes of the block.
        bytes: u64,
    },
    /// A vector form without its table.
    #[error("no table in slot {slot}; load it first")]
    NoTable {
        /// The slot in the instruction.
        slot: u64,
    },
    /// The table has not one entry for each rank.
    #[error("the table in slot {slot} has {entries} entries for {ranks} ranks")]
    Entries {
        /// Slot of the table.
        slot: u16,
        /// Its entries.
        entries: usize,
        /// Ranks of the communicator.
        ranks: u32,
    },
    /// Table and instruction differ in the length of the own block.
    #[error("the own block has {listed} B in the table in slot {slot}, but {bytes} B in the instruction")]
    OwnBlock {
        /// Slot of the table.
        slot: u16,
        /// Length in the table.
        listed: u64,
        /// Length in the instruction, or in the table of the other direction.
        bytes: u64,
    },
}

/// The place where an instruction runs.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The card's rank in the communicator.
    pub rank: u32,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// 2K, the bytes of a stripe of card memory.
    pub stripe_bytes: u64,
    /// The tables in the card's slots.
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
    /// Returns the address after the last byte.
    pub const fn end(self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    /// Whether the ranges have a common byte.
    pub const fn overlaps(self, other: Range) -> bool {
        self.bytes != 0 && other.bytes != 0 && self.address < other.end() && other.address < self.end()
    }

    /// Returns the smallest range around both.
    pub(crate) fn hull(self, other: Range) -> Range {
        let address = self.address.min(other.address);
        Range { address, bytes: self.end().max(other.end()) - address }
    }
}

/// An access to card memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) range: Range,
    pub(crate) is_write: bool,
}

/// The ranges of its own memory that a card accesses in one instruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CardRanges {
    /// Read, each stream once.
    pub reads: Vec<Range>,
    /// Written.
    pub writes: Vec<Range>,
    /// The own block, if it is in place: source and destination have the same address, so it is not accessed.
    pub in_place: Option<Range>,
}

impl CardRanges {
    /// Returns the reads, then the writes.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = Access> {
        let reads = self.reads.iter().map(|range| Access { range: *range, is_write: false });
        reads.chain(self.writes.iter().map(|range| Access { range: *range, is_write: true }))
    }
}

impl Transfers {
    /// Returns the bytes of the longest block sent or received.
    pub fn longest(&self) -> u64 {
        self.sends.iter().chain(&self.receives).map(|block| block.bytes).max().unwrap_or(0)
    }

    /// Whether the own contribution is also sent: it is read once, and must not change until the fold ends.
    pub(crate) const fn own_is_sent(&self) -> bool {
        self.multicast && !self.sends.is_empty()
    }

    /// Returns address and length of the own contribution to a fold, if it is a separate stream.
    pub fn contribution(&self) -> Option<(u64, u64)> {
        let reduced = self.reduced.filter(|_| !self.own_is_sent())?;
        reduced.own.map(|address| (address, reduced.bytes))
    }
}
