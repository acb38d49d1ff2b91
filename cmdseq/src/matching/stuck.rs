//! Why programs do not go on: an instruction without a partner, a cycle of waiting, or a signal that does not come.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use super::kinds::{Direction, directions, is_paired};
use super::members::Membership;
use super::progress::{Head, Matching};
use crate::instruction::is_collective;
use crate::refusal::{Reason, Refusal};
use crate::{Instruction, Operation};

/// Instructions of a cycle that are printed; of longer ones the first and how many there are.
const PRINTED: usize = 16;

/// Nothing goes on any more.
///
/// # Errors
/// Why, if some program has not ended or a signal is left.
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

/// Signals that nothing waits for would let a later program through early.
fn left(matching: &Matching<'_>) -> Result<(), Refusal> {
    let left = matching.signals.iter().filter(|(_, value)| **value > 0).min_by_key(|(signal, _)| **signal);
    let Some(((rank, signal), value)) = left else { return Ok(()) };
    let (putter, index) = last_put(matching, *rank, *signal).unwrap_or((*rank, 0));
    let cause = format!(
        "put_signal adds to signal {signal} of rank {rank}, of which {value} are left at the end; a later program would \
         take them for its own, so rank {rank} has to wait for them"
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

/// What is in the rests of the programs, found in one pass.
#[derive(Default)]
struct Left {
    /// Rank of the programs, and the communicator of a collective.
    collectives: HashSet<(usize, usize)>,
    /// Rank of the programs, and of what it exchanges with one other: communicator, direction, and the other's rank there.
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
    /// The ranks that `rank`'s head waits for; none if it has all that it needs itself.
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

    /// Whether what is left of `partner`'s program has what `rank`'s head needs there.
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

    /// The partner that will never be where `rank` needs it.
    fn missing(&self, rank: usize) -> Option<usize> {
        self.waits_for(rank).into_iter().find(|partner| {
            let is_signal =
                self.matching.head(rank).is_some_and(|head| head.instruction.operation == Operation::WaitSignal);
            !is_signal && !self.comes_later(rank, *partner)
        })
    }

    /// An instruction that has no partner, and not because its partner has none either.
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
                "{operation} on communicator {id} does not fit instruction {} of rank {partner} ({}), which is on \
                 communicator {}; all that take part must name the same",
                other.index, other.instruction.operation, other.instruction.communicator
            );
            return Some(Refusal::at(rank, head.index, cause).because(Reason::CommunicatorMismatch));
        }
        let there = match other {
            Some(other) => format!("rank {partner} is at instruction {} ({})", other.index, shown(other.instruction)),
            None => format!("the program of rank {partner} has ended"),
        };
        let needed = match operation {
            Operation::Send => format!("no recv from here is left at rank {partner}"),
            Operation::Recv | Operation::RecvReduce => format!("no send to here is left at rank {partner}"),
            _ if is_paired(operation) => format!("nothing to go with it is left at rank {partner}"),
            _ => format!("no collective of communicator {id} is left at rank {partner}, which has to take part"),
        };
        let cause = format!("{} finds no partner: {needed}; {there}", shown(head.instruction));
        Some(Refusal::at(rank, head.index, cause).because(Reason::Unmatched))
    }

    /// A wait to which nothing can be added any more.
    fn no_signal(&self, rank: usize) -> Option<Refusal> {
        let head = self.matching.head(rank).filter(|head| head.instruction.operation == Operation::WaitSignal)?;
        if !self.waits_for(rank).is_empty() {
            return None;
        }
        let Instruction { signal_id, signal_value, .. } = head.instruction;
        let there = self.matching.signals.get(&(rank, *signal_id)).copied().unwrap_or(0);
        let cause = format!(
            "wait_signal waits for {signal_value} of signal {signal_id}, which is {there}, and no put_signal that adds to it is \
             left: it never ends"
        );
        Some(Refusal::at(rank, head.index, cause).because(Reason::NoSignal))
    }

    /// Whether two heads would go together but for their communicators.
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

    /// Follows who waits for whom until it comes back to where it was.
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
        text += "; one of them has to come in another order";
        match cycle.first().and_then(|rank| Some((*rank, self.matching.head(*rank)?))) {
            Some((rank, head)) => Refusal::at(rank, head.index, text),
            None => Refusal::general(text),
        }
        .because(Reason::Deadlock)
    }

    /// A rank that waits for another, and without which `rank` does not end although it has all that it needs itself.
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

/// In which directions `instruction`, of `membership`'s rank, exchanges something with rank `other` of the programs.
fn directions_to(
    instruction: &Instruction,
    membership: Membership<'_>,
    other: usize,
) -> impl Iterator<Item = Direction> {
    let all = directions(instruction, membership.own).into_iter().flatten();
    all.filter(move |(_, partner)| membership.program_rank(*partner) == Some(other)).map(|(direction, _)| direction)
}

/// An instruction as it is named in a sentence: with those it names.
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
