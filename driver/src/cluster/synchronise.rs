//! The same start for all cards of a group: barriers before the program.

use std::collections::{BTreeMap, BTreeSet};

use cmdseq::plan::{Communicator, Plan, Program};
use cmdseq::{Capabilities, Instruction, Operation, instruction};

use crate::cluster::release::{along_a_tree, parts};

/// How the cards of a group are brought to one start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Synchronisation {
    /// Communicators that the plan itself does not have.
    pub(crate) communicators: Vec<Communicator>,
    /// By rank, the communicators on which one barrier after another makes one of the whole group.
    barriers: Vec<Vec<u16>>,
    /// By rank, what it runs instead of barriers if not all cards that barriers need are there.
    signals: Vec<Vec<Instruction>>,
}

impl Synchronisation {
    /// By rank, the programs that come to the start that all have, `times` times.
    pub(crate) fn programs(&self, plan: &Plan, capabilities: &Capabilities, times: usize) -> Vec<Program> {
        let of_rank = |(rank, node)| Program {
            instructions: self.once(rank, node, plan, capabilities).repeat(times),
            ..Program::default()
        };
        plan.nodes().into_iter().enumerate().map(of_rank).collect()
    }

    fn once(&self, rank: usize, node: u32, plan: &Plan, capabilities: &Capabilities) -> Vec<Instruction> {
        if let Some(signals) = self.signals.get(rank) {
            return signals.clone();
        }
        let all = || plan.communicators.iter().chain(&self.communicators);
        let mut instructions = Vec::new();
        for id in &self.barriers[rank] {
            let barrier = Instruction::barrier().on(*id);
            let of_node = all().find(|one| one.id == *id && one.members.contains(&node));
            let size = of_node.map_or(capabilities.nodes as usize, |one| one.members.len());
            let is_first = of_node.map_or(node == 0, |one| one.members.first() == Some(&node));
            if size == 2 && capabilities.runs(Operation::Delay) {
                instructions.extend(level(barrier, is_first, capabilities));
            } else {
                instructions.push(barrier);
            }
        }
        instructions
    }
}

/// A barrier that two cards leave together. Among more than two, whoever came last waits for nobody and the next barrier
/// makes up for that; two would leave every barrier a signal's way apart. So it is made sure who comes last, and that one
/// waits for as long as its own signal takes.
fn level(barrier: Instruction, is_first: bool, capabilities: &Capabilities) -> Vec<Instruction> {
    let cycles = u64::from(capabilities.timing.control_ps) * u64::from(capabilities.clock_khz) / 1_000_000_000;
    match is_first {
        true => vec![barrier, Instruction::delay(1)],
        false => vec![Instruction::delay(2 * cycles), barrier, Instruction::delay(1 + cycles)],
    }
}

/// One barrier over the cards of a plan if all of them are linked; else one within and one across the groups of the Dragonfly,
/// which together hold nobody back and let nobody through early. If the cards are no grid, signals along a tree.
pub(crate) fn synchronise(plan: &Plan, capabilities: &Capabilities) -> Synchronisation {
    let group = &plan.nodes();
    let members: BTreeSet<_> = group.iter().copied().collect();
    let nodes = capabilities.nodes;
    let none = Synchronisation { barriers: vec![Vec::new(); group.len()], ..Synchronisation::default() };
    if members.len() < 2 {
        return none;
    }
    let same = |id: u16| vec![vec![id]; group.len()];
    let is_linked = capabilities.topology.all_linked(group, nodes);
    let whole = members.len() as u32 == nodes;
    if is_linked {
        if whole {
            return Synchronisation { barriers: same(instruction::WORLD), ..none };
        }
        let covers = |one: &&Communicator| one.members.iter().copied().collect::<BTreeSet<_>>() == members;
        if let Some(communicator) = plan.communicators.iter().find(covers) {
            return Synchronisation { barriers: same(communicator.id), ..none };
        }
        let Some(id) = free_id(plan, capabilities, 1) else { return none };
        let all = Communicator { id, members: group.clone() };
        return Synchronisation { communicators: vec![all], barriers: same(id), ..none };
    }
    // A communicator may be for point-to-point alone: a barrier needs a link between every two of its members.
    let has_barrier = |one: &&Communicator| {
        one.members.iter().all(|node| members.contains(node)) && capabilities.topology.all_linked(&one.members, nodes)
    };
    let mut within: Vec<_> = plan.communicators.iter().filter(has_barrier).collect();
    // One that some ranks are in and others not would hold back those that are.
    let has_all = |id: u16| {
        let of_id = plan.communicators.iter().filter(|one| one.id == id && has_barrier(one));
        of_id.flat_map(|one| one.members.iter().copied()).collect::<BTreeSet<_>>() == members
    };
    within.retain(|one| has_all(one.id));
    let of = |communicators: &[&Communicator], node: u32| {
        let ids = communicators.iter().filter(|one| one.members.contains(&node)).map(|one| one.id);
        ids.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    if !within.is_empty() {
        return Synchronisation { barriers: group.iter().map(|node| of(&within, *node)).collect(), ..none };
    }
    let (mut rows, mut columns): (BTreeMap<_, Vec<u32>>, BTreeMap<_, Vec<u32>>) = Default::default();
    for node in &members {
        let Some((row, column)) = capabilities.topology.place(*node, nodes) else { return none };
        rows.entry(row).or_default().push(*node);
        columns.entry(column).or_default().push(*node);
    }
    if rows.len() * columns.len() != members.len() {
        return over_links(plan, capabilities).unwrap_or(none);
    }
    let Some(id) = free_id(plan, capabilities, 2) else { return none };
    let rows = rows.into_values().map(|members| Communicator { id, members });
    let columns = columns.into_values().map(|members| Communicator { id: id + 1, members });
    let communicators: Vec<_> = rows.chain(columns).collect();
    let all: Vec<_> = communicators.iter().collect();
    let barriers = group.iter().map(|node| of(&all, *node)).collect();
    Synchronisation { communicators, barriers, ..none }
}

/// Signals along a tree of the cards that have paths to each other. Others do not meet.
fn over_links(plan: &Plan, capabilities: &Capabilities) -> Option<Synchronisation> {
    let nodes = plan.nodes();
    let used: BTreeSet<u16> = plan.programs.iter().flat_map(|one| &one.instructions).map(|one| one.signal_id).collect();
    let signal = (0..capabilities.signals).rev().map(|id| id as u16).find(|id| !used.contains(id))?;
    let mut signals = vec![Vec::new(); nodes.len()];
    let mut communicators = Vec::new();
    for part in parts(&nodes, capabilities).into_iter().filter(|part| part.len() > 1) {
        let members: Vec<u32> = part.iter().map(|place| nodes[*place]).collect();
        let known = plan.communicators.iter().find(|one| one.members == members);
        let all = match known {
            Some(known) => known.clone(),
            None => Communicator { id: free_id(plan, capabilities, 1)?, members },
        };
        for (place, instructions) in part.into_iter().zip(along_a_tree(&all, signal, capabilities)?) {
            signals[place] = instructions;
        }
        communicators.extend(known.is_none().then_some(all));
    }
    Some(Synchronisation { communicators, signals, ..Synchronisation::default() })
}

/// The first of `count` indices behind those of the plan, if the cards' tables have room.
fn free_id(plan: &Plan, capabilities: &Capabilities, count: u32) -> Option<u16> {
    let first = plan.communicators.iter().map(|one| one.id).max().unwrap_or(instruction::WORLD).checked_add(1)?;
    (u32::from(first) + count <= capabilities.communicators).then_some(first)
}

#[cfg(test)]
mod tests {
    use cmdseq::plan::{Collective, Request, plan};

    use super::*;
    use fpga_fake::Fake;

    use crate::card::Card;

    /// What barriers four of five cards share where the table has so many entries and the plan has these ids.
    fn shared(entries: u32, ids: &[u16]) -> (Vec<u16>, Vec<Vec<u16>>) {
        let mut capabilities = Card::open(Fake::node(0, 5, 64).function()).unwrap().capabilities().clone();
        let mut plan = plan(&Request::new(Collective::Barrier, vec![4, 0, 2, 1], 0), &capabilities).unwrap();
        capabilities.communicators = entries;
        let pair = |id: &u16| Communicator { id: *id, members: vec![1, 2] };
        plan.communicators = ids.iter().map(pair).collect();
        let start = synchronise(&plan, &capabilities);
        assert!(start.communicators.iter().all(|one| one.members == [4, 0, 2, 1]));
        (start.communicators.iter().map(|one| one.id).collect(), start.barriers)
    }

    #[test]
    fn a_group_without_a_communicator_gets_one_behind_those_of_the_plan_if_there_is_room() {
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
