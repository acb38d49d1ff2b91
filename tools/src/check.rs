//! Checks results against the definition of each operation, independent of programs and cards.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use cmdseq::plan::{Collective, FoldOrder, Folding};
use cmdseq::{Combine, Element};

use crate::data::Source;
use crate::exit::Result;
use crate::fold::{fold, fold_as};

/// Bytes that are compared at a time: few, so that they stay in the first cache.
const PIECE: usize = 4096;
/// Bytes of expected results that are kept for other ranks.
const KEPT_MAX: usize = 256 << 20;

/// A collective whose outputs to check.
#[derive(Debug, Clone)]
pub(crate) struct Expectation<'a> {
    pub(crate) collective: Collective,
    pub(crate) ranks: u32,
    pub(crate) bytes: u64,
    /// Block sizes of a vector form, as in `Request`.
    pub(crate) counts: &'a [u64],
    pub(crate) root: u32,
    pub(crate) peer: u32,
    pub(crate) combine: Option<Combine>,
    /// Order in which a reduction folds, if the result depends on the order; else rank order.
    pub(crate) order: Option<FoldOrder>,
}

/// Compares outputs with what they must be.
pub(crate) struct Check<'a> {
    expectation: Expectation<'a>,
    source: &'a Source,
    kept: Kept,
    /// Of a vector form, the blocks of the output of this rank.
    blocks: Option<(u32, Vec<Copied>)>,
}

/// Results of folds by offset and length.
#[derive(Default)]
struct Kept {
    /// And their foldings: the ranks of an allreduce share them.
    folds: BTreeMap<(u64, usize), (Option<Folding>, Vec<u8>)>,
    /// And the number of ranks that are folded, from rank 0 on: a scan adds one for each rank.
    prefixes: BTreeMap<(u64, usize), (u32, Vec<u8>)>,
    bytes: usize,
}

impl Kept {
    /// Returns whether there is room for so many more bytes, and takes them.
    fn has_room(&mut self, bytes: usize) -> bool {
        let is_room = self.bytes + bytes <= KEPT_MAX;
        self.bytes += if is_room { bytes } else { 0 };
        is_room
    }
}

/// A range of an output, and the range of an input that is its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copied {
    offset: u64,
    from: u32,
    from_offset: u64,
    bytes: u64,
}

/// A wrong byte of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) offset: u64,
    pub(crate) found: u8,
    pub(crate) expected: u8,
}

impl Expectation<'_> {
    /// Returns the block of rank `rank`'s output that contains `offset`, if the operation is no vector form.
    fn copied(&self, rank: u32, offset: u64) -> Option<Copied> {
        let n = self.bytes;
        let number = offset.checked_div(n)?;
        let block = u32::try_from(number).ok().filter(|block| *block < self.ranks)?;
        let only = |from, from_offset| (block == 0).then_some(Copied { offset: 0, from, from_offset, bytes: n });
        let each = |from_offset| Some(Copied { offset: number * n, from: block, from_offset, bytes: n });
        match self.collective {
            Collective::Barrier => None,
            Collective::Send | Collective::Recv if rank == self.peer => only(self.root, 0),
            Collective::Send | Collective::Recv => None,
            Collective::Sendrecv => only((rank + self.ranks - 1) % self.ranks, 0),
            Collective::Scatter => only(self.root, u64::from(rank) * n),
            Collective::Gather if rank == self.root => each(0),
            Collective::Gather => None,
            Collective::Broadcast => only(self.root, 0),
            Collective::Alltoall => each(u64::from(rank) * n),
            Collective::Allgather => each(0),
            Collective::Scatterv | Collective::Gatherv | Collective::Allgatherv | Collective::Alltoallv => None,
            Collective::Reduce
            | Collective::Allreduce
            | Collective::ReduceScatter
            | Collective::Scan
            | Collective::Exscan => None,
        }
    }

    /// Returns the blocks of rank `rank`'s output of a vector form, in their order.
    fn blocks(&self, rank: u32) -> Vec<Copied> {
        let (ranks, own) = (self.ranks as usize, rank as usize);
        let count = |place: usize| self.counts.get(place).copied().unwrap_or(0);
        let before = |row: usize| self.counts.iter().skip(row).take(own).sum();
        // From which rank, where there, and how much.
        let block = |from: u32| match self.collective {
            Collective::Alltoallv => (from, before(from as usize * ranks), count(from as usize * ranks + own)),
            _ => (from, 0, count(from as usize)),
        };
        let blocks: Vec<(u32, u64, u64)> = match self.collective {
            Collective::Scatterv => vec![(self.root, before(0), count(own))],
            Collective::Gatherv if rank != self.root => Vec::new(),
            _ => (0..self.ranks).map(block).collect(),
        };
        let mut end = 0;
        let placed = |(from, from_offset, bytes)| {
            end += bytes;
            Copied { offset: end - bytes, from, from_offset, bytes }
        };
        blocks.into_iter().map(placed).collect()
    }

    /// Returns the ranks whose inputs rank `rank`'s output folds, and the offset in these inputs.
    fn folded(&self, rank: u32) -> (Range<u32>, u64) {
        match self.collective {
            Collective::Reduce if rank == self.root => (0..self.ranks, 0),
            Collective::Allreduce => (0..self.ranks, 0),
            Collective::ReduceScatter => (0..self.ranks, u64::from(rank) * self.bytes),
            Collective::Scan => (0..rank + 1, 0),
            Collective::Exscan => (0..rank, 0),
            _ => (0..0, 0),
        }
    }

    /// Returns the folding at `offset` of rank `rank`'s output, and the end of the range with this folding.
    fn folding(&self, combine: Combine, rank: u32, offset: u64) -> (Option<Folding>, u64) {
        let order = self.order.as_ref().filter(|_| combine.depends_on_order());
        match order.and_then(|order| order.at(rank, offset)) {
            Some((folding, end)) => (Some(folding), end),
            None => (None, u64::MAX),
        }
    }

    /// Returns `bytes` bytes of rank `rank`'s output from `offset` on; fewer if nothing is folded there.
    fn expected_of_folding(
        &self,
        combine: Combine,
        folding: Option<&Folding>,
        source: &Source,
        rank: u32,
        (offset, bytes): (u64, usize),
    ) -> Result<Vec<u8>> {
        let (ranks, _) = self.folded(rank);
        let contributions: Result<Vec<_>> =
            ranks.map(|from| self.contribution(combine, source, (rank, from), (offset, bytes))).collect();
        let folded = match folding {
            Some(folding) => fold_as(combine, folding, &contributions?),
            None => fold(combine, &contributions?),
        };
        Ok(part(combine, &folded, (offset, bytes)).to_vec())
    }

    /// Returns what rank `from` gives to these bytes of rank `rank`'s output, extended to whole elements.
    fn contribution(
        &self,
        combine: Combine,
        source: &Source,
        (rank, from): (u32, u32),
        (offset, bytes): (u64, usize),
    ) -> Result<Vec<u8>> {
        let skip = offset % combine.element.bytes();
        let length = (skip + bytes as u64).next_multiple_of(combine.element.bytes());
        let mut contribution = vec![0; length as usize];
        source.fill(from, self.folded(rank).1 + offset - skip, &mut contribution)?;
        Ok(contribution)
    }

    /// Returns whether ranks fold what the rank before folds, and then their own.
    fn is_prefix(&self, combine: Combine, folding: Option<&Folding>) -> bool {
        // Halves are rounded only once, at the end.
        let is_half = matches!(combine.element, Element::F16 | Element::Bf16);
        let is_scan = matches!(self.collective, Collective::Scan | Collective::Exscan);
        is_scan && !is_half && folding.is_none_or(|folding| in_rank_order(folding).is_some())
    }
}

/// Returns these bytes of a fold that was extended to whole elements; fewer if nothing is folded there.
fn part(combine: Combine, folded: &[u8], (offset, bytes): (u64, usize)) -> &[u8] {
    let skip = (offset % combine.element.bytes()) as usize;
    folded.get(skip..).map_or(&[], |rest| &rest[..bytes.min(rest.len())])
}

/// Returns how many ranks a folding folds, if it takes one after the other from rank 0 on.
fn in_rank_order(folding: &Folding) -> Option<u32> {
    match folding {
        Folding::Rank(rank) => (*rank == 0).then_some(1),
        Folding::Left(parts) => {
            let (first, rest) = parts.split_first()?;
            rest.iter().try_fold(in_rank_order(first)?, |ranks, part| {
                matches!(part, Folding::Rank(rank) if *rank == ranks).then_some(ranks + 1)
            })
        }
    }
}

impl<'a> Check<'a> {
    /// Checks outputs of inputs from `source`.
    pub(crate) fn new(expectation: Expectation<'a>, source: &'a Source) -> Self {
        Check { expectation, source, kept: Kept::default(), blocks: None }
    }

    /// Returns the block of rank `rank`'s output that contains `offset`.
    fn copied(&mut self, rank: u32, offset: u64) -> Option<Copied> {
        if !self.expectation.collective.has_counts() {
            return self.expectation.copied(rank, offset);
        }
        if self.blocks.as_ref().is_none_or(|(of, _)| *of != rank) {
            self.blocks = Some((rank, self.expectation.blocks(rank)));
        }
        let (_, blocks) = self.blocks.as_ref()?;
        let number = blocks.partition_point(|block| block.offset + block.bytes <= offset);
        blocks.get(number).copied()
    }

    /// Passes each wrong byte of the output of a reduction to `wrong`, until it breaks.
    fn mismatches_folded(
        &mut self,
        combine: Combine,
        rank: u32,
        (offset, data): (u64, &[u8]),
        wrong: &mut impl FnMut(Mismatch) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (folding, end) = self.expectation.folding(combine, rank, at);
            let bytes = usize::try_from(end - at).unwrap_or(usize::MAX).min(data.len() - done);
            let part = &data[done..done + bytes];
            let limit = self.expectation.bytes;
            let expected = self.expected_of_folding(combine, folding, rank, (at, part.len()))?;
            let mut expected = expected.iter().copied();
            for (found, at) in part.iter().zip(at..) {
                let right = expected.next().filter(|_| at < limit);
                let mismatch = Mismatch { offset: at, found: *found, expected: right.unwrap_or(0) };
                if right != Some(*found) && wrong(mismatch).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            done += bytes;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// As [`Expectation::expected_of_folding`], and keeps it if other ranks expect the same, or fold on from it.
    fn expected_of_folding(
        &mut self,
        combine: Combine,
        folding: Option<Folding>,
        rank: u32,
        range: (u64, usize),
    ) -> Result<Cow<'_, [u8]>> {
        if self.expectation.is_prefix(combine, folding.as_ref()) {
            return self.expected_of_prefix(combine, rank, range).map(Cow::Owned);
        }
        let Check { expectation, source, kept, .. } = self;
        let expected = || expectation.expected_of_folding(combine, folding.as_ref(), source, rank, range);
        // A folding names each rank once, and takes about as much again for those that it nests.
        let bytes = range.1 + 2 * size_of::<Folding>() * expectation.ranks as usize;
        let is_new = !kept.folds.contains_key(&range);
        if is_new && expectation.collective == Collective::Allreduce && kept.has_room(bytes) {
            let expected = expected()?;
            kept.folds.insert(range, (folding.clone(), expected));
        }
        match kept.folds.get(&range) {
            Some((same, expected)) if *same == folding => Ok(Cow::Borrowed(expected)),
            _ => expected().map(Cow::Owned),
        }
    }

    /// Returns a range of what rank `rank` of a scan expects: what an earlier rank expects, and on from there.
    fn expected_of_prefix(&mut self, combine: Combine, rank: u32, range: (u64, usize)) -> Result<Vec<u8>> {
        let Check { expectation, source, kept, .. } = self;
        let (ranks, _) = expectation.folded(rank);
        let earlier = kept.prefixes.get(&range).filter(|(folded, _)| *folded <= ranks.end).cloned();
        let (from, mut folded) = earlier.unwrap_or_default();
        for from in from..ranks.end {
            let own = expectation.contribution(combine, source, (rank, from), range)?;
            folded = if from == 0 { own } else { fold(combine, &[folded, own]) };
        }
        let expected = part(combine, &folded, range).to_vec();
        if ranks.end > 0 && (kept.prefixes.contains_key(&range) || kept.has_room(folded.len())) {
            kept.prefixes.insert(range, (ranks.end, folded));
        }
        Ok(expected)
    }

    /// Returns the first wrong byte of `data`, which begins at `offset` of rank `rank`'s output.
    pub(crate) fn first_mismatch(&mut self, rank: u32, offset: u64, data: &[u8]) -> Result<Option<Mismatch>> {
        let mut first = None;
        let _ = self.mismatches(rank, (offset, data), &mut |wrong| {
            first = Some(wrong);
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// Returns the number of wrong bytes of `data`, which begins at `offset` of rank `rank`'s output.
    pub(crate) fn wrong_bytes(&mut self, rank: u32, offset: u64, data: &[u8]) -> Result<u64> {
        let mut count = 0;
        let _ = self.mismatches(rank, (offset, data), &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Passes each wrong byte to `wrong`, until it breaks.
    fn mismatches(
        &mut self,
        rank: u32,
        (offset, data): (u64, &[u8]),
        wrong: &mut impl FnMut(Mismatch) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if let Some(combine) = self.expectation.combine {
            return self.mismatches_folded(combine, rank, (offset, data), wrong);
        }
        let mut expected = [0; PIECE];
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let Some(copied) = self.copied(rank, at) else {
                // There should be no output from here on.
                let rest = data[done..].iter().zip(at..);
                let mut rest = rest.map(|(found, at)| wrong(Mismatch { offset: at, found: *found, expected: 0 }));
                return Ok(rest.find(ControlFlow::is_break).unwrap_or(ControlFlow::Continue(())));
            };
            let into = at - copied.offset;
            let bytes = usize::try_from(copied.bytes - into).unwrap_or(usize::MAX).min(data.len() - done).min(PIECE);
            let (expected, found) = (&mut expected[..bytes], &data[done..done + bytes]);
            self.source.fill(copied.from, copied.from_offset + into, expected)?;
            if expected != found {
                for ((right, found), at) in expected.iter().zip(found).zip(at..) {
                    let mismatch = Mismatch { offset: at, found: *found, expected: *right };
                    if right != found && wrong(mismatch).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            done += bytes;
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::pattern;

    fn expectation(collective: Collective) -> Expectation<'static> {
        Expectation { collective, ranks: 3, bytes: 10, counts: &[], root: 1, peer: 2, combine: None, order: None }
    }

    /// Outputs of three ranks worked out by hand: (from, from offset) of each block.
    #[test]
    fn by_hand() {
        let blocks = |collective, rank| -> Vec<(u32, u64)> {
            let case = expectation(collective);
            (0..3).filter_map(|number| case.copied(rank, number * 10)).map(|one| (one.from, one.from_offset)).collect()
        };
        assert_eq!(blocks(Collective::Send, 2), [(1, 0)]);
        assert_eq!(blocks(Collective::Send, 1), []);
        assert_eq!(blocks(Collective::Sendrecv, 0), [(2, 0)]);
        assert_eq!(blocks(Collective::Scatter, 2), [(1, 20)]);
        assert_eq!(blocks(Collective::Gather, 1), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(blocks(Collective::Gather, 0), []);
        assert_eq!(blocks(Collective::Broadcast, 1), [(1, 0)]);
        assert_eq!(blocks(Collective::Alltoall, 2), [(0, 20), (1, 20), (2, 20)]);
        assert_eq!(blocks(Collective::Allgather, 0), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(blocks(Collective::Barrier, 0), []);
    }

    /// All blocks of the outputs of vector forms, worked out by hand: (from, from offset, bytes) of each block.
    #[test]
    fn vector_forms_by_hand() {
        let blocks = |collective, counts, rank| -> Vec<(u32, u64, u64)> {
            let source = Source::Pattern { seed: 0 };
            let mut case = Check::new(Expectation { counts, ..expectation(collective) }, &source);
            let mut at = 0;
            let next = || {
                let one = case.copied(rank, at)?;
                at = one.offset + one.bytes;
                Some((one.from, one.from_offset, one.bytes))
            };
            std::iter::from_fn(next).collect()
        };
        assert_eq!(blocks(Collective::Scatterv, &[5, 0, 7], 2), [(1, 5, 7)]);
        assert_eq!(blocks(Collective::Scatterv, &[5, 0, 7], 1), []);
        assert_eq!(blocks(Collective::Gatherv, &[5, 0, 7], 1), [(0, 0, 5), (2, 0, 7)]);
        assert_eq!(blocks(Collective::Gatherv, &[5, 0, 7], 0), []);
        assert_eq!(blocks(Collective::Allgatherv, &[5, 1, 7], 0), [(0, 0, 5), (1, 0, 1), (2, 0, 7)]);
        let rows = &[1, 2, 3, 4, 0, 6, 7, 8, 9];
        assert_eq!(blocks(Collective::Alltoallv, rows, 1), [(0, 1, 2), (2, 7, 8)]);
        assert_eq!(blocks(Collective::Alltoallv, rows, 2), [(0, 3, 3), (1, 4, 6), (2, 15, 9)]);
    }

    #[test]
    fn one_wrong_byte_is_seen_wherever_it_is() {
        let source = Source::Pattern { seed: 7 };
        let mut case = Check::new(expectation(Collective::Alltoall), &source);
        let mut output = [0; 30];
        for (from, block) in (0..).zip(output.chunks_mut(10)) {
            pattern(7, from, 20, block);
        }
        assert_eq!(case.first_mismatch(2, 0, &output).unwrap(), None);
        assert_eq!(case.first_mismatch(2, 7, &output[7..26]).unwrap(), None);
        for place in 0..output.len() {
            let right = output[place];
            output[place] ^= 0x40;
            let wrong = Mismatch { offset: place as u64, found: right ^ 0x40, expected: right };
            assert_eq!(case.first_mismatch(2, 0, &output).unwrap(), Some(wrong));
            assert_eq!(case.wrong_bytes(2, 0, &output).unwrap(), 1);
            output[place] = right;
        }
        output[3..17].iter_mut().for_each(|byte| *byte ^= 1);
        assert_eq!(case.wrong_bytes(2, 0, &output).unwrap(), 14);
    }

    #[test]
    fn folds_are_of_the_right_ranks_and_blocks() {
        let ranks = |collective, rank| {
            let (ranks, offset) = expectation(collective).folded(rank);
            (ranks.start, ranks.end, offset)
        };
        assert_eq!(ranks(Collective::Reduce, 1), (0, 3, 0));
        assert_eq!(ranks(Collective::Reduce, 0), (0, 0, 0));
        assert_eq!(ranks(Collective::Allreduce, 2), (0, 3, 0));
        assert_eq!(ranks(Collective::ReduceScatter, 2), (0, 3, 20));
        assert_eq!(ranks(Collective::Scan, 1), (0, 2, 0));
        assert_eq!(ranks(Collective::Exscan, 1), (0, 1, 0));
        assert_eq!(ranks(Collective::Exscan, 0), (0, 0, 0));
    }

    #[test]
    fn a_wrong_byte_of_a_fold_is_seen() {
        use cmdseq::Reduction;
        let combine = Some(Combine::new(Reduction::Sum, Element::U16));
        let source = Source::Pattern { seed: 7 };
        let mut case = Check::new(Expectation { combine, ..expectation(Collective::Scan) }, &source);
        let mut inputs = [[0; 10]; 2];
        (0..).zip(&mut inputs).for_each(|(rank, input)| pattern(7, rank, 0, input));
        let word = |rank: usize, at: usize| u16::from_le_bytes([inputs[rank][at], inputs[rank][at + 1]]);
        let mut output: Vec<u8> =
            (0..5).flat_map(|at| word(0, 2 * at).wrapping_add(word(1, 2 * at)).to_le_bytes()).collect();
        assert_eq!(case.first_mismatch(1, 0, &output).unwrap(), None);
        assert_eq!(case.first_mismatch(1, 3, &output[3..8]).unwrap(), None);
        output[5] ^= 1;
        assert_eq!(case.first_mismatch(1, 3, &output[3..]).unwrap().unwrap().offset, 5);
        output[8] ^= 1;
        assert_eq!(case.wrong_bytes(1, 3, &output[3..]).unwrap(), 2);
    }

    #[test]
    fn output_where_there_should_be_none_is_wrong() {
        let source = Source::Pattern { seed: 0 };
        let mut case = Check::new(expectation(Collective::Gather), &source);
        assert!(case.first_mismatch(0, 0, &[0]).unwrap().is_some());
        assert_eq!(case.wrong_bytes(0, 0, &[0; 3]).unwrap(), 3);
    }

    /// Ranks of an allreduce that fold in one order share what is expected; others do not.
    #[test]
    fn ranks_share_a_fold_only_if_they_fold_alike() {
        use cmdseq::Reduction;
        let combine = Combine::new(Reduction::Sum, Element::F32);
        let source = Source::Pattern { seed: 7 };
        let mut case =
            Check::new(Expectation { combine: Some(combine), ..expectation(Collective::Allreduce) }, &source);
        let left = |ranks: [u32; 3]| Some(Folding::Left(ranks.map(Folding::Rank).to_vec()));
        let orders = [left([0, 1, 2]), left([2, 0, 1]), left([0, 1, 2]), left([2, 0, 1]), None];
        for range in [(0, 8), (0, 4), (4, 4)] {
            for (rank, order) in (0..).zip(&orders) {
                let alone =
                    case.expectation.expected_of_folding(combine, order.as_ref(), &source, rank, range).unwrap();
                assert_eq!(case.expected_of_folding(combine, order.clone(), rank, range).unwrap(), alone);
            }
        }
        assert_eq!(case.kept.folds.len(), 3);
    }

    /// A scan expects the same of each rank whether earlier ranks were looked at or not, in any order.
    #[test]
    fn ranks_of_a_scan_fold_on_from_earlier_ones() {
        use cmdseq::Reduction;
        let source = Source::Pattern { seed: 7 };
        for (collective, element) in [Collective::Scan, Collective::Exscan].into_iter().flat_map(|collective| {
            [Element::I16, Element::F32, Element::F16, Element::F64].map(|one| (collective, one))
        }) {
            let combine = Combine::new(Reduction::Sum, element);
            let case = || Expectation { ranks: 6, bytes: 64, combine: Some(combine), ..expectation(collective) };
            let mut kept = Check::new(case(), &source);
            for (rank, range) in [0, 1, 3, 2, 5, 5, 4].into_iter().flat_map(|rank| [(rank, (0, 64)), (rank, (3, 9))]) {
                let ranks = case().folded(rank).0;
                let order = Folding::Left(ranks.map(Folding::Rank).collect());
                for folding in [None, Some(order)].into_iter().filter(|one| one.is_none() || rank > 1) {
                    let alone = case().expected_of_folding(combine, folding.as_ref(), &source, rank, range).unwrap();
                    assert_eq!(kept.expected_of_folding(combine, folding, rank, range).unwrap(), alone);
                }
            }
            let is_half = element == Element::F16;
            assert_eq!(kept.kept.prefixes.len(), if is_half { 0 } else { 2 });
        }
    }

    #[test]
    fn a_folding_in_rank_order_is_known() {
        let left = |parts: Vec<Folding>| Folding::Left(parts);
        let rank = Folding::Rank;
        assert_eq!(in_rank_order(&rank(0)), Some(1));
        assert_eq!(in_rank_order(&left(vec![rank(0), rank(1), rank(2)])), Some(3));
        assert_eq!(in_rank_order(&left(vec![left(vec![rank(0), rank(1)]), rank(2)])), Some(3));
        assert_eq!(in_rank_order(&left(vec![rank(0), left(vec![rank(1), rank(2)])])), None);
        assert_eq!(in_rank_order(&left(vec![rank(1), rank(0)])), None);
        assert_eq!(in_rank_order(&rank(1)), None);
    }
}
