//! The ports of each card, the card at the other end, and the links on the way there.

use cmdseq::{Hop, Topology};

/// Ports of the cards of one fabric. A port is numbered from 0 within its card. Without routers a card has one at each of its
/// links; with routers it has one for each card that it reaches, and these share its links.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    topology: Topology,
    nodes: u32,
}

impl Ports {
    pub(crate) fn new(topology: Topology, nodes: u32) -> Self {
        Ports { topology, nodes }
    }

    /// Returns the number of ports of each card.
    pub(crate) fn count(self) -> u32 {
        self.topology.reached(self.nodes)
    }

    /// Returns the number of links of all cards and switches, each in one direction.
    pub(crate) fn links(self) -> u32 {
        self.topology.links(self.nodes)
    }

    /// Returns the place of a link among all.
    pub(crate) fn link(self, hop: Hop) -> usize {
        self.topology.link(hop, self.nodes)
    }

    /// Returns the port of `node` that leads to `peer`, if it reaches that.
    pub(crate) fn toward(self, node: u32, peer: u32) -> Option<usize> {
        if !self.topology.reaches(node, peer, self.nodes) {
            return None;
        }
        // Ports in order of the peers, without the card itself.
        let skip = |place: u32, own: u32| if place < own { place } else { place - 1 };
        let port = match self.topology {
            Topology::FullyConnected | Topology::Torus { .. } | Topology::Switched(_) => skip(peer, node),
            Topology::Dragonfly { groups } => {
                let size = self.nodes / groups;
                if node / size == peer / size {
                    skip(peer % size, node % size)
                } else {
                    size - 1 + skip(peer / size, node / size)
                }
            }
        };
        Some(port as usize)
    }

    /// Returns the links on the way out of `port` of `node`.
    pub(crate) fn way(self, node: u32, port: usize) -> Vec<Hop> {
        match self.topology.has_routers() {
            true => self.topology.way(node, self.peer(node, port), self.nodes).collect(),
            false => vec![Hop { node, port: port as u32 }],
        }
    }

    /// Returns the card that `port` of `node` leads to.
    pub(crate) fn peer(self, node: u32, port: usize) -> u32 {
        let port = port as u32;
        let unskip = |place: u32, own: u32| if place < own { place } else { place + 1 };
        match self.topology {
            Topology::FullyConnected | Topology::Torus { .. } | Topology::Switched(_) => unskip(port, node),
            Topology::Dragonfly { groups } => {
                let size = self.nodes / groups;
                if port < size - 1 {
                    node / size * size + unskip(port, node % size)
                } else {
                    unskip(port - (size - 1), node / size) * size + node % size
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_number_the_peers() {
        for (topology, nodes) in [
            (Topology::FullyConnected, 2),
            (Topology::FullyConnected, 7),
            (Topology::Dragonfly { groups: 4 }, 16),
            (Topology::Dragonfly { groups: 3 }, 15),
            (Topology::Torus { rows: 1 }, 5),
            (Topology::Torus { rows: 3 }, 12),
            (Topology::Switched("3x2x2".parse().unwrap()), 12),
            (Topology::Switched("fat:14".parse().unwrap()), 14),
        ] {
            let ports = Ports::new(topology, nodes);
            for node in 0..nodes {
                let mut seen = vec![false; ports.count() as usize];
                for peer in 0..nodes {
                    let Some(port) = ports.toward(node, peer) else { continue };
                    assert_eq!(ports.peer(node, port), peer);
                    assert!(!std::mem::replace(&mut seen[port], true));
                }
                assert!(seen.iter().all(|port| *port), "{topology:?}: node {node} has a port to nowhere");
            }
        }
    }
}
