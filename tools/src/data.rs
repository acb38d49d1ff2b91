//! Input data: a pattern computed from seed, rank and offset, or files. Any range is available at any time, so gigabytes
//! stream through small buffers.

use std::sync::LazyLock;

use crate::exit::Result;
use crate::npy;

/// Bytes written, read or checked at a time.
pub(crate) const CHUNK: usize = 1 << 20;

/// Splits `bytes` bytes into chunks: offset and length of each.
pub(crate) fn chunks(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let length = move |offset: u64| usize::try_from(bytes - offset).unwrap_or(CHUNK).min(CHUNK);
    (0..bytes).step_by(CHUNK).map(move |offset| (offset, length(offset)))
}

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

/// Words after which a pattern takes another addend: they stay in the first cache.
const RUN: u64 = 1 << 10;

/// The first words of a splitmix64 sequence.
static WORDS: LazyLock<[u64; RUN as usize]> = LazyLock::new(|| std::array::from_fn(|index| at(0, index as u64)));

/// Fills `data` with the pattern of `seed` for rank `rank`, from `offset` on.
///
/// Each run of 8 KiB is [`WORDS`], to each of which a number is added that depends on seed, rank and run. That is as fast as a
/// copy: three multiplications of 64 bits for each word would take longer than moving the data.
pub(crate) fn pattern(seed: u64, rank: u32, offset: u64, mut data: &mut [u8]) {
    let first = mix(seed ^ mix(u64::from(rank)));
    let addend = |index: u64| at(first, index / RUN);
    let words = |index: u64| &WORDS[(index % RUN) as usize..];
    let word = |index: u64| words(index)[0].wrapping_add(addend(index)).to_le_bytes();
    let (mut index, skip) = (offset / 8, (offset % 8) as usize);
    if skip != 0 {
        let (head, rest) = data.split_at_mut(data.len().min(8 - skip));
        head.copy_from_slice(&word(index)[skip..][..head.len()]);
        (data, index) = (rest, index + 1);
    }
    let (places, tail) = data.as_chunks_mut();
    let mut rest = places;
    while !rest.is_empty() {
        let (addend, words) = (addend(index), words(index));
        let (run, after) = rest.split_at_mut(rest.len().min(words.len()));
        for (place, word) in run.iter_mut().zip(words) {
            *place = word.wrapping_add(addend).to_le_bytes();
        }
        (rest, index) = (after, index + run.len() as u64);
    }
    tail.copy_from_slice(&word(index)[..tail.len()]);
}

/// Returns word `index` of the splitmix64 sequence that begins with the state `first`.
fn at(first: u64, index: u64) -> u64 {
    mix(first.wrapping_add(index.wrapping_mul(GOLDEN)))
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

/// Data that is not what was written.
#[derive(Debug, thiserror::Error)]
#[error("wrong data at card address {address:#x}: wrote {wrote:#04x}, read {read:#04x}")]
pub(crate) struct WrongData {
    address: u64,
    wrote: u8,
    read: u8,
}

/// Compares what was read from card memory with what was written.
pub(crate) fn compare(address: u64, wrote: &[u8], read: &[u8]) -> std::result::Result<(), WrongData> {
    match (address..).zip(wrote.iter().zip(read)).find(|(_, (wrote, read))| wrote != read) {
        Some((address, (wrote, read))) => Err(WrongData { address, wrote: *wrote, read: *read }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The first output of the published reference implementation for state 0.
    #[test]
    fn is_splitmix64() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn any_two_pieces_join() {
        // From the beginning, and across the end of a run.
        for offset in [3, 8 * RUN - 17] {
            let mut whole = [0; 40];
            pattern(1, 2, offset, &mut whole);
            for cut in 0..=whole.len() {
                let mut pieces = [0; 40];
                let (head, tail) = pieces.split_at_mut(cut);
                pattern(1, 2, offset, head);
                pattern(1, 2, offset + cut as u64, tail);
                assert_eq!(whole, pieces, "{cut}");
            }
        }
    }

    /// What lies elsewhere in the data, or has been combined with the same bytes of another rank, is found out.
    #[test]
    fn no_word_is_there_twice() {
        let words = |rank| {
            let mut data = vec![0; 1 << 20];
            pattern(0, rank, 0, &mut data);
            data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>()
        };
        let (one, other) = (words(0), words(1));
        let combined = |with: fn(u64, u64) -> u64| one.iter().zip(&other).map(move |(a, b)| with(*a, *b));
        let count = |words: &mut dyn Iterator<Item = u64>| words.collect::<HashSet<_>>().len();
        assert_eq!(count(&mut one.iter().chain(&other).copied()), 2 * one.len());
        for with in [u64::wrapping_add, |a, b| a ^ b, u64::max] {
            assert_eq!(count(&mut combined(with)), one.len());
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
