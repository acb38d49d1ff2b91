//! The communicator table of a card, as in the switch of MPI-FPGA (sections 3.1 to 3.3).
//!
//! An [`Entry`] stores the size, the own rank, and the nodes of the ranks that differ from the own rank in one bit: at most
//! log2(size) peers. Binomial trees from any root, recursive doubling and recursive halving need no others
//! (`tests/communicator_table.rs` derives all three from an entry). A [`Table`] packs entries into as many bits as the paper gives.
//!
//! In the paper, the switch finds the partner of each step in the entry. Instructions name root and peer, which may be any member,
//! so a card also stores the list of all members; it uses only id and own rank of the entry.
//!
//! ```
//! use cmdseq::communicator::ContextId;
//! use fpga_mock::communicator_table::{Entry, Format, Table};
//!
//! // Rank 5 of the 8 odd nodes.
//! let entry = Entry::new(ContextId::new(3, 0).unwrap(), 8, 5, |rank| 2 * rank as u16 + 1).unwrap();
//! assert!(entry.peers().map(|peer| peer.rank).eq([4, 7, 1]));
//! assert!(entry.peers().map(|peer| peer.node).eq([9, 15, 3]));
//!
//! let mut table = Table::new(Format::PUBLISHED);
//! table.insert(&entry).unwrap();
//! assert_eq!(table.get(entry.id()), Some(entry));
//! ```

use cmdseq::communicator::{ContextId, GENERATIONS, INDICES};

/// Bits of an entry for the generation.
const GENERATION_BITS: u32 = GENERATIONS.ilog2();
/// Steps of the largest communicator, which has 2^16 ranks.
const STEPS_MAX: usize = 16;
/// Fields of an entry as wide as a rank, besides the peers: size and own rank.
const RANK_FIELDS: u32 = 2;

/// A rank whose node an entry stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its rank in the communicator.
    pub rank: u32,
    /// Its node in the fabric.
    pub node: u16,
}

/// Why an entry is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The number of ranks is out of range.
    #[error("invalid communicator size {0}: expected 1 to 65536 ranks")]
    Size(u32),
    /// The communicator has no such rank.
    #[error("no rank {rank} in a communicator of {size} ranks")]
    Rank {
        /// The rank.
        rank: u32,
        /// Ranks of the communicator.
        size: u32,
    },
}

/// A communicator in the table of one member card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    id: ContextId,
    size: u32,
    own_rank: u32,
    /// The node of rank `own_rank ^ 1 << step`; 0 if there is none.
    nodes: [u16; STEPS_MAX],
}

impl Entry {
    /// Returns the entry of rank `own_rank` of a communicator of `size` ranks; `node_of` maps ranks to nodes.
    ///
    /// # Errors
    /// [`EntryError`].
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

    /// Returns the id of the communicator.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the rank of this card.
    pub fn own_rank(&self) -> u32 {
        self.own_rank
    }

    /// Returns the peers, nearest first.
    pub fn peers(&self) -> impl DoubleEndedIterator<Item = Peer> + '_ {
        (0..STEPS_MAX as u32).filter_map(|step| self.peer(step))
    }

    /// Returns the rank that differs from the own rank in bit `step`, if it exists.
    pub fn peer(&self, step: u32) -> Option<Peer> {
        self.rank_at(step).map(|rank| Peer { rank, node: self.nodes[step as usize] })
    }

    fn rank_at(&self, step: u32) -> Option<u32> {
        let bit = 1u32.checked_shl(step).filter(|_| step < STEPS_MAX as u32)?;
        Some(self.own_rank ^ bit).filter(|rank| *rank < self.size)
    }
}

/// The size of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Bits of a rank: log2 of the ranks a communicator may have, 1 to 16.
    pub rank_bits: u32,
    /// Entries, 1 to [`INDICES`].
    pub entries: u32,
}

impl Format {
    /// As published: 64 K ranks and 32 communicators (section 3.1).
    pub const PUBLISHED: Format = Format { rank_bits: 16, entries: 32 };

    /// Bits of one entry: generation, size, own rank, and one node for each bit of a rank.
    pub const fn entry_bits(self) -> u32 {
        GENERATION_BITS + (RANK_FIELDS + self.rank_bits) * self.rank_bits
    }

    /// Bits of the table.
    pub const fn bits(self) -> u32 {
        self.entry_bits() * self.entries
    }

    /// Upper limit of ranks of a communicator, and of node numbers.
    pub const fn ranks(self) -> u32 {
        1 << self.rank_bits
    }
}

/// Why a table refuses an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table has no such entry.
    #[error("communicator {id} belongs into entry {}: the table has {entries} entries", id.index())]
    NoEntry {
        /// The id.
        id: ContextId,
        /// Entries of the table.
        entries: u32,
    },
    /// The entry holds another communicator, or one of the same id with other members.
    #[error("communicator {id} belongs into the entry of communicator {occupant}, which must be freed first")]
    Occupied {
        /// The id.
        id: ContextId,
        /// The communicator in the entry.
        occupant: ContextId,
    },
    /// A size or node exceeds the table's fields.
    #[error("communicator {id} is too large: the table allows {ranks} ranks and nodes")]
    TooLarge {
        /// The id.
        id: ContextId,
        /// Ranks and nodes that the table allows.
        ranks: u32,
    },
}

/// The communicators of one card, in memory.
///
/// Entries follow one another without gaps, low bits first: generation (8), size - 1, own rank, then the nodes by step, each of
/// [`Format::rank_bits`]. A free entry has own rank 1 of 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    format: Format,
    bytes: Vec<u8>,
}

impl Table {
    /// Returns an empty table.
    ///
    /// # Panics
    /// If `format` is out of range.
    pub fn new(format: Format) -> Self {
        assert!((1..=STEPS_MAX as u32).contains(&format.rank_bits), "rank_bits is 1 to {STEPS_MAX}");
        assert!((1..=INDICES).contains(&format.entries), "entries is 1 to {INDICES}");
        let mut table = Table { format, bytes: vec![0; format.bits().div_ceil(8) as usize] };
        (0..format.entries).for_each(|index| table.clear(index));
        table
    }

    /// Returns the size.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the packed entries.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the communicator with exactly this id.
    pub fn get(&self, id: ContextId) -> Option<Entry> {
        self.occupant(id.index()).filter(|entry| entry.id == id)
    }

    /// Returns the communicator in entry `index`.
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

    /// Inserts `entry`. Inserting it again changes nothing.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn insert(&mut self, entry: &Entry) -> Result<(), TableError> {
        let Format { rank_bits, entries } = self.format;
        let (id, ranks) = (entry.id, self.format.ranks());
        if id.index() >= entries {
            return Err(TableError::NoEntry { id, entries });
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

    /// Removes the communicator with exactly this id. Returns whether it was present.
    pub fn remove(&mut self, id: ContextId) -> bool {
        let is_there = self.get(id).is_some();
        if is_there {
            self.clear(id.index());
        }
        is_there
    }

    /// Writes an own rank beyond the size, which no communicator has.
    fn clear(&mut self, index: u32) {
        self.set_field(index, Field::Size, 0);
        self.set_field(index, Field::OwnRank, 1);
    }

    /// Returns the first bit of a field, and its width.
    fn bits_of(&self, index: u32, field: Field) -> (u32, u32) {
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
        let (first, width) = self.bits_of(index, field);
        let start = (first / 8) as usize;
        // A field has at most 16 bits, so it spans at most three bytes.
        let bytes = (0..3).map(|byte| u32::from(self.bytes.get(start + byte).copied().unwrap_or(0)) << (8 * byte));
        bytes.sum::<u32>() >> (first % 8) & ((1 << width) - 1)
    }

    fn set_field(&mut self, index: u32, field: Field, value: u32) {
        let (first, width) = self.bits_of(index, field);
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
