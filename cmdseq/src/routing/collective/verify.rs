//! Checks tables by following every packet through them. It knows no trees.

use std::collections::{HashMap, HashSet};

use super::entry::{CHILDREN_MAX, Route, RouteKind};
use super::scheduled::{CollectiveKind, NodeTables, RoutedTables, ScheduledCollective, Start};
use crate::topology::torus3::Torus3;

/// What the cards have room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Entries of each table.
    pub entries: usize,
    /// Packets in the buffer of an input.
    pub depth: u64,
}

impl Default for Capacity {
    /// As many entries as an index of 16 bits can name, and 2048 packets: the first power of two above the largest published
    /// worst case, 1532 (table 5.8).
    fn default() -> Self {
        Capacity { entries: 1 << 16, depth: 2048 }
    }
}

/// What valid tables need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingReport {
    /// Packets on links, over the whole run.
    pub hops: u64,
    /// Packets on the link that carries most.
    pub link_packets_max: u64,
    /// Links that carry packets.
    pub links: u64,
    /// Bits of the largest node's tables.
    pub node_bits_max: u64,
    /// Bits of all tables.
    pub bits: u64,
}

/// Refusal of tables. Nodes, collectives, packets and indices are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// Tables that the cards cannot hold, or that do not route the collectives.
    #[error("{0}")]
    Invalid(String),
    /// A buffer may overflow, and what overflows is lost without notice.
    #[error(
        "node {node}: up to {packets} packets wait at the input from {port}, whose buffer holds {depth} (split the \
         collectives, or send fewer packets in one run)",
        port = Torus3::port_name((*port).into())
    )]
    Overflow {
        /// The node.
        node: u32,
        /// Its port.
        port: u8,
        /// Packets that may wait.
        packets: u64,
        /// Packets that fit.
        depth: u64,
    },
}

/// Checks tables: all of them fit the cards, every packet comes to every member exactly once and to nobody else, results have
/// the value of every member exactly once, no packet loops, no entry waits for ever, and no input buffer can overflow.
///
/// The depth of a buffer is that of the worst timing: all packets of a run that use the link wait at its end.
///
/// # Errors
/// [`VerifyError`] with the first defect.
pub fn verify(tables: &RoutedTables, capacity: Capacity) -> Result<RoutingReport, VerifyError> {
    let nodes = tables.torus.nodes();
    if tables.nodes.len() != nodes as usize {
        let given = tables.nodes.len();
        return Err(VerifyError::Invalid(format!("tables of {given} nodes do not fit a torus of {nodes}")));
    }
    (0..).zip(&tables.nodes).try_for_each(|(node, one)| check_tables(node, one, capacity))?;
    let mut walk = Walk {
        tables,
        link_packets: vec![0; nodes as usize * Torus3::LINKS],
        used: HashSet::new(),
        collective: 0,
        delivered: HashMap::new(),
    };
    for (number, one) in tables.collectives.iter().enumerate() {
        walk.collective = number;
        walk.check_starts(one)?;
        if one.collective.kind == CollectiveKind::Reduction {
            one.starts.iter().try_for_each(|starts| walk.combine(one, starts))?;
        } else {
            walk.spread(one)?;
        }
    }
    walk.check_depth(capacity.depth)?;
    let bits = || tables.nodes.iter().map(NodeTables::bits);
    Ok(RoutingReport {
        hops: walk.link_packets.iter().sum(),
        link_packets_max: walk.link_packets.iter().max().copied().unwrap_or(0),
        links: walk.link_packets.iter().filter(|packets| **packets > 0).count() as u64,
        node_bits_max: bits().max().unwrap_or(0),
        bits: bits().sum(),
    })
}

fn check_tables(node: u32, one: &NodeTables, capacity: Capacity) -> Result<(), VerifyError> {
    let refuse = |why: String| Err(VerifyError::Invalid(format!("node {node}: {why}")));
    let sizes =
        [("routing", one.routes.len()), ("multicast", one.multicasts.len()), ("reduction", one.reductions.len())];
    let most = capacity.entries;
    if let Some((table, entries)) = sizes.into_iter().find(|(_, entries)| *entries > most) {
        return refuse(format!("{entries} entries in the {table} table (a card holds {most})"));
    }
    let children = one.multicasts.iter().map(|entry| entry.children.len());
    if let Some((index, count)) = children.enumerate().find(|(_, count)| !(1..=CHILDREN_MAX).contains(count)) {
        return refuse(format!("entry {index} of the multicast table has {count} children (expected 1 to 6)"));
    }
    let expected = one.reductions.iter().map(|entry| entry.expected);
    if let Some((index, count)) = expected.enumerate().find(|(_, count)| !(1..=7).contains(count)) {
        return refuse(format!("entry {index} of the reduction table has {count} expected packets (expected 1 to 7)"));
    }
    Ok(())
}

struct Walk<'a> {
    tables: &'a RoutedTables,
    /// By node and port.
    link_packets: Vec<u64>,
    /// Reduction entries in use, by node and index.
    used: HashSet<(u32, u16)>,
    collective: usize,
    /// Packets that came to a node, of the packet at hand.
    delivered: HashMap<u32, u32>,
}

/// A partial result on its way: where it is, and whose values it has.
struct Partial {
    node: u32,
    index: u16,
    values: Vec<u32>,
}

impl Walk<'_> {
    fn invalid(&self, why: &str) -> VerifyError {
        VerifyError::Invalid(format!("collective {}: {why}", self.collective))
    }

    fn loops(&self, node: u32) -> VerifyError {
        self.invalid(&format!("packets loop: they return to node {node}"))
    }

    fn waits(&self, (node, index): (u32, u16), arrived: u32, expected: u8) -> VerifyError {
        self.invalid(&format!("reduction entry {index} of node {node} gets {arrived} packets (expects {expected})"))
    }

    fn check_starts(&self, one: &ScheduledCollective) -> Result<(), VerifyError> {
        let ScheduledCollective { collective, starts } = one;
        let refuse = |why: &str| Err(self.invalid(why));
        let nodes = self.tables.torus.nodes();
        let named = [collective.root].into_iter().chain(collective.members.iter().copied());
        if let Some(node) =
            named.clone().chain(starts.iter().flatten().map(|start| start.node)).find(|node| *node >= nodes)
        {
            return refuse(&format!("no node {node} (available: 0 to {})", nodes - 1));
        }
        if collective.members.is_empty() || collective.packets == 0 {
            return refuse("it has no members or no packets");
        }
        let is_reduction = collective.kind == CollectiveKind::Reduction;
        let packets = if is_reduction { collective.packets as usize } else { 1 };
        if starts.len() != packets {
            return refuse(&format!("{} lists of starts (expected {packets})", starts.len()));
        }
        let mut expected = if is_reduction { collective.members.clone() } else { vec![collective.root] };
        expected.sort_unstable();
        for list in starts {
            let mut nodes: Vec<u32> = list.iter().map(|start| start.node).collect();
            nodes.sort_unstable();
            if nodes != expected {
                return refuse(&format!("packets start at nodes {nodes:?} (expected {expected:?})"));
            }
        }
        Ok(())
    }

    fn route(&self, node: u32, index: u16) -> Result<Route, VerifyError> {
        let route = self.tables.nodes[node as usize].routes.get(usize::from(index)).copied();
        route.ok_or_else(|| self.no_entry(node, index, "routing"))
    }

    fn no_entry(&self, node: u32, index: u16, table: &str) -> VerifyError {
        self.invalid(&format!("node {node} has no entry {index} in its {table} table"))
    }

    /// Sends packets through a port; returns the node there, `None` if that is the node itself.
    fn send(&mut self, node: u32, port: u8, packets: u32) -> Result<Option<u32>, VerifyError> {
        if usize::from(port) == Torus3::LOCAL {
            *self.delivered.entry(node).or_default() += 1;
            return Ok(None);
        }
        let next = self.tables.torus.neighbour(node, port.into());
        let next = next.ok_or_else(|| {
            let name = Torus3::port_name(port.into());
            self.invalid(&format!("node {node} sends through {name}, where no card is"))
        })?;
        self.link_packets[node as usize * Torus3::LINKS + usize::from(port)] += u64::from(packets);
        Ok(Some(next))
    }

    fn check_delivered(&mut self, members: &[u32]) -> Result<(), VerifyError> {
        let mut delivered = std::mem::take(&mut self.delivered);
        let refuse = |node: u32, times: u32, expected: u32| {
            Err(self.invalid(&format!("node {node} gets {times} packets (expected {expected})")))
        };
        for node in members {
            let times = delivered.remove(node).unwrap_or(0);
            if times != 1 {
                return refuse(*node, times, 1);
            }
        }
        delivered.into_iter().min().map_or(Ok(()), |(node, times)| refuse(node, times, 0))
    }

    /// Follows the copies of a multicast's packets.
    fn spread(&mut self, one: &ScheduledCollective) -> Result<(), VerifyError> {
        let packets = one.collective.packets;
        let mut visited = HashSet::new();
        let mut under_way: Vec<(u32, u16)> = one.starts[0].iter().map(|start| (start.node, start.index)).collect();
        while let Some((node, index)) = under_way.pop() {
            if !visited.insert(node) {
                return Err(self.loops(node));
            }
            let tables = self.tables;
            let route = self.route(node, index)?;
            match route.kind {
                RouteKind::Unicast => {
                    under_way.extend(self.send(node, route.port, packets)?.map(|next| (next, route.next)));
                }
                RouteKind::Multicast => {
                    let entry = tables.nodes[node as usize].multicasts.get(usize::from(route.next));
                    for child in &entry.ok_or_else(|| self.no_entry(node, route.next, "multicast"))?.children {
                        under_way.extend(self.send(node, child.port, packets)?.map(|next| (next, child.next)));
                    }
                }
                RouteKind::Reduction => {
                    return Err(self.invalid(&format!("a packet comes to a reduction in node {node}")));
                }
            }
        }
        self.check_delivered(&one.collective.members)
    }

    /// Follows one packet of a reduction from all members.
    fn combine(&mut self, one: &ScheduledCollective, starts: &[Start]) -> Result<(), VerifyError> {
        let mut waiting: HashMap<(u32, u16), (u32, Vec<u32>)> = HashMap::new();
        let mut result = Vec::new();
        let partial = |start: &Start| Partial { node: start.node, index: start.index, values: vec![start.node] };
        let mut under_way: Vec<Partial> = starts.iter().map(partial).collect();
        while let Some(Partial { mut node, mut index, mut values }) = under_way.pop() {
            // To the next reduction entry, or to the end.
            for hop in 0.. {
                if hop > self.tables.torus.nodes() {
                    return Err(self.loops(node));
                }
                let route = self.route(node, index)?;
                let mut next = route.next;
                if route.kind == RouteKind::Multicast {
                    return Err(self.invalid(&format!("a packet comes to a multicast in node {node}")));
                }
                if route.kind == RouteKind::Reduction {
                    let entry = self.tables.nodes[node as usize].reductions.get(usize::from(next)).copied();
                    let entry = entry.ok_or_else(|| self.no_entry(node, next, "reduction"))?;
                    let (arrived, gathered) = waiting.entry((node, next)).or_default();
                    if *arrived == 0 && !self.used.insert((node, next)) {
                        let entry = format!("reduction entry {next} of node {node}");
                        return Err(self.invalid(&format!("{entry} is also used by another packet")));
                    }
                    *arrived += 1;
                    gathered.append(&mut values);
                    if *arrived > entry.expected.into() {
                        return Err(self.waits((node, next), *arrived, entry.expected));
                    }
                    if *arrived < entry.expected.into() {
                        break;
                    }
                    values = std::mem::take(gathered);
                    next = entry.next;
                }
                match self.send(node, route.port, 1)? {
                    Some(there) => (node, index) = (there, next),
                    None => {
                        result.append(&mut values);
                        break;
                    }
                }
            }
        }
        let short = waiting.into_iter().filter_map(|(place @ (node, index), (arrived, _))| {
            let expected = self.tables.nodes[node as usize].reductions[usize::from(index)].expected;
            (arrived < expected.into()).then_some((place, arrived, expected))
        });
        if let Some((place, arrived, expected)) = short.min() {
            return Err(self.waits(place, arrived, expected));
        }
        self.check_delivered(&[one.collective.root])?;
        let times = |member: u32| result.iter().filter(|value| **value == member).count();
        match one.collective.members.iter().map(|member| (*member, times(*member))).find(|(_, times)| *times != 1) {
            Some((node, times)) => {
                let why = format!("the result has the value of node {node} {times} times (expected once)");
                Err(self.invalid(&why))
            }
            None => Ok(()),
        }
    }

    fn check_depth(&self, depth: u64) -> Result<(), VerifyError> {
        let torus = self.tables.torus;
        for (place, packets) in self.link_packets.iter().enumerate() {
            let (node, port) = ((place / Torus3::LINKS) as u32, place % Torus3::LINKS);
            if *packets > depth {
                let node = torus.neighbour(node, port).unwrap_or(node);
                return Err(VerifyError::Overflow { node, port: (port ^ 1) as u8, packets: *packets, depth });
            }
        }
        Ok(())
    }
}
