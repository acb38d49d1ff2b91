//! The same start for cards of which not all are linked: signals along a tree.
//!
//! Each card tells its parent when it and all below it have arrived. The root then releases all, each card those below it. Whoever
//! is released early waits until the last one is: the planner's prediction says for how long.

use std::collections::{BTreeMap, VecDeque};

use cmdseq::plan::{Communicator, ProgramSet, predict_ends};
use cmdseq::{Capabilities, Instruction, Operation};

/// Returns what each card of `tree` runs, by its rank in the communicator `all` of these cards. All end at the same time, within a
/// cycle for each card between them and the root. `None` if the cards lack an operation.
pub(crate) fn along_a_tree(
    tree: &Tree,
    all: &Communicator,
    signal: u16,
    capabilities: &Capabilities,
) -> Option<Vec<Vec<Instruction>>> {
    let needed = [Operation::PutSignal, Operation::WaitSignal, Operation::Delay];
    if !needed.into_iter().all(|operation| capabilities.runs(operation)) {
        return None;
    }
    let on_card = cmdseq::Operand::card(0);
    let put = |to: usize| Instruction::put_signal(to as u16, on_card, on_card, 0, signal, 1).on(all.id);
    let wait = |count: usize| Instruction::wait_signal(signal, count as u32);
    let arrive = |card: usize| {
        let children = tree.children(card).count();
        let below = (children > 0).then(|| wait(children));
        below.into_iter().chain(tree.parents[card].map(put))
    };
    // By then all others wait for their release: what they sent is acknowledged.
    let settled = 4 * cycles(u64::from(capabilities.timing.acknowledge_ps), capabilities);
    let release = |card: usize| {
        let first = match tree.parents[card] {
            Some(_) => wait(1),
            None => Instruction::delay(settled),
        };
        std::iter::once(first).chain(tree.children(card).map(put))
    };
    let cards = 0..all.members.len();
    let released = ProgramSet::new(&*all.members, cards.clone().map(|card| release(card).collect::<Vec<_>>()));
    let ends = predict_ends(&released.with([all.clone()]), capabilities).ok()?;
    let last = ends.iter().max()?;
    let rest = |card: usize| Instruction::delay(1 + cycles(last - ends[card], capabilities));
    Some(cards.map(|card| arrive(card).chain(release(card)).chain([rest(card)]).collect()).collect())
}

/// A tree of links between cards that have paths to each other, with as few hops to the first as possible.
pub(crate) struct Tree {
    /// Places of its cards in the group, in order.
    pub(crate) places: Vec<usize>,
    /// The parent of each card, as an index of `places`; `None` for the first.
    parents: Vec<Option<usize>>,
}

impl Tree {
    fn children(&self, parent: usize) -> impl Iterator<Item = usize> {
        (0..self.parents.len()).filter(move |card| self.parents[*card] == Some(parent))
    }
}

/// Returns a tree for each part of the group `nodes` whose cards have paths to each other.
pub(crate) fn trees(nodes: &[u32], capabilities: &Capabilities) -> Vec<Tree> {
    let mut trees = Vec::new();
    let mut left: VecDeque<usize> = (0..nodes.len()).collect();
    while let Some(first) = left.pop_front() {
        let mut parent_of = BTreeMap::from([(first, None)]);
        let mut reached = VecDeque::from([first]);
        while let Some(at) = reached.pop_front() {
            let is_linked = |other: &usize| capabilities.topology.reaches(nodes[at], nodes[*other], capabilities.nodes);
            let (linked, others): (VecDeque<usize>, _) = left.into_iter().partition(is_linked);
            left = others;
            parent_of.extend(linked.iter().map(|place| (*place, Some(at))));
            reached.extend(linked);
        }
        let places: Vec<usize> = parent_of.keys().copied().collect();
        let parents = parent_of.into_values().map(|parent| places.binary_search(&parent?).ok()).collect();
        trees.push(Tree { places, parents });
    }
    trees
}

/// Cycles of the sequencer in `picoseconds`.
fn cycles(picoseconds: u64, capabilities: &Capabilities) -> u64 {
    let cycles = u128::from(picoseconds) * u128::from(capabilities.clock_khz) + 500_000_000;
    (cycles / 1_000_000_000) as u64
}
