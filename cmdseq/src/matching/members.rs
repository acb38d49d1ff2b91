//! Members of communicators, by rank.

use std::collections::{HashMap, HashSet};

use super::kinds::{is_one_sided, takes_partners};
use crate::communicator::ContextId;
use crate::instruction::WORLD;
use crate::program::{Communicator, ProgramSet};
use crate::refusal::{Declaration, Reason, Refusal};
use crate::{Capabilities, Context, Instruction, Tables};

/// The communicators of all ranks.
#[derive(Debug)]
pub(crate) struct Members {
    pub(super) rosters: Vec<Roster>,
    /// The memberships of each rank, by entry of the card's table.
    pub(super) of: Vec<Vec<Entry>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) id: u16,
    pub(super) roster: usize,
    pub(super) own: u32,
}

/// The members of a communicator.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) nodes: Vec<u32>,
    /// The program rank of each member, if it has a program.
    pub(super) ranks: Vec<Option<usize>>,
    /// The first member without a program.
    pub(super) absent: Option<usize>,
    /// Whether all members are linked to each other.
    pub(super) is_linked: bool,
}

/// The membership of a rank in a communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership<'a> {
    pub(super) roster: &'a Roster,
    /// Index of the communicator: the same for all its members.
    pub(crate) index: usize,
    /// Own rank in the communicator.
    pub(crate) own: u32,
}

impl<'a> Membership<'a> {
    /// Returns the context of its instructions on the communicator, on a card with `tables`.
    pub(crate) fn context<'t>(&self, tables: &'t Tables, capabilities: &Capabilities) -> Context<'t> {
        let ranks = self.roster.nodes.len() as u32;
        Context { rank: self.own, ranks, stripe_bytes: capabilities.stripe_bytes(), tables }
    }

    /// Returns the nodes of the communicator by rank.
    pub(crate) fn nodes(&self) -> &'a [u32] {
        &self.roster.nodes
    }

    /// Returns the program rank of rank `rank` of the communicator.
    pub(crate) fn program_rank(&self, rank: u32) -> Option<usize> {
        self.roster.ranks.get(rank as usize).copied().flatten()
    }

    /// Whether all members are linked to each other.
    pub(crate) fn is_linked(&self) -> bool {
        self.roster.is_linked
    }
}

impl Members {
    /// Finds the members of all communicators of a program set.
    ///
    /// # Errors
    /// An invalid or duplicate communicator.
    pub(crate) fn new(set: &ProgramSet, capabilities: &Capabilities) -> Result<Self, Refusal> {
        let rank_of: HashMap<u32, usize> = set.nodes.iter().enumerate().map(|(rank, node)| (*node, rank)).collect();
        let mut members = Members { rosters: Vec::new(), of: vec![Vec::new(); set.nodes.len()] };
        members.add(WORLD, (0..capabilities.nodes).collect(), &rank_of, capabilities)?;
        for Communicator { id, members: nodes } in &set.communicators {
            let refuse = |cause| {
                let refusal = Refusal::general(format!("communicator {id}: {cause}")).because(Reason::Communicators);
                Err(refusal.in_declaration(declaration(*id, nodes, &rank_of)))
            };
            if !is_id(*id, capabilities) {
                let last = i64::from(capabilities.communicators) - 1;
                return refuse(format!(
                    "invalid id: the cards' tables have entries 1 to {last}, with later generations"
                ));
            }
            if nodes.is_empty() || nodes.len() as u64 > u64::from(capabilities.communicator_ranks) {
                let most = capabilities.communicator_ranks;
                return refuse(format!("{} ranks: the cards' tables allow 1 to {most}", nodes.len()));
            }
            if let Some(node) = nodes.iter().find(|node| **node >= capabilities.nodes) {
                return refuse(format!("no node {node} (the fabric has {} nodes)", capabilities.nodes));
            }
            let mut named = HashSet::new();
            if let Some(node) = nodes.iter().find(|node| !named.insert(**node)) {
                let rank = rank_of.get(node).map(|rank| *rank as u32);
                return refuse(format!("duplicate node {node}")).map_err(|refusal| Refusal { rank, ..refusal });
            }
            members.add(*id, nodes.clone(), &rank_of, capabilities)?;
        }
        Ok(members)
    }

    fn add(
        &mut self,
        id: u16,
        nodes: Vec<u32>,
        rank_of: &HashMap<u32, usize>,
        capabilities: &Capabilities,
    ) -> Result<(), Refusal> {
        let ranks: Vec<Option<usize>> = nodes.iter().map(|node| rank_of.get(node).copied()).collect();
        let roster = self.rosters.len();
        for (own, rank) in ranks.iter().enumerate() {
            let Some(rank) = *rank else { continue };
            let place = self.of[rank].binary_search_by_key(&entry_of(id), |entry| entry_of(entry.id));
            if let Ok(entry) = place.map(|place| self.of[rank][place]) {
                let cause = match entry.id == id {
                    true => format!("communicator {id}: node {} is in another communicator {id}, too", nodes[own]),
                    false => format!("communicators {} and {id} need the same table entry", entry.id),
                };
                let refusal = Refusal::of(rank, cause).because(Reason::Communicators);
                return Err(refusal.in_declaration(declaration(id, &nodes, rank_of)));
            }
            self.of[rank].insert(place.unwrap_or_else(|place| place), Entry { id, roster, own: own as u32 });
        }
        let is_linked = capabilities.topology.all_reach(&nodes, capabilities.nodes);
        let absent = ranks.iter().position(Option::is_none);
        self.rosters.push(Roster { nodes, ranks, absent, is_linked });
        Ok(())
    }

    /// Returns the communicator in the table entry of `id` on `rank`.
    pub(crate) fn occupant(&self, rank: usize, id: u16) -> Option<u16> {
        let entries = self.of.get(rank)?;
        let place = entries.binary_search_by_key(&entry_of(id), |entry| entry_of(entry.id)).ok()?;
        Some(entries[place].id)
    }

    /// Returns the membership of `rank` in the communicator of `instruction`; `None` if the operation has none, or the rank is no
    /// member.
    pub(crate) fn of(&self, rank: usize, instruction: &Instruction) -> Option<Membership<'_>> {
        if !takes_partners(instruction.operation) && !is_one_sided(instruction.operation) {
            return None;
        }
        self.membership(rank, instruction.communicator)
    }

    /// Returns the membership of `rank` in communicator `id`; `None` if the rank is no member.
    pub(crate) fn membership(&self, rank: usize, id: u16) -> Option<Membership<'_>> {
        // A card is in few, and this is asked for every instruction.
        let Entry { roster, own, .. } = *self.of.get(rank)?.iter().find(|entry| entry.id == id)?;
        Some(Membership { roster: self.rosters.get(roster)?, index: roster, own })
    }
}

/// Returns what declares communicator `id`; `None` if a member has no program.
fn declaration(id: u16, nodes: &[u32], rank_of: &HashMap<u32, usize>) -> Option<Declaration> {
    let ranks = nodes.iter().map(|node| rank_of.get(node).map(|rank| *rank as u32));
    Some(Declaration::Communicator { id, members: ranks.collect::<Option<_>>()? })
}

/// Returns the table entry of a communicator id: ids of one entry differ in their generation.
pub(crate) fn entry_of(id: u16) -> Option<u32> {
    ContextId::from_raw(id).map(ContextId::index)
}

/// Whether the cards support communicators of this id, which is not that of all cards.
pub(crate) fn is_id(id: u16, capabilities: &Capabilities) -> bool {
    ContextId::from_raw(id).is_some_and(|id| {
        let (index, generation) = (id.index(), id.generation());
        index != 0 && index < capabilities.communicators && generation < capabilities.communicator_generations
    })
}
