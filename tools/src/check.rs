//! What each operation leaves where, from its definition alone: neither the plan nor the card is asked.

use cmdseq::plan::Collective;

use crate::data::{CHUNK, Source};
use crate::exit::Result;

/// An operation of a group of ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expectation {
    pub(crate) collective: Collective,
    pub(crate) ranks: u32,
    pub(crate) bytes: u64,
    pub(crate) root: u32,
    pub(crate) peer: u32,
}

/// A range of an output, and the range of an input that it is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copied {
    offset: u64,
    from: u32,
    from_offset: u64,
    bytes: u64,
}

/// A byte that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) offset: u64,
    pub(crate) found: u8,
    pub(crate) expected: u8,
}

impl Expectation {
    /// The block of rank `rank`'s output that begins at `offset`.
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
        }
    }

    /// The first byte of `data`, which begins at `offset` of rank `rank`'s output, that is wrong.
    pub(crate) fn first_wrong(&self, source: &Source, rank: u32, offset: u64, data: &[u8]) -> Result<Option<Wrong>> {
        let mut expected = vec![0; data.len().min(CHUNK)];
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let Some(copied) = self.copied(rank, at) else {
                return Ok(Some(Wrong { offset: at, found: data[done], expected: 0 }));
            };
            let into = at - copied.offset;
            let bytes = usize::try_from(copied.bytes - into).unwrap_or(usize::MAX).min(data.len() - done).min(CHUNK);
            let (expected, found) = (&mut expected[..bytes], &data[done..done + bytes]);
            source.fill(copied.from, copied.from_offset + into, expected)?;
            if expected != found {
                let place = expected.iter().zip(found).position(|(right, found)| right != found).unwrap_or(0);
                let offset = at + place as u64;
                return Ok(Some(Wrong { offset, found: found[place], expected: expected[place] }));
            }
            done += bytes;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::pattern;

    fn expectation(collective: Collective) -> Expectation {
        Expectation { collective, ranks: 3, bytes: 10, root: 1, peer: 2 }
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

    #[test]
    fn one_wrong_byte_is_seen_wherever_it_is() {
        let case = expectation(Collective::Alltoall);
        let source = Source::Pattern { seed: 7 };
        let mut output = [0; 30];
        for (from, block) in (0..).zip(output.chunks_mut(10)) {
            pattern(7, from, 20, block);
        }
        assert_eq!(case.first_wrong(&source, 2, 0, &output).unwrap(), None);
        assert_eq!(case.first_wrong(&source, 2, 7, &output[7..26]).unwrap(), None);
        for place in 0..output.len() {
            let right = output[place];
            output[place] ^= 0x40;
            let wrong = Wrong { offset: place as u64, found: right ^ 0x40, expected: right };
            assert_eq!(case.first_wrong(&source, 2, 0, &output).unwrap(), Some(wrong));
            output[place] = right;
        }
    }

    #[test]
    fn output_where_there_should_be_none_is_wrong() {
        let case = expectation(Collective::Gather);
        assert!(case.first_wrong(&Source::Pattern { seed: 0 }, 0, 0, &[0]).unwrap().is_some());
    }
}
