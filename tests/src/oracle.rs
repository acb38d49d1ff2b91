//! The result of each collective, from its definition: which bytes of whose input each byte of an output is.

use cmdseq::plan::Plan;

use crate::pattern;
use crate::sweep::Data;

/// The operations, by the names of the command line.
pub const OPERATIONS: [&str; 9] =
    ["barrier", "send", "recv", "sendrecv", "scatter", "gather", "broadcast", "alltoall", "allgather"];

/// One operation of a group of ranks.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// Name of the operation.
    pub operation: &'a str,
    /// Ranks.
    pub ranks: u32,
    /// Bytes of a block.
    pub bytes: u64,
    /// Root, or sender.
    pub root: u32,
    /// Receiver of a send.
    pub peer: u32,
}

/// A range of an output, and the input it is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Offset in the output.
    pub offset: u64,
    /// Rank whose input it comes from.
    pub from: u32,
    /// Offset in that input.
    pub from_offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Case<'_> {
    /// Returns the input size of rank `rank`, in bytes.
    pub fn input_bytes(&self, rank: u32) -> u64 {
        let all = u64::from(self.ranks) * self.bytes;
        match self.operation {
            "scatter" if rank == self.root => all,
            "broadcast" | "send" | "recv" if rank == self.root => self.bytes,
            "alltoall" => all,
            "gather" | "allgather" | "sendrecv" => self.bytes,
            _ => 0,
        }
    }

    /// Returns the pieces of rank `rank`'s output.
    pub fn output(&self, rank: u32) -> Vec<Copied> {
        let n = self.bytes;
        let block = |number: u32| u64::from(number) * n;
        let one = |from, from_offset| vec![Copied { offset: 0, from, from_offset, bytes: n }];
        let from_each = |from_offset: &dyn Fn(u32) -> u64| {
            let copied = |from| Copied { offset: block(from), from, from_offset: from_offset(from), bytes: n };
            (0..self.ranks).map(copied).collect()
        };
        match self.operation {
            "send" | "recv" if rank == self.peer => one(self.root, 0),
            "sendrecv" => one((rank + self.ranks - 1) % self.ranks, 0),
            "scatter" => one(self.root, block(rank)),
            "gather" if rank == self.root => from_each(&|_| 0),
            "broadcast" => one(self.root, 0),
            "alltoall" => from_each(&|_| block(rank)),
            "allgather" => from_each(&|_| 0),
            _ => Vec::new(),
        }
    }

    /// Compares a range of an output with the expected bytes, and returns the offset of the first wrong byte.
    pub fn first_wrong(&self, seed: u64, rank: u32, offset: u64, data: &[u8]) -> Option<u64> {
        first_wrong(&self.output(rank), seed, offset, data)
    }
}

/// The vector forms, by the names of the command line.
pub const VECTOR_FORMS: [&str; 4] = ["scatterv", "gatherv", "allgatherv", "alltoallv"];

/// One vector form of a group of ranks.
#[derive(Debug, Clone)]
pub struct VectorCase {
    /// Name of the operation.
    pub operation: &'static str,
    /// Bytes that each rank gives each: row r is of rank r. Of operations that give all ranks the same, or take of all or
    /// give all only one block, the other entries are 0 or not read.
    pub gives: Vec<Vec<u64>>,
    /// Root.
    pub root: u32,
}

impl VectorCase {
    /// The case in which each rank has, or gets, a block of a length of `lengths`. Of alltoallv, the length of what rank r
    /// gives rank s is that of rank (r + s) modulo their number.
    pub fn of_lengths(operation: &'static str, lengths: &[u64], root: u32) -> Self {
        let ranks = lengths.len();
        let gives = |from: usize, to: usize| match operation {
            "scatterv" if from == root as usize => lengths[to],
            "gatherv" if to == root as usize => lengths[from],
            "allgatherv" => lengths[from],
            "alltoallv" => lengths[(from + to) % ranks],
            _ => 0,
        };
        let gives = (0..ranks).map(|from| (0..ranks).map(|to| gives(from, to)).collect()).collect();
        VectorCase { operation, gives, root }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        self.gives.len() as u32
    }

    /// Returns the lengths as text for `--counts`: one for each rank, or row by row.
    pub fn counts(&self) -> Vec<u64> {
        let root = self.root as usize;
        match self.operation {
            "scatterv" => self.gives[root].clone(),
            "gatherv" => self.gives.iter().map(|row| row[root]).collect(),
            "allgatherv" => self.gives.iter().map(|row| row[0]).collect(),
            _ => self.gives.concat(),
        }
    }

    /// Returns the input size of rank `rank`, in bytes.
    pub fn input_bytes(&self, rank: u32) -> u64 {
        let row = &self.gives[rank as usize];
        if self.operation == "allgatherv" { row[0] } else { row.iter().sum() }
    }

    /// Returns the pieces of rank `rank`'s output.
    pub fn output(&self, rank: u32) -> Vec<Copied> {
        let to = rank as usize;
        let mut offset = 0;
        let mut output = Vec::new();
        for (from, row) in (0..).zip(&self.gives) {
            let from_offset = if self.operation == "allgatherv" { 0 } else { row[..to].iter().sum() };
            output.push(Copied { offset, from, from_offset, bytes: row[to] });
            offset += row[to];
        }
        output
    }

    /// As [`Case::first_wrong`].
    pub fn first_wrong(&self, seed: u64, rank: u32, offset: u64, data: &[u8]) -> Option<u64> {
        first_wrong(&self.output(rank), seed, offset, data)
    }
}

fn first_wrong(output: &[Copied], seed: u64, offset: u64, data: &[u8]) -> Option<u64> {
    let end = offset + data.len() as u64;
    for copied in output {
        let (from, to) = (copied.offset.max(offset), (copied.offset + copied.bytes).min(end));
        if from < to {
            let part = &data[(from - offset) as usize..(to - offset) as usize];
            let start = copied.from_offset + (from - copied.offset);
            if let Some((at, _)) = crate::pattern::first_difference(seed, copied.from, start, part) {
                return Some(from + (at - start));
            }
        }
    }
    None
}

/// A case on data of a seed.
#[derive(Debug)]
pub struct Moving<'a> {
    /// The case.
    pub case: Case<'a>,
    /// Of all inputs.
    pub seed: u64,
}

impl Data for Moving<'_> {
    fn input_bytes(&self, rank: u32) -> u64 {
        self.case.input_bytes(rank)
    }

    fn output_bytes(&self, rank: u32) -> u64 {
        self.case.output(rank).iter().map(|copied| copied.bytes).sum()
    }

    fn fill(&self, rank: u32, offset: u64, data: &mut [u8]) {
        pattern::fill(self.seed, rank, offset, data);
    }

    fn first_wrong(&self, _: &Plan, rank: u32, offset: u64, data: &[u8]) -> Option<u64> {
        self.case.first_wrong(self.seed, rank, offset, data)
    }
}

/// A vector form on data of a seed.
#[derive(Debug)]
pub struct MovingBlocks {
    /// The case.
    pub case: VectorCase,
    /// Of all inputs.
    pub seed: u64,
}

impl Data for MovingBlocks {
    fn input_bytes(&self, rank: u32) -> u64 {
        self.case.input_bytes(rank)
    }

    fn output_bytes(&self, rank: u32) -> u64 {
        self.case.output(rank).iter().map(|copied| copied.bytes).sum()
    }

    fn fill(&self, rank: u32, offset: u64, data: &mut [u8]) {
        pattern::fill(self.seed, rank, offset, data);
    }

    fn first_wrong(&self, _: &Plan, rank: u32, offset: u64, data: &[u8]) -> Option<u64> {
        self.case.first_wrong(self.seed, rank, offset, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alltoall of three ranks and two bytes, worked out by hand.
    #[test]
    fn alltoall_by_hand() {
        let case = Case { operation: "alltoall", ranks: 3, bytes: 2, root: 0, peer: 2 };
        let expected = [(0, 0, 2), (2, 1, 2), (4, 2, 2)];
        let expected = expected.map(|(offset, from, from_offset)| Copied { offset, from, from_offset, bytes: 2 });
        assert_eq!(case.output(1), expected);
    }

    /// Alltoallv and gatherv of three ranks, worked out by hand.
    #[test]
    fn vector_forms_by_hand() {
        let gives = vec![vec![1, 2, 3], vec![4, 0, 6], vec![7, 8, 9]];
        let case = VectorCase { operation: "alltoallv", gives, root: 0 };
        let found: Vec<_> =
            case.output(1).iter().map(|one| (one.offset, one.from, one.from_offset, one.bytes)).collect();
        assert_eq!(found, [(0, 0, 1, 2), (2, 1, 4, 0), (2, 2, 7, 8)]);
        assert_eq!((case.input_bytes(2), case.counts()), (24, vec![1, 2, 3, 4, 0, 6, 7, 8, 9]));
        let case = VectorCase::of_lengths("gatherv", &[5, 0, 7], 1);
        let found: Vec<_> =
            case.output(1).iter().map(|one| (one.offset, one.from, one.from_offset, one.bytes)).collect();
        assert_eq!(found, [(0, 0, 0, 5), (5, 1, 0, 0), (5, 2, 0, 7)]);
        assert!(case.output(0).iter().all(|one| one.bytes == 0));
        assert_eq!(case.counts(), [5, 0, 7]);
        assert_eq!(case.output(1), VectorCase::of_lengths("allgatherv", &[5, 0, 7], 0).output(2));
    }

    #[test]
    fn one_wrong_byte_is_seen() {
        let case = Case { operation: "allgather", ranks: 4, bytes: 1000, root: 0, peer: 3 };
        let mut output = vec![0; 4000];
        for rank in 0..4 {
            crate::pattern::fill(7, rank, 0, &mut output[rank as usize * 1000..][..1000]);
        }
        assert_eq!(case.first_wrong(7, 2, 0, &output), None);
        assert_eq!(case.first_wrong(7, 2, 1500, &output[1500..2600]), None);
        output[2345] ^= 1;
        assert_eq!(case.first_wrong(7, 2, 0, &output), Some(2345));
    }
}
