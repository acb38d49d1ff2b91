//! Which instructions of different cards belong together, and in what order they can run.
//!
//! A card runs one instruction at a time, and each waits for its partners. So programs fit together if, again and again,
//! some instructions at the heads of their programs find all their partners at heads too, until all programs have ended.

use std::collections::HashMap;

use crate::instruction::WORLD;
use crate::plan::{Communicator, Program, Refusal};
use crate::{Capabilities, Flags, Instruction, Operation};

/// Communicators as ranks of the programs see them.
#[derive(Debug)]
pub(crate) struct Members {
    tables: Vec<Table>,
    /// Table and own rank, by id and rank of the programs.
    of: HashMap<(u16, usize), (usize, u32)>,
}

#[derive(Debug)]
struct Table {
    nodes: Vec<u32>,
    /// Rank of the programs of each member, if it has one.
    ranks: Vec<Option<usize>>,
}

/// A rank's place in a communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership<'a> {
    table: &'a Table,
    /// Index of the communicator: the same for all its members.
    pub(crate) index: usize,
    /// Own rank in the communicator.
    pub(crate) own: u32,
}

impl Membership<'_> {
    /// Nodes of the communicator by rank.
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.table.nodes
    }

    /// Rank of the programs of rank `rank` of the communicator.
    pub(crate) fn program_rank(&self, rank: u32) -> Option<usize> {
        self.table.ranks.get(rank as usize).copied().flatten()
    }
}

impl Members {
    /// Looks up who is a member of what.
    ///
    /// # Errors
    /// A communicator that cannot be defined, or is twice on one card.
    pub(crate) fn new(
        communicators: &[Communicator],
        group: &[u32],
        capabilities: &Capabilities,
    ) -> Result<Self, Refusal> {
        let rank_of: HashMap<u32, usize> = group.iter().enumerate().map(|(rank, node)| (*node, rank)).collect();
        let mut members = Members { tables: Vec::new(), of: HashMap::new() };
        members.add(WORLD, (0..capabilities.nodes).collect(), &rank_of)?;
        for Communicator { id, members: nodes } in communicators {
            let refuse = |cause| Err(Refusal::general(format!("communicator {id}: {cause}")));
            if *id == WORLD || u32::from(*id) >= capabilities.communicators {
                let last = i64::from(capabilities.communicators) - 1;
                return refuse(format!("the cards' tables take ids 1 to {last}"));
            }
            if nodes.is_empty() || nodes.len() as u64 > u64::from(capabilities.communicator_ranks) {
                let most = capabilities.communicator_ranks;
                return refuse(format!("{} ranks; the cards' tables take 1 to {most}", nodes.len()));
            }
            if let Some(node) = nodes.iter().find(|node| **node >= capabilities.nodes) {
                return refuse(format!("there is no node {node}; the fabric has {}", capabilities.nodes));
            }
            members.add(*id, nodes.clone(), &rank_of)?;
        }
        Ok(members)
    }

    fn add(&mut self, id: u16, nodes: Vec<u32>, rank_of: &HashMap<u32, usize>) -> Result<(), Refusal> {
        let ranks: Vec<Option<usize>> = nodes.iter().map(|node| rank_of.get(node).copied()).collect();
        for (own, rank) in ranks.iter().enumerate() {
            let Some(rank) = *rank else { continue };
            if self.of.insert((id, rank), (self.tables.len(), own as u32)).is_some() {
                let cause = format!("communicator {id} has node {} twice; a card is one rank of it", nodes[own]);
                return Err(Refusal::of(rank, cause));
            }
        }
        self.tables.push(Table { nodes, ranks });
        Ok(())
    }

    /// The place of `rank` in the communicator that `instruction` names; `None` if it names none, or not one of its.
    pub(crate) fn of(&self, rank: usize, instruction: &Instruction) -> Option<Membership<'_>> {
        if !takes_partners(instruction.operation) && !is_one_sided(instruction.operation) {
            return None;
        }
        let (index, own) = *self.of.get(&(instruction.communicator, rank))?;
        Some(Membership { table: self.tables.get(index)?, index, own })
    }
}

/// Whether the operation needs instructions of other cards.
pub(crate) const fn takes_partners(operation: Operation) -> bool {
    is_collective(operation) || matches!(operation, Operation::Send | Operation::Recv | Operation::Sendrecv)
}

/// Whether the operation works on the memory of a card that runs nothing for it.
pub(crate) const fn is_one_sided(operation: Operation) -> bool {
    matches!(operation, Operation::RdmaRead | Operation::RdmaWrite)
}

/// Whether all members of the communicator run it together.
pub(crate) const fn is_collective(operation: Operation) -> bool {
    use Operation::{Allgather, Alltoall, Barrier, Broadcast, Gather, Scatter};
    matches!(operation, Barrier | Scatter | Gather | Broadcast | Alltoall | Allgather)
}

/// Whether the card runs `instruction` as rendezvous: decided once, by its largest piece.
pub(crate) fn is_rendezvous(instruction: &Instruction, capabilities: &Capabilities) -> bool {
    !instruction.flags.contains(Flags::EAGER)
        && (instruction.flags.contains(Flags::RENDEZVOUS) || instruction.bytes > capabilities.eager_limit)
}

/// One rank's next instruction.
#[derive(Debug, Clone, Copy)]
struct Head<'a> {
    index: usize,
    instruction: &'a Instruction,
}

/// What one instruction finds at a partner.
enum Partner {
    /// The instruction it needs.
    Fits,
    /// Another one, before it or never.
    NotYet,
    /// The one it should need, but with other values.
    Differs,
}

/// Takes programs through their instructions, partners together.
pub(crate) struct Matching<'a> {
    programs: &'a [Program],
    members: &'a Members,
    capabilities: &'a Capabilities,
    next: Vec<usize>,
    /// Ranks whose head has not been looked at since they came to it.
    fresh: Vec<usize>,
}

impl<'a> Matching<'a> {
    pub(crate) fn new(programs: &'a [Program], members: &'a Members, capabilities: &'a Capabilities) -> Self {
        // Taken from the end: the lowest rank first.
        let fresh = (0..programs.len()).rev().collect();
        Matching { programs, members, capabilities, next: vec![0; programs.len()], fresh }
    }

    /// The next instructions that run together, by rank and index; `None` when all programs have ended.
    ///
    /// # Errors
    /// Partners that disagree, or programs that wait for each other for ever.
    pub(crate) fn step(&mut self) -> Result<Option<Vec<(usize, usize)>>, Refusal> {
        while let Some(rank) = self.fresh.pop() {
            if let Some(together) = self.together(rank)? {
                for (rank, _) in &together {
                    self.next[*rank] += 1;
                    self.fresh.push(*rank);
                }
                return Ok(Some(together));
            }
        }
        match self.stuck() {
            Some(refusal) => Err(refusal),
            None => Ok(None),
        }
    }

    fn head(&self, rank: usize) -> Option<Head<'a>> {
        let index = *self.next.get(rank)?;
        let instruction = self.programs.get(rank)?.instructions.get(index)?;
        Some(Head { index, instruction })
    }

    /// The heads that `rank`'s head needs, and those that these need, if all are there.
    fn together(&self, rank: usize) -> Result<Option<Vec<(usize, usize)>>, Refusal> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut seen = vec![rank];
        while let Some(rank) = seen.get(found.len()).copied() {
            let Some(head) = self.head(rank) else { return Ok(None) };
            found.push((rank, head.index));
            // All members of a collective need the same: one look is enough.
            if is_collective(head.instruction.operation) && found.len() > 1 {
                continue;
            }
            for partner in self.partners(rank, &head)? {
                match self.compare(rank, &head, partner) {
                    Partner::Fits if seen.contains(&partner) => {}
                    Partner::Fits => seen.push(partner),
                    Partner::NotYet => return Ok(None),
                    Partner::Differs => return Err(self.disagreement(rank, &head, partner)),
                }
            }
        }
        Ok(Some(found))
    }

    /// Ranks that must come to the same instruction, without `rank` itself.
    fn partners(&self, rank: usize, head: &Head<'_>) -> Result<Vec<usize>, Refusal> {
        if !takes_partners(head.instruction.operation) {
            return Ok(Vec::new());
        }
        let Some(membership) = self.members.of(rank, head.instruction) else { return Ok(Vec::new()) };
        let (peer, root) = (u32::from(head.instruction.peer), u32::from(head.instruction.root));
        let of_communicator: Vec<u32> = match head.instruction.operation {
            Operation::Send | Operation::Recv => vec![peer],
            Operation::Sendrecv => vec![peer, root],
            _ => (0..membership.nodes().len() as u32).collect(),
        };
        let mut partners = Vec::with_capacity(of_communicator.len());
        for partner in of_communicator.into_iter().filter(|partner| *partner != membership.own) {
            let Some(partner) = membership.program_rank(partner) else {
                let cause = format!(
                    "{} waits for rank {partner} of communicator {}, which has no program here",
                    head.instruction.operation, head.instruction.communicator
                );
                return Err(Refusal::at(rank, head.index, cause));
            };
            partners.push(partner);
        }
        Ok(partners)
    }

    fn compare(&self, rank: usize, head: &Head<'_>, partner: usize) -> Partner {
        let Some(other) = self.head(partner) else { return Partner::NotYet };
        let (Some(mine), Some(theirs)) =
            (self.members.of(rank, head.instruction), self.members.of(partner, other.instruction))
        else {
            return Partner::NotYet;
        };
        let (one, two) = (head.instruction, other.instruction);
        if mine.index != theirs.index || is_collective(one.operation) != is_collective(two.operation) {
            return Partner::NotYet;
        }
        if !is_collective(one.operation) {
            let goes = sends_to(one) == Some(theirs.own) && receives_from(two) == Some(mine.own);
            let comes = receives_from(one) == Some(theirs.own) && sends_to(two) == Some(mine.own);
            // Each direction in which one of the two wants to move something must be wanted by the other.
            let wants = sends_to(one) == Some(theirs.own) || receives_from(two) == Some(mine.own);
            let wants_back = receives_from(one) == Some(theirs.own) || sends_to(two) == Some(mine.own);
            if wants != goes || wants_back != comes {
                return Partner::NotYet;
            }
        } else if (one.operation, one.root, one.extent) != (two.operation, two.root, two.extent) {
            return Partner::Differs;
        }
        let eager = is_rendezvous(one, self.capabilities) == is_rendezvous(two, self.capabilities);
        if one.bytes == two.bytes && eager { Partner::Fits } else { Partner::Differs }
    }

    /// Names the one that is alone with what it says, and what the others say.
    fn disagreement(&self, rank: usize, head: &Head<'_>, partner: usize) -> Refusal {
        let mut odd = (partner, rank);
        if is_collective(head.instruction.operation) {
            let others = self.partners(rank, head).unwrap_or_default();
            let (fits, differ): (Vec<usize>, Vec<usize>) =
                others.into_iter().partition(|other| !matches!(self.compare(rank, head, *other), Partner::Differs));
            if differ.len() > fits.len() + 1 {
                odd = (rank, partner);
            }
        }
        let (named, other) = odd;
        let (Some(said), Some(expected)) = (self.head(named), self.head(other)) else {
            return Refusal::of(named, "its program has ended too early".into());
        };
        let cause = format!(
            "{} does not fit instruction {} of rank {other}: {}; all that take part must say the same",
            said.instruction.operation,
            expected.index,
            difference(said.instruction, expected.instruction)
        );
        Refusal::at(named, said.index, cause)
    }

    /// Why nothing goes on, if some program has not ended: told of the rank that most others wait for.
    fn stuck(&self) -> Option<Refusal> {
        let mut waits: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut first = None;
        for rank in 0..self.programs.len() {
            let Some(head) = self.head(rank) else { continue };
            first = first.or(Some(rank));
            for partner in self.partners(rank, &head).unwrap_or_default() {
                if matches!(self.compare(rank, &head, partner), Partner::NotYet) {
                    waits.entry(partner).or_default().push(rank);
                }
            }
        }
        let first = first?;
        let named = (0..self.programs.len()).rev().max_by_key(|rank| waits.get(rank).map_or(0, Vec::len))?;
        let waiting = waits.get(&named).and_then(|ranks| ranks.first()).copied().unwrap_or(first);
        let at = self.head(waiting)?;
        let waiting =
            format!("rank {waiting} waits for it with instruction {} ({})", at.index, at.instruction.operation);
        Some(match self.head(named) {
            Some(head) => Refusal::at(
                named,
                head.index,
                format!("{} finds no partner, and {waiting}: neither goes on for ever", head.instruction.operation),
            ),
            None => Refusal::of(named, format!("its program ends, but {waiting}; it needs a matching instruction")),
        })
    }
}

fn sends_to(instruction: &Instruction) -> Option<u32> {
    let sends = matches!(instruction.operation, Operation::Send | Operation::Sendrecv);
    sends.then_some(u32::from(instruction.peer))
}

fn receives_from(instruction: &Instruction) -> Option<u32> {
    match instruction.operation {
        Operation::Recv => Some(u32::from(instruction.peer)),
        Operation::Sendrecv => Some(u32::from(instruction.root)),
        _ => None,
    }
}

/// The first field in which `one` is not as `two`.
fn difference(one: &Instruction, two: &Instruction) -> String {
    if is_collective(one.operation) {
        if one.operation != two.operation {
            return format!("operation {} here, {} there", one.operation, two.operation);
        }
        if one.root != two.root {
            return format!("root {} here, {} there", one.root, two.root);
        }
        if one.extent != two.extent {
            return format!("{} B to divide here, {} B there", one.extent, two.extent);
        }
    }
    if one.bytes != two.bytes {
        return format!("blocks of {} B here, {} B there", one.bytes, two.bytes);
    }
    "one is eager and the other rendezvous".into()
}
