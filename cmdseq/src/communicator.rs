//! Ids of communicators: an entry of the cards' tables, and a generation.

use std::fmt;

use crate::instruction::WORLD;

/// Bits of an id for the index of the table entry.
const INDEX_BITS: u32 = 5;
/// Bits of an id for the generation, which distinguishes successive communicators of one table entry.
const GENERATION_BITS: u32 = 8;
/// Generations of one table entry. An allocator of ids never reuses one on a card before the card's reset.
pub const GENERATIONS: u32 = 1 << GENERATION_BITS;
/// Table entries that an id can name.
pub const INDICES: u32 = 1 << INDEX_BITS;

/// The id of a communicator in an instruction: bits 4:0 are the index of the table entry, bits 12:5 the generation, the
/// rest is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(u16);

impl ContextId {
    /// All cards of the fabric.
    pub const WORLD: ContextId = ContextId(WORLD);

    /// Returns the id of table entry `index` and `generation`; `None` if one of them is too large.
    pub const fn new(index: u32, generation: u32) -> Option<Self> {
        if index < INDICES && generation < GENERATIONS {
            return Some(ContextId((generation << INDEX_BITS | index) as u16));
        }
        None
    }

    /// Reads the field of an instruction; `None` if no communicator can have this id.
    pub const fn from_raw(id: u16) -> Option<Self> {
        ContextId::new(id as u32 % INDICES, id as u32 / INDICES)
    }

    /// Returns the field of an instruction.
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Returns the index of the table entry.
    pub const fn index(self) -> u32 {
        self.0 as u32 % INDICES
    }

    /// Returns the generation.
    pub const fn generation(self) -> u32 {
        self.0 as u32 / INDICES
    }
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
