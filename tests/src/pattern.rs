//! Test data as a function of seed, rank and offset, so that gigabytes can be generated and checked in chunks.

/// Fills `data`, which begins at `offset` of rank `rank`'s input.
pub fn fill(seed: u64, rank: u32, offset: u64, data: &mut [u8]) {
    let mut at = offset;
    let mut rest = data;
    while !rest.is_empty() {
        let word = word(seed, rank, at / 8).to_le_bytes();
        let skip = (at % 8) as usize;
        let bytes = rest.len().min(8 - skip);
        let (now, later) = rest.split_at_mut(bytes);
        now.copy_from_slice(&word[skip..skip + bytes]);
        rest = later;
        at += bytes as u64;
    }
}

/// Returns the first byte of `data` that differs from `fill`: its offset, and the expected byte.
pub fn first_difference(seed: u64, rank: u32, offset: u64, data: &[u8]) -> Option<(u64, u8)> {
    let mut expected = [0; 4096];
    for (chunk, at) in data.chunks(expected.len()).zip((offset..).step_by(expected.len())) {
        let expected = &mut expected[..chunk.len()];
        fill(seed, rank, at, expected);
        if let Some(place) = chunk.iter().zip(expected.iter()).position(|(found, right)| found != right) {
            return Some((at + place as u64, expected[place]));
        }
    }
    None
}

/// Returns word `index` of a rank's data: the finaliser of MurmurHash3 over a Weyl sequence.
fn word(seed: u64, rank: u32, index: u64) -> u64 {
    let start = seed ^ u64::from(rank).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mut x = start.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join() {
        let mut whole = [0; 100];
        fill(1, 2, 3, &mut whole);
        let mut pieces = [0; 100];
        fill(1, 2, 3, &mut pieces[..41]);
        fill(1, 2, 44, &mut pieces[41..]);
        assert_eq!(whole, pieces);
        assert_eq!(first_difference(1, 2, 3, &whole), None);
        whole[77] ^= 0x10;
        assert_eq!(first_difference(1, 2, 3, &whole), Some((80, pieces[77])));
    }

    #[test]
    fn ranks_and_seeds_differ() {
        let data = |seed, rank| {
            let mut data = [0; 64];
            fill(seed, rank, 0, &mut data);
            data
        };
        assert_ne!(data(0, 0), data(0, 1));
        assert_ne!(data(0, 0), data(1, 0));
    }
}
