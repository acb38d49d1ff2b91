//! Collectives, and the tables of all nodes that route them.

use super::entry::{Multicast, ReductionEntry, Route};
use crate::named::named;
use crate::topology::torus3::Torus3;

named! {
    /// What a collective does with its packets.
    CollectiveKind {
        /// Packets of the root go to one member.
        Unicast, "unicast";
        /// Packets of the root go to all members.
        Multicast, "multicast";
        /// Packets of all members are combined, and the result goes to the root.
        Reduction, "reduction";
    }
}

/// A collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedCollective {
    /// What it does.
    pub kind: CollectiveKind,
    /// The node that sends a multicast, or receives the result of a reduction.
    pub root: u32,
    /// The other nodes, without repetition. Only a reduction may have its root among them.
    pub members: Vec<u32>,
    /// Packets of a run, at least one. Those of a multicast share entries; each packet of a reduction has its own.
    pub packets: u32,
}

/// Where packets enter the network: a node, and the index in their header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The node.
    pub node: u32,
    /// Index in its routing table.
    pub index: u16,
}

/// A collective, and where its packets start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledCollective {
    /// The collective.
    pub collective: RoutedCollective,
    /// For a reduction the starts of each packet, by packet; otherwise those of all packets, once.
    pub starts: Vec<Vec<Start>>,
}

impl ScheduledCollective {
    /// Returns the starts of a packet.
    pub fn starts_of(&self, packet: u32) -> &[Start] {
        let place = if self.collective.kind == CollectiveKind::Reduction { packet as usize } else { 0 };
        self.starts.get(place).map_or(&[], Vec::as_slice)
    }
}

/// The tables of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeTables {
    /// The routing table.
    pub routes: Vec<Route>,
    /// The multicast table.
    pub multicasts: Vec<Multicast>,
    /// The reduction table.
    pub reductions: Vec<ReductionEntry>,
}

impl NodeTables {
    /// Returns the bits of all entries.
    pub fn bits(&self) -> u64 {
        self.routes.len() as u64 * u64::from(Route::BITS)
            + self.multicasts.len() as u64 * u64::from(Multicast::BITS)
            + self.reductions.len() as u64 * u64::from(ReductionEntry::BITS)
    }
}

/// Collectives with the tables of all nodes of a torus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedTables {
    /// The torus.
    pub torus: Torus3,
    /// The collectives.
    pub collectives: Vec<ScheduledCollective>,
    /// The tables, by node.
    pub nodes: Vec<NodeTables>,
}
