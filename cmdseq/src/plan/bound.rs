//! What no plan can be faster than, whatever its algorithm.

use std::collections::{BTreeMap, BTreeSet};

use super::renumbered::missing;
use super::routing::Routes;
use crate::Capabilities;
use crate::capability::SwitchUnits;
use crate::request::{Collective, Request};
use crate::switch::PHIT_BYTES;
use crate::topology::{Shape, Topology};

/// A time that no plan of a request can be below, in picoseconds.
///
/// A card reads what it sends while its first bytes are still on their way, so not all that its memory moves comes after a hop:
/// - What leaves or reaches a rank is read, passes a link, and is written. None of it is read before dispatch and the first read.
///   Then each byte still takes `data_ps`: one that is sent, after it is read and on the link; one that is received, partly before
///   it can be written and partly afterwards. So a whole hop comes besides all of these bytes at the rate of link or memory:
///   `last_ps` and `link_ps`.
/// - Memory moves nothing before the first read. Whatever was written last must still pass the rest of the switch and the size
///   check, and what was read last must still pass more than these. All that a card reads and writes is moved between: `access_ps`
///   and `memory_ps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LowerBound {
    /// The hops of the first byte: one instruction over the links to the farthest rank, or two if some ranks do not reach each other.
    pub latency_ps: u64,
    /// The hops of the last byte: of a send all, else those to the nearest rank, because what goes farther may leave before.
    pub last_ps: u64,
    /// The bytes that must leave or reach a rank, over its links to the others and to cards that may relay; or at the rate of all
    /// pseudo channels of a card, if these are slower; or all bytes over all links.
    pub link_ps: u64,
    /// From the issue of an instruction until its first byte is read, and from the last byte written until it counts.
    pub access_ps: u64,
    /// The bytes that leave a rank, that reach it, and that it folds of its own, at the rate of all pseudo channels of a card; or
    /// what all cards relay.
    pub memory_ps: u64,
}

impl LowerBound {
    /// Returns the largest of three times: the hops of the first byte; the links, with the hops of the last byte; and the memory,
    /// with what comes before and after.
    pub fn total_ps(&self) -> u64 {
        let moved = self.last_ps.saturating_add(self.link_ps);
        self.latency_ps.max(moved).max(self.access_ps.saturating_add(self.memory_ps))
    }
}

impl Request {
    /// Returns the lower bound of the arrival on cards with `capabilities`; `None` if two ranks need a path, and no cards that may
    /// relay make one; or if the cards have no such nodes, or no such topology. A request of one rank has a bound of zero.
    pub fn lower_bound(&self, capabilities: &Capabilities) -> Option<LowerBound> {
        capabilities.topology.check(capabilities.nodes).ok()?;
        if self.group.iter().any(|node| *node >= capabilities.nodes) {
            return None;
        }
        let ranks = self.ranks();
        if ranks < 2 || (self.collective.has_peer() && self.root == self.peer) {
            return Some(LowerBound::default());
        }
        let timing = &capabilities.timing;
        let outside = self.outside(capabilities)?;
        let links = self.links(&[], capabilities);
        let linked_pairs = links.iter().sum();
        let links = if outside.is_empty() { links } else { self.links(&outside, capabilities) };
        // Routers of all cards carry what passes them.
        let all_links: u64 = match capabilities.topology.has_routers() {
            true => capabilities.topology.links(capabilities.nodes).into(),
            false => links.iter().sum(),
        };
        let mut bound = LowerBound::default();
        if (0..ranks).any(|rank| self.arriving(rank) > 0) {
            (bound.latency_ps, bound.last_ps) = self.hops_ps(capabilities);
            bound.access_ps = first_read_ps(capabilities).saturating_add(past_buffer_ps(capabilities));
        } else if self.collective == Collective::Barrier {
            (bound.latency_ps, bound.last_ps) = self.hops_ps(capabilities);
        }
        let entry_mbps = entry_mbps(capabilities);
        let memory_mbps = u64::from(timing.channel_mbps).saturating_mul(capabilities.memory_channels.into());
        for rank in 0..ranks {
            let (out, into) = (self.leaving(rank), self.arriving(rank));
            let rank_links = links.get(rank as usize).copied()?;
            if out.max(into) > 0 && rank_links == 0 {
                return None;
            }
            let wire_ps = |bytes: u64, mbps: u64| picoseconds(bytes.into(), rank_links.saturating_mul(mbps));
            bound.link_ps = bound.link_ps.max(wire_ps(out, entry_mbps)).max(wire_ps(into, timing.link_mbps.into()));
            bound.link_ps = bound.link_ps.max(picoseconds(out.max(into).into(), memory_mbps));
            let moved = u128::from(out) + u128::from(into) + u128::from(self.only_folded(rank));
            bound.memory_ps = bound.memory_ps.max(picoseconds(moved, memory_mbps));
        }
        let hop_bytes = self.hop_bytes(linked_pairs, capabilities);
        if self.collective == Collective::Alltoall && !capabilities.topology.has_routers() {
            // Each block is read and written once for each link that it crosses.
            let together = 2 * hop_bytes / links.len() as u128;
            bound.memory_ps = bound.memory_ps.max(picoseconds(together, memory_mbps));
        }
        let together = picoseconds(hop_bytes, all_links * entry_mbps);
        bound.link_ps = bound.link_ps.max(together);
        Some(bound)
    }

    /// Nodes outside of the group that may relay. If the ranks have paths without them, only those do that complete a grid.
    fn outside(&self, capabilities: &Capabilities) -> Option<Vec<u32>> {
        match Routes::of(self, capabilities).ok()? {
            Some(routes) if routes.nodes.len() > self.group.len() => {
                let group: BTreeSet<u32> = self.group.iter().copied().collect();
                let may_relay = |node: &u32| self.relays.as_ref().is_none_or(|allowed| allowed.contains(node));
                Some((0..capabilities.nodes).filter(|node| !group.contains(node) && may_relay(node)).collect())
            }
            Some(_) => Some(missing(self, capabilities).unwrap_or_default()),
            None => Some(Vec::new()),
        }
    }

    /// The links of each rank, then of each of `outside`, to all of these.
    fn links(&self, outside: &[u32], capabilities: &Capabilities) -> Vec<u64> {
        if capabilities.topology.has_routers() {
            return vec![capabilities.topology.ports(capabilities.nodes).into(); self.group.len()];
        }
        let place = |node: &u32| capabilities.topology.place(*node, capabilities.nodes);
        let (mut rows, mut columns) = (BTreeMap::new(), BTreeMap::new());
        for (row, column) in self.group.iter().chain(outside).filter_map(place) {
            *rows.entry(row).or_insert(0) += 1;
            *columns.entry(column).or_insert(0) += 1;
        }
        // The rank itself is in both.
        let links = |node: &u32| place(node).map_or(0, |(row, column)| rows[&row] + columns[&column] - 2);
        self.group.iter().chain(outside).map(links).collect()
    }

    /// Bytes that a rank must read to fold them, besides those that leave it.
    fn only_folded(&self, rank: u32) -> u64 {
        match self.collective {
            Collective::Reduce if rank == self.root => self.bytes,
            Collective::ReduceScatter => self.bytes,
            _ => 0,
        }
    }

    /// Bytes over all links together, where that is more than what each rank sends or receives.
    fn hop_bytes(&self, linked_pairs: u64, capabilities: &Capabilities) -> u128 {
        let (ranks, bytes) = (u128::from(self.ranks()), u128::from(self.bytes));
        match self.collective {
            // Of each element, every rank but one must send a part of the sum, and be sent the sum.
            Collective::Allreduce => 2 * (ranks - 1) * bytes,
            Collective::Alltoall if capabilities.topology.has_routers() => {
                let all = |from: &u32| self.group.iter().map(|to| self.hops(*from, *to, capabilities)).sum::<u128>();
                self.group.iter().map(all).sum::<u128>() * bytes
            }
            // Unlinked ranks are two hops apart.
            Collective::Alltoall => (2 * ranks * (ranks - 1) - u128::from(linked_pairs)) * bytes,
            _ => 0,
        }
    }

    /// The hops of the first byte and of the last, picoseconds.
    fn hops_ps(&self, capabilities: &Capabilities) -> (u64, u64) {
        let timing = &capabilities.timing;
        let before = match self.collective {
            Collective::Barrier => {
                cycles_ps(timing.dispatch_cycles, capabilities).saturating_add(timing.control_ps.into())
            }
            _ => first_read_ps(capabilities).saturating_add(data_ps(capabilities)),
        };
        match self.farthest(capabilities) {
            // Not over any number of links: another card relays. What is for linked ranks may go while it does.
            None => {
                let relayed = before.saturating_mul(2);
                (relayed, if self.collective.has_peer() { relayed } else { before })
            }
            Some(links) => {
                let farther = links.saturating_sub(1).saturating_mul(timing.hop_ps.into());
                (before.saturating_add(farther), before)
            }
        }
    }

    /// The most links between two ranks of which one needs data of the other; `None` if one does not reach the other.
    fn farthest(&self, capabilities: &Capabilities) -> Option<u64> {
        let ranks = self.ranks();
        let node = |rank: u32| self.group.get(rank as usize).copied().unwrap_or(0);
        let farthest = |most: u64, (from, to): (u32, u32)| match self.hops(node(from), node(to), capabilities) {
            0 if from != to => None,
            hops => Some(most.max(hops as u64)),
        };
        let all_pairs = || (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
        match self.collective {
            one if one.has_peer() => farthest(0, (self.root, self.peer)),
            // Empty blocks go nowhere.
            one if one.has_counts() => {
                all_pairs().filter(|(from, to)| self.given(*from, *to) > 0).try_fold(0, farthest)
            }
            one if one.has_root() => (0..ranks).map(|rank| (self.root, rank)).try_fold(0, farthest),
            Collective::Sendrecv => (0..ranks).map(|rank| (rank, (rank + 1) % ranks)).try_fold(0, farthest),
            _ if capabilities.topology.has_routers() => all_pairs().try_fold(0, farthest),
            _ => capabilities.topology.all_reach(&self.group, capabilities.nodes).then_some(1),
        }
    }

    /// Links between two nodes; 0 if one does not reach the other.
    fn hops(&self, from: u32, to: u32, capabilities: &Capabilities) -> u128 {
        capabilities.topology.hops(from, to, capabilities.nodes).into()
    }
}

/// The rate of data that leaves a card by one of its links, Mb/s. To switches that compute and stand apart from the cards, these are
/// phits without headers.
fn entry_mbps(capabilities: &Capabilities) -> u64 {
    const PHIT_BITS: u64 = PHIT_BYTES as u64 * 8;
    let link_mbps = capabilities.timing.link_mbps.into();
    match (capabilities.switch, capabilities.topology) {
        (Some(SwitchUnits { phit_ps: phit_ps @ 1.., .. }), Topology::Switched(Shape::Fat { .. })) => {
            (PHIT_BITS * 1_000_000).div_ceil(phit_ps.into()).max(link_mbps)
        }
        _ => link_mbps,
    }
}

/// The time of `bytes` at `mbps`; 0 at an unknown rate.
fn picoseconds(bytes: u128, mbps: u64) -> u64 {
    let bits = bytes.saturating_mul(8_000_000);
    bits.checked_div(mbps.into()).map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX))
}

/// From the issue of an instruction until the first byte that it sends is read.
fn first_read_ps(capabilities: &Capabilities) -> u64 {
    let timing = &capabilities.timing;
    cycles_ps(timing.dispatch_cycles.saturating_add(timing.memory_read_cycles), capabilities)
}

/// From the last byte that leaves a card until it counts. Switches that compute take what comes before it has passed the switch of a
/// card.
fn data_ps(capabilities: &Capabilities) -> u64 {
    let data = capabilities.timing.data_ps;
    capabilities.switch.map_or(data, |units| data.min(units.entry_ps)).into()
}

/// The part of [`data_ps`] that is still to come when the last byte has left the receive buffer: the switch and the size check.
fn past_buffer_ps(capabilities: &Capabilities) -> u64 {
    let timing = &capabilities.timing;
    let size_check = timing.data_ps.saturating_sub(timing.control_ps);
    cycles_ps(timing.switch_cycles, capabilities).saturating_add(size_check.into()).min(data_ps(capabilities))
}

fn cycles_ps(cycles: u32, capabilities: &Capabilities) -> u64 {
    (u64::from(cycles) * 1_000_000_000).checked_div(capabilities.clock_khz.into()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::verify::sample::card;
    use crate::{Combine, Element, Reduction};

    /// Capabilities may be made by hand.
    #[test]
    fn cards_that_no_fabric_has_are_refused_and_have_no_bound() {
        let shape = |text: &str| Topology::Switched(text.parse().unwrap());
        let of = |topology, nodes| Capabilities { topology, nodes, ..card(4) };
        let impossible = [
            of(Topology::Dragonfly { groups: 9 }, 4),
            of(Topology::Dragonfly { groups: 3 }, 4),
            of(Topology::Torus { rows: 7 }, 4),
            of(Topology::Torus { rows: 0 }, 4),
            of(shape("2x2x2"), 4),
            of(shape("fat:32"), 4),
            of(Topology::FullyConnected, 0),
            of(Topology::FullyConnected, 1),
            of(Topology::Dragonfly { groups: 2 }, u32::MAX),
            of(Topology::Dragonfly { groups: 5 }, u32::MAX),
            of(Topology::Torus { rows: 1 }, u32::MAX),
            of(Topology::FullyConnected, u32::MAX),
        ];
        for (capabilities, collective) in
            impossible.iter().flat_map(|one| Collective::ALL.iter().map(move |of| (one, of)))
        {
            for group in [vec![0, 1, 2, 3], vec![0, 2]] {
                let mut request = Request::new(*collective, group, 64);
                request.peer = 1;
                request.combine = collective.reduces().then_some(Combine::new(Reduction::Sum, Element::U32));
                request.counts = vec![1; request.counts_needed() as usize];
                let what = format!("{request:?} on {:?} of {} cards", capabilities.topology, capabilities.nodes);
                assert!(plan(&request, capabilities).is_err(), "{what}");
                assert_eq!(request.lower_bound(capabilities), None, "{what}");
            }
        }
    }
}
