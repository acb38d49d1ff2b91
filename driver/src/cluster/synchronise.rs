//! The same start for all cards of a group: barriers before the program.

use std::collections::{BTreeMap, BTreeSet};

use cmdseq::instruction::WORLD;
use cmdseq::plan::{Communicator, Program, ProgramSet};
use cmdseq::{Capabilities, Instruction, Operation};

use crate::cluster::signal_tree::{along_a_tree, trees};

/// Returns the programs that bring the cards of `set` to one start, `times` times. Their communicators are those of `set`, then
/// those that only the start needs.
///
/// If all cards are linked, a barrier over all of them. Otherwise one within and one across the groups of the Dragonfly, which
/// together hold nobody back and let nobody through early. If the cards are no grid, signals along a tree. Over routers, a barrier and
/// a delay of each card's own.
pub(crate) fn synchronise(set: &ProgramSet, capabilities: &Capabilities, times: usize) -> ProgramSet {
    let mut start = once(set, capabilities);
    for program in &mut start.programs {
        program.instructions = program.instructions.repeat(times);
    }
    start
}

/// Returns the programs that bring the cards of `set` to one start; empty ones if there is no way.
fn once(set: &ProgramSet, capabilities: &Capabilities) -> ProgramSet {
    let members: BTreeSet<_> = set.nodes.iter().copied().collect();
    let (topology, nodes) = (capabilities.topology, capabilities.nodes);
    let barriers = |made, ids: &dyn Fn(u32) -> Vec<u16>| barriers(set, made, ids, capabilities);
    let none = || barriers(Vec::new(), &|_| Vec::new());
    if members.len() < 2 {
        return none();
    }
    if topology.all_reach(&set.nodes, nodes) {
        if members.len() as u32 == nodes {
            return barriers(Vec::new(), &|_| vec![WORLD]);
        }
        let covers = |one: &&Communicator| one.members.iter().copied().collect::<BTreeSet<_>>() == members;
        if let Some(communicator) = set.communicators.iter().find(covers) {
            return barriers(Vec::new(), &|_| vec![communicator.id]);
        }
        let Some(id) = free_id(set, capabilities, 1) else { return none() };
        return barriers(vec![Communicator { id, members: set.nodes.clone() }], &|_| vec![id]);
    }
    // A communicator may be for point-to-point alone: a barrier needs a link between every two of its members.
    let has_barrier = |one: &&Communicator| {
        one.members.iter().all(|node| members.contains(node)) && topology.all_reach(&one.members, nodes)
    };
    let mut within: Vec<_> = set.communicators.iter().filter(has_barrier).collect();
    // One that some ranks are in and others not would hold back those that are.
    let has_all = |id: u16| {
        let of_id = set.communicators.iter().filter(|one| one.id == id && has_barrier(one));
        of_id.flat_map(|one| one.members.iter().copied()).collect::<BTreeSet<_>>() == members
    };
    within.retain(|one| has_all(one.id));
    if !within.is_empty() {
        return barriers(Vec::new(), &|node| {
            let ids = within.iter().filter(|one| one.members.contains(&node)).map(|one| one.id);
            ids.collect::<BTreeSet<_>>().into_iter().collect()
        });
    }
    let (mut rows, mut columns): (BTreeMap<_, Vec<u32>>, BTreeMap<_, Vec<u32>>) = Default::default();
    for node in &members {
        let Some((row, column)) = topology.place(*node, nodes) else { return none() };
        rows.entry(row).or_default().push(*node);
        columns.entry(column).or_default().push(*node);
    }
    if rows.len() * columns.len() != members.len() {
        return over_links(set, capabilities).unwrap_or_else(none);
    }
    let Some(id) = free_id(set, capabilities, 2) else { return none() };
    let rows = rows.into_values().map(|members| Communicator { id, members });
    let columns = columns.into_values().map(|members| Communicator { id: id + 1, members });
    barriers(rows.chain(columns).collect(), &|_| vec![id, id + 1])
}

/// Returns, for each node, barriers one after another on the communicators of its `ids`, which are those of `set` or `made`.
fn barriers(
    set: &ProgramSet,
    made: Vec<Communicator>,
    ids: &dyn Fn(u32) -> Vec<u16>,
    capabilities: &Capabilities,
) -> ProgramSet {
    let mut start = ProgramSet { programs: Vec::new(), ..set.clone() }.with(made);
    let all: Vec<u32> = (0..capabilities.nodes).collect();
    for node in &set.nodes {
        let mut program = Program::default();
        for id in ids(*node) {
            let barrier = Instruction::barrier().on(id);
            let members = start.communicator(*node, id).map_or(&*all, |one| &one.members);
            // Over routers, signals of one barrier take different times.
            let is_uneven = members.len() == 2 || capabilities.topology.has_routers();
            match members.last().filter(|_| is_uneven && capabilities.runs(Operation::Delay)) {
                Some(last) => {
                    let way = |to: &u32| way_cycles(*last, *to, capabilities);
                    let farthest = members.iter().map(way).max().unwrap_or(0);
                    program.instructions.extend(level(barrier, (node != last).then(|| way(node)), farthest));
                }
                None => program.instructions.push(barrier),
            }
        }
        start.programs.push(program);
    }
    start
}

/// A barrier that all cards leave together, although signals do not take the same time between all of them. Otherwise whoever came
/// last waits for nobody, and who is near to that one leaves early. So it is made sure who comes last, and every card waits for as
/// long as the last one's signal still takes to the `farthest`. `way`: cycles of that signal to this card; `None` for the last.
fn level(barrier: Instruction, way: Option<u64>, farthest: u64) -> Vec<Instruction> {
    match way {
        Some(way) => vec![barrier, Instruction::delay(1 + farthest.saturating_sub(way))],
        None => vec![Instruction::delay(2 * farthest), barrier, Instruction::delay(1 + farthest)],
    }
}

/// Cycles of a control signal from one card to another.
fn way_cycles(from: u32, to: u32, capabilities: &Capabilities) -> u64 {
    let links = capabilities.topology.hops(from, to, capabilities.nodes);
    let timing = &capabilities.timing;
    let ps = u64::from(timing.control_ps) + u64::from(links.saturating_sub(1)) * u64::from(timing.hop_ps);
    if links == 0 { 0 } else { ps * u64::from(capabilities.clock_khz) / 1_000_000_000 }
}

/// Signals along a tree of the cards that have paths to each other. Others do not meet.
fn over_links(set: &ProgramSet, capabilities: &Capabilities) -> Option<ProgramSet> {
    let used: BTreeSet<u16> = set.instructions().map(|one| one.signal_id).collect();
    let signal = (0..capabilities.signals).rev().map(|id| id as u16).find(|id| !used.contains(id))?;
    let mut start = ProgramSet { programs: vec![Program::default(); set.nodes.len()], ..set.clone() };
    for tree in trees(&set.nodes, capabilities).iter().filter(|tree| tree.places.len() > 1) {
        let members: Vec<u32> = tree.places.iter().map(|place| set.nodes[*place]).collect();
        let known = set.communicators.iter().find(|one| one.members == members);
        let all = match known {
            Some(known) => known.clone(),
            None => Communicator { id: free_id(set, capabilities, 1)?, members },
        };
        for (place, instructions) in tree.places.iter().zip(along_a_tree(tree, &all, signal, capabilities)?) {
            start.programs[*place].instructions = instructions;
        }
        start.communicators.extend(known.is_none().then_some(all));
    }
    Some(start)
}

/// Returns the first of `count` ids after those of the set, if the cards' tables have room.
fn free_id(set: &ProgramSet, capabilities: &Capabilities, count: u32) -> Option<u16> {
    let first = set.communicators.iter().map(|one| one.id).max().unwrap_or(WORLD).checked_add(1)?;
    (u32::from(first) + count <= capabilities.communicators).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_fake::Fake;

    use crate::card::Card;

    /// Returns the ids of the communicators that are made for four of five cards, and of the barriers of each, if the table has so
    /// many entries and the programs' communicators have these ids.
    fn shared(entries: u32, ids: &[u16]) -> (Vec<u16>, Vec<Vec<u16>>) {
        let mut capabilities = Card::open(Fake::node(0, 5, 64).function()).unwrap().capabilities().clone();
        capabilities.communicators = entries;
        let pair = |id: &u16| Communicator { id: *id, members: vec![1, 2] };
        let set = ProgramSet::new([4, 0, 2, 1], vec![Program::default(); 4]).with(ids.iter().map(pair));
        let start = synchronise(&set, &capabilities, 1);
        let made = &start.communicators[ids.len()..];
        assert!(made.iter().all(|one| one.members == [4, 0, 2, 1]));
        let barriers = |program: &Program| program.instructions.iter().map(|one| one.communicator).collect();
        (made.iter().map(|one| one.id).collect(), start.programs.iter().map(barriers).collect())
    }

    #[test]
    fn a_group_without_a_communicator_gets_one_after_those_of_the_programs_if_there_is_room() {
        for (entries, ids, expected) in [
            (2, &[][..], Some(1)),
            (1, &[], None),
            (5, &[1, 3], Some(4)),
            (5, &[3, 1], Some(4)),
            (4, &[1, 3], None),
            (32, &[31], None),
            (32, &[u16::MAX], None),
        ] {
            let (made, barriers) = shared(entries, ids);
            assert_eq!(made, Vec::from_iter(expected), "{entries} entries, {ids:?}");
            assert_eq!(barriers, vec![made; 4]);
        }
    }
}
