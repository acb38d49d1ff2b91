//! What each collective leaves where, written down from its definition: which bytes of whose input each byte of an output is.

/// The operations, by the names of the command line.
pub const OPERATIONS: [&str; 9] =
    ["barrier", "send", "recv", "sendrecv", "scatter", "gather", "broadcast", "alltoall", "allgather"];

/// One operation of a group of ranks.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// Its name.
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

/// A range of an output and what it is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Where it begins in the output.
    pub offset: u64,
    /// Rank whose input it comes from.
    pub from: u32,
    /// Where it begins in that input.
    pub from_offset: u64,
    /// Its length.
    pub bytes: u64,
}

impl Case<'_> {
    /// Bytes of rank `rank`'s input.
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

    /// What rank `rank`'s output is made of.
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

    /// Compares a range of an output with what it should be; the offset of the first wrong byte.
    pub fn first_wrong(&self, seed: u64, rank: u32, offset: u64, data: &[u8]) -> Option<u64> {
        let end = offset + data.len() as u64;
        for copied in self.output(rank) {
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
