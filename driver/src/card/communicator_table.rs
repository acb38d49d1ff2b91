//! What the host knows of a card's communicator table. No I/O.

use std::sync::Arc;

use cmdseq::communicator::{ContextId, GENERATIONS, INDICES};

/// Nodes by rank.
pub(crate) type Members = Arc<[u32]>;

/// What is in an entry of a card's table, as far as the host knows.
#[derive(Debug, Clone)]
pub(crate) struct Defined {
    pub(crate) id: ContextId,
    pub(crate) members: Members,
    /// The card has said so; otherwise it may also be that the entry is free.
    pub(crate) is_certain: bool,
}

/// The entries of a card's table; a reset frees them all.
pub(crate) type Entries = [Option<Defined>; INDICES as usize];

/// Which generations of each entry someone may still name: those that a card was given since its reset.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Spent([[u64; GENERATIONS as usize / 64]; INDICES as usize]);

impl Spent {
    /// Word and bit of an id.
    fn at(id: ContextId) -> (usize, usize, u64) {
        let generation = id.generation() as usize;
        (id.index() as usize, generation / 64, 1 << (generation % 64))
    }

    pub(crate) fn add(&mut self, id: ContextId) {
        let (entry, word, bit) = Spent::at(id);
        self.0[entry][word] |= bit;
    }

    pub(crate) fn remove(&mut self, id: ContextId) {
        let (entry, word, bit) = Spent::at(id);
        self.0[entry][word] &= !bit;
    }

    pub(crate) fn add_all(&mut self, other: &Spent) {
        let words = self.0.iter_mut().flatten().zip(other.0.iter().flatten());
        words.for_each(|(word, more)| *word |= more);
    }

    /// How many of an entry are.
    pub(crate) fn count(&self, entry: u32) -> u32 {
        self.0[entry as usize].iter().map(|word| word.count_ones()).sum()
    }

    /// The first of `generations` that is not.
    pub(crate) fn first_left(&self, entry: u32, generations: u32) -> Option<ContextId> {
        let ids = (0..generations).filter_map(|generation| ContextId::new(entry, generation));
        // A card that knows but one id of an entry has no other to tell it from.
        ids.into_iter().find(|id| {
            let (entry, word, bit) = Spent::at(*id);
            generations == 1 || self.0[entry][word] & bit == 0
        })
    }
}
