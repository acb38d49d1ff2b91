//! Two-dimensional tori: cables, routes in order of dimensions, and datelines.

use crate::routing::cables::{CableEnd, Cables};
use crate::routing::tables::Tables;
use crate::topology::Topology;

/// Longest side of a torus: routing tables of larger ones are not worth their memory on a card.
const SIDE_MAX: u32 = 16;

/// A torus of `width` by `height` nodes. Node `n` stands in column `n % width` of row `n / width`.
///
/// A ring of two nodes has two cables; a ring of one node has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Torus {
    width: u32,
    height: u32,
}

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
const LOCAL: usize = 4;

impl Torus {
    /// Returns a torus.
    ///
    /// # Errors
    /// [`TorusError`] unless each side has 1 to 16 nodes, and there are at least two nodes.
    pub fn new(width: u32, height: u32) -> Result<Self, TorusError> {
        let is_side = |side| (1..=SIDE_MAX).contains(&side);
        if !is_side(width) || !is_side(height) || width * height < 2 {
            return Err(TorusError { width, height });
        }
        Ok(Torus { width, height })
    }

    /// Returns the number of columns.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Returns the number of rows.
    pub fn height(self) -> u32 {
        self.height
    }

    /// Returns the number of nodes.
    pub fn nodes(self) -> u32 {
        self.width * self.height
    }

    /// Returns the number of hops of a shortest route.
    pub fn distance(self, one: u32, other: u32) -> u32 {
        Topology::Torus { rows: self.height }.hops(one, other, self.nodes())
    }

    /// Returns routing tables in order of dimensions: along the row, then along the column, the shorter way round each
    /// ring; if both ways are equally long, east or north.
    pub fn dimension_order(self) -> Tables {
        let mut tables = Tables::new(self.nodes());
        for at in 0..self.nodes() {
            for to in 0..self.nodes() {
                let ((x, y), (to_x, to_y)) = (self.place(at), self.place(to));
                let is_forward = |a: u32, b: u32, side: u32| 2 * ((b + side - a) % side) <= side;
                let port = match () {
                    () if x != to_x && is_forward(x, to_x, self.width) => EAST,
                    () if x != to_x => WEST,
                    () if y != to_y && is_forward(y, to_y, self.height) => NORTH,
                    () if y != to_y => SOUTH,
                    () => LOCAL,
                };
                tables.set(at, to, Some(port as u8));
            }
        }
        tables
    }

    /// Returns the name of a port: of the link to a neighbour, or of the way into the node itself.
    pub fn port_name(port: usize) -> &'static str {
        ["east", "west", "north", "south"].get(port).copied().unwrap_or("of its own kernels")
    }

    /// Returns the cables. Each node has four ports.
    pub fn cables(self) -> Cables {
        let mut cables = Cables::new(self.nodes(), LOCAL);
        for node in 0..self.nodes() {
            let (x, y) = self.place(node);
            if self.width > 1 {
                let east = self.node((x + 1) % self.width, y);
                cables.lay(CableEnd { node, port: EAST }, CableEnd { node: east, port: WEST });
            }
            if self.height > 1 {
                let north = self.node(x, (y + 1) % self.height);
                cables.lay(CableEnd { node, port: NORTH }, CableEnd { node: north, port: SOUTH });
            }
        }
        cables
    }

    /// Returns the dimension of a port; `None` for the one into the node itself.
    pub fn dimension(self, port: usize) -> Option<usize> {
        (port < LOCAL).then_some(port / 2)
    }

    /// Returns whether the cable at a port crosses the dateline of its ring: packets on both sides of it use different
    /// virtual channels, so that packets of one ring never wait for each other in a circle.
    pub fn crosses_dateline(self, node: u32, port: usize) -> bool {
        let (x, y) = self.place(node);
        match port {
            EAST => x + 1 == self.width,
            WEST => x == 0,
            NORTH => y + 1 == self.height,
            SOUTH => y == 0,
            _ => false,
        }
    }

    fn place(self, node: u32) -> (u32, u32) {
        (node % self.width, node / self.width)
    }

    fn node(self, x: u32, y: u32) -> u32 {
        y * self.width + x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::tables::RouteError;

    fn each() -> impl Iterator<Item = Torus> {
        (1..=SIDE_MAX).flat_map(|width| (1..=SIDE_MAX).filter_map(move |height| Torus::new(width, height).ok()))
    }

    #[test]
    fn routes_in_order_of_dimensions_are_shortest() {
        for torus in each().filter(|torus| torus.nodes() <= 64) {
            let (tables, cables) = (torus.dimension_order(), torus.cables());
            for (from, to) in (0..torus.nodes()).flat_map(|from| (0..torus.nodes()).map(move |to| (from, to))) {
                let (mut at, mut hops) = (from, 0);
                while at != to {
                    let port = tables.port(at, to).unwrap().into();
                    at = cables.other(CableEnd { node: at, port }).unwrap().node;
                    hops += 1;
                }
                assert_eq!(hops, torus.distance(from, to), "{torus:?}: {from} to {to}");
            }
        }
    }

    #[test]
    fn tables_of_every_torus_pass_the_check() {
        assert_eq!(each().count(), 255);
        for torus in each() {
            assert_eq!(torus.dimension_order().check(&torus.cables()), Ok(()), "{torus:?}");
        }
        assert!(Torus::new(17, 2).is_err() && Torus::new(1, 1).is_err() && Torus::new(0, 4).is_err());
    }

    #[test]
    fn bad_tables_are_refused_with_the_pair() {
        let torus = Torus::new(4, 2).unwrap();
        let changed = |at, to, port| {
            let mut tables = torus.dimension_order();
            tables.set(at, to, port);
            tables.check(&torus.cables()).unwrap_err()
        };
        // From node 0 to node 2 a packet goes by node 1.
        assert_eq!(changed(1, 2, None), RouteError::Missing { from: 0, to: 2, at: 1 });
        assert_eq!(changed(1, 2, Some(WEST as u8)), RouteError::Loop { from: 0, to: 2, at: 0 });
        assert_eq!(changed(1, 2, Some(LOCAL as u8)), RouteError::Port { from: 0, to: 2, at: 1, port: 4 });
        assert_eq!(changed(2, 2, Some(EAST as u8)), RouteError::Loop { from: 0, to: 2, at: 2 });
        assert_eq!(changed(3, 7, Some(99)), RouteError::Port { from: 0, to: 7, at: 3, port: 99 });
        let error = Tables::new(4).check(&torus.cables()).unwrap_err();
        assert_eq!(error, RouteError::Size { tables: 4, nodes: 8 });
    }

    #[test]
    fn each_ring_has_one_dateline_in_each_direction() {
        for torus in each() {
            for port in [EAST, WEST, NORTH, SOUTH] {
                let crossings = (0..torus.nodes()).filter(|node| torus.crosses_dateline(*node, port)).count() as u32;
                let rings = if port < NORTH { torus.height } else { torus.width };
                assert_eq!(crossings, rings, "{torus:?}, port {port}");
            }
        }
    }
}
