//! Which id a new communicator has: one that is free on all cards that it is to be on.

use cmdseq::communicator::{ContextId, GENERATIONS};

use crate::card::communicator_table::Spent;
use crate::peers::message::{Message, Received};

/// An entry of the cards' tables that a new communicator may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When what has to make room was used last; 0 if nothing has to.
    pub(crate) used: u64,
    /// Ids of the entry that were given.
    pub(crate) spent: u32,
}

/// What the cards of one process, or of all, can take.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    /// By index; none for an entry that is held.
    pub(crate) entries: Vec<Option<Entry>>,
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
            *entry =
                both.map(|(one, other)| Entry { used: one.used.max(other.used), spent: one.spent.max(other.spent) });
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

    pub(crate) fn write(&self, message: &mut Message) {
        message.list(&self.entries, |message, entry| match entry {
            None => {
                message.u8(0);
            }
            Some(Entry { used, spent }) => {
                message.u8(1).u64(*used).u32(*spent);
            }
        });
        message.list(self.spent.words(), |message, word| {
            message.u64(*word);
        });
    }

    pub(crate) fn read(received: &mut Received<'_>) -> Option<Self> {
        let entries = received.list(|one| match one.u8()? {
            0 => Some(None),
            1 => Some(Some(Entry { used: one.u64()?, spent: one.u32().filter(|spent| *spent <= GENERATIONS)? })),
            _ => None,
        })?;
        Some(Offer { entries, spent: Spent::of_words(&received.list(Received::u64)?)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(entries: &[Option<(u64, u32)>], spent: &[u16]) -> Offer {
        let entry = |one: &Option<(u64, u32)>| one.map(|(used, spent)| Entry { used, spent });
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

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        let sent = offer(&[None, Some((7, 3))], &[1, 33, 8191]);
        let mut message = Message::default();
        sent.write(&mut message);
        let bytes = message.into_bytes();
        let mut received = Received(&bytes);
        let read = Offer::read(&mut received).unwrap();
        assert_eq!((read.entries, read.spent.words()), (sent.entries, sent.spent.words()));
        assert_eq!(received.end(), Some(()));
    }
}
