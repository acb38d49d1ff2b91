//! Shapes of networks: direct ones are tori of three dimensions, indirect ones have leaf and spine switches.

use std::fmt;
use std::str::FromStr;

use super::hop::Hop;
use super::torus3::Torus3;

/// The other end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A processor.
    Processor(u32),
    /// A port of a switch.
    Switch {
        /// The switch.
        switch: u32,
        /// Its port.
        port: usize,
    },
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
    "invalid shape {shape:?} (expected a torus such as 4x4x2, or fat:32 or fat:32:16, with radix 8, 16 or 28; 2 to \
     {PROCESSORS_MAX} processors){fits}"
)]
pub struct ShapeError {
    shape: String,
    /// What would fit, as the end of a sentence.
    fits: String,
}

impl ShapeError {
    /// The error of `text`, with a shape that is near to it.
    fn of(text: &str) -> Self {
        let sides = text.split('x').filter(|side| side.parse().is_ok_and(|side: u32| side > 0)).count();
        let is_whole = sides == text.split('x').count();
        let near = match (text.strip_prefix("fat:"), sides) {
            (Some(rest), _) => rest.split(':').next().map(|processors| format!("fat:{processors}:16")),
            (None, 1) if is_whole => Some(format!("{text}x1x1")),
            (None, 2) if is_whole => Some(format!("{text}x1")),
            _ => None,
        };
        let fits = near.filter(|near| Shape::read(near).is_some());
        ShapeError { shape: text.to_owned(), fits: fits.map_or_else(String::new, |near| format!(": {near} would fit")) }
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        Shape::read(text).ok_or_else(|| ShapeError::of(text))
    }
}

/// As a selector names it.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Torus { sides: [x, y, z] } => write!(f, "{x}x{y}x{z}"),
            Shape::Fat { processors, radix } => write!(f, "fat:{processors}:{radix}"),
        }
    }
}

impl Shape {
    fn read(text: &str) -> Option<Self> {
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
        shape.filter(Shape::is_valid)
    }

    fn is_valid(&self) -> bool {
        let has_radix = match self {
            Shape::Torus { sides } => sides.iter().all(|side| *side > 0),
            Shape::Fat { radix, .. } => [8, 16, 28].contains(radix),
        };
        has_radix && (2..=PROCESSORS_MAX).contains(&self.processors())
    }

    /// Checks a shape that was not read from text.
    pub fn check(&self) -> Result<(), ShapeError> {
        self.is_valid().then_some(()).ok_or_else(|| ShapeError { shape: self.to_string(), fits: String::new() })
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
    pub fn levels(&self) -> (u32, u32, u32) {
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
    pub fn units(&self, switch: u32) -> (usize, usize) {
        match self {
            Shape::Torus { .. } => (6, 6),
            Shape::Fat { radix, .. } => {
                let (leaves, ..) = self.levels();
                let ports = if switch < leaves { *radix } else { leaves.max(*radix) };
                (ports as usize, if *radix == 28 { 4 } else { 8 })
            }
        }
    }

    /// Returns the torus of a direct network.
    pub fn torus(&self) -> Option<Torus3> {
        match *self {
            Shape::Torus { sides } => Some(Torus3 { sides }),
            Shape::Fat { .. } => None,
        }
    }

    /// Returns the links from the switch of a processor to that of another.
    pub fn hops(&self, one: u32, other: u32) -> u32 {
        let (_, _, down) = self.levels();
        match self.torus() {
            Some(torus) => torus.distance(one, other),
            None if one / down == other / down => 0,
            None => 2,
        }
    }

    /// Returns what is at each port of a switch. In a torus, ports 2a and 2a + 1 lead up and down dimension a, and port 6 to the
    /// processor. At a leaf processors come first, then spines.
    pub fn ends(&self, switch: u32) -> Vec<Option<End>> {
        let (leaves, spines, down) = self.levels();
        let ports = match self {
            Shape::Torus { .. } => 7,
            Shape::Fat { .. } if switch >= leaves => leaves,
            Shape::Fat { .. } => down + spines,
        };
        (0..ports as usize).map(|port| self.end(switch, port)).collect()
    }

    fn end(&self, switch: u32, port: usize) -> Option<End> {
        match *self {
            Shape::Torus { .. } if port >= Torus3::LINKS => Some(End::Processor(switch)),
            Shape::Torus { sides } => {
                let other = Torus3 { sides }.neighbour(switch, port);
                other.map(|switch| End::Switch { switch, port: port ^ 1 })
            }
            Shape::Fat { processors, .. } => {
                let (leaves, _, down) = self.levels();
                if switch >= leaves {
                    return Some(End::Switch { switch: port as u32, port: (down + switch - leaves) as usize });
                }
                match (port as u32).checked_sub(down) {
                    Some(spine) => Some(End::Switch { switch: leaves + spine, port: switch as usize }),
                    None => Some(switch * down + port as u32).filter(|one| *one < processors).map(End::Processor),
                }
            }
        }
    }

    /// Returns the port of a switch toward a processor. In a torus in order of dimensions, the shorter way round; port 6 leads to
    /// the own processor. At a leaf, the processors of other leaves are spread over the spines.
    pub fn toward(&self, switch: u32, processor: u32) -> Option<u8> {
        match self {
            Shape::Torus { .. } if processor == switch => Some(Torus3::LOCAL as u8),
            Shape::Torus { .. } => self.toward_switch(switch, processor),
            Shape::Fat { .. } => {
                let (leaves, spines, down) = self.levels();
                match processor / down {
                    leaf if leaf == switch => Some((processor % down) as u8),
                    leaf if switch >= leaves => Some(leaf as u8),
                    _ => Some((down + processor % spines) as u8),
                }
            }
        }
    }

    /// Returns the port of a switch toward another; `None` to itself.
    pub fn toward_switch(&self, switch: u32, to: u32) -> Option<u8> {
        match *self {
            Shape::Torus { sides } => Torus3 { sides }.toward(switch, to),
            Shape::Fat { .. } => {
                let (leaves, _, down) = self.levels();
                match (switch < leaves, to < leaves) {
                    (true, false) => Some((down + to - leaves) as u8),
                    (false, true) => Some(to as u8),
                    _ => None,
                }
            }
        }
    }

    /// Returns the switch behind a port of a switch.
    pub(crate) fn behind(&self, switch: u32, port: u8) -> Option<u32> {
        match self.end(switch, port.into())? {
            End::Switch { switch, .. } => Some(switch),
            End::Processor(_) => None,
        }
    }

    /// Returns the routing table of a switch: the port toward each address, processors first, then switches.
    pub fn table(&self, switch: u32) -> Vec<Option<u8>> {
        let to_processor = |to: u32| self.toward(switch, to);
        let to_switch = |to: u32| self.toward_switch(switch, to);
        (0..self.processors()).map(to_processor).chain((0..self.switches()).map(to_switch)).collect()
    }

    /// Returns the cards' links, each in one direction: of a torus the six ports of each card; else those of cards up to their
    /// leaves, then the ports of leaves, then those of spines.
    pub(super) fn links(&self) -> u32 {
        let (leaves, spines, _) = self.levels();
        match self {
            Shape::Torus { .. } => 6 * self.processors(),
            Shape::Fat { processors, radix } => processors + leaves * radix + spines * leaves,
        }
    }

    /// Returns the place of a link among [`links`](Shape::links). Switches are numbered after the cards in a network that has them
    /// apart from cards.
    pub(crate) fn link(&self, hop: Hop) -> u32 {
        let (leaves, ..) = self.levels();
        match self {
            Shape::Torus { .. } => 6 * hop.node + hop.port,
            Shape::Fat { processors, radix } => match hop.node.checked_sub(*processors) {
                None => hop.node,
                Some(leaf) if leaf < leaves => processors + leaf * radix + hop.port,
                Some(switch) => processors + leaves * radix + (switch - leaves) * leaves + hop.port,
            },
        }
    }

    /// Returns the links from card `from` to card `to`: those that the routing tables of the switches name.
    pub(crate) fn way(self, from: u32, to: u32) -> impl Iterator<Item = Hop> {
        let (_, _, down) = self.levels();
        // Switches of a torus are the cards.
        let first = if self.is_direct() { 0 } else { self.processors() };
        let mut at = (from != to && from.max(to) < self.processors()).then_some(from);
        let mut is_card = !self.is_direct();
        std::iter::from_fn(move || {
            let node = at?;
            if std::mem::take(&mut is_card) {
                at = Some(first + from / down);
                return Some(Hop { node, port: 0 });
            }
            let switch = node - first;
            let port = self.toward(switch, to)?;
            at = match self.end(switch, port.into())? {
                End::Processor(_) => None,
                End::Switch { switch, .. } if self.is_direct() && switch == to => None,
                End::Switch { switch, .. } => Some(first + switch),
            };
            Some(Hop { node, port: port.into() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The switches of a network are loaded with [`Shape::table`]: the ways that the planner counts on are those.
    #[test]
    fn ways_follow_the_routing_tables() {
        for text in ["fat:32", "fat:64:16", "fat:40:28", "4x3x2"] {
            let shape: Shape = text.parse().unwrap();
            let tables: Vec<_> = (0..shape.switches()).map(|switch| shape.table(switch)).collect();
            let (_, spines, down) = shape.levels();
            let first = if shape.is_direct() { 0 } else { shape.processors() };
            let mut used = std::collections::BTreeSet::new();
            for (from, to) in (0..shape.processors()).flat_map(|a| (0..shape.processors()).map(move |b| (a, b))) {
                for hop in shape.way(from, to).filter(|hop| hop.node >= first) {
                    let (switch, port) = (hop.node - first, hop.port);
                    let named = tables[switch as usize][to as usize];
                    assert_eq!(named, Some(port as u8), "{text}: {from} to {to}, at switch {switch}");
                    used.extend(port.checked_sub(down).filter(|_| !shape.is_direct() && switch == from / down));
                }
            }
            assert_eq!(used.len() as u32, spines, "{text}: the spines in use");
        }
    }
}
