//! Steps of all programs: the heads of all ranks, and which of them have all their partners.

use std::collections::HashMap;

use super::kinds::{Direction, directions, is_paired, is_rendezvous};
use super::meeting::Meeting;
use super::members::{Members, Membership};
use crate::instruction::{is_collective, takes_tables};
use crate::limits::{BLOCKS_MAX, too_long};
use crate::program::Program;
use crate::ranges::{Lengths, lengths, transfers};
use crate::refusal::{Reason, Refusal};
use crate::{Capabilities, Instruction, Operation};

/// One rank's next instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) index: usize,
    pub(super) instruction: &'a Instruction,
}

/// Members of a communicator whose heads are collectives on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    pub(super) count: usize,
    /// The first to arrive, with which the others are compared.
    pub(super) first: usize,
    pub(super) differ: bool,
}

/// A block of a vector form, with its length at both ends; ranks of the communicator, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) sent: u64,
    pub(super) expected: u64,
}

/// Steps through programs, removing partners together.
pub(crate) struct Matching<'a> {
    pub(super) programs: &'a [Program],
    pub(super) members: &'a Members,
    pub(super) capabilities: &'a Capabilities,
    pub(super) next: Vec<usize>,
    /// Ranks with a new head, or a head whose signal has changed.
    pub(super) fresh: Vec<usize>,
    /// By communicator.
    pub(super) arrivals: Vec<Arrivals>,
    pub(super) meeting: Meeting,
    /// Values of signals, by rank and number.
    pub(super) signals: HashMap<(usize, u16), u64>,
    /// Whether the head waits for a signal.
    pub(super) is_waiting: Vec<bool>,
    pub(super) together: Vec<usize>,
    /// Number of compared pairs of blocks of vector forms.
    pub(super) blocks: u64,
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

    pub(super) fn head(&self, rank: usize) -> Option<Head<'a>> {
        let index = *self.next.get(rank)?;
        let instruction = self.programs.get(rank)?.instructions.get(index)?;
        Some(Head { index, instruction })
    }

    /// Checks a new head of `rank`, or one whose signal has changed. If instructions can run now, puts their ranks into
    /// `together` and returns true.
    pub(super) fn arrive(&mut self, rank: usize, head: Head<'a>) -> Result<bool, Refusal> {
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

    /// Whether both ends of every block of a vector form have the same length; all members have arrived. Returns false also if
    /// [`check_blocks`](Self::check_blocks) must decide.
    pub(super) fn do_blocks_agree(&self, membership: &Membership<'_>, instruction: &Instruction) -> bool {
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

    /// As [`do_blocks_agree`](Matching::do_blocks_agree); refuses the first block that differs.
    pub(super) fn check_blocks(&self, membership: &Membership<'_>) -> Result<(), Refusal> {
        let mut sent: HashMap<(u32, u32), u64> = HashMap::new();
        let mut received: Vec<(u32, u32, u64)> = Vec::new();
        for (rank, head) in self.at_collective(membership.index) {
            let Some(its) = self.members.of(rank, head.instruction) else { continue };
            let context = its.context(&self.programs[rank].tables, self.capabilities);
            let moved = transfers(head.instruction, &context).unwrap_or_default();
            sent.extend(moved.sends.iter().map(|one| ((its.own, one.peer_rank), one.bytes)));
            received.extend(moved.receives.iter().map(|one| (one.peer_rank, its.own, one.bytes)));
        }
        // A block that only one end has is 0 bytes at the other.
        let mut said: Vec<Block> = Vec::with_capacity(received.len());
        for (from, to, expected) in received {
            said.push(Block { from, to, sent: sent.remove(&(from, to)).unwrap_or(0), expected });
        }
        said.extend(sent.into_iter().map(|((from, to), sent)| Block { from, to, sent, expected: 0 }));
        said.retain(|block| block.sent != block.expected);
        said.sort_unstable();
        // The refusal names the rank with most differences; of two, the receiver.
        let mut count: HashMap<u32, usize> = HashMap::new();
        said.iter().flat_map(|block| [block.from, block.to]).for_each(|rank| *count.entry(rank).or_default() += 1);
        let ends = said.iter().flat_map(|block| [(block, block.to), (block, block.from)]);
        let Some((block, named)) = ends.rev().max_by_key(|(_, rank)| count.get(rank)) else { return Ok(()) };
        let rank = membership.program_rank(named).unwrap_or_default();
        let Some(head) = self.head(rank) else { return Ok(()) };
        let (operation, id) = (head.instruction.operation, head.instruction.communicator);
        let Block { from, to, sent, expected } = block;
        let said = match named == *to {
            true => format!("expects {expected} B from rank {from} of communicator {id}, which sends {sent} B"),
            false => format!("sends {sent} B to rank {to} of communicator {id}, which expects {expected} B"),
        };
        let cause = format!("{operation} {said}; tables and lengths must agree");
        Err(Refusal::at(rank, head.index, cause).because(Reason::TableMismatch))
    }

    fn arrive_at_pair(&mut self, rank: usize, head: Head<'a>) -> Result<bool, Refusal> {
        let Some(membership) = self.members.of(rank, head.instruction) else { return Ok(true) };
        let directions = directions(head.instruction, membership.own);
        self.meeting.arrive(rank, directions.iter().flatten().count());
        for (direction, partner) in directions.into_iter().flatten() {
            let Some(partner) = membership.program_rank(partner) else {
                return Err(no_program(rank, head, partner as usize));
            };
            if !self.meeting.is_here[partner] || !self.meets(partner, direction, &membership) {
                continue;
            }
            let Some(other) = self.head(partner) else { continue };
            if let Some((reason, difference)) = self.difference(head.instruction, other.instruction) {
                // The refusal names the receiver.
                let said = [(rank, head), (partner, other)];
                let [(named, here), (partner, there)] =
                    if direction == Direction::In { said } else { [said[1], said[0]] };
                let cause = disagreement_between(here, partner, there, &self.in_order(here, there, difference));
                return Err(Refusal::at(named, here.index, cause).because(reason));
            }
            self.meeting.meet(rank, partner);
        }
        Ok(self.meeting.leave(rank, &mut self.together))
    }

    /// Whether the head of `partner` is the other end of a transfer in `direction` of the member `membership`.
    pub(super) fn meets(&self, partner: usize, direction: Direction, membership: &Membership<'_>) -> bool {
        self.head(partner).is_some_and(|other| fits(other.instruction, partner, direction, membership, self.members))
    }

    /// Returns the first field in which two instructions that meet must not differ.
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

    /// Returns the two sides of a difference in the order `here`, `there`.
    fn in_order(&self, here: Head<'_>, there: Head<'_>, fallback: [String; 2]) -> [String; 2] {
        self.difference(here.instruction, there.instruction).map_or(fallback, |(_, said)| said)
    }

    /// Refuses the member that differs from most others, and names one of these.
    pub(super) fn disagreement(&self, table: usize) -> Refusal {
        let here: Vec<(usize, Head<'_>)> = self.at_collective(table).collect();
        let differs = |one: &Head<'_>, two: &Head<'_>| self.difference(one.instruction, two.instruction).is_some();
        let agreed = |one: &Head<'_>| here.iter().filter(|(_, other)| !differs(one, other)).count();
        // Of two, the second.
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

    /// Returns the members whose head is a collective on the communicator of this index.
    pub(super) fn at_collective(&self, table: usize) -> impl Iterator<Item = (usize, Head<'a>)> {
        let ranks = self.members.tables[table].ranks.iter().flatten().copied();
        ranks.filter_map(move |rank| {
            let head = self.head(rank).filter(|head| is_collective(head.instruction.operation))?;
            let membership = self.members.of(rank, head.instruction)?;
            (membership.index == table).then_some((rank, head))
        })
    }
}

fn disagreement_between(here: Head<'_>, rank: usize, there: Head<'_>, [said, expected]: &[String; 2]) -> String {
    format!(
        "{} differs from instruction {} of rank {rank} ({}): {said} here, {expected} there; all partners must agree",
        here.instruction.operation, there.index, there.instruction.operation
    )
}

fn no_program(rank: usize, head: Head<'_>, partner: usize) -> Refusal {
    let cause = format!(
        "{} needs rank {partner} of communicator {}, which has no program",
        head.instruction.operation, head.instruction.communicator
    );
    Refusal::at(rank, head.index, cause).because(Reason::Programs)
}

/// Whether `other`, of rank `partner`, is the other end of a transfer in `direction` of `membership`'s rank.
fn fits(
    other: &Instruction,
    partner: usize,
    direction: Direction,
    membership: &Membership<'_>,
    members: &Members,
) -> bool {
    let Some(theirs) = members.of(partner, other) else { return false };
    theirs.index == membership.index
        && directions(other, theirs.own).into_iter().flatten().any(|one| one.0 != direction && one.1 == membership.own)
}
