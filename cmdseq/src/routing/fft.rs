//! Three-dimensional FFTs on a torus: which card holds which point while lines along X, Y and Z are transformed, and who sends
//! to whom in the corner turns between (Sheng, Boston University, section 6.2, figure 6.1).
//!
//! ```
//! use cmdseq::routing::{FftAxis, FftMapping, Torus3};
//!
//! // The example of the dissertation: the point (11, 47, 19) of 64 x 64 x 64 on 8 x 8 x 8 cards.
//! let torus = Torus3::new([8, 8, 8])?;
//! let mapping = FftMapping::new(64, torus)?;
//! let places = FftAxis::ALL.map(|axis| mapping.place(axis, [11, 47, 19]));
//! assert_eq!(places.map(|place| torus.place(place.node)), [[3, 5, 2], [3, 1, 2], [7, 1, 5]]);
//! assert_eq!(places.map(|place| (place.line, place.slot)), [(7, 11), (3, 47), (3, 19)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cmp::Reverse;

use crate::routing::collective::{Capacity, CollectiveKind, RoutedCollective, TreeAlgorithm, compile, verify};
use crate::topology::torus3::Torus3;

/// The axis along which lines are transformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FftAxis {
    /// First.
    X,
    /// After the XY corner turn.
    Y,
    /// After the YZ corner turn.
    Z,
}

impl FftAxis {
    /// All axes, in the order of the phases.
    pub const ALL: [FftAxis; 3] = [FftAxis::X, FftAxis::Y, FftAxis::Z];

    /// Returns the axis of the next phase.
    pub const fn next(self) -> Option<FftAxis> {
        match self {
            FftAxis::X => Some(FftAxis::Y),
            FftAxis::Y => Some(FftAxis::Z),
            FftAxis::Z => None,
        }
    }

    /// Returns the axes of a point's coordinates: along the line, and the two others.
    const fn order(self) -> [usize; 3] {
        match self {
            FftAxis::X => [0, 1, 2],
            FftAxis::Y => [1, 0, 2],
            FftAxis::Z => [2, 0, 1],
        }
    }
}

/// Where a point is in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FftPlace {
    /// The card.
    pub node: u32,
    /// Which of the card's lines of this phase.
    pub line: u32,
    /// Which point of the line.
    pub slot: u32,
}

/// Points that one card sends to another one in a corner turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FftTransfer {
    /// The sender.
    pub from: u32,
    /// The receiver, another card.
    pub to: u32,
    /// Number of points.
    pub points: u32,
}

/// Refusal of an FFT.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FftMappingError {
    /// The torus is no cube of a power of two.
    #[error(
        "a torus of {} x {} x {} holds no 3-D FFT (expected three equal sides of 2, 4, 8 or 16 cards)",
        sides[0], sides[1], sides[2]
    )]
    Torus {
        /// Its sides.
        sides: [u32; 3],
    },
    /// No core transforms lines of this length, or a card would have no line.
    #[error(
        "an FFT of {side} x {side} x {side} points does not fit {cards} x {cards} x {cards} cards: {why} (these fit: {})",
        list(fitting)
    )]
    Side {
        /// Points of a side.
        side: u32,
        /// Cards of a side.
        cards: u32,
        /// What is wrong.
        why: &'static str,
        /// Sides that fit these cards. Those of [`FftMapping::new`], which knows no buffers, have a line for each card.
        fitting: Vec<u32>,
    },
    /// More packets of the corner turns may wait in a buffer than it holds.
    #[error(
        "the corner turns of {side} points need buffers of {packets} packets, the cards' hold {depth} (these fit: {})",
        list(fitting)
    )]
    Buffers {
        /// Points of a side.
        side: u32,
        /// Packets of the fullest buffer.
        packets: u64,
        /// Packets that fit.
        depth: u64,
        /// Sides that fit these cards.
        fitting: Vec<u32>,
    },
}

fn list(sides: &[u32]) -> String {
    if sides.is_empty() {
        return "none".to_owned();
    }
    sides.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// A 3-D FFT of equal power-of-two sides on a torus of equal power-of-two sides.
///
/// With the coordinate `s` along the lines and `a`, `b` the two others, `hi` the bits of a coordinate that number the cards of a
/// side and `lo` the bits below, a point is on the card (top of `lo b`, `hi a`, `hi b`) in line (`lo a`, rest of `lo b`), if
/// `lo b` has enough bits for a side of the torus; otherwise on (`lo b` and top of `lo a`, `hi a`, `hi b`) in line (rest of `lo a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FftMapping {
    torus: Torus3,
    /// Logarithms of the points and of the cards of a side.
    n: u32,
    m: u32,
}

impl FftMapping {
    /// Lengths of lines whose cores have a published latency (table 6.3).
    pub const SIDES: [u32; 5] = [16, 32, 64, 128, 256];
    /// Points of a packet of 256 bits: three of 85 bits (section 7.3.1).
    pub const PACKET_POINTS: u32 = 3;

    /// Maps an FFT of `side` points in each direction.
    ///
    /// # Errors
    /// [`FftMappingError`] if the torus is no cube, no core transforms such lines, or there are more cards than lines.
    pub fn new(side: u32, torus: Torus3) -> Result<Self, FftMappingError> {
        let sides = torus.sides();
        let cards = sides[0];
        if sides != [cards; 3] || !cards.is_power_of_two() {
            return Err(FftMappingError::Torus { sides });
        }
        let refuse = |why| Err(FftMappingError::Side { side, cards, why, fitting: Self::with_lines(cards) });
        if !Self::SIDES.contains(&side) {
            return refuse("no core transforms lines of this length");
        }
        if !has_line_for_each_card(side, cards) {
            return refuse("it has fewer lines in a direction than there are cards");
        }
        Ok(FftMapping { torus, n: side.ilog2(), m: cards.ilog2() })
    }

    fn with_lines(cards: u32) -> Vec<u32> {
        Self::SIDES.into_iter().filter(|side| has_line_for_each_card(*side, cards)).collect()
    }

    /// Returns the sides that cards with room for `capacity` hold: each has a line for each card, and tables of its corner turns
    /// that [`verify`] accepts. It compiles all of them (OCR), which takes up to a second or so on 8 x 8 x 8 cards.
    pub fn fitting(torus: Torus3, capacity: Capacity) -> Vec<u32> {
        let has_tables = |mapping: FftMapping| {
            let tables = compile(torus, &mapping.collectives(Self::PACKET_POINTS), TreeAlgorithm::Ocr);
            tables.is_ok_and(|tables| verify(&tables, capacity).is_ok())
        };
        Self::SIDES.into_iter().filter(|side| Self::new(*side, torus).is_ok_and(has_tables)).collect()
    }

    /// Returns the torus.
    pub fn torus(self) -> Torus3 {
        self.torus
    }

    /// Returns the points of a side, which are those of a line.
    pub fn side(self) -> u32 {
        1 << self.n
    }

    /// Returns the lines of a card in each phase.
    pub fn lines(self) -> u32 {
        1 << (2 * self.n - 3 * self.m)
    }

    /// Returns the points of a card.
    pub fn points(self) -> u32 {
        self.lines() << self.n
    }

    /// Returns where the point (x, y, z) is while lines along `axis` are transformed.
    pub fn place(self, axis: FftAxis, point: [u32; 3]) -> FftPlace {
        let FftMapping { torus, n, m } = self;
        let low = n - m;
        let [slot, a, b] = axis.order().map(|axis| point[axis]);
        let rest = |value: u32, top: u32| bits(value, 0, low - top);
        let (first, line) = if n >= 2 * m {
            // Lines with the same rest follow each other: they need each other's points in the next phase.
            (bits(b, low - m, m), rest(b, m) << low | bits(a, 0, low))
        } else {
            let top = 2 * m - n;
            (bits(b, 0, low) << top | bits(a, low - top, top), rest(a, top))
        };
        FftPlace { node: torus.node([first, a >> low, b >> low]), line, slot }
    }

    /// Returns the point (x, y, z) that is at a place while lines along `axis` are transformed.
    pub fn point(self, axis: FftAxis, place: FftPlace) -> [u32; 3] {
        let FftMapping { torus, n, m } = self;
        let low = n - m;
        let [first, high_a, high_b] = torus.place(place.node);
        let line = place.line;
        let (a, b) = if n >= 2 * m {
            (bits(line, 0, low), first << (low - m) | line >> low)
        } else {
            let top = 2 * m - n;
            (bits(first, 0, top) << (low - top) | line, first >> top)
        };
        let mut point = [0; 3];
        let values = [place.slot, high_a << low | a, high_b << low | b];
        axis.order().into_iter().zip(values).for_each(|(axis, value)| point[axis] = value);
        point
    }

    /// Returns who sends how much in the corner turn after the lines along `axis`, the longest ways first; nothing after Z.
    pub fn transfers(self, axis: FftAxis) -> Vec<FftTransfer> {
        let Some(next) = axis.next() else { return Vec::new() };
        let mut transfers = Vec::new();
        let mut points = vec![0; self.torus.nodes() as usize];
        for from in 0..self.torus.nodes() {
            for (line, slot) in (0..self.lines()).flat_map(|line| (0..self.side()).map(move |slot| (line, slot))) {
                let to = self.place(next, self.point(axis, FftPlace { node: from, line, slot })).node;
                points[to as usize] += 1;
            }
            points[from as usize] = 0;
            let to = (0..).zip(&mut points).filter(|(_, points)| **points > 0);
            transfers.extend(to.map(|(to, points)| FftTransfer { from, to, points: std::mem::take(points) }));
        }
        // Alike seen from all senders, and the longest ways first: a compiler that places one after the other then loads links
        // more evenly.
        transfers.sort_by_cached_key(|one| {
            let ahead = [0, 1, 2].map(|axis| self.torus.ahead(one.from, one.to, axis));
            (Reverse(self.torus.distance(one.from, one.to)), ahead)
        });
        transfers
    }

    /// Returns both corner turns as unicasts, whose packets hold `points` points each: in the order of the transfers after X,
    /// then of those after Y.
    pub fn collectives(self, points: u32) -> Vec<RoutedCollective> {
        let unicast = |one: FftTransfer| RoutedCollective {
            kind: CollectiveKind::Unicast,
            root: one.from,
            members: vec![one.to],
            packets: one.points.div_ceil(points),
        };
        [FftAxis::X, FftAxis::Y].into_iter().flat_map(|axis| self.transfers(axis)).map(unicast).collect()
    }
}

/// A card needs at least one line in each phase.
const fn has_line_for_each_card(side: u32, cards: u32) -> bool {
    side * side >= cards * cards * cards
}

/// Returns `count` bits of a number, from bit `from` on.
const fn bits(value: u32, from: u32, count: u32) -> u32 {
    value >> from & ((1 << count) - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn mappings() -> impl Iterator<Item = FftMapping> {
        let torus = |side| Torus3::new([side; 3]).unwrap();
        [2, 4, 8, 16].into_iter().flat_map(move |cards| {
            FftMapping::with_lines(cards).into_iter().map(move |side| FftMapping::new(side, torus(cards)).unwrap())
        })
    }

    #[test]
    fn every_point_has_a_place_of_its_own_in_every_phase() {
        for mapping in mappings().filter(|mapping| mapping.side() <= 64) {
            let side = mapping.side();
            for axis in FftAxis::ALL {
                let mut taken = vec![false; 1 << (3 * mapping.n)];
                for index in 0..side.pow(3) {
                    let point = [index % side, index / side % side, index / side / side];
                    let place = mapping.place(axis, point);
                    assert_eq!(mapping.point(axis, place), point, "{mapping:?} {axis:?}");
                    assert!(place.line < mapping.lines() && place.slot == point[axis as usize]);
                    let at = (place.node * mapping.lines() + place.line) * side + place.slot;
                    assert!(!std::mem::replace(&mut taken[at as usize], true), "{mapping:?} {axis:?}: {place:?}");
                }
            }
        }
    }

    /// Table 6.1, whose packets are the receivers of a card, itself included.
    #[test]
    fn cards_have_the_published_number_of_partners() {
        for mapping in mappings().filter(|mapping| mapping.torus.nodes() <= 512) {
            let FftMapping { n, m, .. } = mapping;
            let published = if 2 * m > n { [1 << (3 * m - n), 1 << n] } else { [1 << m, 1 << (2 * m)] };
            for (axis, partners) in [FftAxis::X, FftAxis::Y].into_iter().zip(published) {
                let transfers = mapping.transfers(axis);
                let shares: BTreeSet<u32> = transfers.iter().map(|one| one.points).collect();
                assert_eq!(shares, [mapping.points() / partners].into(), "n = {n}, m = {m}, {axis:?}");
                assert_eq!(transfers.len() as u32, mapping.torus.nodes() * (partners - 1));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let refused = |side, sides| FftMapping::new(side, Torus3::new(sides).unwrap()).unwrap_err().to_string();
        assert!(refused(64, [4, 4, 2]).starts_with("a torus of 4 x 4 x 2 holds no 3-D FFT"));
        assert!(refused(64, [3, 3, 3]).contains("2, 4, 8 or 16"));
        for side in [0, 8, 48, 512, u32::MAX] {
            assert!(refused(side, [4, 4, 4]).ends_with("(these fit: 16, 32, 64, 128, 256)"), "{side}");
        }
        assert_eq!(
            refused(16, [8, 8, 8]),
            "an FFT of 16 x 16 x 16 points does not fit 8 x 8 x 8 cards: it has fewer lines in a direction than there are cards \
             (these fit: 32, 64, 128, 256)"
        );
        assert!(refused(32, [16, 16, 16]).ends_with("(these fit: 64, 128, 256)"));
    }

    #[test]
    fn sides_that_fit_have_corner_turns_that_fit() {
        let fitting = |cards: u32, capacity: Capacity| {
            let sides = FftMapping::fitting(Torus3::new([cards; 3]).unwrap(), capacity);
            sides.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
        };
        // The depth of the cards in docs/novo-g.md.
        let held = |cards| fitting(cards, Capacity { depth: 8192, ..Capacity::default() });
        assert_eq!([2, 4, 8].map(held), ["16 32 64", "16 32 64 128", "32 64 128"]);
        assert_eq!(held(3), "");
        assert_eq!(fitting(2, Capacity { entries: 1, ..Capacity::default() }), "");
        let fitting = FftMapping::fitting(Torus3::new([2; 3]).unwrap(), Capacity { depth: 10, ..Capacity::default() });
        let error = FftMappingError::Buffers { side: 16, packets: 43, depth: 10, fitting };
        assert_eq!(
            error.to_string(),
            "the corner turns of 16 points need buffers of 43 packets, the cards' hold 10 (these fit: none)"
        );
    }
}
