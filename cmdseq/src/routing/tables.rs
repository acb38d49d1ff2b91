//! Routing tables: which port leads from a node toward each destination.

use crate::routing::torus::Torus;

/// A routing table for each node: for each destination the port of the node: of a link, or [`Torus::LOCAL`] into the node itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTables {
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

impl PortTables {
    /// Returns tables without entries.
    pub fn new(nodes: u32) -> Self {
        PortTables { nodes, ports: vec![None; nodes as usize * nodes as usize] }
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
    /// If one of them is not below [`PortTables::nodes`].
    pub fn set(&mut self, at: u32, to: u32, port: Option<u8>) {
        assert!(at.max(to) < self.nodes, "node {} of {}", at.max(to), self.nodes);
        let place = self.place(at, to);
        self.ports[place] = port;
    }

    /// Returns the ports of the node `at`, by destination.
    ///
    /// # Panics
    /// If `at` is not below [`PortTables::nodes`].
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
    pub fn check(&self, torus: Torus) -> Result<(), RouteError> {
        let nodes = torus.nodes();
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
                    let Some(next) = self.next(torus, from, to, at)? else { break };
                    at = next;
                }
            }
        }
        Ok(())
    }

    /// Returns the node after `at`; `None` at the destination.
    fn next(&self, torus: Torus, from: u32, to: u32, at: u32) -> Result<Option<u32>, RouteError> {
        let port = self.port(at, to).ok_or(RouteError::Missing { from, to, at })?;
        if at == to && usize::from(port) == Torus::LOCAL {
            return Ok(None);
        }
        torus.neighbour(at, port.into()).map(Some).ok_or(RouteError::Port { from, to, at, port })
    }
}

impl Torus {
    /// Returns routing tables in order of dimensions: along the row, then along the column, the shorter way round each
    /// ring; if both ways are equally long, east or north.
    pub fn dimension_order(self) -> PortTables {
        let mut tables = PortTables::new(self.nodes());
        for at in 0..self.nodes() {
            for to in 0..self.nodes() {
                tables.set(at, to, self.0.toward(at, to).or(Some(Self::LOCAL as u8)));
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAST: u8 = 0;
    const WEST: u8 = 1;

    #[test]
    fn routes_in_order_of_dimensions_are_shortest() {
        for torus in Torus::each().filter(|torus| torus.nodes() <= 64) {
            let tables = torus.dimension_order();
            for (from, to) in (0..torus.nodes()).flat_map(|from| (0..torus.nodes()).map(move |to| (from, to))) {
                let (mut at, mut hops) = (from, 0);
                while at != to {
                    let port = tables.port(at, to).unwrap().into();
                    at = torus.neighbour(at, port).unwrap();
                    hops += 1;
                }
                assert_eq!(hops, torus.distance(from, to), "{torus:?}: {from} to {to}");
            }
        }
    }

    #[test]
    fn tables_of_every_torus_pass_the_check() {
        assert_eq!(Torus::each().count(), 255);
        for torus in Torus::each() {
            assert_eq!(torus.dimension_order().check(torus), Ok(()), "{torus:?}");
        }
    }

    #[test]
    fn bad_tables_are_refused_with_the_pair() {
        let torus = Torus::new(4, 2).unwrap();
        let changed = |at, to, port| {
            let mut tables = torus.dimension_order();
            tables.set(at, to, port);
            tables.check(torus).unwrap_err()
        };
        // From node 0 to node 2 a packet goes by node 1.
        assert_eq!(changed(1, 2, None), RouteError::Missing { from: 0, to: 2, at: 1 });
        assert_eq!(changed(1, 2, Some(WEST)), RouteError::Loop { from: 0, to: 2, at: 0 });
        assert_eq!(changed(1, 2, Some(Torus::LOCAL as u8)), RouteError::Port { from: 0, to: 2, at: 1, port: 4 });
        assert_eq!(changed(2, 2, Some(EAST)), RouteError::Loop { from: 0, to: 2, at: 2 });
        assert_eq!(changed(3, 7, Some(99)), RouteError::Port { from: 0, to: 7, at: 3, port: 99 });
        let error = PortTables::new(4).check(torus).unwrap_err();
        assert_eq!(error, RouteError::Size { tables: 4, nodes: 8 });
    }
}
