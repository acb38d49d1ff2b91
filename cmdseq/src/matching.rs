//! Which instructions of different cards belong together, and in what order they can run.
//!
//! A card runs one instruction at a time, and each waits for its partners. So programs fit together if, again and again,
//! some instructions at the heads of their programs find all their partners at heads too, until all programs have ended.
//! Which of several such groups is taken first makes no difference to where it ends.

use std::collections::HashMap;

use crate::communicator::ContextId;
use crate::instruction::{WORLD, is_collective, takes_tables};
use crate::program::{Communicator, Program};
use crate::ranges::{Lengths, lengths, transfers};
use crate::refusal::{Reason, Refusal};
use crate::verify::limits::{BLOCKS_MAX, too_long};
use crate::{Capabilities, Context, Flags, Instruction, Operation, Tables};

mod stuck;
#[cfg(test)]
mod tests;

/// Communicators as ranks of the programs see them.
#[derive(Debug)]
pub(crate) struct Members {
    tables: Vec<Table>,
    /// By rank of the programs: what it is a member of, by the entry of the card's table that it takes.
    of: Vec<Vec<Entry>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: u16,
    table: usize,
    own: u32,
}

#[derive(Debug)]
struct Table {
    nodes: Vec<u32>,
    /// Rank of the programs of each member, if it has one.
    ranks: Vec<Option<usize>>,
    /// The first member without a program.
    absent: Option<usize>,
    /// Whether every two members have a link.
    is_linked: bool,
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

impl<'a> Membership<'a> {
    /// Where its instructions on the communicator run, on a card with `tables`.
    pub(crate) fn context<'t>(&self, tables: &'t Tables, capabilities: &Capabilities) -> Context<'t> {
        let ranks = self.table.nodes.len() as u32;
        Context { rank: self.own, ranks, stripe_bytes: capabilities.stripe_bytes(), tables }
    }

    /// Nodes of the communicator by rank.
    pub(crate) fn nodes(&self) -> &'a [u32] {
        &self.table.nodes
    }

    /// Rank of the programs of rank `rank` of the communicator.
    pub(crate) fn program_rank(&self, rank: u32) -> Option<usize> {
        self.table.ranks.get(rank as usize).copied().flatten()
    }

    /// Whether every two members have a link.
    pub(crate) fn is_linked(&self) -> bool {
        self.table.is_linked
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
        let mut members = Members { tables: Vec::new(), of: vec![Vec::new(); group.len()] };
        members.add(WORLD, (0..capabilities.nodes).collect(), &rank_of, capabilities)?;
        for Communicator { id, members: nodes } in communicators {
            let refuse =
                |cause| Err(Refusal::general(format!("communicator {id}: {cause}")).because(Reason::Communicators));
            if !is_id(*id, capabilities) {
                let last = i64::from(capabilities.communicators) - 1;
                return refuse(format!("the cards' tables take ids 1 to {last}, and those of later generations"));
            }
            if nodes.is_empty() || nodes.len() as u64 > u64::from(capabilities.communicator_ranks) {
                let most = capabilities.communicator_ranks;
                return refuse(format!("{} ranks; the cards' tables take 1 to {most}", nodes.len()));
            }
            if let Some(node) = nodes.iter().find(|node| **node >= capabilities.nodes) {
                return refuse(format!("there is no node {node}; the fabric has {}", capabilities.nodes));
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
        let table = self.tables.len();
        for (own, rank) in ranks.iter().enumerate() {
            let Some(rank) = *rank else { continue };
            let place = self.of[rank].binary_search_by_key(&entry_of(id), |entry| entry_of(entry.id));
            if let Ok(entry) = place.map(|place| self.of[rank][place]) {
                let cause = match entry.id == id {
                    true => format!("communicator {id} has node {} twice; a card is one rank of it", nodes[own]),
                    false => format!("communicators {} and {id} take the same entry of a card's table", entry.id),
                };
                return Err(Refusal::of(rank, cause).because(Reason::Communicators));
            }
            self.of[rank].insert(place.unwrap_or_else(|place| place), Entry { id, table, own: own as u32 });
        }
        let is_linked = capabilities.topology.all_linked(&nodes, capabilities.nodes);
        let absent = ranks.iter().position(Option::is_none);
        self.tables.push(Table { nodes, ranks, absent, is_linked });
        Ok(())
    }

    /// The communicator that is in the entry of `rank`'s table in which `id` would be.
    pub(crate) fn occupant(&self, rank: usize, id: u16) -> Option<u16> {
        self.entry(rank, id).map(|entry| entry.id)
    }

    /// What is in the entry of `rank`'s table in which `id` would be.
    fn entry(&self, rank: usize, id: u16) -> Option<Entry> {
        let entries = self.of.get(rank)?;
        let place = entries.binary_search_by_key(&entry_of(id), |entry| entry_of(entry.id)).ok()?;
        entries.get(place).copied()
    }

    /// The place of `rank` in the communicator that `instruction` names; `None` if it names none, or not one of its.
    pub(crate) fn of(&self, rank: usize, instruction: &Instruction) -> Option<Membership<'_>> {
        if !takes_partners(instruction.operation) && !is_one_sided(instruction.operation) {
            return None;
        }
        let id = instruction.communicator;
        let Entry { table, own, .. } = self.entry(rank, id).filter(|entry| entry.id == id)?;
        Some(Membership { table: self.tables.get(table)?, index: table, own })
    }
}

/// The entry of a card's table that a communicator of this id takes: ids of one entry differ in their generation.
pub(crate) fn entry_of(id: u16) -> Option<u32> {
    ContextId::from_raw(id).map(ContextId::index)
}

/// Whether the cards take communicators of this id, besides that of all cards.
pub(crate) fn is_id(id: u16, capabilities: &Capabilities) -> bool {
    ContextId::from_raw(id).is_some_and(|id| {
        let (index, generation) = (id.index(), id.generation());
        index != 0 && index < capabilities.communicators && generation < capabilities.communicator_generations
    })
}

/// Whether the operation needs instructions of other cards.
pub(crate) const fn takes_partners(operation: Operation) -> bool {
    is_collective(operation) || is_paired(operation)
}

/// Whether the operation meets one instruction of one other card, or one of each of two.
pub(crate) const fn is_paired(operation: Operation) -> bool {
    use Operation::{Recv, RecvReduce, Send, Sendrecv, SendrecvReduce};
    matches!(operation, Send | Recv | Sendrecv | RecvReduce | SendrecvReduce)
}

/// Whether the operation works on the memory of a card that runs nothing for it.
pub(crate) const fn is_one_sided(operation: Operation) -> bool {
    matches!(operation, Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal)
}

/// Whether the card runs `instruction` as rendezvous: decided once, by its largest piece.
pub(crate) fn is_rendezvous(instruction: &Instruction, capabilities: &Capabilities) -> bool {
    !instruction.flags.contains(Flags::EAGER)
        && (instruction.flags.contains(Flags::RENDEZVOUS)
            || takes_tables(instruction.operation)
            || instruction.bytes > capabilities.eager_limit)
}

/// One rank's next instruction.
#[derive(Debug, Clone, Copy)]
struct Head<'a> {
    index: usize,
    instruction: &'a Instruction,
}

/// The direction of what a pair exchanges, from one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Out,
    In,
}

impl Way {
    /// The same, from the other of the two.
    fn back(self) -> Self {
        match self {
            Way::Out => Way::In,
            Way::In => Way::Out,
        }
    }
}

/// Members of a communicator that are at a collective of it.
#[derive(Debug, Clone, Default)]
struct Arrivals {
    count: usize,
    /// The first that came; the others are compared with it.
    first: usize,
    differ: bool,
}

/// A block of a vector form as both ends see it; ranks of the communicator, lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    from: u32,
    to: u32,
    sent: u64,
    expected: u64,
}

/// Ranks whose paired instructions have met, as far as is known: a forest with a list of each tree's members.
#[derive(Debug)]
struct Meeting {
    parent: Vec<usize>,
    /// The next member of the same tree, in a circle.
    circle: Vec<usize>,
    /// Of a root: ways out and in of its members that have not met theirs.
    open: Vec<usize>,
    is_here: Vec<bool>,
}

impl Meeting {
    fn new(ranks: usize) -> Self {
        let each: Vec<usize> = (0..ranks).collect();
        Meeting { parent: each.clone(), circle: each, open: vec![0; ranks], is_here: vec![false; ranks] }
    }

    fn arrive(&mut self, rank: usize, ways: usize) {
        (self.parent[rank], self.circle[rank], self.open[rank], self.is_here[rank]) = (rank, rank, ways, true);
    }

    fn root(&mut self, mut rank: usize) -> usize {
        while self.parent[rank] != rank {
            self.parent[rank] = self.parent[self.parent[rank]];
            rank = self.parent[rank];
        }
        rank
    }

    /// A way out of one has met the way in of the other.
    fn meet(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.parent[other] = one;
            self.open[one] += self.open[other];
            self.circle.swap(one, other);
        }
        self.open[one] -= 2;
    }

    /// All members of `rank`'s tree leave, if nothing of them is open.
    fn leave(&mut self, rank: usize, together: &mut Vec<usize>) -> bool {
        let root = self.root(rank);
        if self.open[root] != 0 {
            return false;
        }
        let mut at = root;
        loop {
            together.push(at);
            self.is_here[at] = false;
            at = self.circle[at];
            if at == root {
                return true;
            }
        }
    }
}

/// Takes programs through their instructions, partners together.
pub(crate) struct Matching<'a> {
    programs: &'a [Program],
    members: &'a Members,
    capabilities: &'a Capabilities,
    next: Vec<usize>,
    /// Ranks whose head has not been looked at since they came to it, or since what it waits for has changed.
    fresh: Vec<usize>,
    /// By communicator.
    arrivals: Vec<Arrivals>,
    meeting: Meeting,
    /// What was added to signals and not waited for, by rank of the programs and number.
    signals: HashMap<(usize, u16), u64>,
    /// Whether the head is a wait that was looked at.
    is_waiting: Vec<bool>,
    together: Vec<usize>,
    /// Pairs of blocks of vector forms that were compared.
    blocks: u64,
}

impl<'a> Matching<'a> {
    pub(crate) fn new(programs: &'a [Program], members: &'a Members, capabilities: &'a Capabilities) -> Self {
        let ranks = programs.len();
        Matching {
            programs,
            members,
            capabilities,
            next: vec![0; ranks],
            // Taken from the end: the lowest rank first.
            fresh: (0..ranks).rev().collect(),
            arrivals: vec![Arrivals::default(); members.tables.len()],
            meeting: Meeting::new(ranks),
            signals: HashMap::new(),
            is_waiting: vec![false; ranks],
            together: Vec::new(),
            blocks: 0,
        }
    }

    /// The next instructions that run together, by rank and index; `None` when all programs have ended.
    ///
    /// # Errors
    /// Partners that disagree, or programs that wait for each other for ever.
    pub(crate) fn step(&mut self) -> Result<Option<Vec<(usize, usize)>>, Refusal> {
        let mut together = Vec::new();
        Ok(self.step_into(&mut together)?.then_some(together))
    }

    /// As [`step`](Matching::step), into a list that is used again; false when all programs have ended.
    pub(crate) fn step_into(&mut self, together: &mut Vec<(usize, usize)>) -> Result<bool, Refusal> {
        together.clear();
        while let Some(rank) = self.fresh.pop() {
            let Some(head) = self.head(rank) else { continue };
            self.together.clear();
            if !self.arrive(rank, head)? {
                continue;
            }
            self.together.sort_unstable();
            for rank in self.together.drain(..) {
                together.push((rank, self.next[rank]));
                self.next[rank] += 1;
                self.fresh.push(rank);
            }
            return Ok(true);
        }
        self.ended().map(|()| false)
    }

    fn head(&self, rank: usize) -> Option<Head<'a>> {
        let index = *self.next.get(rank)?;
        let instruction = self.programs.get(rank)?.instructions.get(index)?;
        Some(Head { index, instruction })
    }

    /// `rank` has come to its head, or what it waits for has changed. Whether something can run now: then it is in
    /// `together`.
    fn arrive(&mut self, rank: usize, head: Head<'a>) -> Result<bool, Refusal> {
        let operation = head.instruction.operation;
        if is_collective(operation) {
            return self.arrive_at_collective(rank, head);
        }
        if is_paired(operation) {
            return self.arrive_at_pair(rank, head);
        }
        match operation {
            Operation::PutSignal => self.put_signal(rank, head.instruction),
            Operation::WaitSignal => {
                let signal = self.signals.entry((rank, head.instruction.signal_id)).or_default();
                let left = signal.checked_sub(head.instruction.signal_value.into());
                self.is_waiting[rank] = left.is_none();
                let Some(left) = left else { return Ok(false) };
                *signal = left;
            }
            _ => {}
        }
        self.together.push(rank);
        Ok(true)
    }

    fn put_signal(&mut self, rank: usize, instruction: &Instruction) {
        let peer = self.members.of(rank, instruction).and_then(|one| one.program_rank(instruction.peer.into()));
        let Some(peer) = peer else { return };
        let signal = self.signals.entry((peer, instruction.signal_id)).or_default();
        *signal = signal.saturating_add(instruction.signal_value.into());
        if std::mem::take(&mut self.is_waiting[peer]) {
            self.fresh.push(peer);
        }
    }

    fn arrive_at_collective(&mut self, rank: usize, head: Head<'a>) -> Result<bool, Refusal> {
        let Some(membership) = self.members.of(rank, head.instruction) else { return Ok(true) };
        let ranks = &membership.table.ranks;
        if let Some(absent) = membership.table.absent {
            return Err(no_program(rank, head, absent));
        }
        let arrivals = &self.arrivals[membership.index];
        let differs = arrivals.count > 0
            && self
                .head(arrivals.first)
                .is_some_and(|first| self.difference(head.instruction, first.instruction).is_some());
        let arrivals = &mut self.arrivals[membership.index];
        if arrivals.count == 0 {
            arrivals.first = rank;
        }
        arrivals.differ |= differs;
        arrivals.count += 1;
        if arrivals.count < ranks.len() {
            return Ok(false);
        }
        if arrivals.differ {
            return Err(self.disagreement(membership.index));
        }
        *arrivals = Arrivals::default();
        if takes_tables(head.instruction.operation) {
            let members = ranks.len() as u64;
            let is_all_to_all = matches!(head.instruction.operation, Operation::Allgatherv | Operation::Alltoallv);
            self.blocks += if is_all_to_all { members * members } else { members };
            if self.blocks > BLOCKS_MAX {
                let refusal = too_long("BLOCKS_MAX", BLOCKS_MAX, "comparisons of blocks of vector forms");
                return Err(Refusal { rank: Some(rank as u32), instruction: Some(head.index), ..refusal });
            }
            if !self.do_blocks_agree(&membership, head.instruction) {
                self.check_blocks(&membership)?;
            }
        }
        self.together.extend(ranks.iter().flatten());
        Ok(true)
    }

    /// Of a vector form at which all members are: whether what each sends is what the other is to receive. False also if
    /// that takes a longer look.
    fn do_blocks_agree(&self, membership: &Membership<'_>, instruction: &Instruction) -> bool {
        let of_rank = |own: u32| {
            let rank = membership.program_rank(own)?;
            let its = Membership { own, ..*membership };
            lengths(self.head(rank)?.instruction, &its.context(&self.programs[rank].tables, self.capabilities))
        };
        let ranks = 0..membership.table.nodes.len() as u32;
        let Some(all) = ranks.map(of_rank).collect::<Option<Vec<[Lengths<'_>; 2]>>>() else { return false };
        let root = usize::from(instruction.root);
        let ends = |is_root: bool| if is_root { root..root + 1 } else { 0..all.len() };
        let (mut from, to) =
            (ends(instruction.operation == Operation::Scatterv), ends(instruction.operation == Operation::Gatherv));
        from.all(|from| to.clone().all(|to| from == to || all[from][0].of(to as u32) == all[to][1].of(from as u32)))
    }

    /// As [`do_blocks_agree`](Matching::do_blocks_agree), and says which do not.
    fn check_blocks(&self, membership: &Membership<'_>) -> Result<(), Refusal> {
        let mut sent: HashMap<(u32, u32), u64> = HashMap::new();
        let mut received: Vec<(u32, u32, u64)> = Vec::new();
        for (rank, head) in self.at_collective(membership.index) {
            let Some(its) = self.members.of(rank, head.instruction) else { continue };
            let context = its.context(&self.programs[rank].tables, self.capabilities);
            let moved = transfers(head.instruction, &context).unwrap_or_default();
            sent.extend(moved.sends.iter().map(|one| ((its.own, one.peer_rank), one.bytes)));
            received.extend(moved.receives.iter().map(|one| (one.peer_rank, its.own, one.bytes)));
        }
        // What is not received is to be received with no bytes, and the other way round.
        let mut said: Vec<Block> = Vec::with_capacity(received.len());
        for (from, to, expected) in received {
            said.push(Block { from, to, sent: sent.remove(&(from, to)).unwrap_or(0), expected });
        }
        said.extend(sent.into_iter().map(|((from, to), sent)| Block { from, to, sent, expected: 0 }));
        said.retain(|block| block.sent != block.expected);
        said.sort_unstable();
        // The one that disagrees with most others is alone with what it says; of two, the one that receives.
        let mut count: HashMap<u32, usize> = HashMap::new();
        said.iter().flat_map(|block| [block.from, block.to]).for_each(|rank| *count.entry(rank).or_default() += 1);
        let ends = said.iter().flat_map(|block| [(block, block.to), (block, block.from)]);
        let Some((block, named)) = ends.rev().max_by_key(|(_, rank)| count.get(rank)) else { return Ok(()) };
        let rank = membership.program_rank(named).unwrap_or_default();
        let Some(head) = self.head(rank) else { return Ok(()) };
        let (operation, id) = (head.instruction.operation, head.instruction.communicator);
        let Block { from, to, sent, expected } = block;
        let said = match named == *to {
            true => format!("is to receive {expected} B from rank {from} of communicator {id}, which sends {sent} B"),
            false => format!("sends {sent} B to rank {to} of communicator {id}, which is to receive {expected} B"),
        };
        let cause = format!("{operation} {said}; tables and lengths have to agree");
        Err(Refusal::at(rank, head.index, cause).because(Reason::TableMismatch))
    }

    fn arrive_at_pair(&mut self, rank: usize, head: Head<'a>) -> Result<bool, Refusal> {
        let Some(membership) = self.members.of(rank, head.instruction) else { return Ok(true) };
        let ways = ways(head.instruction, membership.own);
        self.meeting.arrive(rank, ways.iter().flatten().count());
        for (way, partner) in ways.into_iter().flatten() {
            let Some(partner) = membership.program_rank(partner) else {
                return Err(no_program(rank, head, partner as usize));
            };
            if !self.meeting.is_here[partner] || !self.meets(partner, way, &membership) {
                continue;
            }
            let Some(other) = self.head(partner) else { continue };
            if let Some((reason, difference)) = self.difference(head.instruction, other.instruction) {
                // The one that receives is named: the other's data would come to it.
                let said = [(rank, head), (partner, other)];
                let [(named, here), (partner, there)] = if way == Way::In { said } else { [said[1], said[0]] };
                let cause = disagreement_between(here, partner, there, &self.in_order(here, there, difference));
                return Err(Refusal::at(named, here.index, cause).because(reason));
            }
            self.meeting.meet(rank, partner);
        }
        Ok(self.meeting.leave(rank, &mut self.together))
    }

    /// Whether the head of `partner` wants what goes the way `way` of the member `membership`.
    fn meets(&self, partner: usize, way: Way, membership: &Membership<'_>) -> bool {
        self.head(partner).is_some_and(|other| fits(other.instruction, partner, way, membership, self.members))
    }

    /// The first field in which two that run together differ and should not.
    fn difference(&self, one: &Instruction, two: &Instruction) -> Option<(Reason, [String; 2])> {
        let pair = |one: &dyn std::fmt::Display, two: &dyn std::fmt::Display| [one.to_string(), two.to_string()];
        if is_collective(one.operation) {
            if one.operation != two.operation {
                let said = pair(&one.operation, &two.operation).map(|name| format!("operation {name}"));
                return Some((Reason::OperationMismatch, said));
            }
            if one.root != two.root {
                return Some((Reason::RootMismatch, pair(&one.root, &two.root).map(|root| format!("root {root}"))));
            }
            if let (Some(here), Some(there)) = (one.combine(), two.combine())
                && here != there
            {
                let is_type = here.reduction == there.reduction;
                let reason = if is_type { Reason::TypeMismatch } else { Reason::ReductionMismatch };
                return Some((reason, pair(&here, &there)));
            }
            if one.extent != two.extent && !takes_tables(one.operation) {
                let said = pair(&one.extent, &two.extent).map(|bytes| format!("{bytes} B to divide"));
                return Some((Reason::ExtentMismatch, said));
            }
        }
        if one.bytes != two.bytes && !takes_tables(one.operation) {
            return Some((
                Reason::BytesMismatch,
                pair(&one.bytes, &two.bytes).map(|bytes| format!("blocks of {bytes} B")),
            ));
        }
        let moves = one.operation != Operation::Barrier;
        let [here, there] = [one, two].map(|one| is_rendezvous(one, self.capabilities));
        if here != there && moves {
            let said = [here, there].map(|late| if late { "rendezvous" } else { "eager" }.to_owned());
            return Some((Reason::TransportMismatch, said));
        }
        if one.tag != two.tag && one.tag != 0 && two.tag != 0 {
            return Some((Reason::TagMismatch, pair(&one.tag, &two.tag).map(|tag| format!("tag {tag}"))));
        }
        None
    }

    /// The two sides of a difference as `here` and `there` see it.
    fn in_order(&self, here: Head<'_>, there: Head<'_>, fallback: [String; 2]) -> [String; 2] {
        self.difference(here.instruction, there.instruction).map_or(fallback, |(_, said)| said)
    }

    /// Names the member that fewest others agree with, and one that it does not agree with.
    fn disagreement(&self, table: usize) -> Refusal {
        let here: Vec<(usize, Head<'_>)> = self.at_collective(table).collect();
        let differs = |one: &Head<'_>, two: &Head<'_>| self.difference(one.instruction, two.instruction).is_some();
        let agreed = |one: &Head<'_>| here.iter().filter(|(_, other)| !differs(one, other)).count();
        // Of two, the second: what the first says came first.
        let odd = here.iter().rev().min_by_key(|(_, head)| agreed(head));
        let said = odd.and_then(|(rank, head)| {
            let other = here.iter().find(|(_, other)| differs(head, other))?;
            Some((*rank, *head, *other, self.difference(head.instruction, other.1.instruction)?))
        });
        match said {
            Some((rank, head, (other, there), (reason, difference))) => {
                Refusal::at(rank, head.index, disagreement_between(head, other, there, &difference)).because(reason)
            }
            None => Refusal::general("members of a communicator disagree".into()).because(Reason::OperationMismatch),
        }
    }

    /// Members whose head is a collective of the communicator of this index.
    fn at_collective(&self, table: usize) -> impl Iterator<Item = (usize, Head<'a>)> {
        let ranks = self.members.tables[table].ranks.iter().flatten().copied();
        ranks.filter_map(move |rank| {
            let head = self.head(rank).filter(|head| is_collective(head.instruction.operation))?;
            let membership = self.members.of(rank, head.instruction)?;
            (membership.index == table).then_some((rank, head))
        })
    }

    /// Nothing can run any more: whether that is because all programs have ended.
    fn ended(&self) -> Result<(), Refusal> {
        stuck::check(self)
    }
}

fn disagreement_between(here: Head<'_>, rank: usize, there: Head<'_>, [said, expected]: &[String; 2]) -> String {
    format!(
        "{} does not fit instruction {} of rank {rank} ({}): {said} here, {expected} there; all that take part must say the same",
        here.instruction.operation, there.index, there.instruction.operation
    )
}

fn no_program(rank: usize, head: Head<'_>, partner: usize) -> Refusal {
    let cause = format!(
        "{} waits for rank {partner} of communicator {}, which has no program here",
        head.instruction.operation, head.instruction.communicator
    );
    Refusal::at(rank, head.index, cause).because(Reason::Programs)
}

/// Where a paired instruction sends to and receives from, by rank of the communicator; nothing of what it does alone. What is
/// empty is neither sent nor waited for.
pub(crate) fn ways(instruction: &Instruction, own: u32) -> [Option<(Way, u32)>; 2] {
    let (root, peer) = (u32::from(instruction.root), u32::from(instruction.peer));
    let ways = match instruction.operation {
        Operation::Send => [Some((Way::Out, peer)), None],
        Operation::Recv | Operation::RecvReduce => [Some((Way::In, peer)), None],
        Operation::Sendrecv | Operation::SendrecvReduce => [Some((Way::Out, peer)), Some((Way::In, root))],
        _ => [None, None],
    };
    ways.map(|way| way.filter(|(_, partner)| instruction.bytes > 0 && *partner != own))
}

/// Whether `other`, of rank `partner`, is the other end of the way `way` of `membership`'s rank.
fn fits(other: &Instruction, partner: usize, way: Way, membership: &Membership<'_>, members: &Members) -> bool {
    let Some(theirs) = members.of(partner, other) else { return false };
    theirs.index == membership.index
        && ways(other, theirs.own).into_iter().flatten().any(|one| one.0 != way && one.1 == membership.own)
}
