//! The ports of each card, and the card at the other end.

use cmdseq::Topology;

/// Ports of the cards of one fabric. A port is numbered from 0 within its card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    topology: Topology,
    nodes: u32,
}

impl Ports {
    pub(crate) fn new(topology: Topology, nodes: u32) -> Self {
        Ports { topology, nodes }
    }

    /// Returns the port of `node` that leads to `peer`, if there is a link.
    pub(crate) fn toward(self, node: u32, peer: u32) -> Option<usize> {
        if !self.topology.linked(node, peer, self.nodes) {
            return None;
        }
        // Ports in order of the peers, without the card itself.
        let skip = |place: u32, own: u32| if place < own { place } else { place - 1 };
        let port = match self.topology {
            Topology::FullyConnected => skip(peer, node),
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

    /// Returns the card that `port` of `node` leads to.
    pub(crate) fn peer(self, node: u32, port: usize) -> u32 {
        let port = port as u32;
        let unskip = |place: u32, own: u32| if place < own { place } else { place + 1 };
        match self.topology {
            Topology::FullyConnected => unskip(port, node),
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
        ] {
            let ports = Ports::new(topology, nodes);
            for node in 0..nodes {
                let mut seen = vec![false; topology.ports(nodes) as usize];
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
