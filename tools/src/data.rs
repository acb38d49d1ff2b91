//! Input data: a pattern computed from seed, rank and offset, or files. Any range is available at any time, so gigabytes
//! stream through small buffers.

use crate::exit::Result;
use crate::npy;

/// Bytes written, read or checked at a time.
pub(crate) const CHUNK: usize = 1 << 20;

/// The inputs of all ranks.
pub(crate) enum Source {
    /// [`pattern`] of this seed.
    Pattern {
        /// The seed.
        seed: u64,
    },
    /// One file for each rank that has input.
    Files(Vec<Option<npy::Input>>),
}

impl Source {
    /// Fills `data` with rank `rank`'s input from `offset` on.
    pub(crate) fn fill(&self, rank: u32, offset: u64, data: &mut [u8]) -> Result<()> {
        match self {
            Source::Pattern { seed } => pattern(*seed, rank, offset, data),
            Source::Files(files) => {
                if let Some(Some(file)) = files.get(rank as usize) {
                    file.read(offset, data)?;
                }
            }
        }
        Ok(())
    }
}

/// Fills `data` with the pattern of `seed` for rank `rank`, from `offset` on.
pub(crate) fn pattern(seed: u64, rank: u32, offset: u64, data: &mut [u8]) {
    let skip = (offset % 8) as usize;
    let (head, body) = data.split_at_mut(if skip == 0 { 0 } else { data.len().min(8 - skip) });
    head.copy_from_slice(&word(seed, rank, offset / 8)[skip..][..head.len()]);
    let first = offset.div_ceil(8);
    let (words, tail) = body.as_chunks_mut();
    for (place, index) in words.iter_mut().zip(first..) {
        // The compiler takes two words at a time, if it can: SSE2 has no multiplication of 64 bits, and without it the
        // loop is 1.8 times as fast.
        *place = word(seed, rank, std::hint::black_box(index));
    }
    tail.copy_from_slice(&word(seed, rank, first + words.len() as u64)[..tail.len()]);
}

/// Returns word `index` of a rank's pattern: a splitmix64 sequence whose first state depends on seed and rank.
fn word(seed: u64, rank: u32, index: u64) -> [u8; 8] {
    let start = mix(seed ^ mix(u64::from(rank)));
    mix(start.wrapping_add(index.wrapping_mul(GOLDEN))).to_le_bytes()
}

/// From one state of splitmix64 to the next.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the output of splitmix64 (Steele, Lea, Flood 2014) for `state`.
pub(crate) fn mix(state: u64) -> u64 {
    let mut x = state.wrapping_add(GOLDEN);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first output of the published reference implementation for state 0.
    #[test]
    fn is_splitmix64() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn any_two_pieces_join() {
        let mut whole = [0; 40];
        pattern(1, 2, 3, &mut whole);
        for cut in 0..=whole.len() {
            let mut pieces = [0; 40];
            let (head, tail) = pieces.split_at_mut(cut);
            pattern(1, 2, 3, head);
            pattern(1, 2, 3 + cut as u64, tail);
            assert_eq!(whole, pieces, "{cut}");
        }
    }

    #[test]
    fn seeds_and_ranks_differ() {
        let data = |seed, rank| {
            let mut data = [0; 32];
            pattern(seed, rank, 0, &mut data);
            data
        };
        assert_ne!(data(0, 0), data(0, 1));
        assert_ne!(data(0, 0), data(1, 0));
        assert_ne!(data(0, 1), data(1, 0));
    }
}
