//! Which id a new communicator has: one that is free on all cards that it is to be on.

use cmdseq::communicator::ContextId;
use serde::{Deserialize, Serialize};

use crate::card::communicator_table::Spent;

/// An entry of the cards' tables that a new communicator may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FreeEntry {
    /// When what has to make room was used last; 0 if nothing has to.
    pub(crate) used: u64,
    /// Ids of the entry that were given.
    pub(crate) spent: u32,
}

/// What the cards of one process, or of all, can take.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// By index; none for an entry that is held.
    pub(crate) entries: Vec<Option<FreeEntry>>,
    /// Ids that were given, without those that come back when a plan's communicator makes room.
    pub(crate) spent: Spent,
}

/// Why there is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoEntry {
    /// No entry is free on all cards.
    Full,
    /// Of those that are, every id was given before.
    Spent,
}

impl Offer {
    /// Restricts the offer to what `other` offers too.
    pub(crate) fn and(&mut self, other: &Offer) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let both = entry.zip(other.entries.get(index).copied().flatten());
            *entry = both
                .map(|(one, other)| FreeEntry { used: one.used.max(other.used), spent: one.spent.max(other.spent) });
        }
        self.spent.add_all(&other.spent);
    }

    /// The first id left of the entry in which something was used longest ago, or nothing; of several, the one with most ids left.
    pub(crate) fn choose(&self, generations: u32) -> Result<ContextId, NoEntry> {
        if self.entries.iter().all(Option::is_none) {
            return Err(NoEntry::Full);
        }
        let fitting = (0..).zip(&self.entries).filter_map(|(index, entry)| {
            let entry = (*entry)?;
            Some((entry.used, entry.spent, self.spent.first_left(index, generations)?))
        });
        fitting.min_by_key(|(used, spent, id)| (*used, *spent, id.index())).map(|(.., id)| id).ok_or(NoEntry::Spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(entries: &[Option<(u64, u32)>], spent: &[u16]) -> Offer {
        let entry = |one: &Option<(u64, u32)>| one.map(|(used, spent)| FreeEntry { used, spent });
        let mut all = Spent::default();
        spent.iter().for_each(|id| all.add(ContextId::from_raw(*id).unwrap()));
        Offer { entries: entries.iter().map(entry).collect(), spent: all }
    }

    #[test]
    fn an_id_is_free_on_all_cards() {
        let mut one = offer(&[None, Some((0, 1)), Some((0, 1)), None], &[1, 2]);
        assert_eq!(one.choose(256).unwrap().raw(), 33);
        one.and(&offer(&[None, None, Some((0, 2)), Some((0, 0))], &[34]));
        assert_eq!(one.choose(256).unwrap().raw(), 66);
        assert_eq!(one.choose(2), Err(NoEntry::Spent));
        one.and(&offer(&[None; 4], &[]));
        assert_eq!(one.choose(256), Err(NoEntry::Full));
    }
}
