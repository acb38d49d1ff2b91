//! What the collective control module of a card does with a chunk, in a direct network: a list of steps.
//!
//! All partners of a card differ from it in one bit of the rank, so its entry of the communicator table suffices. Tag `1 + bit`
//! is the partner across that bit, in both directions; tag 0 is the card's own processor.

use super::{Chunk, Collective, Head};
use crate::instruction::Form;

/// Tag of a card's own processor.
pub const PROCESSOR: u8 = 0;

/// Where an input of a step comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The result of the step before.
    Value,
    /// A packet with this tag.
    Tag(u8),
}

/// Where the result of a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Address of a processor or a switch.
    pub address: u16,
    /// The sender, as the receiver knows it.
    pub tag: u8,
}

/// One step: waits for all inputs, combines them in this order, and multiplies the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The inputs, in the order in which they are combined.
    pub from: Vec<Source>,
    /// Where the result goes.
    pub to: Vec<Target>,
}

/// A card's view of its communicator: what an entry of its table holds.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Its rank.
    pub rank: u32,
    /// Ranks of the communicator.
    pub size: u32,
    /// Returns the node of the rank that differs from its own in a bit, if that exists.
    pub peer: &'a dyn Fn(u32) -> Option<u16>,
    /// Address of its own processor.
    pub processor: u16,
    /// What to add to a node's number for the address of its switch.
    pub switches: u16,
}

const OWN: Source = Source::Tag(PROCESSOR);

fn from(bit: u32) -> Source {
    Source::Tag(1 + bit as u8)
}

/// Returns the bit to flip for the next rank from `rank` toward the root of a binomial tree: bits that the root lacks are
/// cleared first, lowest first, then those that it has are set. So every rank on the way exists, whatever the size.
fn toward(rank: u32, root: u32) -> Option<u32> {
    let (clear, set) = (rank & !root, root & !rank);
    let bits = if clear != 0 { clear } else { set };
    (bits != 0).then(|| bits.trailing_zeros())
}

/// Returns the ranks from the root of a tree to `rank`.
fn way(root: u32, rank: u32) -> Vec<u32> {
    let mut way: Vec<u32> =
        std::iter::successors(Some(rank), |at| toward(*at, root).map(|bit| at ^ 1 << bit)).collect();
    way.reverse();
    way
}

/// The way between companions, or from a rank to itself.
fn between(one: u32, other: u32) -> Vec<u32> {
    if one == other { vec![one] } else { vec![one, other] }
}

/// The ring of a power of two: ranks in the order of a Gray code.
fn on_ring(rank: u32, size: u32, places: u32) -> u32 {
    let mut place = rank;
    for shift in [1, 2, 4, 8, 16] {
        place ^= place >> shift;
    }
    let place = (place + places) % size;
    place ^ place >> 1
}

impl Member<'_> {
    /// Bits of the largest power of two in the size. A rank beyond it has a companion across this bit.
    fn bits(&self) -> u32 {
        self.size.ilog2()
    }

    fn is_beyond(&self) -> bool {
        self.rank >> self.bits() != 0
    }

    fn to(&self, bit: u32) -> Option<Target> {
        let address = self.switches + (self.peer)(bit)?;
        Some(Target { address, tag: 1 + bit as u8 })
    }

    fn home(&self) -> Target {
        Target { address: self.processor, tag: PROCESSOR }
    }

    fn companion(&self) -> Option<Target> {
        self.to(self.bits())
    }

    /// The step that combines inputs, in the order of the ranks that they are of.
    fn combining(&self, own: Source, bits: impl IntoIterator<Item = u32>, to: Vec<Target>) -> Step {
        let mut inputs = vec![(self.rank, own)];
        inputs.extend(bits.into_iter().map(|bit| (self.rank ^ 1 << bit, from(bit))));
        inputs.sort_by_key(|input| input.0);
        Step { from: inputs.into_iter().map(|input| input.1).collect(), to }
    }

    fn children(&self, root: u32) -> Vec<u32> {
        let has = |bit: &u32| self.to(*bit).is_some() && toward(self.rank ^ 1 << bit, root) == Some(*bit);
        (0..u16::BITS).filter(has).collect()
    }

    /// Returns what the card does with a chunk.
    pub fn steps(&self, head: &Head) -> Vec<Step> {
        let (root, Chunk { block, index }) = (head.root.into(), head.chunk);
        let (block, index) = (u32::from(block), u32::from(index));
        let owner = index % (1 << self.bits());
        match (head.collective, head.form) {
            (Collective::Reduce, Form::Halving) => {
                let mut steps = self.halving(owner);
                self.pass_on(&mut steps, &way(owner, root));
                steps
            }
            (Collective::Reduce, _) => self.reduce(root, vec![self.home()]),
            (Collective::Allreduce, Form::Doubling) => self.exchange(),
            (Collective::Allreduce, Form::Halving) => {
                let mut steps = self.halving(owner);
                self.spread(&mut steps, owner, None);
                steps
            }
            (Collective::Allreduce, _) => {
                let mut steps = self.reduce(0, Vec::new());
                self.broadcast(&mut steps, 0);
                steps
            }
            (Collective::Broadcast, Form::Ring) => {
                let owner = index % self.size;
                let mut steps = self.first(root);
                self.carry(&mut steps, &way(root, owner));
                self.ring(&mut steps, owner);
                steps
            }
            (Collective::Broadcast, _) => {
                let mut steps = self.first(root);
                self.broadcast(&mut steps, root);
                steps
            }
            (Collective::Scatter, _) => {
                let mut steps = self.first(root);
                self.pass_on(&mut steps, &way(root, block));
                steps
            }
            (Collective::Gather, _) => {
                let mut steps = self.first(block);
                let mut ranks = way(root, block);
                ranks.reverse();
                self.pass_on(&mut steps, &ranks);
                steps
            }
            (Collective::Allgather, Form::Ring) => {
                let mut steps = self.first(block);
                self.ring(&mut steps, block);
                steps
            }
            (Collective::Allgather, _) => {
                let mut steps = self.first(block);
                let owner = block % (1 << self.bits());
                self.carry(&mut steps, &between(block, owner));
                self.spread(&mut steps, owner, (block != owner).then_some(block));
                steps
            }
            (Collective::ReduceScatter, Form::Halving) => {
                let owner = block % (1 << self.bits());
                let mut steps = self.halving(owner);
                self.pass_on(&mut steps, &between(owner, block));
                steps
            }
            (Collective::ReduceScatter, _) => {
                let mut steps = self.reduce(0, Vec::new());
                self.pass_on(&mut steps, &way(0, block));
                steps
            }
        }
    }

    /// The processor of one rank gives the chunk.
    fn first(&self, rank: u32) -> Vec<Step> {
        if self.rank == rank { vec![Step { from: vec![OWN], to: Vec::new() }] } else { Vec::new() }
    }

    /// Adds targets to the last step, whose value this card has.
    fn give(&self, steps: &mut Vec<Step>, targets: impl IntoIterator<Item = Target>) {
        if steps.is_empty() {
            steps.push(Step { from: vec![Source::Value], to: Vec::new() });
        }
        if let Some(last) = steps.last_mut() {
            last.to.extend(targets);
        }
    }

    /// Up a binomial tree; at the root the result goes to `result`.
    fn reduce(&self, root: u32, result: Vec<Target>) -> Vec<Step> {
        let to = match toward(self.rank, root) {
            None => result,
            Some(bit) => self.to(bit).into_iter().collect(),
        };
        vec![self.combining(OWN, self.children(root), to)]
    }

    /// Down a binomial tree, to all.
    fn broadcast(&self, steps: &mut Vec<Step>, root: u32) {
        if let Some(bit) = toward(self.rank, root) {
            steps.push(Step { from: vec![from(bit)], to: Vec::new() });
        }
        // The largest subtree first.
        let children = self.children(root).into_iter().rev().filter_map(|bit| self.to(bit));
        self.give(steps, children.chain([self.home()]));
    }

    /// Along these ranks, each of which differs from the next one in a bit.
    fn carry(&self, steps: &mut Vec<Step>, ranks: &[u32]) {
        let Some(place) = ranks.iter().position(|rank| *rank == self.rank) else { return };
        let bit = |other: u32| (self.rank ^ other).trailing_zeros();
        if let Some(before) = place.checked_sub(1) {
            steps.push(Step { from: vec![from(bit(ranks[before]))], to: Vec::new() });
        }
        if let Some(after) = ranks.get(place + 1) {
            self.give(steps, self.to(bit(*after)));
        }
    }

    /// Along these ranks, and to the processor of the last one.
    fn pass_on(&self, steps: &mut Vec<Step>, ranks: &[u32]) {
        self.carry(steps, ranks);
        if ranks.last() == Some(&self.rank) {
            self.give(steps, [self.home()]);
        }
    }

    /// Recursive doubling of an allreduce. Ranks beyond the power of two give theirs to companions first, and get the result.
    fn exchange(&self) -> Vec<Step> {
        if self.is_beyond() {
            let there = Step { from: vec![OWN], to: self.companion().into_iter().collect() };
            return vec![there, Step { from: vec![from(self.bits())], to: vec![self.home()] }];
        }
        let companion = self.companion();
        let mut steps = vec![self.combining(OWN, companion.map(|_| self.bits()), Vec::new())];
        for bit in 0..self.bits() {
            self.give(&mut steps, self.to(bit));
            steps.push(self.combining(Source::Value, [bit], Vec::new()));
        }
        self.give(&mut steps, companion.into_iter().chain([self.home()]));
        steps
    }

    /// Recursive halving: the chunk is combined on its way to its owner, across the highest bit first.
    fn halving(&self, owner: u32) -> Vec<Step> {
        if self.is_beyond() {
            return vec![Step { from: vec![OWN], to: self.companion().into_iter().collect() }];
        }
        let mut steps = vec![self.combining(OWN, self.companion().map(|_| self.bits()), Vec::new())];
        for bit in (0..self.bits()).rev() {
            if (self.rank ^ owner) >> bit & 1 == 1 {
                self.give(&mut steps, self.to(bit));
                break;
            }
            steps.push(self.combining(Source::Value, [bit], Vec::new()));
        }
        steps
    }

    /// Recursive doubling from an owner to all, across the lowest bit first, but not to the companion that `has` it.
    fn spread(&self, steps: &mut Vec<Step>, owner: u32, has: Option<u32>) {
        if self.is_beyond() {
            match has == Some(self.rank) {
                true => self.give(steps, [self.home()]),
                false => steps.push(Step { from: vec![from(self.bits())], to: vec![self.home()] }),
            }
            return;
        }
        let differs = self.rank ^ owner;
        let first = differs.checked_ilog2().map_or(0, |top| top + 1);
        if let Some(top) = differs.checked_ilog2() {
            steps.push(Step { from: vec![from(top)], to: Vec::new() });
        }
        let companion = self.companion().filter(|_| has != Some(self.rank | 1 << self.bits()));
        let partners = (first..self.bits()).rev().filter_map(|bit| self.to(bit));
        self.give(steps, partners.chain(companion).chain([self.home()]));
    }

    /// Once around the ring from `owner`.
    fn ring(&self, steps: &mut Vec<Step>, owner: u32) {
        let size = self.size;
        let (next, before) = (on_ring(self.rank, size, 1), on_ring(self.rank, size, size - 1));
        let bit = |other: u32| (self.rank ^ other).trailing_zeros();
        if self.rank != owner {
            steps.push(Step { from: vec![from(bit(before))], to: Vec::new() });
        }
        let on = (next != owner).then(|| self.to(bit(next))).flatten();
        self.give(steps, on.into_iter().chain([self.home()]));
    }
}
