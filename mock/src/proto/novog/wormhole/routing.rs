//! Routes: five routing functions, turns that are forbidden, and datelines.

use cmdseq::routing::Torus3;

use crate::net::noise::Dice;

/// How a packet chooses its links (Sheng, section 5.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Routing {
    /// Dimension-ordered: X, then Y, then Z.
    Dor,
    /// At each node one of the links on a shortest route, at random.
    Romm,
    /// One of the six orders of dimensions for each packet, at random.
    O1turn,
    /// Dimension-ordered, but in each dimension the long way with a probability of its distance by the length of the ring.
    Rlb,
    /// At each node the link on a shortest route with most credits.
    Ccar,
}

impl Routing {
    /// All of them.
    pub const ALL: [Routing; 5] = [Routing::Dor, Routing::Romm, Routing::O1turn, Routing::Rlb, Routing::Ccar];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Routing::Dor => "dor",
            Routing::Romm => "romm",
            Routing::O1turn => "o1turn",
            Routing::Rlb => "rlb",
            Routing::Ccar => "ccar",
        }
    }
}

/// A turn: the port that a packet leaves by at one node, and the one at the next.
pub type Turn = (usize, usize);

/// When a packet changes its class, which limits the virtual channels that it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classes {
    /// Never: all packets may use all channels.
    Off,
    /// At the dateline of a ring, between its nodes 0 and 1; in each dimension it begins anew (Sheng, section 4.2.2).
    Rings,
    /// At each dateline: the class is the number of datelines crossed. It needs a channel for each dimension, and another one.
    Crossings,
}

/// What keeps routers free of deadlocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Turns that no packet takes.
    pub forbidden: Vec<Turn>,
    /// When packets change their class.
    pub classes: Classes,
}

impl Rules {
    /// The published rules (Sheng, section 4.2.2): six turns are forbidden, Y- to X and Z- to X and Y; and each ring has classes of
    /// its own.
    ///
    /// They are right for routes in the order of dimensions. Others can return to a dimension in its first class, and close a circle around
    /// the torus: the forbidden turns break all circles of a mesh only.
    pub fn published() -> Self {
        Rules { forbidden: vec![(3, 0), (3, 1), (5, 0), (5, 1), (5, 2), (5, 3)], classes: Classes::Rings }
    }

    /// Rules without deadlocks: the published ones where routes have the order of dimensions, else classes that count datelines.
    ///
    /// Without the cables of the datelines a torus is a mesh. So packets of one class are in no circle, and classes only increase.
    pub fn safe(routing: Routing) -> Self {
        let classes = match routing {
            Routing::Dor | Routing::Rlb => Classes::Rings,
            Routing::Romm | Routing::O1turn | Routing::Ccar => Classes::Crossings,
        };
        Rules { classes, ..Rules::published() }
    }

    /// Returns the number of classes on a torus.
    pub fn count(&self, torus: Torus3) -> usize {
        match self.classes {
            Classes::Off => 1,
            Classes::Rings => 2,
            Classes::Crossings => 1 + torus.sides().iter().filter(|side| **side > 1).count(),
        }
    }

    /// Whether a packet may leave by `port` if it still has to use the links `ahead`, one of them `port`: it can turn to each later.
    fn allows(&self, port: usize, ahead: &[usize]) -> bool {
        !ahead.iter().any(|later| self.forbidden.contains(&(port, *later)))
    }

    /// Returns the class in which a packet that leaves `node` by `port` arrives. `before` is the port by which it came there, and its
    /// class.
    pub(super) fn class(&self, torus: Torus3, node: u32, port: usize, before: Option<(usize, usize)>) -> usize {
        let is_negative = port % 2;
        let crosses = usize::from(torus.place(node)[port / 2] as usize == is_negative);
        match (self.classes, before) {
            (Classes::Off, _) => 0,
            (Classes::Rings, Some((last, class))) if last == port => class ^ crosses,
            (Classes::Rings, _) => is_negative ^ crosses,
            (Classes::Crossings, before) => before.map_or(0, |(_, class)| class) + crosses,
        }
    }
}

/// Orders of the dimensions, for O1TURN.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A route under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Route {
    /// Order of the dimensions.
    order: u8,
    /// Whether a packet goes in negative direction, by dimension.
    is_negative: [bool; 3],
    /// Links still to use, by dimension.
    left: [u8; 3],
}

impl Route {
    /// Begins a route.
    pub(super) fn new(torus: Torus3, from: u32, to: u32, routing: Routing, rules: &Rules, dice: &mut Dice) -> Self {
        let mut route = Route::default();
        for axis in 0..3 {
            let (side, ahead) = (torus.sides()[axis], torus.ahead(from, to, axis));
            // Of two equal ways the positive one.
            let mut is_negative = ahead > side - ahead;
            let shortest = ahead.min(side - ahead);
            if routing == Routing::Rlb && shortest > 0 && dice.below(side.into()) < u64::from(shortest) {
                is_negative = !is_negative;
            }
            route.is_negative[axis] = is_negative;
            route.left[axis] = if is_negative { (side - ahead) % side } else { ahead } as u8;
        }
        if routing == Routing::O1turn {
            let may = |order: &[usize; 3]| {
                let ports = order.iter().filter(|axis| route.left[**axis] > 0).map(|axis| route.port(*axis));
                let ports: Vec<usize> = ports.collect();
                ports.windows(2).all(|turn| !rules.forbidden.contains(&(turn[0], turn[1])))
            };
            let allowed: Vec<u8> = (0..6).filter(|order| may(&ORDERS[usize::from(*order)])).collect();
            if !allowed.is_empty() {
                route.order = allowed[dice.below(allowed.len() as u64) as usize];
            }
        }
        route
    }

    fn port(&self, axis: usize) -> usize {
        2 * axis + usize::from(self.is_negative[axis])
    }

    /// Returns the links still to use.
    pub(super) fn hops(&self) -> u32 {
        self.left.iter().map(|left| u32::from(*left)).sum()
    }

    /// Chooses the next port and takes its link off the route; `None` at the destination. `credits` are those of a port.
    pub(super) fn step(
        &mut self,
        routing: Routing,
        rules: &Rules,
        dice: &mut Dice,
        credits: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let mut ports = [0; 3];
        let mut count = 0;
        for axis in ORDERS[usize::from(self.order)] {
            if self.left[axis] > 0 {
                ports[count] = self.port(axis);
                count += 1;
            }
        }
        let ahead = &ports[..count];
        let mut allowed = ahead.iter().copied().filter(|port| rules.allows(*port, ahead));
        let port = match routing {
            Routing::Dor | Routing::O1turn | Routing::Rlb => ahead.first().copied(),
            Routing::Romm if count > 1 => {
                let choices = allowed.clone().count() as u64;
                allowed.nth(dice.below(choices) as usize)
            }
            Routing::Romm => allowed.next(),
            // Of equal ones the first.
            Routing::Ccar => allowed.max_by_key(|port| (credits(*port), std::cmp::Reverse(*port))),
        }?;
        self.left[port / 2] -= 1;
        Some(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torus() -> Torus3 {
        Torus3::new([4, 8, 3]).unwrap()
    }

    /// Walks a route; returns its ports and classes.
    fn walk(routing: Routing, from: u32, to: u32, seed: u64) -> Vec<(u32, usize, usize)> {
        let (torus, rules, mut dice) = (torus(), Rules::published(), Dice::new(seed));
        let mut route = Route::new(torus, from, to, routing, &rules, &mut dice);
        let (mut at, mut before, mut steps) = (from, None, Vec::new());
        while let Some(port) = route.step(routing, &rules, &mut dice, |port| (seed as u32).rotate_left(port as u32 * 5))
        {
            let class = rules.class(torus, at, port, before);
            steps.push((at, port, class));
            at = torus.neighbour(at, port).unwrap();
            before = Some((port, class));
            assert!(steps.len() < 20);
        }
        assert_eq!((at, route.hops()), (to, 0));
        steps
    }

    #[test]
    fn every_route_arrives_without_a_forbidden_turn() {
        let nodes = torus().nodes();
        for routing in Routing::ALL {
            for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
                let steps = walk(routing, from, to, u64::from(from * 7 + to));
                for turn in steps.windows(2) {
                    assert!(!Rules::published().forbidden.contains(&(turn[0].1, turn[1].1)), "{routing:?}: {steps:?}");
                }
                if routing != Routing::Rlb {
                    assert_eq!(steps.len() as u32, torus().distance(from, to));
                }
            }
        }
    }

    #[test]
    fn a_packet_has_one_class_before_the_dateline_and_the_other_after_it() {
        // In Y, from 6 to 2: over 6-7, 7-0, 0-1 (the dateline), 1-2.
        let torus = torus();
        let at = |y| torus.node([0, y, 0]);
        let classes = |from, to| walk(Routing::Dor, at(from), at(to), 0).iter().map(|step| step.2).collect::<Vec<_>>();
        assert_eq!(classes(6, 2), [0, 0, 1, 1]);
        assert_eq!(classes(2, 6), [0, 0, 0, 0], "of two equal ways the positive one");
        assert_eq!(classes(2, 7), [1, 0, 0], "2-1, 1-0 (the dateline), 0-7");
        assert_eq!(classes(7, 4), [1, 1, 1]);
    }

    #[test]
    fn the_long_way_is_as_frequent_as_its_probability() {
        let torus = torus();
        let (from, to) = (torus.node([0, 0, 0]), torus.node([0, 2, 0]));
        let long = (0..4_000).filter(|seed| walk(Routing::Rlb, from, to, *seed).len() == 6).count();
        // Two of eight; five standard deviations.
        assert!((865..1_135).contains(&long), "{long}");
    }
}
