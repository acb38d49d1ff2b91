//! Three-dimensional tori: nodes, neighbours, distances.

/// Longest side: 4096 nodes need no more than the 16 bits of a table's index.
pub(crate) const SIDE_MAX: u32 = 16;

/// A torus of three dimensions. Node `x + X (y + Y z)` stands at (x, y, z). Ports are X+, X-, Y+, Y-, Z+, Z-.
///
/// A ring of two nodes has two cables; a ring of one node has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Torus3 {
    pub(super) sides: [u32; 3],
}

/// Error of a torus that cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid torus: {} x {} x {} (each side has 1 to {SIDE_MAX} nodes, and there are at least two nodes)",
    sides[0], sides[1], sides[2]
)]
pub struct Torus3Error {
    sides: [u32; 3],
}

impl Torus3 {
    /// Links of a node.
    pub const LINKS: usize = 6;
    /// Number of the port into the node itself.
    pub const LOCAL: usize = 6;

    /// Returns a torus.
    ///
    /// # Errors
    /// [`Torus3Error`] unless each side has 1 to 16 nodes, and there are at least two nodes.
    pub fn new(sides: [u32; 3]) -> Result<Self, Torus3Error> {
        let is_valid = sides.iter().all(|side| (1..=SIDE_MAX).contains(side)) && sides != [1; 3];
        if is_valid { Ok(Torus3 { sides }) } else { Err(Torus3Error { sides }) }
    }

    /// Returns the lengths of the sides: X, Y, Z.
    pub fn sides(self) -> [u32; 3] {
        self.sides
    }

    /// Returns the number of nodes.
    pub fn nodes(self) -> u32 {
        self.sides.iter().product()
    }

    /// Returns where a node stands.
    pub fn place(self, node: u32) -> [u32; 3] {
        let [x, y, _] = self.sides;
        [node % x, node / x % y, node / (x * y)]
    }

    /// Returns the node that stands at a place.
    pub fn node(self, [x, y, z]: [u32; 3]) -> u32 {
        x + self.sides[0] * (y + self.sides[1] * z)
    }

    /// Returns the node at the other end of a link; `None` if the ring has one node, or the port is none of a link.
    pub fn neighbour(self, node: u32, port: usize) -> Option<u32> {
        let axis = port / 2;
        let side = *self.sides.get(axis)?;
        if side == 1 {
            return None;
        }
        let mut place = self.place(node);
        place[axis] = (place[axis] + if port % 2 == 0 { 1 } else { side - 1 }) % side;
        Some(self.node(place))
    }

    /// Returns the hops from one node to another one along `axis`, in positive direction.
    pub fn ahead(self, from: u32, to: u32, axis: usize) -> u32 {
        let side = self.sides[axis];
        (self.place(to)[axis] + side - self.place(from)[axis]) % side
    }

    /// Returns the number of hops of a shortest route.
    pub fn distance(self, one: u32, other: u32) -> u32 {
        let (one, other) = (self.place(one), self.place(other));
        (0..3).map(|axis| one[axis].abs_diff(other[axis])).zip(self.sides).map(|(off, side)| off.min(side - off)).sum()
    }

    /// Returns the port toward another node in order of dimensions, the shorter way round each ring; if both ways are equally
    /// long, the positive direction. `None` to the node itself.
    pub fn toward(self, at: u32, to: u32) -> Option<u8> {
        let (at, to) = (self.place(at), self.place(to));
        let axis = (0..3).find(|axis| at[*axis] != to[*axis])?;
        let side = self.sides[axis];
        let ahead = (to[axis] + side - at[axis]) % side;
        Some((2 * axis + usize::from(2 * ahead > side)) as u8)
    }

    /// Returns the name of a port.
    pub fn port_name(port: usize) -> &'static str {
        ["X+", "X-", "Y+", "Y-", "Z+", "Z-"].get(port).copied().unwrap_or("local")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_leads_back() {
        for sides in [[4, 4, 4], [2, 3, 1], [1, 1, 2], [16, 1, 1]] {
            let torus = Torus3::new(sides).unwrap();
            for (node, port) in (0..torus.nodes()).flat_map(|node| (0..6).map(move |port| (node, port))) {
                if let Some(other) = torus.neighbour(node, port) {
                    assert_eq!(torus.neighbour(other, port ^ 1), Some(node), "{sides:?}: {node}, {port}");
                    assert_eq!(torus.distance(node, other), 1);
                }
            }
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        for sides in [[1, 1, 1], [0, 4, 4], [17, 1, 1]] {
            assert!(Torus3::new(sides).is_err(), "{sides:?}");
        }
    }
}
