//! Distributes blocks over pseudo channels, which hold only so many of them.

/// Blocks of groups of equal size, over channels: from each group at most `may[group][channel]`, from all groups together at most
/// `room[channel]`. Returns how many of each group are in each channel; `None` if they do not all fit.
pub(super) fn shares(size: u32, may: &[Vec<u32>], room: &[u32]) -> Option<Vec<Vec<u32>>> {
    let shares = may.iter().map(|channels| vec![0; channels.len()]).collect();
    let mut search = Search { may, left: room.to_vec(), shares };
    for group in 0..may.len() {
        for _ in 0..size {
            let mut tried = vec![false; room.len()];
            if !search.place(group, &mut tried) {
                return None;
            }
        }
    }
    Some(search.shares)
}

struct Search<'a> {
    may: &'a [Vec<u32>],
    left: Vec<u32>,
    shares: Vec<Vec<u32>>,
}

impl Search<'_> {
    /// Places one more block of a group: in the channel with the most room, or in a full one, of which a block of another group moves
    /// to a channel that has not been tried.
    fn place(&mut self, group: usize, tried: &mut [bool]) -> bool {
        let channels = 0..self.left.len();
        let may_take = |search: &Self, channel: usize| search.shares[group][channel] < search.may[group][channel];
        let roomy =
            channels.clone().filter(|channel| may_take(self, *channel)).max_by_key(|channel| self.left[*channel]);
        if let Some(channel) = roomy.filter(|channel| self.left[*channel] > 0) {
            self.left[channel] -= 1;
            self.shares[group][channel] += 1;
            return true;
        }
        for channel in channels {
            if !may_take(self, channel) || std::mem::replace(&mut tried[channel], true) {
                continue;
            }
            for other in (0..self.may.len()).filter(|other| *other != group) {
                if self.shares[other][channel] > 0 && self.place(other, tried) {
                    self.shares[other][channel] -= 1;
                    self.shares[group][channel] += 1;
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether all blocks fit, by the theorem of Gale: no choice of groups has more blocks than the channels take of them.
    fn fits(size: u32, may: &[Vec<u32>], room: &[u32]) -> bool {
        (0_u32..1 << may.len()).all(|chosen| {
            let of_chosen = || may.iter().enumerate().filter(|(group, _)| chosen >> group & 1 == 1).map(|(_, may)| may);
            let taken = |channel: usize| room[channel].min(of_chosen().map(|may| may[channel]).sum());
            of_chosen().count() as u32 * size <= (0..room.len()).map(taken).sum()
        })
    }

    proptest! {
        #[test]
        fn all_blocks_are_placed_exactly_if_they_fit(
            size in 0_u32..6,
            may in prop::collection::vec(prop::collection::vec(0_u32..4, 5), 1..5),
            room in prop::collection::vec(0_u32..6, 5),
        ) {
            let shares = shares(size, &may, &room);
            prop_assert_eq!(shares.is_some(), fits(size, &may, &room));
            for (shares, may) in shares.iter().flatten().zip(&may) {
                prop_assert_eq!(shares.iter().sum::<u32>(), size);
                prop_assert!(shares.iter().zip(may).all(|(share, may)| share <= may));
            }
            let taken = |channel: usize| shares.iter().flatten().map(|shares| shares[channel]).sum::<u32>();
            prop_assert!((0..room.len()).all(|channel| taken(channel) <= room[channel]));
        }
    }
}
