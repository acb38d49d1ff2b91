//! The links of a fabric, and the ways that data takes over them.

mod hop;
mod shape;
pub(crate) mod torus3;

use std::fmt;

pub use hop::Hop;
pub use shape::{End, Shape, ShapeError};

/// Largest number of cards of a fabric: instructions name a node with 16 bits.
const NODES_MAX: u32 = 1 << 16;

/// Error of a topology: no fabric of so many cards has these links.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid fabric of {nodes} cards: {topology} (expected 1 to {NODES_MAX} cards, in rows or groups of equal size, or as many \
     as the shape has)"
)]
pub struct TopologyError {
    topology: Topology,
    nodes: u32,
}

/// The links of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topology {
    /// A link between every two cards.
    FullyConnected,
    /// `groups` groups of equal size, linked fully inside, and the cards of equal place in all groups linked fully (OPTWEB
    /// paper, section 5.3 and figure 20). Node `g * size + i` is card i of group g.
    Dragonfly {
        /// Groups.
        groups: u32,
    },
    /// A two-dimensional torus of `rows` rows, whose cards have routers: data reaches every card, over the links of a row and
    /// then over those of a column (CIRCUS paper, section 4.3). Node `r * columns + c` is in row r and column c. One row is a
    /// ring.
    Torus {
        /// Rows.
        rows: u32,
    },
    /// A network whose switches route, and may compute (MPI-FPGA paper, section 2): a torus of three dimensions with a switch in
    /// each card, or leaf and spine switches.
    Switched(Shape),
}

/// The name, with what makes the shape: as a selector names the networks of switches.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Topology::FullyConnected => Ok(()),
            Topology::Dragonfly { groups } => write!(f, " of {groups} groups"),
            Topology::Torus { rows } => write!(f, " of {rows} rows"),
            Topology::Switched(shape) => write!(f, " {shape}"),
        }
    }
}

impl Topology {
    /// Returns the name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Topology::FullyConnected => "fully-connected",
            Topology::Dragonfly { .. } => "dragonfly",
            Topology::Torus { .. } => "torus",
            Topology::Switched(Shape::Torus { .. }) => "torus-3d",
            Topology::Switched(Shape::Fat { .. }) => "fat-tree",
        }
    }

    /// Checks that a fabric of `nodes` cards can have these links.
    ///
    /// # Errors
    /// [`TopologyError`] if `nodes` is not 1 to 65536, if rows or groups are of unequal size, or if a network of switches
    /// has another number of processors.
    pub fn check(self, nodes: u32) -> Result<(), TopologyError> {
        let is_whole = match self {
            Topology::FullyConnected => true,
            Topology::Dragonfly { groups: rows } | Topology::Torus { rows } => rows != 0 && nodes.is_multiple_of(rows),
            Topology::Switched(shape) => shape.check().is_ok() && shape.processors() == nodes,
        };
        let is_valid = is_whole && (1..=NODES_MAX).contains(&nodes);
        is_valid.then_some(()).ok_or(TopologyError { topology: self, nodes })
    }

    /// Returns the row and the column of `node` in a fabric of `nodes` cards. Between two cards of one row, or of one column, no
    /// card of another row or column is needed. `None` if the fabric has no such node, or rows of unequal size.
    pub fn place(self, node: u32, nodes: u32) -> Option<(u32, u32)> {
        let columns = self.columns(nodes);
        (node < nodes && columns != 0).then(|| (node / columns, node % columns))
    }

    /// Returns the number of rows, at least 1.
    pub const fn rows(self) -> u32 {
        match self {
            Topology::FullyConnected
            | Topology::Switched(_)
            | Topology::Dragonfly { groups: 0 }
            | Topology::Torus { rows: 0 } => 1,
            Topology::Dragonfly { groups: rows } | Topology::Torus { rows } => rows,
        }
    }

    /// Cards of a row; 0 if the rows are of unequal size.
    const fn columns(self, nodes: u32) -> u32 {
        let rows = self.rows();
        if nodes.is_multiple_of(rows) { nodes / rows } else { 0 }
    }

    /// Whether a link leads from node `a` to node `b` in a fabric of `nodes` cards.
    pub fn linked(self, a: u32, b: u32, nodes: u32) -> bool {
        if let Topology::Switched(shape) = self {
            return shape.is_direct() && a.max(b) < nodes && shape.hops(a, b) == 1;
        }
        let (Some(one), Some(other)) = (self.place(a, nodes), self.place(b, nodes)) else { return false };
        let in_line = a != b && (one.0 == other.0 || one.1 == other.1);
        match self {
            Topology::FullyConnected | Topology::Dragonfly { .. } => in_line,
            Topology::Torus { .. } | Topology::Switched(_) => in_line && self.hops(a, b, nodes) == 1,
        }
    }

    /// Whether cards `a` and `b` of a fabric of `nodes` cards can exchange data: over a link, or over routers.
    pub fn reaches(self, a: u32, b: u32, nodes: u32) -> bool {
        match self {
            Topology::FullyConnected | Topology::Dragonfly { .. } => self.linked(a, b, nodes),
            Topology::Torus { .. } | Topology::Switched(_) => a != b && a.max(b) < nodes,
        }
    }

    /// Whether every two of `members` can exchange data, in a fabric of `nodes` cards.
    pub fn all_reach(self, members: &[u32], nodes: u32) -> bool {
        match self {
            Topology::FullyConnected | Topology::Torus { .. } | Topology::Switched(_) => {
                members.iter().all(|node| *node < nodes)
            }
            // All in one row, or all in one column.
            Topology::Dragonfly { .. } => {
                let places = |pair: &[u32]| self.place(pair[0], nodes).zip(self.place(pair[1], nodes));
                members.windows(2).all(|pair| places(pair).is_some_and(|(one, other)| one.0 == other.0))
                    || members.windows(2).all(|pair| places(pair).is_some_and(|(one, other)| one.1 == other.1))
            }
        }
    }

    /// Whether cards have routers, so that data of several pairs of cards shares links.
    pub const fn has_routers(self) -> bool {
        matches!(self, Topology::Torus { .. } | Topology::Switched(_))
    }

    /// Returns the number of links of one card in a fabric of `nodes` cards.
    pub fn ports(self, nodes: u32) -> u32 {
        match self {
            Topology::FullyConnected => nodes.saturating_sub(1),
            Topology::Dragonfly { groups } => (nodes / groups.max(1)).saturating_sub(1) + groups.saturating_sub(1),
            Topology::Torus { rows } => ring_ports(self.columns(nodes)) + ring_ports(rows),
            Topology::Switched(Shape::Torus { sides }) => sides.map(|side| if side > 1 { 2 } else { 0 }).iter().sum(),
            Topology::Switched(Shape::Fat { .. }) => 1,
        }
    }

    /// Returns the number of links in a fabric of `nodes` cards, each in one direction, with places for ports without a cable.
    pub fn links(self, nodes: u32) -> u32 {
        match self {
            Topology::Switched(shape) => shape.links(),
            _ => self.ports(nodes).saturating_mul(nodes),
        }
    }

    /// Returns the place of a link of a way among all [`links`](Topology::links).
    pub fn link(self, hop: Hop, nodes: u32) -> usize {
        match self {
            Topology::Switched(shape) => shape.link(hop) as usize,
            _ => hop.node as usize * self.ports(nodes) as usize + hop.port as usize,
        }
    }

    /// Returns the number of cards that each card reaches in a fabric of `nodes` cards.
    pub fn reached(self, nodes: u32) -> u32 {
        if self.has_routers() { nodes.saturating_sub(1) } else { self.ports(nodes) }
    }

    /// Returns the number of links on the way from `a` to `b` in a fabric of `nodes` cards, if `a` reaches `b`; else 0.
    pub fn hops(self, a: u32, b: u32, nodes: u32) -> u32 {
        match self {
            Topology::FullyConnected | Topology::Dragonfly { .. } => u32::from(self.linked(a, b, nodes)),
            Topology::Torus { rows: 0 } => 0,
            Topology::Torus { rows } => {
                let (Some(from), Some(to)) = (self.place(a, nodes), self.place(b, nodes)) else { return 0 };
                let distance = |from: u32, to: u32, length: u32| from.abs_diff(to).min(length - from.abs_diff(to));
                distance(from.1, to.1, self.columns(nodes)) + distance(from.0, to.0, rows)
            }
            Topology::Switched(_) if a == b || a.max(b) >= nodes => 0,
            Topology::Switched(shape) => shape.hops(a, b) + if shape.is_direct() { 0 } else { 2 },
        }
    }

    /// Returns the way from `a` to `b` over the routers of a torus of `nodes` cards: along the row, then along the column, the
    /// shorter way around. Of two equal ways around, cards of even place take the one to higher places, the others the other.
    /// Empty without routers. In a network of switches it follows their routing tables; switches apart from cards are numbered after
    /// the cards, leaves first.
    pub fn way(self, a: u32, b: u32, nodes: u32) -> impl Iterator<Item = Hop> {
        let (switched, grid) = match self {
            Topology::Switched(shape) => (Some(shape.way(a, b)), None),
            _ => (None, Some(self.way_on_grid(a, b, nodes))),
        };
        switched.into_iter().flatten().chain(grid.into_iter().flatten())
    }

    fn way_on_grid(self, a: u32, b: u32, nodes: u32) -> impl Iterator<Item = Hop> {
        let columns = self.columns(nodes);
        let rows = match self {
            Topology::Torus { rows } if a.max(b) < nodes && columns != 0 => rows,
            _ => 0,
        };
        let (mut node, mut left) = (a, if rows == 0 { 0 } else { self.hops(a, b, nodes) });
        let place = move |node: u32| (node / columns, node % columns);
        // Towards higher places, for as long as the way goes around: it was decided at the first card.
        let (from, to) = if rows == 0 { ((0, 0), (0, 0)) } else { (place(a), place(b)) };
        let (is_right, is_down) = (goes_up(from.1, to.1, columns), goes_up(from.0, to.0, rows));
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (row, column) = place(node);
            let hop = if column != to.1 {
                let port = if is_right { 0 } else { 1 };
                let next = Hop { node, port };
                node = row * columns + around(column, columns, is_right);
                next
            } else {
                let port = ring_ports(columns) + if is_down { 0 } else { 1 };
                let next = Hop { node, port };
                node = around(row, rows, is_down) * columns + column;
                next
            };
            Some(hop)
        })
    }

    /// Returns the number of cards of a Dragonfly of g groups whose cards have k links: g(k - g + 2), with k - g + 2 in each group.
    /// `None` with too few links, or with more cards than 32 bits count.
    pub fn dragonfly_nodes(groups: u32, ports: u32) -> Option<u32> {
        let size = (u64::from(ports) + 2).checked_sub(groups.into())?;
        u32::try_from(u64::from(groups) * size).ok().filter(|nodes| *nodes > 0)
    }
}

/// Links of a card in a ring of `length` cards: two cards have one between them.
const fn ring_ports(length: u32) -> u32 {
    match length {
        0 | 1 => 0,
        2 => 1,
        _ => 2,
    }
}

/// Whether the way in a ring of `length` from place `from` to place `to` goes to higher places.
fn goes_up(from: u32, to: u32, length: u32) -> bool {
    let up = to.checked_sub(from).unwrap_or_else(|| length - (from - to));
    match up.cmp(&(length - up)) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => length == 2 || from.is_multiple_of(2),
        std::cmp::Ordering::Greater => false,
    }
}

/// The place after `place` in a ring of `length`.
fn around(place: u32, length: u32, is_up: bool) -> u32 {
    match is_up {
        true => (place + 1) % length,
        false => place.checked_sub(1).unwrap_or(length - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The card that a port of a torus leads to, from the wiring of a torus alone.
    fn behind(hop: Hop, rows: u32, columns: u32) -> u32 {
        let (row, column) = (hop.node / columns, hop.node % columns);
        let in_row = ring_ports(columns);
        let (port, length) = if hop.port < in_row { (hop.port, columns) } else { (hop.port - in_row, rows) };
        let step = if port == 0 { 1 } else { length - 1 };
        match hop.port < in_row {
            true => row * columns + (column + step) % columns,
            false => (row + step) % rows * columns + column,
        }
    }

    #[test]
    fn ways_lead_to_their_ends_over_as_few_links_as_there_are() {
        for (rows, columns) in [(1, 2), (1, 7), (2, 2), (2, 5), (3, 3), (4, 8), (8, 8), (5, 1)] {
            let (topology, nodes) = (Topology::Torus { rows }, rows * columns);
            // Breadth first, over what is linked.
            for a in 0..nodes {
                let mut distance = BTreeMap::from([(a, 0)]);
                let mut last = vec![a];
                while !last.is_empty() {
                    let mut next = Vec::new();
                    for node in last {
                        for port in 0..topology.ports(nodes) {
                            let peer = behind(Hop { node, port }, rows, columns);
                            assert!(topology.linked(node, peer, nodes), "{rows}x{columns}: {node} to {peer}");
                            if !distance.contains_key(&peer) {
                                distance.insert(peer, distance[&node] + 1);
                                next.push(peer);
                            }
                        }
                    }
                    last = next;
                }
                for b in 0..nodes {
                    let way: Vec<Hop> = topology.way(a, b, nodes).collect();
                    assert_eq!(way.len() as u32, distance[&b], "{rows}x{columns}: {a} to {b}");
                    assert_eq!(topology.hops(a, b, nodes), distance[&b]);
                    let mut at = a;
                    for hop in way {
                        assert_eq!(hop.node, at);
                        assert!(hop.port < topology.ports(nodes));
                        at = behind(hop, rows, columns);
                    }
                    assert_eq!(at, b);
                    assert_eq!(topology.reaches(a, b, nodes), a != b);
                }
            }
        }
    }

    #[test]
    fn ways_around_share_the_links_evenly() {
        let topology = Topology::Torus { rows: 8 };
        let mut used: BTreeMap<Hop, u32> = BTreeMap::new();
        for (a, b) in (0..64).flat_map(|a| (0..64).map(move |b| (a, b))) {
            topology.way(a, b, 64).for_each(|hop| *used.entry(hop).or_default() += 1);
        }
        let (least, most) = (used.values().min().unwrap(), used.values().max().unwrap());
        assert_eq!((used.len(), least, most), (256, &64, &64));
    }

    #[test]
    fn an_error_names_the_topology() {
        let shown = |topology: Topology| topology.check(5).unwrap_err().to_string();
        let named = |text: &str| format!("invalid fabric of 5 cards: {text} (expected");
        for (topology, text) in [
            (Topology::Dragonfly { groups: 2 }, "dragonfly of 2 groups"),
            (Topology::Torus { rows: 3 }, "torus of 3 rows"),
            (Topology::Switched("4x4x2".parse().unwrap()), "torus-3d 4x4x2"),
            (Topology::Switched("fat:32".parse().unwrap()), "fat-tree fat:32:8"),
        ] {
            assert!(shown(topology).starts_with(&named(text)), "{}", shown(topology));
        }
        assert!(Topology::FullyConnected.check(0).unwrap_err().to_string().contains(": fully-connected ("));
        let error = Shape::Torus { sides: [0, 2, 2] }.check().unwrap_err().to_string();
        assert!(error.starts_with("invalid shape \"0x2x2\" "), "{error}");
    }

    #[test]
    fn members_reach_each_other_if_every_two_do() {
        let topology = Topology::Dragonfly { groups: 3 };
        // Every subset of 3 groups of 3 cards.
        for set in 0..1_u32 << 9 {
            let members: Vec<u32> = (0..9).filter(|node| set >> node & 1 == 1).collect();
            let mut pairs = members.iter().flat_map(|a| members.iter().map(move |b| (*a, *b)));
            let expected = pairs.all(|(a, b)| a == b || topology.reaches(a, b, 9));
            assert_eq!(topology.all_reach(&members, 9), expected, "{members:?}");
        }
        assert!(!topology.all_reach(&[0, 9], 9));
    }

    #[test]
    fn nothing_leads_outside() {
        let topology = Topology::Torus { rows: 2 };
        assert_eq!(topology.way(0, 8, 8).count(), 0);
        assert_eq!((topology.hops(9, 1, 8), topology.hops(3, 3, 8)), (0, 0));
        assert!(!topology.reaches(0, 8, 8) && !topology.linked(0, 0, 8));
        assert_eq!(Topology::FullyConnected.way(0, 1, 2).count(), 0);
        assert_eq!(Topology::Torus { rows: 0 }.way(0, 1, 8).count(), 0);
    }

    #[test]
    fn no_question_about_any_grid_panics() {
        let odd = [0, 1, 2, 3, 4, 7, 9, 1 << 31, u32::MAX - 1, u32::MAX];
        for (rows, nodes) in odd.into_iter().flat_map(|rows| odd.map(|nodes| (rows, nodes))) {
            for topology in [Topology::Torus { rows }, Topology::Dragonfly { groups: rows }] {
                let is_grid = (1..=NODES_MAX).contains(&nodes) && rows != 0 && nodes % rows == 0;
                assert_eq!(topology.check(nodes).is_ok(), is_grid, "{topology:?}, {nodes} nodes");
                let _ = (topology.ports(nodes), topology.links(nodes));
                for (a, b) in odd.into_iter().flat_map(|a| odd.map(|b| (a, b))) {
                    let (hops, way) = (topology.hops(a, b, nodes), topology.way(a, b, nodes));
                    let first: Vec<Hop> = way.take(5).collect();
                    assert!(!topology.has_routers() || first.len() as u32 == hops.min(5));
                    let _ = first.iter().map(|hop| topology.link(*hop, nodes)).max();
                    let _ = (topology.linked(a, b, nodes), topology.reaches(a, b, nodes), topology.place(a, nodes));
                }
            }
            let expected = u128::from(rows) * (u128::from(nodes) + 2).saturating_sub(rows.into());
            let expected = u32::try_from(expected).ok().filter(|cards| *cards > 0);
            assert_eq!(Topology::dragonfly_nodes(rows, nodes), expected);
        }
    }
}
