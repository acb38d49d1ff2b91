//! Hops in rounds: in each, a card sends at most one block and receives at most one.
//!
//! Each hop goes in the first round in which its block is there and both cards are free. The rounds are one order of all hops
//! that all cards keep, so cards never wait for each other in a circle.

use super::routes::Routes;
use super::workspace::{Stay, places};
use crate::Capabilities;
use crate::plan::moves::Move;
use crate::ranges::Range;
use crate::refusal::Refusal;

/// The hops of all blocks.
#[derive(Debug, Clone)]
pub(crate) struct Timetable {
    routes: Routes,
    /// By card, the rounds in which it sends.
    sends: Vec<Rounds>,
    /// By card, the rounds in which it receives.
    receives: Vec<Rounds>,
    /// By rank, the first round after all that it sent or received for itself.
    ready: Vec<usize>,
    rounds: Vec<Vec<Hop>>,
    stays: Vec<Stay>,
    /// By card, bytes that it relays.
    relayed: Vec<u64>,
    /// Ranks without a path from one to the other.
    apart: Option<(u32, u32)>,
}

/// One block over one link.
#[derive(Debug, Clone, Copy)]
struct Hop {
    from: usize,
    to: usize,
    source: Place,
    destination: Place,
    bytes: u64,
    own: Option<u64>,
}

/// Where a block lies.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// At this address.
    At(u64),
    /// Where this stay has its place.
    Stay(usize),
}

impl Timetable {
    pub(crate) fn new(routes: Routes) -> Self {
        let cards = routes.cards();
        Timetable {
            sends: vec![Rounds::default(); cards],
            receives: vec![Rounds::default(); cards],
            ready: vec![0; cards],
            rounds: Vec::new(),
            stays: Vec::new(),
            relayed: vec![0; cards],
            apart: None,
            routes,
        }
    }

    pub(crate) fn routes(&mut self) -> &mut Routes {
        &mut self.routes
    }

    /// Adds blocks that wait for all that their ranks did before, but not for each other.
    pub(crate) fn add_round(&mut self, moves: impl IntoIterator<Item = Move>) {
        let before = self.ready.clone();
        for one in moves {
            let (from, to) = (one.from as usize, one.to as usize);
            let Some((sent, came)) = self.add(&one, [before[from], before[to]]) else { continue };
            self.ready[from] = self.ready[from].max(sent + 1);
            self.ready[to] = self.ready[to].max(came + 1);
        }
    }

    /// Adds a block that waits for none, and for which none waits.
    pub(crate) fn add_independent(&mut self, one: &Move) {
        self.add(one, [0, 0]);
    }

    /// Adds the hops of a block. `ready` is the first round of the first hop, and that of the last. Returns their rounds.
    fn add(&mut self, one: &Move, ready: [usize; 2]) -> Option<(usize, usize)> {
        let to = one.to as usize;
        let (mut at, mut earliest, mut source) = (one.from as usize, ready[0], Place::At(one.source));
        let mut first = None;
        loop {
            let Some((next, round)) = self.next_hop(at, to, earliest, ready[1]) else {
                self.apart.get_or_insert((one.from, one.to));
                return None;
            };
            if let Place::Stay(stay) = source {
                self.stays[stay].until = round;
            }
            let is_last = next == to;
            let destination = if is_last { Place::At(one.destination) } else { Place::Stay(self.stays.len()) };
            if !is_last {
                self.stays.push(Stay { card: next, from: round, until: round, bytes: one.bytes });
                self.relayed[next] += one.bytes;
            }
            self.sends[at].insert(round);
            self.receives[next].insert(round);
            if self.rounds.len() <= round {
                self.rounds.resize(round + 1, Vec::new());
            }
            let own = one.own.filter(|_| is_last);
            self.rounds[round].push(Hop { from: at, to: next, source, destination, bytes: one.bytes, own });
            first.get_or_insert(round);
            if is_last {
                return first.map(|first| (first, round));
            }
            (at, earliest, source) = (next, round + 1, destination);
        }
    }

    /// The card to go to next, and the round: that by which the block arrives first; of several, the one that relays least.
    fn next_hop(&mut self, at: usize, to: usize, earliest: usize, last_ready: usize) -> Option<(usize, usize)> {
        let nearer = self.routes.nearer(at, to);
        let rated = nearer.into_iter().map(|next| {
            let free = |from: usize, to: usize, earliest| self.sends[from].first_free(&self.receives[to], earliest);
            let round = free(at, next, if next == to { earliest.max(last_ready) } else { earliest });
            let end = match self.routes.hops(next, to) {
                Some(1) => free(next, to, last_ready.max(round + 1)),
                _ => round,
            };
            (end, self.relayed[next], next, round)
        });
        rated.min().map(|(_, _, next, round)| (next, round))
    }

    /// Returns the hops of each round, if what is relayed lies in `room` on each card.
    ///
    /// # Errors
    /// If two ranks have no path, or `room` is too small.
    pub(crate) fn rounds(&self, room: Range, capabilities: &Capabilities) -> Result<Vec<Vec<Move>>, Refusal> {
        if let Some((from, to)) = self.apart {
            return Err(Refusal::of(from as usize, format!("no path to rank {to} over cards that may relay")));
        }
        let places = places(&self.stays, self.routes.cards(), room, capabilities)?;
        let address = |place: Place| match place {
            Place::At(address) => address,
            Place::Stay(stay) => places[stay],
        };
        let one = |hop: &Hop| Move {
            from: hop.from as u32,
            to: hop.to as u32,
            source: address(hop.source),
            destination: address(hop.destination),
            bytes: hop.bytes,
            own: hop.own,
        };
        Ok(self.rounds.iter().map(|round| round.iter().map(one).collect()).collect())
    }
}

/// A set of rounds, as bits.
#[derive(Debug, Clone, Default)]
struct Rounds(Vec<u64>);

impl Rounds {
    fn insert(&mut self, round: usize) {
        let word = round / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (round % 64);
    }

    /// The first round from `earliest` on that is in neither set.
    fn first_free(&self, other: &Rounds, earliest: usize) -> usize {
        let word = |set: &Rounds, number: usize| set.0.get(number).copied().unwrap_or(0);
        let mut number = earliest / 64;
        let mut free = !(word(self, number) | word(other, number)) & (u64::MAX << (earliest % 64));
        while free == 0 {
            number += 1;
            free = !(word(self, number) | word(other, number));
        }
        64 * number + free.trailing_zeros() as usize
    }
}
