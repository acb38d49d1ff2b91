//! What leaf and spine switches do with a chunk, in an indirect network: one tree of switches.
//!
//! The paper gives no format for the tables of these switches; here each holds the processors of a communicator by rank. A leaf
//! knows a processor by its port, and the spine by [`SPINE`]; a spine knows a leaf by its number.

use std::collections::BTreeSet;
use std::ops::Range;

use super::forms::{Source, Step, Target};
use super::{Collective, Head, Shape};

/// Tag of a spine at a leaf.
const SPINE: u8 = u8::MAX;

/// Position of a switch in an indirect network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchPosition {
    /// Number of the switch: leaves first, then spines.
    pub switch: u16,
    /// Processors of the network.
    pub processors: u16,
    /// Leaves.
    pub leaves: u16,
    /// Spines.
    pub spines: u16,
    /// Processors of a leaf.
    pub down: u16,
}

impl SwitchPosition {
    /// Returns the position of a switch.
    pub fn of(shape: Shape, switch: u32) -> Self {
        let (leaves, spines, down) = shape.levels();
        let [switch, processors, leaves, spines, down] =
            [switch, shape.processors(), leaves, spines, down].map(|one| one as u16);
        SwitchPosition { switch, processors, leaves, spines, down }
    }

    fn leaf_of(&self, processor: u16) -> u16 {
        processor / self.down
    }

    fn address(&self, switch: u16) -> u16 {
        self.processors + switch
    }

    /// Returns what the switch does with a chunk of a communicator whose processors are `members`, by rank.
    pub fn steps(&self, head: &Head, members: &[u16]) -> Vec<Step> {
        let size = members.len();
        let (root, block) = (usize::from(head.root), usize::from(head.chunk.block));
        let one = |rank: usize| rank..(rank + 1).min(size);
        let (givers, takers): (Range<usize>, Range<usize>) = match head.collective {
            Collective::Reduce => (0..size, one(root)),
            Collective::Allreduce => (0..size, 0..size),
            Collective::Broadcast => (one(root), 0..size),
            Collective::Scatter => (one(root), one(block)),
            Collective::Gather => (one(block), one(root)),
            Collective::Allgather => (one(block), 0..size),
            Collective::ReduceScatter => (0..size, one(block)),
        };
        let on = |ranks: &Range<usize>| members.get(ranks.clone()).unwrap_or_default().to_vec();
        let (givers, takers) = (on(&givers), on(&takers));
        let leaves = |of: &[u16]| of.iter().map(|one| self.leaf_of(*one)).collect::<BTreeSet<u16>>();
        let (from, to) = (leaves(&givers), leaves(&takers));
        let spine = head.chunk.index % self.spines;
        if self.switch >= self.leaves {
            return if self.switch - self.leaves == spine { self.at_spine(&from, &to) } else { Vec::new() };
        }
        self.at_leaf((&givers, &takers), (&from, &to), spine)
    }

    /// Leaves in the order of their numbers. A leaf that has the whole result needs none back.
    fn at_spine(&self, from: &BTreeSet<u16>, to: &BTreeSet<u16>) -> Vec<Step> {
        let only = from.first().filter(|_| from.len() == 1);
        let to: Vec<Target> = to
            .iter()
            .filter(|leaf| Some(*leaf) != only)
            .map(|leaf| Target { address: self.address(*leaf), tag: SPINE })
            .collect();
        if to.is_empty() {
            return Vec::new();
        }
        vec![Step { from: from.iter().map(|leaf| Source::Tag(*leaf as u8)).collect(), to }]
    }

    /// Processors in the order of their ranks.
    fn at_leaf(
        &self,
        (givers, takers): (&[u16], &[u16]),
        (from, to): (&BTreeSet<u16>, &BTreeSet<u16>),
        spine: u16,
    ) -> Vec<Step> {
        let own = |of: &[u16]| of.iter().copied().filter(|one| self.leaf_of(*one) == self.switch).collect::<Vec<u16>>();
        let home = own(takers).into_iter().map(|address| Target { address, tag: 0 });
        let (has_all, has_some) = (from.len() == 1 && from.contains(&self.switch), from.contains(&self.switch));
        let mut steps = Vec::new();
        if has_some {
            let inputs = own(givers).iter().map(|one| Source::Tag((one % self.down) as u8)).collect();
            let is_wanted = !has_all || to.iter().any(|leaf| *leaf != self.switch);
            let up = Target { address: self.address(self.leaves + spine), tag: self.switch as u8 };
            let mut targets: Vec<Target> = is_wanted.then_some(up).into_iter().collect();
            if has_all {
                targets.extend(home.clone());
            }
            steps.push(Step { from: inputs, to: targets });
        }
        if !has_all && to.contains(&self.switch) {
            steps.push(Step { from: vec![Source::Tag(SPINE)], to: home.collect() });
        }
        steps
    }
}
