//! Trees of collectives: offline collective routing (OCR), and recursive partitioning multicast (RPM) as its baseline.
//!
//! OCR is Sheng's (Boston University, section 5.2.1, algorithms 6 and 7). RPM is that of Wang et al. (2009), extended to three
//! dimensions: no link loads, north and south before east and west, X before Y before Z.

use crate::named::named;
use crate::topology::torus3::Torus3;

named! {
    /// How trees are made.
    TreeAlgorithm {
        /// Offline collective routing: keeps links shared as long as possible, and avoids loaded links.
        Ocr, "ocr";
        /// Recursive partitioning multicast: a fixed order of directions.
        Rpm, "rpm";
    }
}

/// A link of a tree, away from its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) port: u8,
    pub(super) to: u32,
}

/// Makes trees one after the other, and remembers how much each link carries.
pub(super) struct TreeBuilder {
    torus: Torus3,
    algorithm: TreeAlgorithm,
    /// Packets on each link, by node and port.
    loads: Vec<u64>,
    /// The axis that wins the next tie.
    turn: usize,
}

/// Hops that are left to a destination, by axis; negative ones go in negative direction.
type Offset = [i32; 3];

/// The tree under construction.
struct PartialTree {
    edges: Vec<Edge>,
    packets: u64,
}

/// The regions around a node of a plane, counted from north-east against the clock, and the sides that corners join.
const CORNERS: [usize; 4] = [0, 2, 4, 6];
const SIDES: [usize; 4] = [1, 3, 5, 7];

/// Links that a node of a plane uses: for each side (by region) the regions that go there.
#[derive(Default)]
struct Sides {
    enabled: [bool; 8],
    /// For each region the side it goes to.
    joined: [usize; 8],
}

impl TreeBuilder {
    pub(super) fn new(torus: Torus3, algorithm: TreeAlgorithm) -> Self {
        TreeBuilder { torus, algorithm, loads: vec![0; torus.nodes() as usize * Torus3::LINKS], turn: 0 }
    }

    /// Returns the links of a tree from `root` to `members`: a link after the one that leads to it. A route to a member has no
    /// more hops than a shortest one.
    pub(super) fn tree(&mut self, root: u32, members: &[u32], packets: u32) -> Vec<Edge> {
        let antipodes = [0, 1, 2].map(|axis| {
            let forward = self.load(root, 2 * axis) <= self.load(root, 2 * axis + 1);
            forward || self.algorithm == TreeAlgorithm::Rpm
        });
        let offset = |member: &u32| {
            [0, 1, 2].map(|axis| {
                let (ahead, side) = (self.torus.ahead(root, *member, axis) as i32, self.torus.sides()[axis] as i32);
                let is_forward = 2 * ahead < side || (2 * ahead == side && antipodes[axis]);
                if is_forward { ahead } else { ahead - side }
            })
        };
        let offsets = members.iter().map(offset).collect();
        let mut tree = PartialTree { edges: Vec::with_capacity(members.len()), packets: packets.into() };
        self.space(root, offsets, &mut tree);
        tree.edges
    }

    fn load(&self, node: u32, port: usize) -> u64 {
        self.loads[node as usize * Torus3::LINKS + port]
    }

    /// Adds a link to the tree, and returns the node it leads to.
    fn step(&mut self, from: u32, port: usize, tree: &mut PartialTree) -> u32 {
        // A ring with a destination ahead has at least two nodes.
        let to = self.torus.neighbour(from, port).unwrap_or(from);
        tree.edges.push(Edge { from, port: port as u8, to });
        self.loads[from as usize * Torus3::LINKS + port] += tree.packets;
        to
    }

    /// Splits the space around `at` in two halves and a plane (algorithm 6).
    fn space(&mut self, at: u32, mut offsets: Vec<Offset>, tree: &mut PartialTree) {
        offsets.retain(|offset| *offset != [0; 3]);
        if offsets.is_empty() {
            return;
        }
        let is_flat = |axis: usize| offsets.iter().all(|offset| offset[axis] == 0);
        if let Some(axis) = [2, 1, 0].into_iter().find(|axis| is_flat(*axis)) {
            return self.plane(at, offsets, axis, tree);
        }
        let axis = match self.algorithm {
            TreeAlgorithm::Ocr => self.best_partition(at, &offsets, tree.packets),
            TreeAlgorithm::Rpm => 0,
        };
        let (plane, halves): (Vec<Offset>, Vec<Offset>) = offsets.into_iter().partition(|offset| offset[axis] == 0);
        let (above, below): (Vec<Offset>, Vec<Offset>) = halves.into_iter().partition(|offset| offset[axis] > 0);
        for (port, half) in [(2 * axis, above), (2 * axis + 1, below)] {
            if !half.is_empty() {
                let to = self.step(at, port, tree);
                self.space(to, moved(half, port), tree);
            }
        }
        self.plane(at, plane, axis, tree);
    }

    /// Returns the axis that needs the fewest links of `at`, then the one that keeps their loads most equal.
    fn best_partition(&mut self, at: u32, offsets: &[Offset], packets: u64) -> usize {
        let score = |axis: usize| {
            let mut loads: [u64; 6] = std::array::from_fn(|port| self.load(at, port));
            let mut links = 0;
            let mut take = |port: usize| {
                loads[port] += packets;
                links += 1;
            };
            for (port, sign) in [(2 * axis, 1), (2 * axis + 1, -1)] {
                if offsets.iter().any(|offset| offset[axis].signum() == sign) {
                    take(port);
                }
            }
            let plane: Vec<Offset> = offsets.iter().filter(|offset| offset[axis] == 0).copied().collect();
            let sides = self.sides(at, &plane, axis);
            SIDES.into_iter().filter(|side| sides.enabled[*side]).for_each(|side| take(port_of(side, axis)));
            let sum: u64 = loads.iter().sum();
            // Six times the variance, times six: whole numbers compare exactly.
            let spread = 6 * loads.iter().map(|load| load * load).sum::<u64>() - sum * sum;
            (links, spread)
        };
        let scores = [0, 1, 2].map(score);
        let least = scores.iter().min().copied().unwrap_or_default();
        let best: Vec<usize> = (0..3).filter(|axis| scores[*axis] == least).collect();
        if best.len() == 1 {
            return best[0];
        }
        self.turn += 1;
        best[self.turn % best.len()]
    }

    /// Splits the plane around `at`, in which all hops along `axis` are done, by region (algorithm 7).
    fn plane(&mut self, at: u32, mut offsets: Vec<Offset>, axis: usize, tree: &mut PartialTree) {
        offsets.retain(|offset| *offset != [0; 3]);
        if offsets.is_empty() {
            return;
        }
        let sides = self.sides(at, &offsets, axis);
        for side in SIDES.into_iter().filter(|side| sides.enabled[*side]) {
            let port = port_of(side, axis);
            let of_side = |offset: &&Offset| sides.joined[region(offset, axis)] == side;
            let there = offsets.iter().filter(of_side).copied().collect();
            let to = self.step(at, port, tree);
            self.plane(to, moved(there, port), axis, tree);
        }
    }

    /// Decides which links of `at` a plane uses, and by which one each region is reached.
    fn sides(&self, at: u32, offsets: &[Offset], axis: usize) -> Sides {
        let mut has = [false; 8];
        offsets.iter().for_each(|offset| has[region(offset, axis)] = true);
        let mut sides = Sides::default();
        for side in SIDES {
            sides.enabled[side] = has[side];
            sides.joined[side] = side;
        }
        for corner in CORNERS.into_iter().filter(|corner| has[*corner]) {
            let neighbours = [(corner + 1) % 8, (corner + 7) % 8];
            let [vertical, horizontal] =
                if matches!(corner, 0 | 4) { neighbours } else { [neighbours[1], neighbours[0]] };
            // The other corner beside a side.
            let beyond = |side: usize| if side == (corner + 1) % 8 { (corner + 2) % 8 } else { (corner + 6) % 8 };
            let lighter = || {
                let load = |side| self.load(at, port_of(side, axis));
                if load(vertical) > load(horizontal) { horizontal } else { vertical }
            };
            let is_offline = self.algorithm == TreeAlgorithm::Ocr;
            let side = match (sides.enabled[vertical], sides.enabled[horizontal]) {
                (true, false) => vertical,
                (false, true) => horizontal,
                _ if !is_offline => vertical,
                (true, true) => lighter(),
                (false, false) => match (has[beyond(vertical)], has[beyond(horizontal)]) {
                    (true, false) => vertical,
                    (false, true) => horizontal,
                    _ => lighter(),
                },
            };
            sides.enabled[side] = true;
            sides.joined[corner] = side;
        }
        sides
    }
}

/// Returns the offsets after a hop through `port`.
fn moved(mut offsets: Vec<Offset>, port: usize) -> Vec<Offset> {
    let hop = if port % 2 == 0 { 1 } else { -1 };
    offsets.iter_mut().for_each(|offset| offset[port / 2] -= hop);
    offsets
}

/// Returns the horizontal and the vertical axis of the plane across `axis`.
fn plane_axes(axis: usize) -> (usize, usize) {
    [(1, 2), (0, 2), (0, 1)][axis]
}

/// Returns the region of a destination in the plane across `axis`, which is not at the node itself.
fn region(offset: &Offset, axis: usize) -> usize {
    let (horizontal, vertical) = plane_axes(axis);
    match (offset[horizontal].signum(), offset[vertical].signum()) {
        (1, 1) => 0,
        (0, 1) => 1,
        (-1, 1) => 2,
        (-1, 0) => 3,
        (-1, -1) => 4,
        (0, -1) => 5,
        (1, -1) => 6,
        _ => 7,
    }
}

/// Returns the port of a side of the plane across `axis`.
fn port_of(side: usize, axis: usize) -> usize {
    let (horizontal, vertical) = plane_axes(axis);
    match side {
        1 => 2 * vertical,
        3 => 2 * horizontal + 1,
        5 => 2 * vertical + 1,
        _ => 2 * horizontal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 5.18 a and b: destinations in the north-east and in the south-east share the link to the east.
    #[test]
    fn ocr_keeps_a_link_shared_that_rpm_does_not() {
        let torus = Torus3::new([5, 5, 1]).unwrap();
        let members = [torus.node([1, 1, 0]), torus.node([1, 4, 0])];
        let links = |algorithm| TreeBuilder::new(torus, algorithm).tree(0, &members, 1).len();
        assert_eq!((links(TreeAlgorithm::Ocr), links(TreeAlgorithm::Rpm)), (3, 4));
    }

    /// Figure 5.18 c and d: loaded links are avoided.
    #[test]
    fn ocr_avoids_loaded_links() {
        let torus = Torus3::new([5, 5, 1]).unwrap();
        let mut builder = TreeBuilder::new(torus, TreeAlgorithm::Ocr);
        let corner = [torus.node([1, 1, 0])];
        assert_eq!(builder.tree(0, &corner, 1)[0].port, 2);
        assert_eq!(builder.tree(0, &corner, 1)[0].port, 0);
    }

    /// Figure 5.19: one link leaves the source if the space is split by the right axis.
    #[test]
    fn the_partition_with_fewest_links_wins() {
        let torus = Torus3::new([5, 5, 5]).unwrap();
        let members: Vec<u32> = [[2, 1, 0], [1, 4, 1], [1, 0, 4]].map(|place| torus.node(place)).to_vec();
        let edges = TreeBuilder::new(torus, TreeAlgorithm::Ocr).tree(0, &members, 1);
        assert_eq!(edges.iter().filter(|edge| edge.from == 0).count(), 1);
    }
}
