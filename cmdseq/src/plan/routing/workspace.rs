//! Memory for what is relayed.

use crate::Capabilities;
use crate::ranges::Range;
use crate::refusal::Refusal;

/// A block that a card keeps from one hop to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    pub(super) card: usize,
    /// The round in which it comes.
    pub(super) from: usize,
    /// The round in which it goes on.
    pub(super) until: usize,
    pub(super) bytes: u64,
}

/// Returns the address of each stay, in `room` on each of `cards` cards. A block does not lie where another goes on in the same round.
///
/// There are two areas, in different pseudo channels if there is room: a block that comes while another goes on lies in the other
/// area, because a channel that is read and written gives each half of its rate.
pub(super) fn places(
    stays: &[Stay],
    cards: usize,
    room: Range,
    capabilities: &Capabilities,
) -> Result<Vec<u64>, Refusal> {
    let close = capabilities.aligned_beat();
    let longest = stays.iter().map(|stay| stay.bytes).max().unwrap_or(0);
    let distance = longest.checked_next_multiple_of(close).unwrap_or(u64::MAX);
    let (slots, counts) = slots(stays, cards);
    let sizes = counts.map(|count| distance.saturating_mul(count));
    let areas = areas(sizes, room, capabilities, close).ok_or_else(|| {
        let needed = sizes[0].saturating_add(sizes[1]);
        Refusal::general(format!(
            "relayed blocks need {needed} B of intermediate memory on each card, and {} B are left",
            room.bytes
        ))
    })?;
    Ok(slots.into_iter().map(|(area, number)| areas[area] + distance * number).collect())
}

/// Area of each stay, and its number there; and how many each area has.
fn slots(stays: &[Stay], cards: usize) -> (Vec<(usize, u64)>, [u64; 2]) {
    let mut order: Vec<usize> = (0..stays.len()).collect();
    order.sort_by_key(|stay| (stays[*stay].from, *stay));
    let mut slots = vec![(0, 0); stays.len()];
    let mut counts = [0; 2];
    // By card, the stays whose slots are in use, and by area the free slots.
    let mut used: Vec<Vec<usize>> = vec![Vec::new(); cards];
    let mut free: Vec<[Vec<u64>; 2]> = vec![Default::default(); cards];
    let mut made: Vec<[u64; 2]> = vec![[0; 2]; cards];
    for number in order {
        let stay = &stays[number];
        let (used, free, made) = (&mut used[stay.card], &mut free[stay.card], &mut made[stay.card]);
        used.retain(|other| {
            let is_used = stays[*other].until >= stay.from;
            if !is_used {
                let (area, slot) = slots[*other];
                free[area].push(slot);
            }
            is_used
        });
        let going = used.iter().find(|other| stays[**other].until == stay.from);
        let area = match going {
            Some(other) => 1 - slots[*other].0,
            None => usize::from(free[0].is_empty() && !free[1].is_empty()),
        };
        let slot = free[area].pop().unwrap_or_else(|| {
            made[area] += 1;
            made[area] - 1
        });
        counts[area] = counts[area].max(made[area]);
        slots[number] = (area, slot);
        used.push(number);
    }
    (slots, counts)
}

/// Where areas of these sizes begin: at the end of `room`, where data of other plans is least likely to be.
fn areas(sizes: [u64; 2], room: Range, capabilities: &Capabilities, close: u64) -> Option<[u64; 2]> {
    let channel = capabilities.channel_bytes().max(1);
    let down = |end: u64, bytes: u64| end.checked_sub(bytes).map(|begin| begin / close * close);
    let is_inside = |begin: &u64| *begin >= room.address;
    let first = down(room.end(), sizes[0])?;
    let apart = down(first / channel * channel, sizes[1]).filter(is_inside);
    let second = apart.or_else(|| down(first, sizes[1])).filter(is_inside)?;
    Some([first, second]).filter(|_| room.bytes > 0 || sizes == [0, 0])
}
