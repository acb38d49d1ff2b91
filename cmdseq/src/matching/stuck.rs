//! Explains why programs stop: an instruction without a partner, a cycle, or a signal without puts.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use super::job::{Job, Signal};
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
    let Some(first) = (0..matching.heads.len()).find(|stream| matching.head(*stream).is_some()) else {
        return left(matching);
    };
    for (place, arrivals) in matching.arrivals.iter().enumerate() {
        if arrivals.differ {
            return Err(matching.disagreement(place));
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
    let (putter, index) = last_put(matching.job, (*rank, *signal)).unwrap_or((*rank, 0));
    let cause = format!(
        "put_signal adds to signal {signal} of rank {rank}, which is {value} at the end and would release a later wait \
         early; add a wait_signal on rank {rank}"
    );
    Err(Refusal::at(putter, index, cause).because(Reason::SignalLeft))
}

/// Returns the lowest rank that adds to `signal`, and the index of its last instruction that does.
fn last_put(job: Job<'_>, signal: Signal) -> Option<(usize, usize)> {
    job.programs.iter().enumerate().find_map(|(putter, program)| {
        let index = program.instructions.iter().rposition(|one| job.signal_of_put(putter, one) == Some(signal))?;
        Some((putter, index))
    })
}

/// The heads and the rests of the programs, indexed in one pass.
#[derive(Default)]
struct Left {
    /// Stream, and communicator of a collective.
    collectives: HashSet<(usize, usize)>,
    /// Stream, and a transfer with one other: communicator, direction, and the other's rank there.
    pairs: HashSet<(usize, usize, Direction, u32)>,
    /// Streams that add to a signal.
    putters: HashMap<Signal, BTreeSet<usize>>,
}

impl Left {
    fn new(matching: &Matching<'_>) -> Self {
        let mut left = Left::default();
        for (rank, program) in matching.job.programs.iter().enumerate() {
            let streams = rank * matching.lanes..(rank + 1) * matching.lanes;
            let heads = streams.filter_map(|stream| matching.head(stream)).map(|head| head.instruction);
            for instruction in heads.chain(program.instructions.iter().skip(matching.next[rank])) {
                let Some(membership) = matching.job.membership(rank, instruction) else { continue };
                let stream = rank * matching.lanes + usize::from(instruction.lane);
                if is_collective(instruction.operation) {
                    left.collectives.insert((stream, membership.index));
                }
                for (direction, partner) in directions(instruction, membership.own).into_iter().flatten() {
                    left.pairs.insert((stream, membership.index, direction, partner));
                }
                if let Some(signal) = matching.job.signal_of_put(rank, instruction) {
                    left.putters.entry(signal).or_default().insert(stream);
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
    /// Returns the streams that `stream` waits for: partners of its head, if it has one, and else those that its rank's next
    /// instruction waits for. None if the head has all its partners.
    fn waits_for(&self, stream: usize) -> Vec<usize> {
        let matching = self.matching;
        let rank = matching.rank_of(stream);
        let Some(head) = matching.head(stream) else {
            let claim = matching.waiting.get(rank).and_then(Option::as_ref);
            return claim.map_or_else(Vec::new, |claim| matching.blockers(rank, claim).collect());
        };
        let operation = head.instruction.operation;
        if operation == Operation::WaitSignal {
            let putters = self.left.putters.get(&(rank, head.instruction.signal_id));
            return putters.into_iter().flatten().copied().collect();
        }
        let Some(membership) = matching.job.membership(rank, head.instruction) else { return Vec::new() };
        if is_collective(operation) {
            let place = membership.index * matching.lanes + stream % matching.lanes;
            let is_here: HashSet<usize> = matching.at_collective(place).map(|(stream, _)| stream).collect();
            let all = membership.roster.ranks.iter().flatten().map(|rank| matching.beside(stream, *rank));
            return all.filter(|stream| !is_here.contains(stream)).collect();
        }
        let directions = directions(head.instruction, membership.own).into_iter().flatten();
        directions
            .filter_map(|(direction, partner)| {
                let partner = matching.beside(stream, membership.program_rank(partner)?);
                (!matching.meets(partner, direction, &membership)).then_some(partner)
            })
            .collect()
    }

    /// Whether the rest of `partner`'s program has a partner for `stream`'s head.
    fn comes_later(&self, stream: usize, partner: usize) -> bool {
        let matching = self.matching;
        let Some(head) = matching.head(stream) else { return true };
        let Some(membership) = matching.job.membership(matching.rank_of(stream), head.instruction) else { return true };
        if is_collective(head.instruction.operation) {
            return self.left.collectives.contains(&(partner, membership.index));
        }
        let there = Some(matching.rank_of(partner));
        let needed = directions(head.instruction, membership.own).into_iter().flatten();
        needed.filter(|(_, other)| membership.program_rank(*other) == there).all(|(direction, _)| {
            self.left.pairs.contains(&(partner, membership.index, direction.back(), membership.own))
        })
    }

    /// Returns a stream that has no partner for the head of `stream`, now or later.
    fn missing(&self, stream: usize) -> Option<usize> {
        let head = self.matching.head(stream)?;
        if head.instruction.operation == Operation::WaitSignal {
            return None;
        }
        self.waits_for(stream).into_iter().find(|partner| !self.comes_later(stream, *partner))
    }

    /// Refuses an instruction without a partner, unless it only waits for another such instruction.
    fn unmatched(&self) -> Option<Refusal> {
        let matching = self.matching;
        let streams = 0..matching.heads.len();
        if let Some(refusal) = streams.clone().find_map(|stream| self.no_signal(stream)) {
            return Some(refusal);
        }
        let mut stream = streams.clone().find(|stream| self.missing(*stream).is_some())?;
        let mut seen = vec![stream];
        while let Some(next) = self.missing(stream)
            && self.missing(next).is_some()
            && !seen.contains(&next)
        {
            stream = next;
            seen.push(stream);
        }
        let partner = self.missing(stream)?;
        let head = matching.head(stream)?;
        let (rank, there) = (matching.rank_of(stream), matching.rank_of(partner));
        let operation = head.instruction.operation;
        let id = head.instruction.communicator;
        let other = matching.head(partner);
        if let Some(other) = other.filter(|other| self.would_meet((rank, head), (there, *other))) {
            let cause = format!(
                "{operation} on communicator {id} does not meet instruction {} of rank {there} ({}), which is on \
                 communicator {}; all partners must name the same",
                other.index, other.instruction.operation, other.instruction.communicator
            );
            return Some(Refusal::at(rank, head.index, cause).because(Reason::CommunicatorMismatch));
        }
        let lane = if matching.lanes > 1 { format!(" in lane {}", stream % matching.lanes) } else { String::new() };
        let needed = match operation {
            Operation::Send => format!("rank {there} has no further recv from this rank{lane}"),
            Operation::Recv | Operation::RecvReduce => format!("rank {there} has no further send to this rank{lane}"),
            _ if is_paired(operation) => format!("rank {there} has no further matching instruction{lane}"),
            _ => format!("member rank {there} has no further collective on communicator {id}{lane}"),
        };
        let lanes = there * matching.lanes..(there + 1) * matching.lanes;
        let state = match self.at(partner).or_else(|| lanes.into_iter().find_map(|stream| self.at(stream))) {
            Some((index, other)) => {
                format!("{} is at instruction {index} ({})", self.name(partner, other), shown(other))
            }
            None => format!("the program of rank {there} has ended"),
        };
        let cause = format!("{} has no partner: {needed}; {state}", shown(head.instruction));
        Some(Refusal::at(rank, head.index, cause).because(Reason::Unmatched))
    }

    /// Refuses a wait whose signal has no further put.
    fn no_signal(&self, stream: usize) -> Option<Refusal> {
        let matching = self.matching;
        let head = matching.head(stream).filter(|head| head.instruction.operation == Operation::WaitSignal)?;
        if !self.waits_for(stream).is_empty() {
            return None;
        }
        let rank = matching.rank_of(stream);
        let Instruction { signal_id, signal_value, .. } = head.instruction;
        let there = matching.signals.get(&(rank, *signal_id)).copied().unwrap_or(0);
        let cause = format!(
            "wait_signal never ends: it waits for {signal_value} of signal {signal_id}, which is {there}, and no put_signal to it \
             follows"
        );
        Some(Refusal::at(rank, head.index, cause).because(Reason::NoSignal))
    }

    /// Whether two heads would meet on the same communicator.
    fn would_meet(&self, (rank, head): (usize, Head<'_>), (partner, other): (usize, Head<'_>)) -> bool {
        let job = self.matching.job;
        let (one, two) = (head.instruction, other.instruction);
        let (Some(mine), Some(theirs)) = (job.membership(rank, one), job.membership(partner, two)) else {
            return false;
        };
        if mine.index == theirs.index {
            return false;
        }
        if is_collective(one.operation) {
            return one.operation == two.operation && theirs.roster.ranks.contains(&Some(rank));
        }
        directions_to(one, mine, partner)
            .any(|direction| directions_to(two, theirs, rank).any(|other| other == direction.back()))
    }

    /// Finds a cycle of waiting streams, from `first` on.
    fn cycle(&self, first: usize) -> Refusal {
        let mut path: Vec<usize> = Vec::new();
        let mut at = first;
        while !path.contains(&at) {
            path.push(at);
            at = self.waits_for(at).first().copied().unwrap_or_else(|| self.held_up_by(at));
        }
        let start = path.iter().position(|stream| *stream == at).unwrap_or(0);
        let mut cycle = path.split_off(start);
        let lowest = cycle.iter().enumerate().min_by_key(|(_, stream)| **stream).map_or(0, |(place, _)| place);
        cycle.rotate_left(lowest);
        let mut text = String::from("deadlock: ");
        for (place, stream) in cycle.iter().take(PRINTED).enumerate() {
            let link = match place {
                0 => "",
                1 => " waits for ",
                _ => ", which waits for ",
            };
            let _ = write!(text, "{link}{}", self.named(*stream));
        }
        if cycle.len() > PRINTED {
            let _ = write!(text, ", and so on through {} more", cycle.len() - PRINTED);
        }
        let _ = write!(text, ", which waits for {}", cycle.first().map_or(String::new(), |stream| self.named(*stream)));
        text += "; change the order of one of them";
        match cycle.first().and_then(|stream| Some((*stream, self.at(*stream)?))) {
            Some((stream, (index, _))) => Refusal::at(self.matching.rank_of(stream), index, text),
            None => Refusal::general(text),
        }
        .because(Reason::Deadlock)
    }

    /// Returns a waiting stream of the set of `stream`, which has all its own partners.
    fn held_up_by(&self, stream: usize) -> usize {
        let circle = &self.matching.pair_sets.circle;
        let together = std::iter::successors(Some(stream), |at| circle.get(*at).copied()).take(circle.len());
        together.into_iter().find(|at| !self.waits_for(*at).is_empty()).unwrap_or(stream)
    }

    /// Returns the head of `stream`, or the next instruction of its rank, which was not issued.
    fn at(&self, stream: usize) -> Option<(usize, &Instruction)> {
        let matching = self.matching;
        if let Some(Head { index, instruction }) = matching.head(stream) {
            return Some((index, instruction));
        }
        let rank = matching.rank_of(stream);
        let index = matching.next[rank];
        Some((index, matching.job.programs.get(rank)?.instructions.get(index)?))
    }

    /// Names the rank, and the lane if there are several, of an instruction of `stream`.
    fn name(&self, stream: usize, instruction: &Instruction) -> String {
        let (rank, lanes) = (self.matching.rank_of(stream), self.matching.lanes);
        if lanes == 1 { format!("rank {rank}") } else { format!("rank {rank} lane {}", instruction.lane) }
    }

    fn named(&self, stream: usize) -> String {
        match self.at(stream) {
            Some((index, it)) => format!("{} instruction {index} ({})", self.name(stream, it), shown(it)),
            None => format!("rank {}", self.matching.rank_of(stream)),
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
