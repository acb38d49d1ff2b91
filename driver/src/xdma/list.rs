//! Lists of descriptors: how a transfer is cut, and which descriptors the engine may fetch together.

use fpga_regs::xdma::{ADJACENT_MAX, DESCRIPTOR_BYTES, Descriptor, LENGTH_MAX};

use crate::xdma::direction::Direction;

/// Most bytes of one descriptor: whole pages.
const BYTES_MAX: u64 = (LENGTH_MAX as u64 + 1) - 4096;
/// Descriptors are fetched together inside of aligned groups of this many, which cross no boundary of 4 KiB.
const GROUP: u64 = ADJACENT_MAX as u64 + 1;

/// Fewest bytes for which another channel is used.
const SHARE_MIN: u64 = 64 << 10;

/// What one descriptor moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) host: u64,
    pub(super) card: u64,
    pub(super) bytes: u64,
}

/// Cuts moves so that each fits a descriptor, and divides them among `channels` channels, at multiples of `align` bytes.
/// Channels without moves are left out.
pub(super) fn divide(moves: &[Move], channels: usize, align: u64) -> Vec<Vec<Move>> {
    let total: u64 = moves.iter().map(|one| one.bytes).sum();
    let share = total.div_ceil(channels as u64).max(SHARE_MIN).next_multiple_of(align);
    let mut lists: Vec<Vec<Move>> = Vec::new();
    let mut room = 0;
    for one in moves {
        let (mut host, mut card, mut left) = (one.host, one.card, one.bytes);
        while left > 0 {
            if room == 0 {
                lists.push(Vec::new());
                room = share;
            }
            let bytes = left.min(room).min(BYTES_MAX);
            if let Some(list) = lists.last_mut() {
                list.push(Move { host, card, bytes });
            }
            (host, card, left, room) = (host + bytes, card + bytes, left - bytes, room - bytes);
        }
    }
    lists
}

/// Returns how many descriptors follow the one at `iova` that can be fetched with it, when `left` are left with it.
pub(super) fn adjacent(iova: u64, left: usize) -> u32 {
    let behind = GROUP - 1 - iova / DESCRIPTOR_BYTES as u64 % GROUP;
    behind.min((left as u64).saturating_sub(1)) as u32
}

/// Returns the descriptors of a list that begins at `iova`, one behind the other.
pub(super) fn descriptors(direction: Direction, moves: &[Move], iova: u64) -> impl Iterator<Item = Descriptor> {
    let count = moves.len();
    moves.iter().enumerate().map(move |(place, one)| {
        let is_last = place + 1 == count;
        let next = iova + (place as u64 + 1) * DESCRIPTOR_BYTES as u64;
        let (source, destination) = match direction {
            Direction::H2c => (one.host, one.card),
            Direction::C2h => (one.card, one.host),
        };
        Descriptor {
            stop: is_last,
            completed: is_last,
            end_of_packet: is_last,
            adjacent: if is_last { 0 } else { adjacent(next, count - place - 1) },
            bytes: one.bytes as u32,
            source,
            destination,
            next: if is_last { 0 } else { next },
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let bytes = prop_oneof![1..5000_u64, (1_u64 << 28) - 5000..(1 << 28) + 5000, 1..(1_u64 << 31)];
        let one = (0..1_u64 << 40, 0..1_u64 << 33, bytes).prop_map(|(host, card, bytes)| Move { host, card, bytes });
        prop::collection::vec(one, 1..20)
    }

    proptest! {
        /// Every byte is moved once, by descriptors that the field of the length can hold.
        #[test]
        fn nothing_is_lost_or_moved_twice(moves in moves(), channels in 1..5_usize, align in prop::sample::select(vec![1_u64, 64, 4096])) {
            let lists = divide(&moves, channels, align);
            prop_assert!(lists.len() <= channels, "{} lists", lists.len());
            let mut cut = lists.iter().flatten();
            for one in &moves {
                let mut done = 0;
                while done < one.bytes {
                    let part = cut.next().unwrap();
                    prop_assert_eq!((part.host, part.card), (one.host + done, one.card + done));
                    prop_assert!(part.bytes > 0 && part.bytes <= u64::from(LENGTH_MAX));
                    done += part.bytes;
                }
                prop_assert_eq!(done, one.bytes);
            }
            prop_assert_eq!(cut.next(), None);
        }

        /// Each descriptor says how many follow the next one that can be fetched with it: all up to the end of an aligned group of
        /// 2 KiB, or of the list.
        #[test]
        fn what_is_fetched_together_is_one_group(count in 1..100_u64, page in 0..1_u64 << 40, is_up: bool) {
            let (direction, base) = (Direction::ALL[usize::from(is_up)], page << 12);
            let moves = vec![Move { host: 0, card: 0, bytes: 64 }; count as usize];
            let end = base + 32 * count;
            let descriptors: Vec<Descriptor> = descriptors(direction, &moves, base).collect();
            let mut said = vec![(base, adjacent(base, moves.len()))];
            said.extend(descriptors.iter().map(|one| (one.next, one.adjacent)));
            prop_assert_eq!(said.pop(), Some((0, 0)), "nothing follows the last");
            for (place, (next, adjacent)) in (0..).zip(said) {
                prop_assert_eq!(next, base + 32 * place);
                prop_assert_eq!(next + 32 * (1 + u64::from(adjacent)), end.min((next / 2048 + 1) * 2048));
            }
        }
    }
}
