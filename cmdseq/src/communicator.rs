//! The table of communicators on a card, as the switch of MPI-FPGA has it (sections 3.1 to 3.3).
//!
//! An [`Entry`] does not say who all the members of a communicator are. It has size, own rank, and the nodes of
//! the ranks that a card talks to in binomial trees, recursive doubling and recursive halving. These are the ranks that differ
//! from its own in one bit, at most log2(size) of them, whatever the root and however often the communicator is used. A
//! [`Table`] packs entries into as many bits as the paper gives.
//!
//! In the paper the switch finds the partner of each step in the entry. The instructions of this set name root and peer
//! themselves, any member of the communicator, and so a card keeps the list of all members beside its table; of the entry
//! they use the id and the own rank. The peers are what a switch needs that runs trees by itself, and no operation here
//! does: [`Entry::tree`], [`Entry::doubling`] and [`Entry::halving`] show that they are enough for it.
//!
//! ```
//! use cmdseq::communicator::{ContextId, Entry, Format, Table};
//!
//! // Rank 5 of the 8 odd nodes.
//! let entry = Entry::new(ContextId::new(3, 0).unwrap(), 8, 5, |rank| 2 * rank as u16 + 1).unwrap();
//! assert!(entry.peers().map(|peer| peer.rank).eq([4, 7, 1]));
//! assert!(entry.peers().map(|peer| peer.node).eq([9, 15, 3]));
//! assert_eq!(entry.tree(4).unwrap().parent.unwrap().rank, 4);
//!
//! let mut table = Table::new(Format::PUBLISHED);
//! table.insert(&entry).unwrap();
//! assert_eq!(table.get(entry.id()), Some(entry));
//! ```
//!
//! The trees here are those of ranks whose difference is counted in bits: the parent of a rank has one bit of `rank ^ root`
//! less. A tree that is turned by its root instead, as MPICH counts, `(rank - root) mod size`, has its partners at distances
//! of powers of two in both directions. Those are the same set only for root 0, so such a tree cannot be run from an entry.

use std::fmt;

use crate::instruction::WORLD;

/// Bits of a communicator's id that say where in the table it is.
pub const INDEX_BITS: u32 = 5;
/// Bits of a communicator's id that tell it from those that were in the same place before it.
pub const GENERATION_BITS: u32 = 8;
/// Generations of one place in the table. Who gives ids out gives a card none of them twice before its reset.
pub const GENERATIONS: u32 = 1 << GENERATION_BITS;
/// Places that an id can name.
pub const INDICES: u32 = 1 << INDEX_BITS;
/// Steps of the largest communicator, which has 2^16 ranks.
const STEPS_MAX: usize = 16;
/// Fields of an entry as wide as a rank, besides the peers: size and own rank.
const RANK_FIELDS: u32 = 2;

/// The id of a communicator as an instruction names it: bits 4:0 are the place in the table, 12:5 the generation, and the
/// rest is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(u16);

impl ContextId {
    /// All cards of the fabric.
    pub const WORLD: ContextId = ContextId(WORLD);

    /// The id of generation `generation` in place `index`; `None` if one of them is too large.
    pub const fn new(index: u32, generation: u32) -> Option<Self> {
        if index < INDICES && generation < GENERATIONS {
            return Some(ContextId((generation << INDEX_BITS | index) as u16));
        }
        None
    }

    /// What an instruction says; `None` if no communicator can have that id.
    pub const fn from_raw(id: u16) -> Option<Self> {
        ContextId::new(id as u32 % INDICES, id as u32 / INDICES)
    }

    /// As an instruction says it.
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Place in the table.
    pub const fn index(self) -> u32 {
        self.0 as u32 % INDICES
    }

    /// Which of those that had the place.
    pub const fn generation(self) -> u32 {
        self.0 as u32 / INDICES
    }
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A rank that a card talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its rank in the communicator.
    pub rank: u32,
    /// Where it is in the fabric.
    pub node: u16,
}

/// Why there can be no such entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Too few or too many ranks.
    #[error("a communicator has 1 to 65536 ranks, not {0}")]
    Size(u32),
    /// A rank that it does not have.
    #[error("there is no rank {rank} in a communicator of {size}")]
    Rank {
        /// The rank.
        rank: u32,
        /// Ranks there are.
        size: u32,
    },
}

/// What a card keeps of a communicator it is a member of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    id: ContextId,
    size: u32,
    own_rank: u32,
    /// The node of rank `own_rank ^ 1 << step`; 0 if there is none.
    nodes: [u16; STEPS_MAX],
}

impl Entry {
    /// The entry of rank `own_rank` of a communicator of `size` ranks; `node_of` says where a rank is.
    ///
    /// # Errors
    /// If there is no such communicator, or no such rank in it.
    pub fn new(
        id: ContextId,
        size: u32,
        own_rank: u32,
        mut node_of: impl FnMut(u32) -> u16,
    ) -> Result<Self, EntryError> {
        if size == 0 || size > 1 << STEPS_MAX {
            return Err(EntryError::Size(size));
        }
        if own_rank >= size {
            return Err(EntryError::Rank { rank: own_rank, size });
        }
        let mut entry = Entry { id, size, own_rank, nodes: [0; STEPS_MAX] };
        for step in 0..STEPS_MAX {
            if let Some(rank) = entry.rank_at(step as u32) {
                entry.nodes[step] = node_of(rank);
            }
        }
        Ok(entry)
    }

    /// The id of the communicator.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// Its ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// This card's rank in it.
    pub fn own_rank(&self) -> u32 {
        self.own_rank
    }

    /// Everyone it talks to, nearest first.
    pub fn peers(&self) -> impl DoubleEndedIterator<Item = Peer> + '_ {
        (0..STEPS_MAX as u32).filter_map(|step| self.peer(step))
    }

    /// The rank that differs from the own one in bit `step`, if there is one.
    pub fn peer(&self, step: u32) -> Option<Peer> {
        self.rank_at(step).map(|rank| Peer { rank, node: self.nodes[step as usize] })
    }

    fn rank_at(&self, step: u32) -> Option<u32> {
        let bit = 1u32.checked_shl(step).filter(|_| step < STEPS_MAX as u32)?;
        Some(self.own_rank ^ bit).filter(|rank| *rank < self.size)
    }

    /// Whom it exchanges with in recursive doubling, in order: half of what is done is at the other side each time. None
    /// if the rank is one of those [beyond](Entry::is_beyond) the largest power of two.
    pub fn doubling(&self) -> impl DoubleEndedIterator<Item = Peer> + '_ {
        let steps = if self.is_beyond() { 0 } else { self.size.ilog2() };
        (0..steps).filter_map(|step| self.peer(step))
    }

    /// Whom it exchanges with in recursive halving, in order: farthest first.
    pub fn halving(&self) -> impl DoubleEndedIterator<Item = Peer> + '_ {
        self.doubling().rev()
    }

    /// Whether this rank lies beyond the largest power of two that fits the size. Such ranks hand what they have to their
    /// [companion](Entry::companion) before doubling or halving, and get the result from it.
    pub fn is_beyond(&self) -> bool {
        self.own_rank >= 1 << self.size.ilog2()
    }

    /// Of a rank [beyond](Entry::is_beyond) the largest power of two the one that takes part for it; and the reverse.
    pub fn companion(&self) -> Option<Peer> {
        self.peer(self.size.ilog2())
    }

    /// Its place in the binomial tree from `root`, of any size that is not a power of two what is left of the tree of the
    /// next.
    ///
    /// Bits that the root does not have are cleared on the way to it, lowest first, and then those are set that it has: so
    /// no rank on the way is larger than both ends, and every one of them exists.
    ///
    /// # Errors
    /// If there is no such rank.
    pub fn tree(&self, root: u32) -> Result<Tree, EntryError> {
        if root >= self.size {
            return Err(EntryError::Rank { rank: root, size: self.size });
        }
        // Steps in the order in which they are taken toward the root.
        let (cleared, set): (Vec<u32>, Vec<u32>) = (0..STEPS_MAX as u32).partition(|step| root >> step & 1 == 0);
        let order: Vec<u32> = cleared.into_iter().chain(set).collect();
        let differs = self.own_rank ^ root;
        let first = order.iter().position(|step| differs >> step & 1 == 1).unwrap_or(order.len());
        Ok(Tree {
            parent: order.get(first).and_then(|step| self.peer(*step)),
            children: order[..first].iter().rev().filter_map(|step| self.peer(*step)).collect(),
        })
    }
}

/// The neighbours of a rank in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The rank toward the root; none at the root.
    pub parent: Option<Peer>,
    /// The ranks away from the root, the one with most ranks behind it first.
    pub children: Vec<Peer>,
}

/// How large a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Bits of a rank: log2 of the ranks a communicator may have, 1 to 16.
    pub rank_bits: u32,
    /// Communicators at a time, 1 to [`INDICES`].
    pub entries: u32,
}

impl Format {
    /// As published: 64 K ranks and 32 communicators (section 3.1).
    pub const PUBLISHED: Format = Format { rank_bits: 16, entries: 32 };

    /// Bits of one entry: generation, size, own rank, and a node for each step.
    pub const fn entry_bits(self) -> u32 {
        GENERATION_BITS + (RANK_FIELDS + self.rank_bits) * self.rank_bits
    }

    /// Bits of the table.
    pub const fn bits(self) -> u32 {
        self.entry_bits() * self.entries
    }

    /// Ranks a communicator may have, and nodes they may be on.
    pub const fn ranks(self) -> u32 {
        1 << self.rank_bits
    }
}

/// Why an entry was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table has no such place.
    #[error("communicator {id} would be entry {}, and the table has {entries}", id.index())]
    NoPlace {
        /// The id.
        id: ContextId,
        /// Entries of the table.
        entries: u32,
    },
    /// Another communicator is in the place, or one of the same id that is not the same.
    #[error("communicator {id} would be where communicator {occupant} is")]
    Occupied {
        /// The id.
        id: ContextId,
        /// What is there.
        occupant: ContextId,
    },
    /// The ranks or nodes are more than its fields hold.
    #[error("communicator {id} does not fit: the table is for {ranks} ranks")]
    TooLarge {
        /// The id.
        id: ContextId,
        /// Ranks and nodes that it is for.
        ranks: u32,
    },
}

/// The communicators of one card, packed.
///
/// Entry by entry without a gap, low bits first: generation (8), size - 1, own rank, then the nodes by step, each of
/// [`Format::rank_bits`]. An entry that is free has own rank 1 of 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    format: Format,
    bytes: Vec<u8>,
}

impl Table {
    /// A table without communicators.
    ///
    /// # Panics
    /// If there can be no such table.
    pub fn new(format: Format) -> Self {
        assert!((1..=STEPS_MAX as u32).contains(&format.rank_bits), "ranks have 1 to {STEPS_MAX} bits");
        assert!((1..=INDICES).contains(&format.entries), "a table has 1 to {INDICES} entries");
        let mut table = Table { format, bytes: vec![0; format.bits().div_ceil(8) as usize] };
        (0..format.entries).for_each(|index| table.clear(index));
        table
    }

    /// How large it is.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its memory.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The communicator of exactly this id.
    pub fn get(&self, id: ContextId) -> Option<Entry> {
        self.occupant(id.index()).filter(|entry| entry.id == id)
    }

    /// What is in place `index`.
    pub fn occupant(&self, index: u32) -> Option<Entry> {
        if index >= self.format.entries {
            return None;
        }
        let id = ContextId::new(index, self.field(index, Field::Generation))?;
        let (size, own_rank) = (self.field(index, Field::Size) + 1, self.field(index, Field::OwnRank));
        Entry::new(id, size, own_rank, |_| 0).ok().map(|mut entry| {
            for (step, node) in (0..self.format.rank_bits).zip(&mut entry.nodes) {
                *node = self.field(index, Field::Node(step)) as u16;
            }
            entry
        })
    }

    /// Takes `entry`. The same once more changes nothing.
    ///
    /// # Errors
    /// If its place is taken, or there is none that holds it.
    pub fn insert(&mut self, entry: &Entry) -> Result<(), TableError> {
        let Format { rank_bits, entries } = self.format;
        let (id, ranks) = (entry.id, self.format.ranks());
        if id.index() >= entries {
            return Err(TableError::NoPlace { id, entries });
        }
        if entry.size > ranks || entry.nodes.iter().any(|node| u32::from(*node) >= ranks) {
            return Err(TableError::TooLarge { id, ranks });
        }
        match self.occupant(id.index()) {
            Some(occupant) if occupant == *entry => return Ok(()),
            Some(occupant) => return Err(TableError::Occupied { id, occupant: occupant.id }),
            None => {}
        }
        self.set_field(id.index(), Field::Generation, id.generation());
        self.set_field(id.index(), Field::Size, entry.size - 1);
        self.set_field(id.index(), Field::OwnRank, entry.own_rank);
        for (step, node) in (0..rank_bits).zip(entry.nodes) {
            self.set_field(id.index(), Field::Node(step), node.into());
        }
        Ok(())
    }

    /// Forgets the communicator of exactly this id. Says whether it was there.
    pub fn remove(&mut self, id: ContextId) -> bool {
        let is_there = self.get(id).is_some();
        if is_there {
            self.clear(id.index());
        }
        is_there
    }

    /// An own rank that the size does not have: no communicator is like that.
    fn clear(&mut self, index: u32) {
        self.set_field(index, Field::Size, 0);
        self.set_field(index, Field::OwnRank, 1);
    }

    /// First bit of a field, and its width.
    fn place(&self, index: u32, field: Field) -> (u32, u32) {
        let width = self.format.rank_bits;
        let (at, width) = match field {
            Field::Generation => (0, GENERATION_BITS),
            Field::Size => (GENERATION_BITS, width),
            Field::OwnRank => (GENERATION_BITS + width, width),
            Field::Node(step) => (GENERATION_BITS + (RANK_FIELDS + step) * width, width),
        };
        (index * self.format.entry_bits() + at, width)
    }

    fn field(&self, index: u32, field: Field) -> u32 {
        let (first, width) = self.place(index, field);
        let start = (first / 8) as usize;
        // Fields have 16 bits at most, and so lie in three bytes.
        let bytes = (0..3).map(|place| u32::from(self.bytes.get(start + place).copied().unwrap_or(0)) << (8 * place));
        bytes.sum::<u32>() >> (first % 8) & ((1 << width) - 1)
    }

    fn set_field(&mut self, index: u32, field: Field, value: u32) {
        let (first, width) = self.place(index, field);
        let mask = ((1u32 << width) - 1) << (first % 8);
        let bits = value << (first % 8) & mask;
        let bytes = self.bytes[(first / 8) as usize..].iter_mut();
        for ((byte, mask), bits) in bytes.zip(mask.to_le_bytes()).zip(bits.to_le_bytes()) {
            *byte = *byte & !mask | bits;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Generation,
    Size,
    OwnRank,
    Node(u32),
}
