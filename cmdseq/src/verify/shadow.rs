//! Shadow of one card's memory: its uses so far, to find those that are not ordered with a new use.
//!
//! A map of ranges has the last writer of each byte; reads are stored whole, so that overlapping reads do not split each other.
//! Uses that every rank knows to have ended are dropped: a clock that includes an instruction includes all that its rank knew.

use std::collections::BTreeMap;

use super::order::Clocks;
use crate::ranges::Range;

/// A use of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) rank: usize,
    pub(super) index: usize,
    pub(super) is_write: bool,
}

/// An earlier use that is not ordered with a new one.
pub(super) struct Conflict {
    pub(super) earlier: Use,
    /// The first common byte.
    pub(super) address: u64,
}

/// Returns the conflict with the lower address.
fn first_of(one: Option<Conflict>, other: Option<Conflict>) -> Option<Conflict> {
    one.into_iter().chain(other).min_by_key(|conflict| conflict.address)
}

/// The last write of a range.
#[derive(Debug, Clone, Copy)]
struct Write {
    end: u64,
    rank: usize,
    index: usize,
}

/// A read, ordered for the search of reads that overlap a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Read {
    /// Binary logarithm of its length, rounded down.
    class: u32,
    start: u64,
    end: u64,
    rank: usize,
}

#[derive(Debug, Default)]
pub(super) struct Shadow {
    /// Bounds of all accesses by other cards.
    pub(super) touched: Option<Range>,
    /// By first address.
    writes: BTreeMap<u64, Write>,
    /// The last instruction of each read.
    reads: BTreeMap<Read, usize>,
    /// Bit set of the classes of all reads.
    classes: u64,
    /// Reads that are not in `reads` yet: they are added when a write comes near them.
    unsorted: Vec<(Range, Use)>,
    /// Their bounds.
    unsorted_bounds: Option<Range>,
    /// Ranges added or compared since the last drop.
    work: usize,
    /// The same before the last drop.
    past_work: usize,
    /// Reads inside of the current write.
    covered: Vec<Read>,
}

impl Shadow {
    /// Records a use of `range`; returns its first conflict with an earlier use.
    pub(super) fn add(&mut self, range: Range, now: Use, clocks: &Clocks) -> Option<Conflict> {
        if range.bytes == 0 {
            return None;
        }
        let write = self.conflicting_write(range, now, clocks);
        let read = if now.is_write { self.conflicting_read(range, now, clocks) } else { None };
        if write.is_some() || read.is_some() {
            return first_of(write, read);
        }
        if now.is_write {
            self.write(range, now);
        } else {
            self.unsorted.push((range, now));
            let bounds = self.unsorted_bounds.get_or_insert(range);
            *bounds = bounds.hull(range);
        }
        self.drop_ended(clocks);
        None
    }

    /// Returns the number of ranges added or compared.
    pub(super) fn compared(&self) -> u64 {
        (self.past_work + self.work) as u64
    }

    /// Returns the first conflict of `now` with the last writes of `range`.
    fn conflicting_write(&mut self, range: Range, now: Use, clocks: &Clocks) -> Option<Conflict> {
        let before = self.writes.range(..range.address).next_back().filter(|(_, write)| write.end > range.address);
        let from = before.map_or(range.address, |(start, _)| *start);
        for (start, write) in self.writes.range(from..range.end()) {
            self.work += 1;
            if !clocks.is_over(write.rank, write.index, now.rank) {
                let earlier = Use { rank: write.rank, index: write.index, is_write: true };
                return Some(Conflict { earlier, address: range.address.max(*start) });
            }
        }
        None
    }

    /// Returns the first conflict of the write `now` with reads of `range`. Reads inside of `range` are put into `covered`.
    fn conflicting_read(&mut self, range: Range, now: Use, clocks: &Clocks) -> Option<Conflict> {
        self.sort_reads(range, clocks);
        let mut first: Option<Conflict> = None;
        let mut covered = std::mem::take(&mut self.covered);
        covered.clear();
        let mut classes = self.classes;
        while classes != 0 {
            let class = classes.trailing_zeros();
            classes &= classes - 1;
            // Longest read of this class.
            let longest = (1_u64 << class).saturating_mul(2);
            let from = Read { class, start: range.address.saturating_sub(longest), end: 0, rank: 0 };
            let until = Read { start: range.end(), ..from };
            for (read, index) in self.reads.range(from..until) {
                self.work += 1;
                if read.end <= range.address {
                    continue;
                }
                let address = range.address.max(read.start);
                if !clocks.is_over(read.rank, *index, now.rank) {
                    let earlier = Use { rank: read.rank, index: *index, is_write: false };
                    first = first_of(first, Some(Conflict { earlier, address }));
                } else if read.start >= range.address && read.end <= range.end() {
                    covered.push(*read);
                }
            }
        }
        self.covered = covered;
        first
    }

    /// Adds the unsorted reads to `reads`, if some of them may overlap `range`.
    fn sort_reads(&mut self, range: Range, clocks: &Clocks) {
        if self.unsorted_bounds.take_if(|bounds| bounds.overlaps(range)).is_none() {
            return;
        }
        // Computing the common clock pays for many reads only.
        let floor = if self.unsorted.len() >= clocks.ranks() { clocks.known_to_all() } else { Vec::new() };
        for (range, one) in self.unsorted.drain(..) {
            if floor.get(one.rank).is_some_and(|over| *over as usize > one.index) {
                continue;
            }
            let class = range.bytes.ilog2();
            self.classes |= 1 << class;
            self.reads.insert(Read { class, start: range.address, end: range.end(), rank: one.rank }, one.index);
            self.work += 1;
        }
    }

    /// Makes `now` the last write of `range`, and drops the reads that it covers.
    fn write(&mut self, range: Range, now: Use) {
        let (start, end) = (range.address, range.end());
        self.work += 1;
        for read in self.covered.drain(..) {
            self.reads.remove(&read);
        }
        // Split the write that overlaps the begin.
        if let Some((_, before)) = self.writes.range_mut(..start).next_back() {
            let upper = *before;
            before.end = upper.end.min(start);
            if upper.end > end {
                self.writes.insert(end, upper);
            }
        }
        while let Some((at, write)) = self.writes.range(start..end).next().map(|(at, write)| (*at, *write)) {
            self.writes.remove(&at);
            if write.end > end {
                self.writes.insert(end, write);
            }
        }
        self.writes.insert(start, Write { end, rank: now.rank, index: now.index });
    }

    /// Drops uses that every rank knows to have ended, after as much work as this takes.
    fn drop_ended(&mut self, clocks: &Clocks) {
        let kept = self.writes.len() + self.reads.len();
        if self.work <= 2 * kept + clocks.ranks() * clocks.ranks() {
            return;
        }
        let floor = clocks.known_to_all();
        let is_needed = |rank: usize, index: usize| floor[rank] as usize <= index;
        self.writes.retain(|_, write| is_needed(write.rank, write.index));
        self.reads.retain(|read, index| is_needed(read.rank, *index));
        self.past_work += self.work;
        self.work = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RANKS: usize = 4;
    const BYTES: u64 = 48;

    #[derive(Debug, Clone)]
    enum Step {
        Use { rank: usize, range: Range, is_write: bool },
        Learn { rank: usize, from: usize },
        LearnAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        let range =
            (0..BYTES - 1, 1..BYTES).prop_map(|(address, bytes)| Range { address, bytes: bytes.min(BYTES - address) });
        prop_oneof![
            4 => (0..RANKS, range.clone()).prop_map(|(rank, range)| Step::Use { rank, range, is_write: false }),
            2 => (0..RANKS, range).prop_map(|(rank, range)| Step::Use { rank, range, is_write: true }),
            4 => (0..RANKS, 0..RANKS).prop_map(|(rank, from)| Step::Learn { rank, from }),
            1 => Just(Step::LearnAll),
        ]
    }

    /// Model of one byte: its last write, and the reads since.
    #[derive(Debug, Clone, Default)]
    struct Byte {
        write: Option<Use>,
        reads: Vec<Use>,
    }

    impl Byte {
        fn conflicts(&self, now: Use, clocks: &Clocks) -> Vec<Use> {
            let reads = if now.is_write { &self.reads[..] } else { &[] };
            let is_loose = |one: &&Use| !clocks.is_over(one.rank, one.index, now.rank);
            self.write.iter().chain(reads).filter(is_loose).copied().collect()
        }

        fn note(&mut self, now: Use) {
            if now.is_write {
                *self = Byte { write: Some(now), reads: Vec::new() };
            } else {
                self.reads.push(now);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

        #[test]
        fn uses_conflict_as_those_of_each_byte_do(steps in prop::collection::vec(step(), 1..120)) {
            let (mut clocks, mut shadow) = (Clocks::new(RANKS), Shadow::default());
            let mut bytes = vec![Byte::default(); BYTES as usize];
            let mut next = [0; RANKS];
            for step in steps {
                match step {
                    Step::Learn { rank, from } => {
                        let known = clocks.of(from).to_vec();
                        clocks.learn(rank, &known);
                    }
                    Step::LearnAll => {
                        let known: Vec<Vec<u32>> = (0..RANKS).map(|rank| clocks.of(rank).to_vec()).collect();
                        (0..RANKS).for_each(|rank| known.iter().for_each(|known| clocks.learn(rank, known)));
                    }
                    Step::Use { rank, range, is_write } => {
                        let now = Use { rank, index: next[rank], is_write };
                        let places = range.address..range.end();
                        let conflicts = |at: &u64| bytes[*at as usize].conflicts(now, &clocks);
                        let expected = places.clone().find(|at| !conflicts(at).is_empty());
                        let found = shadow.add(range, now, &clocks);
                        prop_assert_eq!(found.as_ref().map(|one| one.address), expected);
                        if let Some(Conflict { earlier, address }) = found {
                            prop_assert!(conflicts(&address).contains(&earlier), "{:?}", earlier);
                            // The programs go on as if it had not been.
                            continue;
                        }
                        places.for_each(|at| bytes[at as usize].note(now));
                        clocks.end(rank, next[rank]);
                        next[rank] += 1;
                    }
                }
            }
        }
    }

    fn write(rank: usize, index: usize) -> Use {
        Use { rank, index, is_write: true }
    }

    fn range(start: u64, end: u64) -> Range {
        Range { address: start, bytes: end - start }
    }

    #[test]
    fn what_everybody_knows_to_be_over_is_forgotten_when_it_pays() {
        let (mut clocks, mut shadow) = (Clocks::new(3), Shadow::default());
        let mut next = 0;
        // Rank 0 writes, and all others know of it.
        let mut add = |shadow: &mut Shadow, start: u64| {
            assert!(shadow.add(range(start, start + 8), write(0, next), &clocks).is_none());
            clocks.end(0, next);
            (1..3).for_each(|rank| clocks.learn(rank, &[next as u32 + 1, 0, 0]));
            next += 1;
            (shadow.compared(), shadow.writes.len())
        };
        for (written, start) in [0, 100, 200].into_iter().enumerate() {
            assert_eq!(add(&mut shadow, start), (written as u64 + 1, written + 1));
        }
        // Each looks at the write before it and adds its own. Three are kept, of three ranks: up to 2 * 3 + 3 * 3.
        for compared in [5, 7, 9, 11, 13, 15] {
            assert_eq!(add(&mut shadow, 200), (compared, 3));
        }
        assert_eq!(add(&mut shadow, 200), (17, 1), "but for its own, which nobody knows to be over");
        assert_eq!(add(&mut shadow, 200), (19, 1));
        assert_eq!(add(&mut shadow, 0), (20, 2));
    }

    #[test]
    fn reads_wait_until_something_is_written_over_them() {
        let (mut clocks, mut shadow) = (Clocks::new(3), Shadow::default());
        let read = Use { rank: 0, index: 0, is_write: false };
        assert!(shadow.add(range(64, 128), read, &clocks).is_none());
        clocks.end(0, 0);
        clocks.learn(1, &[1, 0, 0]);
        // Ranges that are added or looked at, and reads that are sorted.
        let expected = [((0, 64), (1, 0)), ((128, 192), (2, 0)), ((127, 130), (6, 1))];
        for (index, ((start, end), expected)) in expected.into_iter().enumerate() {
            assert!(shadow.add(range(start, end), write(1, index), &clocks).is_none());
            clocks.end(1, index);
            assert_eq!((shadow.compared(), shadow.reads.len()), expected, "{start}..{end}");
        }
    }

    /// Unless too little waits to ask what everybody knows.
    #[test]
    fn reads_that_everybody_knows_to_be_over_are_not_sorted() {
        let sorted = |others: usize, do_all_know: bool| {
            let (mut clocks, mut shadow) = (Clocks::new(3), Shadow::default());
            let read = Use { rank: 0, index: 0, is_write: false };
            assert!(shadow.add(range(64, 128), read, &clocks).is_none());
            clocks.end(0, 0);
            (1..if do_all_know { 3 } else { 2 }).for_each(|rank| clocks.learn(rank, &[1, 0, 0]));
            for index in 0..=others {
                let is_write = index == others;
                let start = if is_write { 127 } else { 1024 };
                let one = Use { is_write, ..write(1, index) };
                assert!(shadow.add(range(start, start + 8), one, &clocks).is_none());
                clocks.end(1, index);
            }
            shadow.reads.keys().filter(|read| read.rank == 0).count()
        };
        assert_eq!([sorted(1, true), sorted(2, true), sorted(3, true)], [1, 0, 0]);
        assert_eq!([sorted(1, false), sorted(2, false), sorted(3, false)], [1, 1, 1]);
    }
}
