//! What nodes send: patterns of the dissertation, traces, and uniformly random traffic.

use std::sync::Arc;

use cmdseq::routing::Torus3;

use crate::net::noise::Dice;

/// A packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The first cycle in which it can be sent.
    pub cycle: u64,
    /// The node that sends it.
    pub from: u32,
    /// The node that gets it; another one.
    pub to: u32,
    /// Its flits of 128 bits, at least one.
    pub flits: u16,
}

/// A source of packets.
pub trait Traffic {
    /// Returns the node's next packet, in order of time; `None` after the last one.
    fn next(&mut self, node: u32) -> Option<Message>;
}

/// A list of packets. Clones share it: each run sends all of it, and a packet takes 24 bytes however many runs there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    by_node: Arc<[Vec<Message>]>,
    /// How many of them each node has sent.
    sent: Vec<usize>,
}

/// Error of a list of packets that a torus cannot carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A node that does not exist.
    #[error("no node {node} (available: 0 to {last})")]
    Node {
        /// The node.
        node: u32,
        /// Last node of the torus.
        last: u32,
    },
    /// A packet to its own node.
    #[error("node {node} sends a packet to itself; packets go to other nodes")]
    Itself {
        /// The node.
        node: u32,
    },
    /// A packet without flits.
    #[error("a packet has at least 1 flit")]
    Empty,
}

impl Message {
    /// Checks a packet.
    ///
    /// # Errors
    /// [`TraceError`] if a node is none of the torus, both are the same, or the packet is empty.
    pub fn check(&self, torus: Torus3) -> Result<(), TraceError> {
        let last = torus.nodes() - 1;
        if let Some(node) = [self.from, self.to].into_iter().find(|node| *node > last) {
            return Err(TraceError::Node { node, last });
        }
        match (self.from == self.to, self.flits) {
            (true, _) => Err(TraceError::Itself { node: self.from }),
            (_, 0) => Err(TraceError::Empty),
            _ => Ok(()),
        }
    }
}

impl Trace {
    /// Returns the list; each node sends its packets in order of their cycles.
    ///
    /// # Errors
    /// [`TraceError`] of the first packet that [`Message::check`] refuses.
    pub fn new(torus: Torus3, messages: impl IntoIterator<Item = Message>) -> Result<Self, TraceError> {
        let mut by_node = vec![Vec::new(); torus.nodes() as usize];
        for message in messages {
            message.check(torus)?;
            by_node[message.from as usize].push(message);
        }
        by_node.iter_mut().for_each(|list| list.sort_by_key(|message| message.cycle));
        Ok(Self::of(by_node))
    }

    fn of(by_node: Vec<Vec<Message>>) -> Self {
        Trace { sent: vec![0; by_node.len()], by_node: by_node.into() }
    }

    /// Returns the number of packets.
    pub fn packets(&self) -> usize {
        self.by_node.iter().map(Vec::len).sum()
    }

    /// Returns the cycle of the last packet; 0 if there is none.
    pub fn last_cycle(&self) -> u64 {
        self.by_node.iter().filter_map(|list| list.last()).map(|message| message.cycle).max().unwrap_or(0)
    }
}

impl Traffic for Trace {
    fn next(&mut self, node: u32) -> Option<Message> {
        let sent = self.sent.get_mut(node as usize)?;
        let message = *self.by_node[node as usize].get(*sent)?;
        *sent += 1;
        Some(message)
    }
}

/// A pattern of the dissertation (table 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// The six neighbours.
    Neighbours,
    /// The eight nodes that are one step away in each dimension.
    Diagonals,
    /// All 26 nodes at most one step away in each dimension.
    Cube,
    /// (x, y, z) to (X-1-x, Y-1-y, Z-1-z).
    Complement,
    /// (x, y, z) to (z, x, y).
    Transpose,
    /// (x, y, z) to (x + X/2 - 1, y, z).
    Tornado,
    /// All other nodes.
    AllToAll,
}

/// Error of a pattern on a torus of another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Sides differ.
    #[error("transpose needs sides of equal length, the torus has {0:?}")]
    Sides([u32; 3]),
    /// No node sends anything.
    #[error("{name} sends nothing on a torus of {sides:?}", name = pattern.name())]
    Nothing {
        /// The pattern.
        pattern: Pattern,
        /// Sides of the torus.
        sides: [u32; 3],
    },
}

impl Pattern {
    /// All of them, in the order of the table.
    pub const ALL: [Pattern; 7] = [
        Pattern::Neighbours,
        Pattern::Diagonals,
        Pattern::Cube,
        Pattern::Complement,
        Pattern::Transpose,
        Pattern::Tornado,
        Pattern::AllToAll,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::Neighbours => "neighbours",
            Pattern::Diagonals => "diagonals",
            Pattern::Cube => "cube",
            Pattern::Complement => "complement",
            Pattern::Transpose => "transpose",
            Pattern::Tornado => "tornado",
            Pattern::AllToAll => "all-to-all",
        }
    }

    /// Returns the nodes that a node sends to, without the node itself, each once.
    pub fn destinations(self, torus: Torus3, node: u32) -> Vec<u32> {
        let (sides, place) = (torus.sides(), torus.place(node));
        let near = |wanted: fn(u32) -> bool| {
            let steps = (0..27_u32).map(|step| [step % 3, step / 3 % 3, step / 9]);
            let moved = steps.filter(|step| wanted(step.iter().filter(|one| **one != 1).count() as u32));
            let to = moved.map(|step| {
                torus.node([0, 1, 2].map(|axis| (place[axis] + sides[axis] + step[axis] - 1) % sides[axis]))
            });
            to.collect::<Vec<u32>>()
        };
        let mut to = match self {
            Pattern::Neighbours => near(|dimensions| dimensions == 1),
            Pattern::Diagonals => near(|dimensions| dimensions == 3),
            Pattern::Cube => near(|_| true),
            Pattern::Complement => vec![torus.node([0, 1, 2].map(|axis| sides[axis] - 1 - place[axis]))],
            Pattern::Transpose => {
                let [x, y, z] = place;
                vec![torus.node([z % sides[0], x % sides[1], y % sides[2]])]
            }
            Pattern::Tornado => {
                let ahead = (sides[0] / 2).saturating_sub(1);
                vec![torus.node([(place[0] + ahead) % sides[0], place[1], place[2]])]
            }
            Pattern::AllToAll => (1..torus.nodes()).map(|ahead| (node + ahead) % torus.nodes()).collect(),
        };
        to.retain(|other| *other != node);
        let mut seen = vec![false; torus.nodes() as usize];
        to.retain(|other| !std::mem::replace(&mut seen[*other as usize], true));
        to
    }

    /// Returns the packets of a [`batch`](Pattern::batch) of `rounds`.
    ///
    /// # Errors
    /// [`PatternError`] if the torus has not the form that the pattern needs.
    pub fn packets(self, torus: Torus3, rounds: u32) -> Result<u64, PatternError> {
        let sides = torus.sides();
        if self == Pattern::Transpose && sides != [sides[0]; 3] {
            return Err(PatternError::Sides(sides));
        }
        // At most 4096 nodes with 4095 destinations: below 2^24, and the packets below 2^56.
        let destinations: u64 = (0..torus.nodes()).map(|node| self.destinations(torus, node).len() as u64).sum();
        match destinations * u64::from(rounds) {
            0 => Err(PatternError::Nothing { pattern: self, sides }),
            packets => Ok(packets),
        }
    }

    /// Returns a batch: each node sends `rounds` packets of `flits` flits to each destination, at `load` flits a node and cycle, from a
    /// random cycle of its first interval on. All of them are in memory, so ask [`packets`](Pattern::packets) first.
    ///
    /// # Errors
    /// [`PatternError`] if the torus has not the form that the pattern needs.
    pub fn batch(self, torus: Torus3, rounds: u32, flits: u16, load: f64, seed: u64) -> Result<Trace, PatternError> {
        self.packets(torus, rounds)?;
        let mut dice = Dice::new(seed);
        let interval = f64::from(flits) / load;
        let node = |from: u32| {
            let to = self.destinations(torus, from);
            let start = dice.fraction() * interval;
            let all = (0..rounds).flat_map(|_| to.iter().copied()).zip(0_u32..);
            let message = |(to, number)| {
                let cycle = (start + f64::from(number) * interval) as u64;
                Message { cycle, from, to, flits }
            };
            let mut messages = Vec::with_capacity(to.len() * rounds as usize);
            messages.extend(all.map(message));
            messages
        };
        Ok(Trace::of((0..torus.nodes()).map(node).collect()))
    }
}

/// Packets to random other nodes, of random lengths.
#[derive(Debug, Clone)]
pub struct Uniform {
    nodes: u32,
    flits_max: u16,
    interval: f64,
    left: Vec<u64>,
    cycle: Vec<f64>,
    dice: Dice,
}

impl Uniform {
    /// Returns traffic in which each node sends `packets` packets of 1 to `flits_max` flits, together at `load` flits a node and cycle.
    pub fn new(torus: Torus3, packets: u64, flits_max: u16, load: f64, seed: u64) -> Self {
        let nodes = torus.nodes();
        let interval = (f64::from(flits_max) + 1.0) / 2.0 / load;
        let (left, cycle) = (vec![packets; nodes as usize], vec![0.0; nodes as usize]);
        Uniform { nodes, flits_max: flits_max.max(1), interval, left, cycle, dice: Dice::new(seed) }
    }
}

impl Traffic for Uniform {
    fn next(&mut self, node: u32) -> Option<Message> {
        let place = node as usize;
        self.left[place] = self.left[place].checked_sub(1)?;
        let cycle = self.cycle[place] as u64;
        self.cycle[place] += self.interval;
        let ahead = 1 + self.dice.below(u64::from(self.nodes) - 1) as u32;
        let flits = 1 + self.dice.below(self.flits_max.into()) as u16;
        Some(Message { cycle, from: node, to: (node + ahead) % self.nodes, flits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_their_destinations() {
        let torus = Torus3::new([4, 4, 4]).unwrap();
        let count = |pattern: Pattern| pattern.destinations(torus, torus.node([1, 2, 3])).len();
        assert_eq!(Pattern::ALL.map(count), [6, 8, 26, 1, 1, 1, 63]);
        let to = |pattern: Pattern| torus.place(pattern.destinations(torus, torus.node([1, 2, 3]))[0]);
        assert_eq!(to(Pattern::Complement), [2, 1, 0]);
        assert_eq!(to(Pattern::Transpose), [3, 1, 2]);
        assert_eq!(to(Pattern::Tornado), [2, 2, 3]);
        // In a ring of two nodes both neighbours are one.
        let flat = Torus3::new([4, 2, 1]).unwrap();
        assert_eq!(Pattern::Neighbours.destinations(flat, 0), [4, 3, 1]);
        assert_eq!(Pattern::Transpose.batch(flat, 1, 1, 1.0, 0), Err(PatternError::Sides([4, 2, 1])));
        let short = Torus3::new([2, 2, 2]).unwrap();
        assert!(Pattern::Tornado.batch(short, 1, 1, 1.0, 0).is_err());
    }

    #[test]
    fn packets_are_counted_before_they_are_made() {
        for sides in [[4, 4, 4], [3, 3, 3], [2, 1, 5]] {
            let torus = Torus3::new(sides).unwrap();
            for (pattern, rounds) in Pattern::ALL.into_iter().flat_map(|pattern| [(pattern, 1), (pattern, 3)]) {
                let made = pattern.batch(torus, rounds, 1, 1.0, 0).map(|trace| trace.packets() as u64);
                assert_eq!(pattern.packets(torus, rounds), made, "{pattern:?} on {sides:?}");
            }
        }
        let largest = Torus3::new([16; 3]).unwrap();
        assert_eq!(Pattern::AllToAll.packets(largest, 16), Ok(268_369_920));
        assert_eq!(Pattern::AllToAll.packets(largest, u32::MAX), Ok(4096 * 4095 * u64::from(u32::MAX)));
        let nothing = PatternError::Nothing { pattern: Pattern::Cube, sides: [16; 3] };
        assert_eq!(Pattern::Cube.packets(largest, 0), Err(nothing));
    }

    #[test]
    fn a_clone_sends_all_packets_again() {
        let torus = Torus3::new([4, 1, 1]).unwrap();
        let message = |cycle| Message { cycle, from: 1, to: 2, flits: 1 };
        let trace = Trace::new(torus, [message(7), message(3)]).unwrap();
        for _ in 0..2 {
            let mut run = trace.clone();
            assert!(Arc::ptr_eq(&run.by_node, &trace.by_node), "a copy of the packets");
            assert_eq!([run.next(1), run.next(1), run.next(1)], [Some(message(3)), Some(message(7)), None]);
            assert_eq!([run.next(0), run.next(4)], [None, None]);
        }
    }
}
