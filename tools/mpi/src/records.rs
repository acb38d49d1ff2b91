//! What is known of each communicator of the program.
//!
//! A communicator has the number of its record as an attribute: so a duplicate, or another communicator that gets the same handle
//! later, has none, and a communicator that is freed takes its record along.

use std::collections::HashMap;

use crate::engine::Registered;
use crate::foreign::Word;
use crate::mpi::Comm;
use crate::settings::Policy;
use crate::shape::Reason;
use crate::statistics::Name;
use crate::team::Team;
use crate::verdicts::Verdicts;

/// One communicator.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) comm: Comm,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) name: Name,
    /// Which of its calls go to the cards.
    pub(crate) policy: Policy,
    /// What was measured, with [`Policy::Auto`].
    pub(crate) verdicts: Verdicts,
    /// Its counterpart on the cards, or why it has none.
    pub(crate) cards: Result<Cards, Reason>,
}

/// What this rank has of a communicator on the cards.
#[derive(Debug)]
pub(crate) enum Cards {
    /// Each rank has a card.
    Own(Registered),
    /// Ranks share cards. A leader has a communicator on its card, that of all leaders.
    Shared(Option<Registered>, Team),
}

/// Stands for a record that could not be made. Records have numbers above.
pub(crate) const NO_RECORD: Word = 0;

/// The records, by number.
#[derive(Debug, Default)]
pub(crate) struct Records {
    next: Word,
    records: HashMap<Word, Record>,
}

impl Records {
    /// Adds a record, and returns its number.
    pub(crate) fn add(&mut self, record: Record) -> Word {
        self.next += 1;
        self.records.insert(self.next, record);
        self.next
    }

    /// Puts back a record that was removed.
    pub(crate) fn put(&mut self, number: Word, record: Record) {
        self.records.insert(number, record);
    }

    pub(crate) fn remove(&mut self, number: Word) -> Option<Record> {
        self.records.remove(&number)
    }
}
