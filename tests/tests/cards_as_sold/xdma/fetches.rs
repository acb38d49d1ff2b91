//! Lists of descriptors against the rules of the product guide, by a checker that shares no code with the driver or the mock.

use std::sync::Arc;

use fpga_driver::xdma::{Completion, Direction, Piece};
use fpga_mock::xdma::{self, XdmaCards};
use proptest::prelude::*;

use super::registers::Raw;
use super::{open, shape};

/// A descriptor as it is in memory: control, length, source, destination, next.
type Words = (u32, u32, u64, u64, u64);

/// Checks a list in `memory` (which begins at address `base`) that is started with `first` and `adjacent`, and returns the
/// (address, count) of each fetch.
fn check(memory: &[u8], base: u64, first: u64, adjacent: u32) -> Result<Vec<(u64, u32)>, String> {
    let read = |at: u64| -> Result<Words, String> {
        let place = at.checked_sub(base).ok_or(format!("{at:#x} is outside of the list"))? as usize;
        let bytes = memory.get(place..place + 32).ok_or(format!("{at:#x} is outside of the list"))?;
        let word = |n: usize| u32::from_le_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap());
        let pair = |n: usize| u64::from_le_bytes(bytes[4 * n..4 * n + 8].try_into().unwrap());
        Ok((word(0), word(1), pair(2), pair(4), pair(6)))
    };
    let mut fetches = Vec::new();
    let (mut at, mut extra) = (first, adjacent);
    loop {
        if at % 32 != 0 {
            return Err(format!("{at:#x} is not aligned to 32 bytes"));
        }
        if extra > 63 {
            return Err(format!("{extra} adjacent descriptors"));
        }
        if at / 4096 != (at + 32 * u64::from(extra) + 31) / 4096 {
            return Err(format!("{} descriptors at {at:#x} cross a page", extra + 1));
        }
        fetches.push((at, extra + 1));
        let mut last = read(at)?;
        for number in 0..=u64::from(extra) {
            last = read(at + 32 * number)?;
            let (control, length, ..) = last;
            if control >> 16 != 0xad4b {
                return Err(format!("the control word at {:#x} is {control:#x}", at + 32 * number));
            }
            if control & 0xc0ec != 0 || length >> 28 != 0 {
                return Err(format!("reserved bits at {:#x}", at + 32 * number));
            }
            if length == 0 {
                return Err(format!("no bytes at {:#x}", at + 32 * number));
            }
            if control & 1 != 0 {
                return match number == u64::from(extra) {
                    true => Ok(fetches),
                    false => Err(format!("descriptors behind the stop at {:#x} are fetched", at + 32 * number)),
                };
            }
        }
        (at, extra) = (last.4, last.0 >> 8 & 0x3f);
        if fetches.len() > 1 << 20 {
            return Err("the list has no end".into());
        }
    }
}

fn encode((control, length, source, destination, next): Words) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(control.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    for address in [source, destination, next] {
        bytes.extend(address.to_le_bytes());
    }
    bytes
}

/// Where the words are in card memory.
const CARD: u64 = 0x10_0000;
const MAGIC: u32 = 0xad4b_0000;
const STOP: u32 = 0b11;

/// A list of `count` descriptors in blocks of at most `block`, which begin at multiples of `block`. If `everywhere`, each
/// descriptor says what follows it, and else only the last of a block does.
fn laid_out((base, host): (u64, u64), start: u64, count: u64, block: u64, everywhere: bool) -> (Vec<u8>, u32) {
    let extra = |at: u64| {
        let number = (at - base) / 32;
        (block - 1 - number % block).min(start + count - 1 - number) as u32
    };
    let mut bytes = vec![0; 32 * start as usize];
    for number in start..start + count {
        let next = base + 32 * number + 32;
        let is_last = number + 1 == start + count;
        let says = !is_last && (everywhere || (next - base) / 32 % block == 0);
        let (adjacent, next) = if says { (extra(next), next) } else { (0, 0) };
        let control = MAGIC | adjacent << 8 | if is_last { STOP } else { 0 };
        // Words of the card go to the host in reverse.
        let (source, destination) = (CARD + 8 * (number - start), host + 8 * (start + count - 1 - number));
        bytes.extend(encode((control, 8, source, destination, next)));
    }
    (bytes, extra(base + 32 * start))
}

#[test]
fn both_known_layouts_are_accepted_and_run() {
    // 64 in a block with the fields in each descriptor, and 32 in a block with the fields in its last.
    for (block, everywhere) in [(64, true), (64, false), (32, false), (1, true)] {
        for (start, count) in [(0, 1), (0, 64), (0, 65), (63, 2), (5, 200), (31, 33)] {
            let cards = XdmaCards::new(1, shape(1, 1));
            let raw = Raw::new(&cards);
            let base = raw.list.iova().0;
            let (bytes, adjacent) = laid_out((base, raw.data.iova().0), start, count, block, everywhere);
            let first = base + 32 * start;
            let fetches = check(&bytes, base, first, adjacent).unwrap();
            assert_eq!(fetches.iter().map(|(_, count)| u64::from(*count)).sum::<u64>(), count);

            let words: Vec<u8> = (0..count).flat_map(|n| (n * 0x0101_0101).to_le_bytes()).collect();
            cards.write_memory(0, CARD, &words).unwrap();
            cards.fetches(0);
            raw.list.write(0, &bytes).unwrap();
            raw.start(Direction::C2h, first, adjacent);
            assert_eq!(raw.read(0x1040), 0b110, "stopped and completed");
            assert_eq!(u64::from(raw.read(0x1048)), count);
            let mut found = vec![0; words.len()];
            raw.data.read(0, &mut found).unwrap();
            assert!(found.chunks(8).eq(words.chunks(8).rev()));
            let noted: Vec<(u64, u32)> = cards.fetches(0).iter().map(|fetch| (fetch.iova, fetch.count)).collect();
            assert_eq!(noted, fetches);
            assert_eq!(cards.violations(0), []);
        }
    }
}

#[test]
fn what_the_guide_forbids_is_refused() {
    let (good, adjacent) = laid_out((0x4000, 0), 0, 64, 64, true);
    check(&good, 0x4000, 0x4000, adjacent).unwrap();
    let refused = |bytes: &[u8], first, adjacent| check(bytes, 0x4000, first, adjacent).unwrap_err();
    assert!(refused(&good, 0x4000, 64).contains("adjacent"));
    assert!(refused(&good, 0x4010, 0).contains("aligned"));
    assert!(refused(&good, 0x4020, adjacent).contains("behind the stop"));
    assert!(refused(&good, 0x3fe0, 0).contains("outside"));
    let (long, _) = laid_out((0x4000, 0), 100, 40, 64, true);
    assert!(refused(&long, 0x4000 + 3200, 39).contains("cross"));
    for (at, bit, why) in [(0, 2, "reserved"), (7, 4, "reserved"), (3, 0, "control"), (0, 0, "behind the stop")] {
        let mut bad = good.clone();
        bad[32 * 10 + at] ^= 1 << bit;
        assert!(refused(&bad, 0x4000, adjacent).contains(why), "{at} {bit}: {}", refused(&bad, 0x4000, adjacent));
    }
    let mut bad = good.clone();
    bad[32 * 10 + 4..32 * 10 + 8].fill(0);
    assert!(refused(&bad, 0x4000, adjacent).contains("no bytes"));
    let mut endless = good;
    endless[32 * 63..32 * 64].copy_from_slice(&encode((MAGIC | adjacent << 8, 8, 0, 0, 0x4000)));
    assert!(refused(&endless, 0x4000, adjacent).contains("no end"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// What the card fetched was within the rules, and all of each list.
    #[test]
    fn the_drivers_lists_keep_the_rules(counts in prop::collection::vec((1..700_usize, any::<bool>()), 1..4), channels in 1..5_u32) {
        let cards = XdmaCards::new(1, shape(channels, channels));
        let mut engine = open(&cards, Completion::Poll);
        cards.fetches(0);
        for (count, is_up) in counts {
            let direction = if is_up { Direction::H2c } else { Direction::C2h };
            let buffer = engine.allocate(count * 1000).unwrap();
            let piece = |n: usize| Piece { buffer: Arc::clone(&buffer), offset: n * 1000, address: n as u64 * 1000, bytes: 1000 };
            engine.transfer(direction, &(0..count).map(piece).collect::<Vec<_>>()).unwrap();
            let fetches = cards.fetches(0);
            let fetched: usize = fetches.iter().map(|fetch| fetch.count as usize).sum();
            // A cut between channels may be inside of a piece.
            prop_assert!((count..count + channels as usize).contains(&fetched), "{fetched} of {count}");
            for fetch in &fetches {
                prop_assert_eq!(fetch.iova % 32, 0);
                prop_assert!(fetch.iova % 4096 + 32 * u64::from(fetch.count) <= 4096);
                prop_assert!(fetch.count <= 64);
                prop_assert_eq!(fetch.direction == xdma::Direction::H2c, is_up);
            }
            // Only the first and the last fetch of a list have fewer descriptors than fit.
            prop_assert!(fetches.len() <= count / 64 + 2 * channels as usize);
        }
    }
}
