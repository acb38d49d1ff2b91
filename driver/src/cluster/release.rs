//! The same start for cards of which not all are linked: signals along a tree.
//!
//! Each card tells its parent when it and all below it have arrived. The root then releases all, each card those below it. Whoever
//! is released early waits until the last one is: the planner's prediction says for how long.

use std::collections::VecDeque;

use cmdseq::plan::{Communicator, Program, predict_ends};
use cmdseq::{Capabilities, Instruction, Operation};

/// Returns what each member runs. All end at the same time, within a cycle for each card between them and the root. `None` if the
/// cards lack an operation, or some have no path to the others.
pub(crate) fn along_a_tree(
    all: &Communicator,
    signal: u16,
    capabilities: &Capabilities,
) -> Option<Vec<Vec<Instruction>>> {
    let needed = [Operation::PutSignal, Operation::WaitSignal, Operation::Delay];
    let tree = Tree::new(&all.members, capabilities)?;
    if !needed.into_iter().all(|operation| capabilities.runs(operation)) {
        return None;
    }
    let on_card = cmdseq::Operand::card(0);
    let put = |to: &usize| Instruction::put_signal(*to as u16, on_card, on_card, 0, signal, 1).on(all.id);
    let wait = |count: usize| Instruction::wait_signal(signal, count as u32);
    let arrive = |card: usize| {
        let children = &tree.children[card];
        let below = (!children.is_empty()).then(|| wait(children.len()));
        below.into_iter().chain(tree.parents[card].iter().map(put))
    };
    // By then all others wait for their release: what they sent is acknowledged.
    let settled = 4 * cycles(u64::from(capabilities.timing.acknowledge_ps), capabilities);
    let release = |card: usize| {
        let first = match tree.parents[card] {
            Some(_) => wait(1),
            None => Instruction::delay(settled),
        };
        std::iter::once(first).chain(tree.children[card].iter().map(put))
    };
    let cards = 0..all.members.len();
    let programs = cards.clone().map(|card| Program { instructions: release(card).collect(), ..Program::default() });
    let programs: Vec<Program> = programs.collect();
    let ends = predict_ends(&programs, std::slice::from_ref(all), &all.members, capabilities).ok()?;
    let last = ends.iter().max()?;
    let rest = |card: usize| Instruction::delay(1 + cycles(last - ends[card], capabilities));
    Some(cards.map(|card| arrive(card).chain(release(card)).chain([rest(card)]).collect()).collect())
}

/// Returns the places in `nodes` of the cards that have paths to each other, for each such part.
pub(crate) fn parts(nodes: &[u32], capabilities: &Capabilities) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut left: Vec<usize> = (0..nodes.len()).collect();
    while !left.is_empty() {
        let mut part = vec![left.remove(0)];
        let mut reached = 0;
        while let Some(at) = part.get(reached).copied() {
            let is_linked = |other: &usize| capabilities.topology.linked(nodes[at], nodes[*other], capabilities.nodes);
            let (linked, others): (Vec<usize>, Vec<usize>) = left.into_iter().partition(is_linked);
            part.extend(linked);
            left = others;
            reached += 1;
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}

/// Cycles of the sequencer in `picoseconds`.
fn cycles(picoseconds: u64, capabilities: &Capabilities) -> u64 {
    let cycles = u128::from(picoseconds) * u128::from(capabilities.clock_khz) + 500_000_000;
    (cycles / 1_000_000_000) as u64
}

/// A tree of links between all cards, with as few hops to the first as possible.
struct Tree {
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
}

impl Tree {
    fn new(members: &[u32], capabilities: &Capabilities) -> Option<Tree> {
        let mut tree = Tree { parents: vec![None; members.len()], children: vec![Vec::new(); members.len()] };
        let mut left: Vec<usize> = (1..members.len()).collect();
        let mut reached = VecDeque::from([0]);
        while let Some(at) = reached.pop_front() {
            let is_linked =
                |other: &usize| capabilities.topology.linked(members[at], members[*other], capabilities.nodes);
            let (linked, others) = left.into_iter().partition(is_linked);
            tree.children[at] = linked;
            left = others;
            for child in &tree.children[at] {
                tree.parents[*child] = Some(at);
                reached.push_back(*child);
            }
        }
        left.is_empty().then_some(tree)
    }
}
