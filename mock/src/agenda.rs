//! The queue of future events, in order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A moment of the fabric's time: picoseconds since the fabric was made.
///
/// 64 bits would end after seven months of virtual time, which one client spends in 56 000 instructions. An event is at
/// most about 2^87 picoseconds ahead (a stream of 2^64 bytes at one megabit a second), and most are below 2^49: 128 bits
/// outlast 2^41 of the longest events and 2^79 of the others, so sums of times do not overflow.
pub(crate) type Time = u128;

/// Entries by time; entries of one instant in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    /// The earliest entry. A sequencer that runs alone adds its next event and takes it at once: this needs no heap.
    first: Option<Entry<T>>,
    rest: BinaryHeap<Entry<T>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    order: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Agenda { first: None, rest: BinaryHeap::new(), added: 0 }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn add(&mut self, at: Time, what: T) {
        self.added += 1;
        let entry = Entry { at, order: self.added, what };
        // An entry just added comes after all that are there for the same time.
        if self.next_at().is_none_or(|next| at < next) {
            if let Some(later) = self.first.replace(entry) {
                self.rest.push(later);
            }
        } else {
            self.rest.push(entry);
        }
    }

    /// Returns the time of the first entry.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.first.as_ref().or_else(|| self.rest.peek()).map(|entry| entry.at)
    }

    /// Removes and returns the first entry.
    pub(crate) fn take(&mut self) -> Option<(Time, T)> {
        self.first.take().or_else(|| self.rest.pop()).map(|entry| (entry.at, entry.what))
    }
}

impl<T> Entry<T> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its largest: the earliest must be that.
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_by_time_and_then_by_order() {
        let mut agenda = Agenda::default();
        for (number, at) in [5, 3, 3, 9, 1, 3, 1].into_iter().enumerate() {
            agenda.add(at, number);
        }
        assert_eq!(agenda.take(), Some((1, 4)));
        agenda.add(1, 7);
        agenda.add(0, 8);
        let rest: Vec<_> = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(rest, [(0, 8), (1, 6), (1, 7), (3, 1), (3, 2), (3, 5), (5, 0), (9, 3)]);
    }
}
