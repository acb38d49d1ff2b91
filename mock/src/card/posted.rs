//! Register writes that a card has accepted and that have not acted.

use std::collections::VecDeque;

/// A write of an aligned 32-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) bar: u8,
    pub(crate) offset: u64,
    pub(crate) value: u32,
}

/// Pending writes, in order. A write is numbered by how many came before it.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    writes: VecDeque<Write>,
    /// Number of the first.
    first: u64,
}

impl Posted {
    /// Adds a write, and returns its number.
    pub(crate) fn push(&mut self, write: Write) -> u64 {
        self.writes.push_back(write);
        self.first + self.writes.len() as u64 - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Removes and returns the first write.
    pub(crate) fn take(&mut self) -> Option<Write> {
        let write = self.writes.pop_front()?;
        self.first += 1;
        Some(write)
    }

    /// Removes and returns the first write, if its number is at most `last`.
    pub(crate) fn take_up_to(&mut self, last: u64) -> Option<Write> {
        if self.first <= last { self.take() } else { None }
    }

    /// Drops all writes. They keep their numbers.
    pub(crate) fn clear(&mut self) {
        self.first += self.writes.len() as u64;
        self.writes.clear();
    }
}
