//! Routes over any cables that cannot deadlock: first up, then down a tree (up*/down*, Schroeder and others, 1991).
//!
//! BlueLink has no virtual channels, so flits that wait for each other in a circle would wait for ever. Boards are numbered by
//! their distance from board 0. A flit goes over cables to lower numbers first, and then to higher ones only, so no flits wait
//! in a circle. Neighbours are always one hop apart; other paths may be longer than the shortest.

use std::collections::VecDeque;

/// For each board the port toward each board; `None` for itself. Returns the number of a board that cannot be reached
/// from board 0.
pub(super) fn up_down(neighbours: &[Vec<usize>]) -> Result<Vec<Vec<Option<usize>>>, usize> {
    let boards = neighbours.len();
    let order = breadth_first(neighbours);
    let mut rank = vec![usize::MAX; boards];
    order.iter().enumerate().for_each(|(place, board)| rank[*board] = place);
    if let Some(cut_off) = rank.iter().position(|rank| *rank == usize::MAX) {
        return Err(cut_off);
    }
    let mut routes = vec![vec![None; boards]; boards];
    for to in 0..boards {
        // Hops to the destination, and whether all of them go down.
        let mut hops: Vec<Option<(usize, bool)>> = vec![None; boards];
        hops[to] = Some((0, true));
        let best = |hops: &[Option<(usize, bool)>], at: usize, is_down: bool| {
            let choices = neighbours[at].iter().enumerate().filter_map(|(port, next)| {
                let (count, only_down) = hops[*next]?;
                let goes_down = rank[*next] > rank[at];
                (goes_down == is_down && (only_down || !is_down)).then_some((count + 1, port))
            });
            choices.min()
        };
        // Down: from high ranks to low ones. A board above the destination knows all boards below it by then.
        for at in order.iter().rev().copied().filter(|at| *at != to) {
            if let Some((count, port)) = best(&hops, at, true) {
                (hops[at], routes[at][to]) = (Some((count, true)), Some(port));
            }
        }
        // The others go up, and take what they find there.
        for at in order.iter().copied() {
            if hops[at].is_none()
                && let Some((count, port)) = best(&hops, at, false)
            {
                (hops[at], routes[at][to]) = (Some((count, false)), Some(port));
            }
        }
    }
    Ok(routes)
}

fn breadth_first(neighbours: &[Vec<usize>]) -> Vec<usize> {
    let mut is_found = vec![false; neighbours.len()];
    let (mut order, mut next) = (Vec::new(), VecDeque::new());
    if let Some(first) = is_found.first_mut() {
        *first = true;
        next.push_back(0);
    }
    while let Some(board) = next.pop_front() {
        order.push(board);
        next.extend(neighbours[board].iter().copied().filter(|to| !std::mem::replace(&mut is_found[*to], true)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// On any connected cables every board is reached, neighbours directly, and no port waits for itself.
        #[test]
        fn all_boards_are_reached_and_nothing_waits_in_a_circle(
            boards in 2..20_usize, extra in prop::collection::vec((0..20_usize, 0..20_usize), 0..30), seed in any::<u64>(),
        ) {
            let mut neighbours = vec![Vec::new(); boards];
            let mut join = |one: usize, other: usize| {
                if one != other && !neighbours[one].contains(&other) {
                    neighbours[one].push(other);
                    neighbours[other].push(one);
                }
            };
            (1..boards).for_each(|board| join(board, (seed as usize).wrapping_mul(board * 31) % board));
            extra.iter().for_each(|(one, other)| join(one % boards, other % boards));
            let routes = up_down(&neighbours).unwrap();
            // Cables that a flit holds while it waits for the next one.
            let mut waits = vec![];
            for from in 0..boards {
                for to in (0..boards).filter(|to| *to != from) {
                    let (mut at, mut path) = (from, vec![]);
                    while at != to {
                        let next = neighbours[at][routes[at][to].unwrap()];
                        path.push((at, next));
                        at = next;
                        prop_assert!(path.len() < boards, "a loop from {} to {}", from, to);
                    }
                    prop_assert!(path.len() == 1 || !neighbours[from].contains(&to));
                    waits.extend(path.windows(2).map(|pair| (pair[0], pair[1])));
                }
            }
            // Cables that wait for nothing are removed, until none is left.
            loop {
                let before = waits.len();
                let holders: Vec<_> = waits.iter().map(|wait| wait.0).collect();
                waits.retain(|wait| holders.contains(&wait.1));
                if waits.len() == before {
                    break;
                }
            }
            prop_assert!(waits.is_empty(), "in a circle: {:?}", waits);
        }
    }

    #[test]
    fn a_board_without_a_cable_is_named() {
        assert_eq!(up_down(&[vec![1], vec![0], vec![]]), Err(2));
        assert_eq!(up_down(&[]), Ok(vec![]));
    }
}
