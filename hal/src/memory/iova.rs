//! IOVAs, and the allocation of IOVA ranges.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// An address that a device uses for host memory. An IOMMU translates it; it is never a physical address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Iova(pub u64);

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Allocates address ranges, lowest first, from the ranges that an IOMMU can map.
///
/// Ends are inclusive, as the kernel reports them, so a range may end at the last address. A block never spans two of the
/// given ranges, even if they touch: the kernel would refuse the mapping. Address 0 is never allocated.
#[derive(Debug, Clone)]
pub(crate) struct IovaAllocator {
    /// Usable ranges, ascending, disjoint.
    ranges: Vec<RangeInclusive<u64>>,
    /// Free blocks: first address to last. Adjacent blocks are merged, except across a border of `ranges`.
    free: BTreeMap<u64, u64>,
    /// Allocated blocks: first address to last.
    taken: BTreeMap<u64, u64>,
}

impl IovaAllocator {
    /// Creates an allocator for `ranges`, in any order. Overlapping ranges are merged, empty ranges are dropped.
    pub(crate) fn new(ranges: &[RangeInclusive<u64>]) -> Self {
        let mut sorted: Vec<(u64, u64)> = ranges
            .iter()
            .map(|range| (*range.start().max(&1), *range.end()))
            .filter(|(first, last)| first <= last)
            .collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match merged.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        IovaAllocator {
            ranges: merged.iter().map(|&(first, last)| first..=last).collect(),
            free: merged.into_iter().collect(),
            taken: BTreeMap::new(),
        }
    }

    /// Returns the usable ranges, ascending and disjoint.
    pub(crate) fn ranges(&self) -> &[RangeInclusive<u64>] {
        &self.ranges
    }

    /// Restricts further allocations to `ranges` as well. Allocated blocks stay where they are.
    pub(crate) fn restrict(&mut self, ranges: &[RangeInclusive<u64>]) {
        let given = IovaAllocator::new(ranges);
        let common = self.ranges.iter().flat_map(|ours| {
            given.ranges.iter().map(|theirs| *ours.start().max(theirs.start())..=*ours.end().min(theirs.end()))
        });
        let mut narrowed = IovaAllocator::new(&common.collect::<Vec<_>>());
        for (&start, &end) in &self.taken {
            narrowed.free = narrowed.free.iter().flat_map(|(&first, &last)| without(first, last, start, end)).collect();
        }
        narrowed.taken = std::mem::take(&mut self.taken);
        *self = narrowed;
    }

    /// Returns where [`allocate`](Self::allocate) would place a block.
    pub(crate) fn find(&self, bytes: u64, alignment: u64, highest: u64) -> Option<Iova> {
        if bytes == 0 || !alignment.is_power_of_two() {
            return None;
        }
        for (&first, &last) in self.free.range(..=highest) {
            let last = last.min(highest);
            // `None`: no higher address is aligned.
            let start = first.checked_next_multiple_of(alignment)?;
            if start <= last && last - start >= bytes - 1 {
                return Some(Iova(start));
            }
        }
        None
    }

    /// Allocates `bytes` bytes, aligned to `alignment` (a power of two), with no address over `highest`.
    pub(crate) fn allocate(&mut self, bytes: u64, alignment: u64, highest: u64) -> Option<Iova> {
        let Iova(start) = self.find(bytes, alignment, highest)?;
        let end = start + (bytes - 1);
        let (&first, &last) = self.free.range(..=start).next_back()?;
        self.free.remove(&first);
        self.free.extend(without(first, last, start, end));
        self.taken.insert(start, end);
        Some(Iova(start))
    }

    /// Frees the block that starts at `start`, and returns its range. `None`: no block starts there.
    pub(crate) fn free(&mut self, start: Iova) -> Option<RangeInclusive<u64>> {
        let start = start.0;
        let end = self.taken.remove(&start)?;
        // A block lies in one range, unless `restrict` has put a border into it since: only what is inside is used again.
        let overlapping: Vec<_> =
            self.ranges.iter().filter(|range| start <= *range.end() && *range.start() <= end).cloned().collect();
        for range in overlapping {
            self.free_within(&range, start.max(*range.start()), end.min(*range.end()));
        }
        Some(start..=end)
    }

    /// Adds a block inside of one of the ranges to those that are free.
    fn free_within(&mut self, range: &RangeInclusive<u64>, start: u64, end: u64) {
        let (mut first, mut last) = (start, end);
        if let Some((&before, &before_last)) = self.free.range(..start).next_back()
            && before_last.checked_add(1) == Some(start)
            && range.contains(&before)
        {
            self.free.remove(&before);
            first = before;
        }
        if let Some(after) = end.checked_add(1)
            && range.contains(&after)
            && let Some(after_last) = self.free.remove(&after)
        {
            last = after_last;
        }
        self.free.insert(first, last);
    }

    /// Returns the length in bytes of the block that starts at `start`.
    pub(crate) fn block_bytes(&self, start: Iova) -> Option<u64> {
        self.taken.get(&start.0).map(|end| end - start.0 + 1)
    }

    /// Returns the number of allocated blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.taken.len()
    }
}

/// Returns the parts of `first..=last` outside of `start..=end`. Neither range contains address 0.
fn without(first: u64, last: u64, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let below = Some((first, last.min(start - 1)));
    let above = end.checked_add(1).map(|after| (first.max(after), last));
    [below, above].into_iter().flatten().filter(|(first, last)| first <= last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: usize = 384;

    /// A naive model: one flag per address.
    struct Bitmap {
        inside: Vec<bool>,
        free: Vec<bool>,
        /// Whether a block may hold both this address and the next.
        joined: Vec<bool>,
    }

    impl Bitmap {
        fn new(ranges: &[RangeInclusive<u64>]) -> Self {
            let inside = |a: usize| a != 0 && ranges.iter().any(|r| r.contains(&(a as u64)));
            let both = |a: usize| ranges.iter().any(|r| r.contains(&(a as u64)) && r.contains(&(a as u64 + 1)));
            let inside: Vec<bool> = (0..SPACE).map(inside).collect();
            Bitmap { free: inside.clone(), inside, joined: (0..SPACE).map(both).collect() }
        }

        fn fits(&self, start: usize, bytes: usize, highest: usize) -> bool {
            let end = start + bytes - 1;
            end < SPACE && end <= highest && (start..=end).all(|a| self.free[a]) && (start..end).all(|a| self.joined[a])
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take { bytes: u64, alignment: u64, highest: u64 },
        Free(prop::sample::Index),
        Restrict(Vec<RangeInclusive<u64>>),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1u64..48, 0u32..7, prop_oneof![Just(u64::MAX), 0..SPACE as u64])
                .prop_map(|(bytes, order, highest)| Step::Take { bytes, alignment: 1 << order, highest }),
            2 => any::<prop::sample::Index>().prop_map(Step::Free),
            1 => ranges().prop_map(Step::Restrict),
        ]
    }

    fn range() -> impl Strategy<Value = RangeInclusive<u64>> {
        (0..SPACE as u64, 0u64..160).prop_map(|(first, more)| first..=(first + more).min(SPACE as u64 - 1))
    }

    /// Some of them overlap, and some touch.
    fn ranges() -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
        prop::collection::vec((range(), any::<bool>()), 0..4).prop_map(|ranges| {
            let mut all = Vec::new();
            for (range, touched) in ranges {
                if touched && *range.end() + 1 < SPACE as u64 {
                    all.push(*range.end() + 1..=(*range.end() + 30).min(SPACE as u64 - 1));
                }
                all.push(range);
            }
            all
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn it_agrees_with_a_bitmap(ranges in ranges(), steps in prop::collection::vec(step(), 1..120)) {
            let mut allocator = IovaAllocator::new(&ranges);
            let mut model = Bitmap::new(&ranges);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { bytes, alignment, highest } => {
                        let ceiling = usize::try_from(highest).unwrap_or(usize::MAX);
                        match allocator.allocate(bytes, alignment, highest) {
                            Some(Iova(start)) => {
                                prop_assert_eq!(start % alignment, 0);
                                prop_assert!(model.fits(start as usize, bytes as usize, ceiling), "{:#x}+{}", start, bytes);
                                model.free[start as usize..(start + bytes) as usize].fill(false);
                                held.push((start, bytes));
                            }
                            None => {
                                let missed = (0..SPACE)
                                    .step_by(alignment as usize)
                                    .find(|&a| model.fits(a, bytes as usize, ceiling));
                                prop_assert_eq!(missed, None, "{} bytes aligned to {}", bytes, alignment);
                            }
                        }
                    }
                    Step::Free(_) if held.is_empty() => {}
                    Step::Free(index) => {
                        let (start, bytes) = held.swap_remove(index.index(held.len()));
                        prop_assert_eq!(allocator.free(Iova(start)), Some(start..=start + bytes - 1));
                        prop_assert_eq!(allocator.free(Iova(start)), None);
                        let freed = start as usize..(start + bytes) as usize;
                        model.free[freed.clone()].copy_from_slice(&model.inside[freed]);
                    }
                    Step::Restrict(ranges) => {
                        let other = Bitmap::new(&ranges);
                        // Also if a block that is held is not inside: no other group may be left when one comes that cannot reach it.
                        allocator.restrict(&ranges);
                        for at in 0..SPACE {
                            model.inside[at] &= other.inside[at];
                            model.free[at] &= other.free[at];
                            model.joined[at] &= other.joined[at];
                        }
                    }
                }
                prop_assert_eq!(allocator.blocks(), held.len());
            }
            for (start, _) in held.drain(..) {
                allocator.free(Iova(start));
            }
            let fresh = IovaAllocator::new(&allocator.ranges);
            prop_assert_eq!(allocator.free, fresh.free, "free blocks are joined again");
        }
    }

    #[test]
    fn the_ends_of_the_address_space_are_usable_and_address_0_is_not() {
        let mut allocator = IovaAllocator::new(&[0..=0xfff, u64::MAX - 0xfff..=u64::MAX]);
        assert_eq!(allocator.allocate(0x1000, 1, u64::MAX), Some(Iova(u64::MAX - 0xfff)));
        assert_eq!(allocator.allocate(0x1000, 0x1000, u64::MAX), None);
        assert_eq!(allocator.allocate(0xfff, 1, u64::MAX), Some(Iova(1)));
        assert_eq!(allocator.free(Iova(u64::MAX - 0xfff)), Some(u64::MAX - 0xfff..=u64::MAX));
        assert_eq!(allocator.allocate(1, 1 << 63, u64::MAX), None);
        assert_eq!(allocator.allocate(u64::MAX, 1, u64::MAX), None);
    }

    fn free(allocator: &IovaAllocator) -> Vec<(u64, u64)> {
        allocator.free.iter().map(|(&first, &last)| (first, last)).collect()
    }

    #[test]
    fn a_block_is_cut_out_of_what_is_free_and_joined_to_it_again() {
        const MAX: u64 = u64::MAX;
        for (first, last, start, end, left) in [
            (10, 20, 5, 9, vec![(10, 20)]),
            (10, 20, 21, 30, vec![(10, 20)]),
            (10, 20, 5, 10, vec![(11, 20)]),
            (10, 20, 10, 10, vec![(11, 20)]),
            (10, 20, 20, 20, vec![(10, 19)]),
            (10, 20, 20, 30, vec![(10, 19)]),
            (10, 20, 13, 15, vec![(10, 12), (16, 20)]),
            (10, 20, 11, 19, vec![(10, 10), (20, 20)]),
            (10, 20, 10, 20, vec![]),
            (10, 20, 1, MAX, vec![]),
            (10, 10, 10, 10, vec![]),
            (1, MAX, 1, 1, vec![(2, MAX)]),
            (1, MAX, MAX, MAX, vec![(1, MAX - 1)]),
            (1, MAX, 2, MAX - 1, vec![(1, 1), (MAX, MAX)]),
        ] {
            let case = format!("{first}..={last} without {start}..={end}");
            assert_eq!(without(first, last, start, end).collect::<Vec<_>>(), left, "{case}");
        }
        // Two ranges that touch: their border stays.
        let mut allocator = IovaAllocator::new(&[0x10..=0x1f, 0x20..=0x2f]);
        let mut take = |bytes| allocator.allocate(bytes, 1, MAX);
        assert_eq!(
            [take(8), take(8), take(4), take(12)].map(Option::unwrap).map(|iova| iova.0),
            [0x10, 0x18, 0x20, 0x24]
        );
        assert_eq!((free(&allocator), allocator.blocks()), (vec![], 4));
        assert_eq!(allocator.block_bytes(Iova(0x24)), Some(12));
        assert_eq!(allocator.block_bytes(Iova(0x25)), None);
        for (start, after) in [
            (0x20, vec![(0x20, 0x23)]),
            (0x18, vec![(0x18, 0x1f), (0x20, 0x23)]),
            (0x10, vec![(0x10, 0x1f), (0x20, 0x23)]),
            (0x24, vec![(0x10, 0x1f), (0x20, 0x2f)]),
        ] {
            assert!(allocator.free(Iova(start)).is_some());
            assert_eq!(free(&allocator), after, "{start:#x} was given back");
        }
        assert_eq!(allocator.blocks(), 0);
    }

    #[test]
    fn a_block_ends_at_the_highest_address_at_most() {
        let allocator = IovaAllocator::new(&[0x10..=0x1f, 0x40..=0x4f]);
        for (bytes, highest, found) in [
            (1, 0xf, None),
            (1, 0x10, Some(0x10)),
            (16, 0x1e, None),
            (16, 0x1f, Some(0x10)),
            (17, 0x40, None),
            (1, 0x40, Some(0x10)),
        ] {
            assert_eq!(allocator.find(bytes, 1, highest), found.map(Iova), "{bytes} bytes up to {highest:#x}");
        }
        assert_eq!(allocator.find(1, 0x40, 0x3f), None);
        assert_eq!(allocator.find(1, 0x40, 0x40), Some(Iova(0x40)));
    }

    #[test]
    fn a_restriction_leaves_what_is_in_both_and_free() {
        let mut allocator = IovaAllocator::new(&[0x10..=0x1f, 0x20..=0x2f, 0x40..=0x4f]);
        for (bytes, start) in [(1, 0x10), (3, 0x11), (2, 0x14)] {
            assert_eq!(allocator.allocate(bytes, 1, u64::MAX), Some(Iova(start)));
        }
        allocator.free(Iova(0x11)).unwrap();
        allocator.restrict(&[0x42..=u64::MAX, 0x10..=0x2a]);
        assert_eq!(allocator.ranges(), [0x10..=0x1f, 0x20..=0x2a, 0x42..=0x4f]);
        assert_eq!(free(&allocator), [(0x11, 0x13), (0x16, 0x1f), (0x20, 0x2a), (0x42, 0x4f)]);
        assert_eq!(allocator.blocks(), 2);
        assert_eq!(allocator.free(Iova(0x14)), Some(0x14..=0x15));
        assert_eq!(free(&allocator)[0], (0x11, 0x1f));
    }

    #[test]
    fn an_iova_is_written_in_hexadecimal() {
        assert_eq!(Iova(0x8000_0000_0000_1f00).to_string(), "0x8000000000001f00");
    }

    #[test]
    fn nonsense_finds_nothing() {
        let allocator = IovaAllocator::new(&[0x1000..=0xffff]);
        assert_eq!(allocator.find(0, 1, u64::MAX), None);
        assert_eq!(allocator.find(1, 3, u64::MAX), None);
        assert_eq!(allocator.find(1, 0, u64::MAX), None);
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        let reversed = IovaAllocator::new(&[9..=3]);
        assert_eq!(reversed.find(1, 1, u64::MAX), None);
    }
}
