//! Routing tables: which port leads from a node toward each destination.

use crate::routing::cables::{CableEnd, Cables};

/// A routing table for each node: for each destination the port of the node, numbered as its cables; the port after the
/// last cable leads into the node itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    nodes: u32,
    /// By node, then destination.
    ports: Vec<Option<u8>>,
}

/// Refusal of routing tables. All nodes are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The tables are for another network.
    #[error("routing tables of {tables} nodes do not fit a network of {nodes}")]
    Size {
        /// Nodes of the tables.
        tables: u32,
        /// Nodes of the network.
        nodes: u32,
    },
    /// A table has no entry for a destination.
    #[error("no route from node {from} to node {to}: the table of node {at} has no entry for node {to}")]
    Missing {
        /// Where a packet comes from.
        from: u32,
        /// Its destination.
        to: u32,
        /// Where it stops.
        at: u32,
    },
    /// A table names a port without a cable, or the port into the node at a node that is not the destination.
    #[error(
        "no route from node {from} to node {to}: the table of node {at} names port {port}, which does not lead there"
    )]
    Port {
        /// Where a packet comes from.
        from: u32,
        /// Its destination.
        to: u32,
        /// Where it stops.
        at: u32,
        /// The port named.
        port: u8,
    },
    /// Packets go round.
    #[error("no route from node {from} to node {to}: packets return to node {at}")]
    Loop {
        /// Where a packet comes from.
        from: u32,
        /// Its destination.
        to: u32,
        /// The first node that it comes to twice.
        at: u32,
    },
}

impl Tables {
    /// Returns tables without entries.
    pub fn new(nodes: u32) -> Self {
        Tables { nodes, ports: vec![None; nodes as usize * nodes as usize] }
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the port of the node `at` toward `to`.
    pub fn port(&self, at: u32, to: u32) -> Option<u8> {
        if at.max(to) >= self.nodes {
            return None;
        }
        self.ports[self.place(at, to)]
    }

    /// Sets the port of the node `at` toward `to`, or removes the entry.
    ///
    /// # Panics
    /// If one of them is not below [`Tables::nodes`].
    pub fn set(&mut self, at: u32, to: u32, port: Option<u8>) {
        assert!(at.max(to) < self.nodes, "node {} of {}", at.max(to), self.nodes);
        let place = self.place(at, to);
        self.ports[place] = port;
    }

    /// Returns the ports of the node `at`, by destination.
    ///
    /// # Panics
    /// If `at` is not below [`Tables::nodes`].
    pub fn of(&self, at: u32) -> &[Option<u8>] {
        &self.ports[self.place(at, 0)..][..self.nodes as usize]
    }

    fn place(&self, at: u32, to: u32) -> usize {
        at as usize * self.nodes as usize + to as usize
    }

    /// Checks that the tables lead from every node to every node.
    ///
    /// # Errors
    /// [`RouteError`] with the first pair of nodes without a route.
    pub fn check(&self, cables: &Cables) -> Result<(), RouteError> {
        let nodes = cables.nodes();
        if self.nodes != nodes {
            return Err(RouteError::Size { tables: self.nodes, nodes });
        }
        for to in 0..nodes {
            // The node from which a packet last came by.
            let mut visited = vec![None; nodes as usize];
            for from in 0..nodes {
                let mut at = from;
                loop {
                    match visited[at as usize].replace(from) {
                        None => {}
                        Some(earlier) if earlier == from => return Err(RouteError::Loop { from, to, at }),
                        // The check would have ended there if no route led on.
                        Some(_) => break,
                    }
                    let Some(next) = self.next(cables, from, to, at)? else { break };
                    at = next;
                }
            }
        }
        Ok(())
    }

    /// Returns the node after `at`; `None` at the destination.
    fn next(&self, cables: &Cables, from: u32, to: u32, at: u32) -> Result<Option<u32>, RouteError> {
        let port = self.port(at, to).ok_or(RouteError::Missing { from, to, at })?;
        if at == to && usize::from(port) == cables.ports() {
            return Ok(None);
        }
        let end = cables.other(CableEnd { node: at, port: port.into() });
        end.map(|end| Some(end.node)).ok_or(RouteError::Port { from, to, at, port })
    }
}
