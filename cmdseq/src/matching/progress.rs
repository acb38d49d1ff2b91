//! Steps of all programs: the heads of all streams, and which of them have all their partners.

use std::collections::HashMap;

use super::job::{Job, Signal};
use super::kinds::{Direction, directions, is_paired, is_rendezvous};
use super::lanes::{Claim, Lanes};
use super::members::Membership;
use super::pair_sets::PairSets;
use crate::instruction::{is_collective, takes_tables};
use crate::limits::{BLOCKS_MAX, too_long};
use crate::ranges::lengths;
use crate::refusal::{Reason, Refusal};
use crate::{Instruction, Operation};

/// An instruction that was issued.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) index: usize,
    pub(super) instruction: &'a Instruction,
}

/// Members of a communicator whose heads in a lane are collectives on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    pub(super) count: usize,
    /// The stream of the first to arrive, with which the others are compared.
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
    pub(super) job: Job<'a>,
    claims: Lanes<'a>,
    /// Lanes that the programs use.
    pub(super) lanes: usize,
    /// Index of the instruction to be issued next, by rank.
    pub(super) next: Vec<usize>,
    /// By stream: index of the head, and what it occupies.
    pub(super) heads: Vec<Option<(usize, Claim)>>,
    /// By rank: what the next instruction occupies, if it waits for a head.
    pub(super) waiting: Vec<Option<Claim>>,
    /// Streams with a new head, or a head whose signal has changed.
    pub(super) fresh: Vec<usize>,
    /// By communicator and lane.
    pub(super) arrivals: Vec<Arrivals>,
    pub(super) pair_sets: PairSets,
    /// Values of signals.
    pub(super) signals: HashMap<Signal, u64>,
    /// Whether a rank waits for a signal.
    pub(super) is_waiting: Vec<bool>,
    /// Streams.
    pub(super) together: Vec<usize>,
    /// Number of compared pairs of blocks of vector forms.
    pub(super) blocks: u64,
}

impl<'a> Matching<'a> {
    pub(crate) fn new(job: Job<'a>) -> Self {
        let claims = Lanes::new(job);
        let (ranks, lanes) = (job.programs.len(), claims.count());
        let streams = ranks * lanes;
        let mut matching = Matching {
            job,
            claims,
            lanes,
            next: vec![0; ranks],
            heads: vec![None; streams],
            waiting: vec![None; ranks],
            fresh: Vec::with_capacity(streams),
            arrivals: vec![Arrivals::default(); job.members.rosters.len() * lanes],
            pair_sets: PairSets::new(streams),
            signals: HashMap::new(),
            is_waiting: vec![false; ranks],
            together: Vec::new(),
            blocks: 0,
        };
        // Taken from the end: the lowest rank first.
        (0..ranks).rev().for_each(|rank| matching.issue(rank));
        matching
    }

    /// Issues the instructions of `rank` that wait for none of its heads.
    pub(super) fn issue(&mut self, rank: usize) {
        if self.lanes == 1 {
            return self.issue_in_order(rank);
        }
        while let Some(claim) = self.waiting[rank].take().or_else(|| self.next_claim(rank)) {
            if self.blockers(rank, &claim).next().is_some() {
                self.waiting[rank] = Some(claim);
                return;
            }
            let index = self.next[rank];
            let stream = rank * self.lanes + usize::from(self.job.instruction(rank, index).lane);
            self.heads[stream] = Some((index, claim));
            self.next[rank] += 1;
            self.fresh.push(stream);
        }
    }

    /// As [`issue`](Self::issue), with one lane: each instruction waits for the one before.
    fn issue_in_order(&mut self, rank: usize) {
        if self.heads[rank].is_some() {
            return;
        }
        if let Some(claim) = self.next_claim(rank) {
            self.heads[rank] = Some((self.next[rank], claim));
            self.next[rank] += 1;
            self.fresh.push(rank);
        }
    }

    /// Returns what the instruction of `rank` that is to be issued next occupies.
    fn next_claim(&mut self, rank: usize) -> Option<Claim> {
        let index = *self.next.get(rank)?;
        (index < self.job.programs.get(rank)?.instructions.len()).then(|| self.claims.claim(rank, index))
    }

    /// Returns the streams of `rank` whose heads the instruction with `claim`, which was not issued, waits for.
    pub(super) fn blockers(&self, rank: usize, claim: &Claim) -> impl Iterator<Item = usize> {
        let of_rank = rank * self.lanes..(rank + 1) * self.lanes;
        of_rank.filter(|stream| self.heads[*stream].as_ref().is_some_and(|(_, earlier)| claim.waits_for(earlier)))
    }

    pub(super) fn head(&self, stream: usize) -> Option<Head<'a>> {
        let index = self.heads.get(stream)?.as_ref()?.0;
        let instruction = self.job.programs.get(self.rank_of(stream))?.instructions.get(index)?;
        Some(Head { index, instruction })
    }

    pub(super) fn rank_of(&self, stream: usize) -> usize {
        stream / self.lanes
    }

    /// The stream of `rank` in the lane of `stream`.
    pub(super) fn beside(&self, stream: usize, rank: usize) -> usize {
        rank * self.lanes + stream % self.lanes
    }

    /// Checks a new head of `stream`, or one whose signal has changed. If instructions can run now, puts their streams into
    /// `together` and returns true.
    pub(super) fn arrive(&mut self, stream: usize, head: Head<'a>) -> Result<bool, Refusal> {
        let operation = head.instruction.operation;
        if is_collective(operation) {
            return self.arrive_at_collective(stream, head);
        }
        if is_paired(operation) {
            return self.arrive_at_pair(stream, head);
        }
        let rank = self.rank_of(stream);
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
        self.together.push(stream);
        Ok(true)
    }

    fn put_signal(&mut self, rank: usize, instruction: &Instruction) {
        let Some((peer, signal)) = self.job.signal_of_put(rank, instruction) else { return };
        let signal = self.signals.entry((peer, signal)).or_default();
        *signal = signal.saturating_add(instruction.signal_value.into());
        if std::mem::take(&mut self.is_waiting[peer]) {
            // What waits for a signal runs alone, in lane 0.
            self.fresh.push(peer * self.lanes);
        }
    }

    fn arrive_at_collective(&mut self, stream: usize, head: Head<'a>) -> Result<bool, Refusal> {
        let rank = self.rank_of(stream);
        let Some(membership) = self.job.membership(rank, head.instruction) else { return Ok(true) };
        let ranks = &membership.roster.ranks;
        if let Some(absent) = membership.roster.absent {
            return Err(no_program(rank, head, absent));
        }
        let place = membership.index * self.lanes + stream % self.lanes;
        let arrivals = &self.arrivals[place];
        let differs = arrivals.count > 0
            && self
                .head(arrivals.first)
                .is_some_and(|first| self.difference(head.instruction, first.instruction).is_some());
        let arrivals = &mut self.arrivals[place];
        if arrivals.count == 0 {
            arrivals.first = stream;
        }
        arrivals.differ |= differs;
        arrivals.count += 1;
        if arrivals.count < ranks.len() {
            return Ok(false);
        }
        if arrivals.differ {
            return Err(self.disagreement(place));
        }
        *arrivals = Arrivals::default();
        if takes_tables(head.instruction.operation) {
            let members = ranks.len() as u64;
            let is_all_to_all = matches!(head.instruction.operation, Operation::Allgatherv | Operation::Alltoallv);
            self.blocks += if is_all_to_all { members * members } else { members };
            if self.blocks > BLOCKS_MAX {
                let refusal = too_long("BLOCKS_MAX", BLOCKS_MAX, "comparisons of blocks of vector forms");
                return Err(refusal.located(rank, head.index));
            }
            self.check_blocks(&membership, stream)?;
        }
        let lanes = self.lanes;
        self.together.extend(ranks.iter().flatten().map(|rank| rank * lanes + stream % lanes));
        Ok(true)
    }

    /// Refuses a vector form if the two ends of a block have different lengths, and names the rank with the most differences. All
    /// members have arrived.
    fn check_blocks(&self, membership: &Membership<'_>, stream: usize) -> Result<(), Refusal> {
        let of_rank = |own: u32| {
            let rank = membership.program_rank(own)?;
            let head = self.head(self.beside(stream, rank))?;
            lengths(head.instruction, &self.job.context_in(rank, &Membership { own, ..*membership }))
        };
        let ranks = membership.roster.nodes.len() as u32;
        // A table that is missing or does not fit is refused with its instruction.
        let Some(all) = (0..ranks).map(of_rank).collect::<Option<Vec<_>>>() else { return Ok(()) };
        let Some(Head { instruction, .. }) = self.head(stream) else { return Ok(()) };
        let (operation, id, root) = (instruction.operation, instruction.communicator, u32::from(instruction.root));
        let ends = |is_root: bool| if is_root { root..root + 1 } else { 0..ranks };
        let (senders, receivers) = (ends(operation == Operation::Scatterv), ends(operation == Operation::Gatherv));
        let mut mismatches: Vec<Block> = Vec::new();
        for from in senders {
            for to in receivers.clone() {
                let (sent, expected) = (all[from as usize][0].of(to), all[to as usize][1].of(from));
                if sent != expected && from != to {
                    mismatches.push(Block { from, to, sent, expected });
                }
            }
        }
        // The refusal names the rank with most differences; of two, the receiver.
        let mut count: HashMap<u32, usize> = HashMap::new();
        for rank in mismatches.iter().flat_map(|block| [block.from, block.to]) {
            *count.entry(rank).or_default() += 1;
        }
        let ends = mismatches.iter().flat_map(|block| [(block, block.to), (block, block.from)]);
        let Some((block, named)) = ends.rev().max_by_key(|(_, rank)| count.get(rank)) else { return Ok(()) };
        let rank = membership.program_rank(named).unwrap_or_default();
        let Some(head) = self.head(self.beside(stream, rank)) else { return Ok(()) };
        let Block { from, to, sent, expected } = block;
        let said = match named == *to {
            true => format!("expects {expected} B from rank {from} of communicator {id}, which sends {sent} B"),
            false => format!("sends {sent} B to rank {to} of communicator {id}, which expects {expected} B"),
        };
        let cause = format!("{operation} {said}; tables and lengths must agree");
        Err(Refusal::at(rank, head.index, cause).because(Reason::TableMismatch))
    }

    fn arrive_at_pair(&mut self, stream: usize, head: Head<'a>) -> Result<bool, Refusal> {
        let rank = self.rank_of(stream);
        let Some(membership) = self.job.membership(rank, head.instruction) else { return Ok(true) };
        let directions = directions(head.instruction, membership.own);
        self.pair_sets.arrive(stream, directions.iter().flatten().count());
        for (direction, partner) in directions.into_iter().flatten() {
            let Some(partner) = membership.program_rank(partner) else {
                return Err(no_program(rank, head, partner as usize));
            };
            let there = self.beside(stream, partner);
            if !self.pair_sets.is_here[there] || !self.meets(there, direction, &membership) {
                continue;
            }
            let Some(other) = self.head(there) else { continue };
            if let Some((reason, difference)) = self.difference(head.instruction, other.instruction) {
                // The refusal names the receiver.
                let said = [(rank, head), (partner, other)];
                let [(named, here), (partner, there)] =
                    if direction == Direction::In { said } else { [said[1], said[0]] };
                let cause = disagreement_between(here, partner, there, &self.in_order(here, there, difference));
                return Err(Refusal::at(named, here.index, cause).because(reason));
            }
            self.pair_sets.meet(stream, there);
        }
        Ok(self.pair_sets.leave(stream, &mut self.together))
    }

    /// Whether the head of stream `partner` is the other end of a transfer in `direction` of the member `membership`.
    pub(super) fn meets(&self, partner: usize, direction: Direction, membership: &Membership<'_>) -> bool {
        let Some(Head { instruction, .. }) = self.head(partner) else { return false };
        let Some(theirs) = self.job.membership(self.rank_of(partner), instruction) else { return false };
        let mut directions = directions(instruction, theirs.own).into_iter().flatten();
        theirs.index == membership.index && directions.any(|one| one.0 != direction && one.1 == membership.own)
    }

    /// Returns the first field in which two instructions that meet must not differ.
    fn difference(&self, one: &Instruction, two: &Instruction) -> Option<(Reason, [String; 2])> {
        let pair = |one: &dyn std::fmt::Display, two: &dyn std::fmt::Display| [one.to_string(), two.to_string()];
        if is_collective(one.operation) {
            if one.operation != two.operation {
                let said = pair(&one.operation, &two.operation).map(|name| format!("operation {name}"));
                return Some((Reason::OperationMismatch, said));
            }
            if one.form() != two.form() {
                let form = |one: &Instruction| one.form().map_or("no form", |form| form.name());
                let said = pair(&form(one), &form(two)).map(|form| format!("form {form}"));
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
        let [here, there] = [one, two].map(|one| is_rendezvous(one, self.job.capabilities));
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

    /// What the partners in a collective must have in common, besides the tag: equal if there is no [`difference`](Self::difference).
    fn in_common(&self, one: &Instruction) -> impl Eq + std::hash::Hash + use<> {
        let lengths = (!takes_tables(one.operation)).then_some((one.bytes, one.extent));
        let is_late = one.operation != Operation::Barrier && is_rendezvous(one, self.job.capabilities);
        (one.operation, one.form(), one.root, one.combine(), lengths, is_late)
    }

    /// Refuses the member that differs from most others, and names one of these.
    pub(super) fn disagreement(&self, place: usize) -> Refusal {
        let of_rank = |(stream, head)| (self.rank_of(stream), head);
        let here: Vec<(usize, Head<'_>)> = self.at_collective(place).map(of_rank).collect();
        let differs = |one: &Head<'_>, two: &Head<'_>| self.difference(one.instruction, two.instruction).is_some();
        // By tag, and of any tag.
        let mut counts = HashMap::new();
        for Head { instruction, .. } in here.iter().map(|(_, head)| head) {
            for tag in [None, Some(instruction.tag)] {
                *counts.entry((self.in_common(instruction), tag)).or_insert(0_usize) += 1;
            }
        }
        let count = |one: &Instruction, tag| counts.get(&(self.in_common(one), tag)).copied().unwrap_or(0);
        let agreed = |Head { instruction, .. }: &Head<'_>| match instruction.tag {
            0 => count(instruction, None),
            tag => count(instruction, Some(tag)) + count(instruction, Some(0)),
        };
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

    /// Returns the streams of members whose head is a collective on the communicator and in the lane of this place in
    /// [`arrivals`](Matching::arrivals).
    pub(super) fn at_collective(&self, place: usize) -> impl Iterator<Item = (usize, Head<'a>)> {
        let (roster, lane) = (place / self.lanes, place % self.lanes);
        let ranks = self.job.members.rosters[roster].ranks.iter().flatten().copied();
        ranks.filter_map(move |rank| {
            let stream = rank * self.lanes + lane;
            let head = self.head(stream).filter(|head| is_collective(head.instruction.operation))?;
            let membership = self.job.membership(rank, head.instruction)?;
            (membership.index == roster).then_some((stream, head))
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
