//! Which rank uses whose card, if a communicator has more ranks than cards.
//!
//! A rank with a card is the *leader* of a *team*: itself and ranks of its host that have no card.

use crate::shape::Reason;

/// Where a rank of `MPI_COMM_WORLD` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    /// A number that all ranks of its host have, and no others.
    pub(crate) host: i64,
    pub(crate) has_card: bool,
}

/// Returns the leader of each rank of a communicator, by rank. A rank with a card leads itself.
///
/// The ranks of a host without a card are dealt to its cards in turn. In rank order, each follows the last rank before it that has a
/// card, so that teams are ranges of ranks wherever hosts are.
///
/// # Errors
/// Why the cards have nothing to do.
pub(crate) fn leaders(seats: &[Seat], in_rank_order: bool) -> Result<Vec<u32>, Reason> {
    let owners = |host: i64| {
        let own = move |(_, seat): &(usize, &Seat)| seat.has_card && seat.host == host;
        seats.iter().enumerate().filter(own).map(|(rank, _)| rank)
    };
    let leader = |(rank, seat): (usize, &Seat)| {
        if seat.has_card {
            return Some(rank as u32);
        }
        let found = if in_rank_order {
            owners(seat.host).rfind(|owner| *owner < rank).or_else(|| owners(seat.host).next())
        } else {
            let before = seats[..rank].iter().filter(|one| one.host == seat.host && !one.has_card).count();
            let count = owners(seat.host).count();
            before.checked_rem(count).and_then(|index| owners(seat.host).nth(index))
        };
        found.map(|owner| owner as u32)
    };
    let leaders: Option<Vec<u32>> = seats.iter().enumerate().map(leader).collect();
    let leaders = leaders.ok_or(Reason::HostWithoutCard)?;
    if leaders.iter().any(|one| *one != leaders[0]) { Ok(leaders) } else { Err(Reason::OneCard) }
}

/// Whether each team is a range of ranks: then the fold of a team, folded with those of the others, keeps the order of ranks.
pub(crate) fn are_ranges(leaders: &[u32]) -> bool {
    let begins = |rank: usize| rank == 0 || leaders[rank] != leaders[rank - 1];
    let ranges = (0..leaders.len()).filter(|rank| begins(*rank)).count();
    ranges == of_teams(leaders).count()
}

/// The leaders, each once, in the order of ranks: their ranks on the cards.
pub(crate) fn of_teams(leaders: &[u32]) -> impl Iterator<Item = u32> {
    (0..).zip(leaders).filter(|(rank, leader)| rank == *leader).map(|(rank, _)| rank)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seats(hosts: &str) -> Vec<Seat> {
        // A capital has a card.
        let seat = |one: char| Seat {
            host: i64::from(u32::from(one.to_ascii_lowercase())),
            has_card: one.is_ascii_uppercase(),
        };
        hosts.chars().map(seat).collect()
    }

    #[test]
    fn ranks_are_dealt_to_the_cards_of_their_host() {
        for (hosts, any, in_order) in [
            ("AAAA", vec![0, 1, 2, 3], vec![0, 1, 2, 3]),
            ("AAaa", vec![0, 1, 0, 1], vec![0, 1, 1, 1]),
            ("AAAa", vec![0, 1, 2, 0], vec![0, 1, 2, 2]),
            ("aAA", vec![1, 1, 2], vec![1, 1, 2]),
            ("AaBb", vec![0, 0, 2, 2], vec![0, 0, 2, 2]),
            ("ABab", vec![0, 1, 0, 1], vec![0, 1, 0, 1]),
        ] {
            assert_eq!(leaders(&seats(hosts), false), Ok(any), "{hosts}");
            assert_eq!(leaders(&seats(hosts), true), Ok(in_order), "{hosts}");
        }
        assert_eq!(leaders(&seats("Aaa"), false), Err(Reason::OneCard));
        assert_eq!(leaders(&seats("AAb"), true), Err(Reason::HostWithoutCard));
    }

    #[test]
    fn teams_are_ranges_if_hosts_are() {
        assert!(are_ranges(&[0, 1, 1, 1]) && are_ranges(&[1, 1, 2]));
        assert!(!are_ranges(&[0, 1, 0, 1]) && !are_ranges(&[0, 1, 0]));
        assert_eq!(of_teams(&[1, 1, 2, 2, 1]).collect::<Vec<_>>(), [1, 2]);
    }

    proptest! {
        #[test]
        fn a_leader_has_a_card_of_the_same_host(
            seats in prop::collection::vec((0..3i64, any::<bool>()), 2..12),
            in_rank_order: bool,
        ) {
            let seats: Vec<Seat> = seats.into_iter().map(|(host, has_card)| Seat { host, has_card }).collect();
            match leaders(&seats, in_rank_order) {
                Ok(leaders) => {
                    for (rank, leader) in leaders.iter().enumerate() {
                        let of = seats[*leader as usize];
                        prop_assert!(of.has_card && of.host == seats[rank].host);
                        prop_assert!(!seats[rank].has_card || *leader as usize == rank);
                    }
                    let size = |leader| leaders.iter().filter(|one| **one == leader).count();
                    for host in 0..3 {
                        let sizes: Vec<usize> =
                            of_teams(&leaders).filter(|one| seats[*one as usize].host == host).map(size).collect();
                        let (least, most) = (sizes.iter().min().unwrap_or(&0), sizes.iter().max().unwrap_or(&0));
                        prop_assert!(in_rank_order || most - least <= 1, "{leaders:?}");
                    }
                }
                Err(Reason::OneCard) => prop_assert_eq!(seats.iter().filter(|seat| seat.has_card).count(), 1),
                Err(_) => {
                    let has_none = |host| !seats.iter().any(|seat| seat.has_card && seat.host == host);
                    prop_assert!(seats.iter().any(|seat| has_none(seat.host)));
                }
            }
        }

        /// Wherever the ranks of a host are a range, teams in rank order are.
        #[test]
        fn teams_in_rank_order_are_ranges(hosts in prop::collection::vec(prop::collection::vec(any::<bool>(), 1..6), 2..5)) {
            let seat = |(host, cards): (usize, &Vec<bool>)| {
                cards.iter().map(move |has_card| Seat { host: host as i64, has_card: *has_card }).collect::<Vec<_>>()
            };
            let seats: Vec<Seat> = hosts.iter().enumerate().flat_map(seat).collect();
            if let Ok(leaders) = leaders(&seats, true) {
                prop_assert!(are_ranges(&leaders), "{leaders:?}");
            }
        }
    }
}
