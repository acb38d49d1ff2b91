//! Two-dimensional tori: nodes, neighbours, distances, and datelines.

use crate::topology::torus3::{SIDE_MAX, Torus3};

/// A torus of `width` by `height` nodes. Node `n` stands in column `n % width` of row `n / width`.
///
/// A ring of two nodes has two cables; a ring of one node has none. Two ports on one cable differ in the last bit of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Torus(pub(super) Torus3);

/// Error of a torus that cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid torus: {width} x {height} (each side has 1 to {SIDE_MAX} nodes, and there are at least two nodes)")]
pub struct TorusError {
    width: u32,
    height: u32,
}

/// Ports of a node, by direction; the port into the node itself comes after them.
const EAST: usize = 0;
const WEST: usize = 1;
const NORTH: usize = 2;
const SOUTH: usize = 3;

impl Torus {
    /// Links of a node.
    pub const LINKS: usize = 4;
    /// Number of the port into the node itself.
    pub const LOCAL: usize = 4;

    /// Returns a torus.
    ///
    /// # Errors
    /// [`TorusError`] unless each side has 1 to 16 nodes, and there are at least two nodes.
    pub fn new(width: u32, height: u32) -> Result<Self, TorusError> {
        Torus3::new([width, height, 1]).map(Torus).map_err(|_| TorusError { width, height })
    }

    /// Returns the number of columns.
    pub fn width(self) -> u32 {
        self.0.sides()[0]
    }

    /// Returns the number of rows.
    pub fn height(self) -> u32 {
        self.0.sides()[1]
    }

    /// Returns the number of nodes.
    pub fn nodes(self) -> u32 {
        self.0.nodes()
    }

    /// Returns the node at the other end of a link; `None` if the ring has one node, or the port is none of a link.
    pub fn neighbour(self, node: u32, port: usize) -> Option<u32> {
        self.0.neighbour(node, port)
    }

    /// Returns the number of hops of a shortest route.
    pub fn distance(self, one: u32, other: u32) -> u32 {
        self.0.distance(one, other)
    }

    /// Returns the name of a port: of the link to a neighbour, or of the way into the node itself.
    pub fn port_name(port: usize) -> &'static str {
        ["east", "west", "north", "south"].get(port).copied().unwrap_or("of its own kernels")
    }

    /// Returns the dimension of a port; `None` for the one into the node itself.
    pub fn dimension(self, port: usize) -> Option<usize> {
        (port < Self::LINKS).then_some(port / 2)
    }

    /// Returns whether the cable at a port crosses the dateline of its ring: packets on both sides of it use different
    /// virtual channels, so that packets of one ring never wait for each other in a circle.
    pub fn crosses_dateline(self, node: u32, port: usize) -> bool {
        let [x, y, _] = self.0.place(node);
        match port {
            EAST => x + 1 == self.width(),
            WEST => x == 0,
            NORTH => y + 1 == self.height(),
            SOUTH => y == 0,
            _ => false,
        }
    }
}

#[cfg(test)]
impl Torus {
    /// Returns every torus.
    pub(super) fn each() -> impl Iterator<Item = Torus> {
        (1..=SIDE_MAX).flat_map(|width| (1..=SIDE_MAX).filter_map(move |height| Torus::new(width, height).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_have_limits() {
        assert!(Torus::new(17, 2).is_err() && Torus::new(1, 1).is_err() && Torus::new(0, 4).is_err());
    }

    #[test]
    fn each_ring_has_one_dateline_in_each_direction() {
        for torus in Torus::each() {
            for port in [EAST, WEST, NORTH, SOUTH] {
                let crossings = (0..torus.nodes()).filter(|node| torus.crosses_dateline(*node, port)).count() as u32;
                let rings = if port < NORTH { torus.height() } else { torus.width() };
                assert_eq!(crossings, rings, "{torus:?}, port {port}");
            }
        }
    }
}
