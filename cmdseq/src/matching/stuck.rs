//! Explains why programs stop: an instruction without a partner, a cycle, or a signal without puts.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use super::kinds::{Direction, directions, is_paired};
use super::members::Membership;
use super::progress::{Head, Matching};
use crate::instruction::is_collective;
use crate::refusal::{Reason, Refusal};
use crate::{Instruction, Operation};

/// Largest number of printed instructions of a cycle.
const PRINTED: usize = 16;

/// Explains why no further instruction can run.
///
/// # Errors
/// If a program has not ended, or a signal is not zero.
pub(super) fn check(matching: &Matching<'_>) -> Result<(), Refusal> {
    let Some(first) = (0..matching.programs.len()).find(|rank| matching.head(*rank).is_some()) else {
        return left(matching);
    };
    for (table, arrivals) in matching.arrivals.iter().enumerate() {
        if arrivals.differ {
            return Err(matching.disagreement(table));
        }
    }
    let stuck = Stuck { matching, left: Left::new(matching) };
    if let Some(refusal) = stuck.unmatched() {
        return Err(refusal);
    }
    Err(stuck.cycle(first))
}

/// Refuses signals that are not zero: they would release a later wait early.
fn left(matching: &Matching<'_>) -> Result<(), Refusal> {
    let left = matching.signals.iter().filter(|(_, value)| **value > 0).min_by_key(|(signal, _)| **signal);
    let Some(((rank, signal), value)) = left else { return Ok(()) };
    let (putter, index) = last_put(matching, *rank, *signal).unwrap_or((*rank, 0));
    let cause = format!(
        "put_signal adds to signal {signal} of rank {rank}, which is {value} at the end and would release a later wait \
         early; add a wait_signal on rank {rank}"
    );
    Err(Refusal::at(putter, index, cause).because(Reason::SignalLeft))
}

fn last_put(matching: &Matching<'_>, rank: usize, signal: u16) -> Option<(usize, usize)> {
    (0..matching.programs.len()).find_map(|putter| {
        let instructions = &matching.programs[putter].instructions;
        let index = instructions.iter().rposition(|one| puts_to(matching, putter, one, rank, signal))?;
        Some((putter, index))
    })
}

/// Whether `instruction` of rank `putter` adds to signal `signal` of rank `rank`.
fn puts_to(matching: &Matching<'_>, putter: usize, instruction: &Instruction, rank: usize, signal: u16) -> bool {
    signal_of(matching, putter, instruction) == Some((rank, signal))
}

/// The signal that `instruction` of rank `putter` adds to: rank of the programs, and number.
fn signal_of(matching: &Matching<'_>, putter: usize, instruction: &Instruction) -> Option<(usize, u16)> {
    if instruction.operation != Operation::PutSignal {
        return None;
    }
    let membership = matching.members.of(putter, instruction)?;
    Some((membership.program_rank(instruction.peer.into())?, instruction.signal_id))
}

/// The rests of the programs, indexed in one pass.
#[derive(Default)]
struct Left {
    /// Rank, and communicator of a collective.
    collectives: HashSet<(usize, usize)>,
    /// Rank, and a transfer with one other: communicator, direction, and the other's rank there.
    pairs: HashSet<(usize, usize, Direction, u32)>,
    /// Ranks that add to a signal.
    putters: HashMap<(usize, u16), BTreeSet<usize>>,
}

impl Left {
    fn new(matching: &Matching<'_>) -> Self {
        let mut left = Left::default();
        for (rank, program) in matching.programs.iter().enumerate() {
            for instruction in program.instructions.iter().skip(matching.next[rank]) {
                let Some(membership) = matching.members.of(rank, instruction) else { continue };
                if is_collective(instruction.operation) {
                    left.collectives.insert((rank, membership.index));
                }
                for (direction, partner) in directions(instruction, membership.own).into_iter().flatten() {
                    left.pairs.insert((rank, membership.index, direction, partner));
                }
                if let Some(signal) = signal_of(matching, rank, instruction) {
                    left.putters.entry(signal).or_default().insert(rank);
                }
            }
        }
        left
    }
}

struct Stuck<'m, 'a> {
    matching: &'m Matching<'a>,
    left: Left,
}

impl Stuck<'_, '_> {
    /// Returns the ranks that `rank`'s head waits for; none if it has all its partners.
    fn waits_for(&self, rank: usize) -> Vec<usize> {
        let matching = self.matching;
        let Some(head) = matching.head(rank) else { return Vec::new() };
        let operation = head.instruction.operation;
        if operation == Operation::WaitSignal {
            let putters = self.left.putters.get(&(rank, head.instruction.signal_id));
            return putters.into_iter().flatten().copied().collect();
        }
        let Some(membership) = matching.members.of(rank, head.instruction) else { return Vec::new() };
        if is_collective(operation) {
            let is_here: HashSet<usize> = matching.at_collective(membership.index).map(|(rank, _)| rank).collect();
            let all = membership.table.ranks.iter().flatten().copied();
            return all.filter(|rank| !is_here.contains(rank)).collect();
        }
        let directions = directions(head.instruction, membership.own).into_iter().flatten();
        directions
            .filter_map(|(direction, partner)| {
                let partner = membership.program_rank(partner)?;
                (!matching.meets(partner, direction, &membership)).then_some(partner)
            })
            .collect()
    }

    /// Whether the rest of `partner`'s program has a partner for `rank`'s head.
    fn comes_later(&self, rank: usize, partner: usize) -> bool {
        let matching = self.matching;
        let Some(head) = matching.head(rank) else { return true };
        let Some(membership) = matching.members.of(rank, head.instruction) else { return true };
        if is_collective(head.instruction.operation) {
            return self.left.collectives.contains(&(partner, membership.index));
        }
        let needed = directions(head.instruction, membership.own).into_iter().flatten();
        needed.filter(|(_, other)| membership.program_rank(*other) == Some(partner)).all(|(direction, _)| {
            self.left.pairs.contains(&(partner, membership.index, direction.back(), membership.own))
        })
    }

    /// Returns a rank whose program has no partner for the head of `rank`.
    fn missing(&self, rank: usize) -> Option<usize> {
        self.waits_for(rank).into_iter().find(|partner| {
            let is_signal =
                self.matching.head(rank).is_some_and(|head| head.instruction.operation == Operation::WaitSignal);
            !is_signal && !self.comes_later(rank, *partner)
        })
    }

    /// Refuses an instruction without a partner, unless it only waits for another such instruction.
    fn unmatched(&self) -> Option<Refusal> {
        let ranks = 0..self.matching.programs.len();
        if let Some(refusal) = ranks.clone().find_map(|rank| self.no_signal(rank)) {
            return Some(refusal);
        }
        let mut rank = ranks.clone().find(|rank| self.missing(*rank).is_some())?;
        let mut seen = vec![rank];
        while let Some(next) = self.missing(rank)
            && self.missing(next).is_some()
            && !seen.contains(&next)
        {
            rank = next;
            seen.push(rank);
        }
        let partner = self.missing(rank)?;
        let head = self.matching.head(rank)?;
        let operation = head.instruction.operation;
        let id = head.instruction.communicator;
        let other = self.matching.head(partner);
        if let Some(other) = other.filter(|other| self.would_meet(rank, head, partner, *other)) {
            let cause = format!(
                "{operation} on communicator {id} does not meet instruction {} of rank {partner} ({}), which is on \
                 communicator {}; all partners must name the same",
                other.index, other.instruction.operation, other.instruction.communicator
            );
            return Some(Refusal::at(rank, head.index, cause).because(Reason::CommunicatorMismatch));
        }
        let there = match other {
            Some(other) => format!("rank {partner} is at instruction {} ({})", other.index, shown(other.instruction)),
            None => format!("the program of rank {partner} has ended"),
        };
        let needed = match operation {
            Operation::Send => format!("rank {partner} has no further recv from this rank"),
            Operation::Recv | Operation::RecvReduce => format!("rank {partner} has no further send to this rank"),
            _ if is_paired(operation) => format!("rank {partner} has no further matching instruction"),
            _ => format!("member rank {partner} has no further collective on communicator {id}"),
        };
        let cause = format!("{} has no partner: {needed}; {there}", shown(head.instruction));
        Some(Refusal::at(rank, head.index, cause).because(Reason::Unmatched))
    }

    /// Refuses a wait whose signal has no further put.
    fn no_signal(&self, rank: usize) -> Option<Refusal> {
        let head = self.matching.head(rank).filter(|head| head.instruction.operation == Operation::WaitSignal)?;
        if !self.waits_for(rank).is_empty() {
            return None;
        }
        let Instruction { signal_id, signal_value, .. } = head.instruction;
        let there = self.matching.signals.get(&(rank, *signal_id)).copied().unwrap_or(0);
        let cause = format!(
            "wait_signal never ends: it waits for {signal_value} of signal {signal_id}, which is {there}, and no put_signal to it \
             follows"
        );
        Some(Refusal::at(rank, head.index, cause).because(Reason::NoSignal))
    }

    /// Whether two heads would meet on the same communicator.
    fn would_meet(&self, rank: usize, head: Head<'_>, partner: usize, other: Head<'_>) -> bool {
        let members = self.matching.members;
        let (one, two) = (head.instruction, other.instruction);
        let (Some(mine), Some(theirs)) = (members.of(rank, one), members.of(partner, two)) else { return false };
        if mine.index == theirs.index {
            return false;
        }
        if is_collective(one.operation) {
            return one.operation == two.operation && theirs.table.ranks.contains(&Some(rank));
        }
        directions_to(one, mine, partner)
            .any(|direction| directions_to(two, theirs, rank).any(|other| other == direction.back()))
    }

    /// Finds a cycle of waiting ranks, from `first` on.
    fn cycle(&self, first: usize) -> Refusal {
        let mut path: Vec<usize> = Vec::new();
        let mut at = first;
        while !path.contains(&at) {
            path.push(at);
            at = self.waits_for(at).first().copied().unwrap_or_else(|| self.held_up_by(at));
        }
        let start = path.iter().position(|rank| *rank == at).unwrap_or(0);
        let mut cycle = path.split_off(start);
        let lowest = cycle.iter().enumerate().min_by_key(|(_, rank)| **rank).map_or(0, |(place, _)| place);
        cycle.rotate_left(lowest);
        let mut text = String::from("deadlock: ");
        for (place, rank) in cycle.iter().take(PRINTED).enumerate() {
            let link = match place {
                0 => "",
                1 => " waits for ",
                _ => ", which waits for ",
            };
            let _ = write!(text, "{link}{}", self.named(*rank));
        }
        if cycle.len() > PRINTED {
            let _ = write!(text, ", and so on through {} more", cycle.len() - PRINTED);
        }
        let _ = write!(text, ", which waits for {}", cycle.first().map_or(String::new(), |rank| self.named(*rank)));
        text += "; change the order of one of them";
        match cycle.first().and_then(|rank| Some((*rank, self.matching.head(*rank)?))) {
            Some((rank, head)) => Refusal::at(rank, head.index, text),
            None => Refusal::general(text),
        }
        .because(Reason::Deadlock)
    }

    /// Returns a waiting rank of the set of `rank`, which has all its own partners.
    fn held_up_by(&self, rank: usize) -> usize {
        let circle = &self.matching.meeting.circle;
        let together = std::iter::successors(Some(rank), |at| circle.get(*at).copied()).take(circle.len());
        together.into_iter().find(|at| !self.waits_for(*at).is_empty()).unwrap_or(rank)
    }

    fn named(&self, rank: usize) -> String {
        match self.matching.head(rank) {
            Some(head) => format!("rank {rank} instruction {} ({})", head.index, shown(head.instruction)),
            None => format!("rank {rank}"),
        }
    }
}

/// Returns the directions of transfers between `instruction`, of `membership`'s rank, and program rank `other`.
fn directions_to(
    instruction: &Instruction,
    membership: Membership<'_>,
    other: usize,
) -> impl Iterator<Item = Direction> {
    let all = directions(instruction, membership.own).into_iter().flatten();
    all.filter(move |(_, partner)| membership.program_rank(*partner) == Some(other)).map(|(direction, _)| direction)
}

/// Formats an instruction with its partners for a message.
fn shown(instruction: &Instruction) -> String {
    let Instruction { operation, peer, root, signal_id, .. } = instruction;
    match operation {
        Operation::Send => format!("send to {peer}"),
        Operation::Recv | Operation::RecvReduce => format!("{operation} from {peer}"),
        Operation::Sendrecv | Operation::SendrecvReduce => format!("{operation} to {peer}, from {root}"),
        Operation::WaitSignal => format!("wait_signal {signal_id}"),
        _ => operation.to_string(),
    }
}
