//! Shapes of networks: direct ones are tori of three dimensions, indirect ones have leaf and spine switches.

use std::str::FromStr;

use crate::net::router::Port;

/// The other end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Processor(u32),
    Switch { switch: u32, port: usize },
}

/// Shape of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A torus of cards, each with a switch of six ports and a processor.
    Torus {
        /// Cards along each dimension.
        sides: [u32; 3],
    },
    /// Leaf and spine switches, three ports down for one up. A spine has a port for each leaf.
    Fat {
        /// Processors.
        processors: u32,
        /// Ports of a leaf, and of a spine that needs no more.
        radix: u32,
    },
}

/// Most processors: tags of leaves and processors have 8 bits.
const PROCESSORS_MAX: u32 = 512;

/// Error of a shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid shape {0:?} (expected a torus such as 4x4x2, or fat:32 or fat:32:16, with radix 8, 16 or 28; 2 to {PROCESSORS_MAX} processors)"
)]
pub struct ShapeError(String);

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let number = |text: &str| text.parse::<u32>().ok();
        let shape = match text.strip_prefix("fat:") {
            Some(rest) => {
                let (processors, radix) = rest.split_once(':').unwrap_or((rest, "8"));
                number(processors).zip(number(radix)).map(|(processors, radix)| Shape::Fat { processors, radix })
            }
            None => {
                let sides: Option<Vec<u32>> = text.split('x').map(number).collect();
                sides.and_then(|sides| sides.try_into().ok()).map(|sides| Shape::Torus { sides })
            }
        };
        shape.filter(Shape::is_valid).ok_or_else(|| ShapeError(text.to_owned()))
    }
}

impl Shape {
    fn is_valid(&self) -> bool {
        let has_radix = match self {
            Shape::Torus { sides } => sides.iter().all(|side| *side > 0),
            Shape::Fat { radix, .. } => [8, 16, 28].contains(radix),
        };
        has_radix && (2..=PROCESSORS_MAX).contains(&self.processors())
    }

    /// Checks a shape that was not read from text.
    pub(crate) fn check(&self) -> Result<(), ShapeError> {
        self.is_valid().then_some(()).ok_or_else(|| ShapeError(format!("{self:?}")))
    }

    /// Returns the number of processors.
    pub fn processors(&self) -> u32 {
        match self {
            Shape::Torus { sides } => sides.iter().fold(1, |product, side| product.saturating_mul(*side)),
            Shape::Fat { processors, .. } => *processors,
        }
    }

    /// Whether every processor has a switch of its own.
    pub fn is_direct(&self) -> bool {
        matches!(self, Shape::Torus { .. })
    }

    /// Returns the leaves, the spines, and the ports down of a leaf; none of a torus.
    pub(crate) fn levels(&self) -> (u32, u32, u32) {
        match self {
            Shape::Torus { .. } => (0, 0, 1),
            Shape::Fat { processors, radix } => {
                let down = radix * 3 / 4;
                (processors.div_ceil(down), radix - down, down)
            }
        }
    }

    /// Returns the number of switches.
    pub fn switches(&self) -> u32 {
        let (leaves, spines, _) = self.levels();
        if self.is_direct() { self.processors() } else { leaves + spines }
    }

    /// Returns the ports of a switch that its units are made for, and its gather reduction units (table 3).
    pub(crate) fn units(&self, switch: u32) -> (usize, usize) {
        match self {
            Shape::Torus { .. } => (6, 6),
            Shape::Fat { radix, .. } => {
                let (leaves, ..) = self.levels();
                let ports = if switch < leaves { *radix } else { leaves.max(*radix) };
                (ports as usize, if *radix == 28 { 4 } else { 8 })
            }
        }
    }

    fn place(sides: &[u32; 3], node: u32) -> [u32; 3] {
        [node % sides[0], node / sides[0] % sides[1], node / (sides[0] * sides[1])]
    }

    fn node(sides: &[u32; 3], place: [u32; 3]) -> u32 {
        (place[2] * sides[1] + place[1]) * sides[0] + place[0]
    }

    /// Returns the hops between the switches of two processors of a torus.
    pub(crate) fn hops(&self, one: u32, other: u32) -> u32 {
        let Shape::Torus { sides } = self else { return if one == other { 0 } else { 2 } };
        let (one, other) = (Shape::place(sides, one), Shape::place(sides, other));
        (0..3).map(|axis| one[axis].abs_diff(other[axis])).zip(sides).map(|(off, side)| off.min(side - off)).sum()
    }

    /// Returns what is at each port of a switch. In a torus, ports 2a and 2a + 1 lead up and down dimension a, and port 6 to the
    /// processor. At a leaf processors come first, then spines.
    pub(crate) fn ends(&self, switch: u32) -> Vec<Option<End>> {
        match self {
            Shape::Torus { sides } => {
                let neighbour = |port: usize| {
                    let (axis, side) = (port / 2, sides[port / 2]);
                    let mut place = Shape::place(sides, switch);
                    place[axis] = (place[axis] + if port.is_multiple_of(2) { 1 } else { side - 1 }) % side;
                    (side > 1).then(|| End::Switch { switch: Shape::node(sides, place), port: port ^ 1 })
                };
                (0..6).map(neighbour).chain([Some(End::Processor(switch))]).collect()
            }
            Shape::Fat { processors, .. } => {
                let (leaves, spines, down) = self.levels();
                if switch >= leaves {
                    let port = (down + switch - leaves) as usize;
                    return (0..leaves).map(|leaf| Some(End::Switch { switch: leaf, port })).collect();
                }
                let below = (0..down).map(|port| switch * down + port);
                let below = below.map(|one| (one < *processors).then_some(End::Processor(one)));
                let above = (0..spines).map(|spine| End::Switch { switch: leaves + spine, port: switch as usize });
                below.chain(above.map(Some)).collect()
            }
        }
    }

    /// Returns the routing table of a switch: the port toward each address, processors first, then switches. In a torus in order
    /// of dimensions, the shorter way round.
    pub(crate) fn table(&self, switch: u32) -> Vec<Option<u8>> {
        let processors = self.processors();
        let to_switch = |to: u32| match self {
            Shape::Torus { sides } => {
                let (at, to) = (Shape::place(sides, switch), Shape::place(sides, to));
                let axis = (0..3).find(|axis| at[*axis] != to[*axis])?;
                let ahead = (to[axis] + sides[axis] - at[axis]) % sides[axis];
                Some((2 * axis + usize::from(2 * ahead > sides[axis])) as u8)
            }
            Shape::Fat { .. } => {
                let (leaves, _, down) = self.levels();
                match (switch < leaves, to < leaves) {
                    (true, false) => Some((down + to - leaves) as u8),
                    (false, true) => Some(to as u8),
                    _ => None,
                }
            }
        };
        let to_processor = |to: u32| match self {
            Shape::Torus { .. } if to == switch => Some(6),
            Shape::Torus { .. } => to_switch(to),
            Shape::Fat { .. } => {
                let (leaves, _, down) = self.levels();
                match to / down {
                    leaf if leaf == switch => Some((to % down) as u8),
                    leaf if switch >= leaves => Some(leaf as u8),
                    _ => Some(down as u8),
                }
            }
        };
        (0..processors).map(to_processor).chain((0..self.switches()).map(to_switch)).collect()
    }

    /// Returns a port as a router sees it.
    pub(crate) fn port(&self, switch: u32, port: usize, is_link: bool) -> Port {
        let Shape::Torus { sides } = self else { return Port { dimension: None, crosses_dateline: false, is_link } };
        if port >= 6 {
            return Port { dimension: None, crosses_dateline: false, is_link };
        }
        let at = Shape::place(sides, switch)[port / 2];
        let edge = if port.is_multiple_of(2) { sides[port / 2] - 1 } else { 0 };
        Port { dimension: Some(port / 2), crosses_dateline: at == edge, is_link }
    }
}
