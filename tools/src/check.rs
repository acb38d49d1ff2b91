//! Checks results against the definition of each operation, independent of programs and cards.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use cmdseq::Combine;
use cmdseq::plan::{Collective, FoldOrder, Folding};

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
}

/// Results of folds by offset and length, and their foldings: the ranks of an allreduce share them.
#[derive(Default)]
struct Kept {
    folds: BTreeMap<(u64, usize), (Option<Folding>, Vec<u8>)>,
    bytes: usize,
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
    /// Returns the block of rank `rank`'s output that contains `offset`.
    fn copied(&self, rank: u32, offset: u64) -> Option<Copied> {
        if self.collective.has_counts() {
            return self.copied_of_vector_form(rank, offset);
        }
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

    /// As [`copied`](Self::copied), for a vector form, whose blocks have different sizes.
    fn copied_of_vector_form(&self, rank: u32, offset: u64) -> Option<Copied> {
        let (ranks, own) = (self.ranks as usize, rank as usize);
        let count = |place: usize| self.counts.get(place).copied().unwrap_or(0);
        if self.collective == Collective::Scatterv {
            let from_offset = (0..own).map(count).sum();
            let bytes = count(own);
            return (offset < bytes).then_some(Copied { offset: 0, from: self.root, from_offset, bytes });
        }
        if self.collective == Collective::Gatherv && rank != self.root {
            return None;
        }
        let mut begin = 0;
        for from in 0..self.ranks {
            let row = if self.collective == Collective::Alltoallv { from as usize * ranks } else { 0 };
            let (bytes, from_offset) = match self.collective {
                Collective::Alltoallv => (count(row + own), (row..row + own).map(count).sum()),
                _ => (count(from as usize), 0),
            };
            if offset < begin + bytes {
                return Some(Copied { offset: begin, from, from_offset, bytes });
            }
            begin += bytes;
        }
        None
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
        let (ranks, from_offset) = self.folded(rank);
        // Extend the range to whole elements.
        let skip = offset % combine.element.bytes();
        let length = (skip + bytes as u64).next_multiple_of(combine.element.bytes());
        let mut contributions = Vec::with_capacity(ranks.len());
        for from in ranks {
            let mut contribution = vec![0; length as usize];
            source.fill(from, from_offset + offset - skip, &mut contribution)?;
            contributions.push(contribution);
        }
        let folded = match folding {
            Some(folding) => fold_as(combine, folding, &contributions),
            None => fold(combine, &contributions),
        };
        Ok(folded.into_iter().skip(skip as usize).take(bytes).collect())
    }
}

impl<'a> Check<'a> {
    /// Checks outputs of inputs from `source`.
    pub(crate) fn new(expectation: Expectation<'a>, source: &'a Source) -> Self {
        Check { expectation, source, kept: Kept::default() }
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

    /// As [`Expectation::expected_of_folding`], and keeps it if the other ranks expect the same.
    fn expected_of_folding(
        &mut self,
        combine: Combine,
        folding: Option<Folding>,
        rank: u32,
        range: (u64, usize),
    ) -> Result<Cow<'_, [u8]>> {
        let Check { expectation, source, kept } = self;
        let expected = || expectation.expected_of_folding(combine, folding.as_ref(), source, rank, range);
        // A folding names each rank once, and takes about as much again for those that it nests.
        let bytes = range.1 + 2 * size_of::<Folding>() * expectation.ranks as usize;
        let is_new = !kept.folds.contains_key(&range);
        if is_new && expectation.collective == Collective::Allreduce && kept.bytes + bytes <= KEPT_MAX {
            let expected = expected()?;
            kept.bytes += bytes;
            kept.folds.insert(range, (folding.clone(), expected));
        }
        match kept.folds.get(&range) {
            Some((same, expected)) if *same == folding => Ok(Cow::Borrowed(expected)),
            _ => expected().map(Cow::Owned),
        }
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
            let Some(copied) = self.expectation.copied(rank, at) else {
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
            let case = Expectation { counts, ..expectation(collective) };
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
        use cmdseq::{Element, Reduction};
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
        use cmdseq::{Element, Reduction};
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
}
