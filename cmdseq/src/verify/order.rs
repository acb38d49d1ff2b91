//! What is over when an instruction begins: vector clocks over the instructions of all ranks.
//!
//! An instruction that moves bytes to or from another card, or a barrier, ends after the other one's instruction has begun,
//! and so after all that the other rank ran before. A wait for a signal ends after the puts that it cannot do without.

use std::collections::HashMap;

use crate::matching::{Members, Membership};
use crate::plan::Program;
use crate::ranges::transfers;
use crate::{Capabilities, Instruction, Operation};

/// A signal: rank of the programs, and number.
type Signal = (usize, u16);

/// How many instructions of each rank are over when the next one of a rank begins.
#[derive(Debug)]
pub(super) struct Clocks {
    ranks: usize,
    /// By rank, then by the rank that is known of.
    over: Vec<u32>,
    /// Of instructions that end together: what was over when they began.
    before: Vec<u32>,
}

impl Clocks {
    pub(super) fn new(ranks: usize) -> Self {
        Clocks { ranks, over: vec![0; ranks * ranks], before: Vec::new() }
    }

    /// What is over when `rank`'s next instruction begins.
    pub(super) fn of(&self, rank: usize) -> &[u32] {
        &self.over[rank * self.ranks..][..self.ranks]
    }

    fn of_mut(&mut self, rank: usize) -> &mut [u32] {
        &mut self.over[rank * self.ranks..][..self.ranks]
    }

    /// Whether instruction `index` of `other` is over when `rank`'s next one begins.
    pub(super) fn is_over(&self, other: usize, index: usize, rank: usize) -> bool {
        other == rank || self.of(rank)[other] as usize > index
    }

    /// `rank` knows all that `known` says.
    fn learn(&mut self, rank: usize, known: &[u32]) {
        join(self.of_mut(rank), known);
    }

    /// Instruction `index` of `rank` has ended.
    fn end(&mut self, rank: usize, index: usize) {
        self.of_mut(rank)[rank] = index as u32 + 1;
    }

    /// Instructions that run together have ended.
    pub(super) fn end_together(
        &mut self,
        together: &[(usize, usize)],
        programs: &[Program],
        members: &Members,
        capabilities: &Capabilities,
    ) {
        if let [(rank, index)] = together {
            return self.end(*rank, *index);
        }
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        together.iter().for_each(|(rank, _)| before.extend_from_slice(self.of(*rank)));
        let began = |place: usize| &before[place * self.ranks..][..self.ranks];
        let first = together.first().map(|(rank, index)| &programs[*rank].instructions[*index]);
        if first.is_some_and(meets_all) {
            let mut all = began(0).to_vec();
            (1..together.len()).for_each(|place| join(&mut all, began(place)));
            together.iter().for_each(|(rank, _)| self.learn(*rank, &all));
        } else {
            for (place, (rank, index)) in together.iter().enumerate() {
                let instruction = &programs[*rank].instructions[*index];
                let Some(membership) = members.of(*rank, instruction) else { continue };
                for partner in partners(instruction, &membership, &programs[*rank], capabilities) {
                    let Ok(other) = together.binary_search_by_key(&partner, |(rank, _)| *rank) else { continue };
                    let (began_here, began_there) = (began(place), began(other));
                    join(&mut self.over[*rank * self.ranks..][..self.ranks], began_there);
                    join(&mut self.over[partner * self.ranks..][..self.ranks], began_here);
                }
            }
        }
        together.iter().for_each(|(rank, index)| self.end(*rank, *index));
        self.before = before;
    }
}

fn join(into: &mut [u32], from: &[u32]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = (*into).max(*from));
}

/// Whether every two members exchange something.
fn meets_all(instruction: &Instruction) -> bool {
    use Operation::{Allgather, Allreduce, Alltoall, Barrier, ReduceScatter};
    match instruction.operation {
        Barrier => true,
        Alltoall | Allgather | Allreduce | ReduceScatter => instruction.bytes > 0 && instruction.extent == 0,
        _ => false,
    }
}

/// Ranks of the programs to which an instruction sends something. What is empty is not waited for.
fn partners(
    instruction: &Instruction,
    membership: &Membership<'_>,
    program: &Program,
    capabilities: &Capabilities,
) -> Vec<usize> {
    let moved = transfers(instruction, &membership.context(&program.tables, capabilities)).unwrap_or_default();
    moved.sends.iter().filter_map(|send| membership.program_rank(send.peer_rank)).collect()
}

/// One put, as the waits for its signal see it.
#[derive(Debug)]
struct Put {
    rank: usize,
    index: usize,
    /// Values of this and all earlier puts of the same rank to the same signal.
    sum: u64,
}

/// What is added to one signal.
#[derive(Debug, Default)]
struct Puts {
    /// By rank of the putter, then in order.
    by_rank: Vec<(usize, Vec<Put>)>,
    waited: u64,
    /// What every put knew when it was over, one behind the other; of those that have ended.
    knew: HashMap<(usize, usize), Box<[u32]>>,
}

/// Puts and waits of all signals.
#[derive(Debug, Default)]
pub(super) struct Signals {
    puts: HashMap<Signal, Puts>,
    /// From an earlier run: how many instructions of the waiting rank are over when a put begins, by rank and index.
    seen: HashMap<(usize, usize), u32>,
    /// The same, of this run.
    seeing: HashMap<(usize, usize), u32>,
}

impl Signals {
    /// Finds all puts.
    pub(super) fn new(programs: &[Program], members: &Members) -> Self {
        let mut signals = Signals::default();
        for (rank, program) in programs.iter().enumerate() {
            for (index, instruction) in program.instructions.iter().enumerate() {
                let Some(signal) = signal_of_put(rank, instruction, members) else { continue };
                let puts = &mut signals.puts.entry(signal).or_default().by_rank;
                if puts.last().is_none_or(|last| last.0 != rank) {
                    puts.push((rank, Vec::new()));
                }
                let Some((_, puts)) = puts.last_mut() else { continue };
                let sum = puts.last().map_or(0, |put| put.sum).saturating_add(instruction.signal_value.into());
                puts.push(Put { rank, index, sum });
            }
        }
        signals
    }

    /// Whether several ranks add to one signal: then a second run may know more.
    pub(super) fn are_shared(&self) -> bool {
        self.puts.values().any(|puts| puts.by_rank.len() > 1)
    }

    /// A signal to which more is added than 32 bits hold, the last rank that does, and where.
    pub(super) fn overflow(&self) -> Option<(Signal, usize, usize)> {
        let total = |puts: &Puts| {
            let sums = puts.by_rank.iter().filter_map(|(_, puts)| puts.last().map(|put| put.sum));
            sums.fold(0_u64, u64::saturating_add)
        };
        let over = self.puts.iter().filter(|(_, puts)| total(puts) > u64::from(u32::MAX)).min_by_key(|(it, _)| **it)?;
        let (_, puts) = over.1.by_rank.last()?;
        let last = puts.last()?;
        Some((*over.0, last.rank, last.index))
    }

    /// Begins anew with what was learned.
    pub(super) fn again(&mut self) {
        self.seen = std::mem::take(&mut self.seeing);
        for puts in self.puts.values_mut() {
            puts.waited = 0;
            puts.knew.clear();
        }
    }

    /// A put is about to end: what is known behind it.
    pub(super) fn put(&mut self, (rank, index): (usize, usize), signal: Signal, clocks: &Clocks) {
        let mut knew: Box<[u32]> = clocks.of(rank).into();
        self.seeing.insert((rank, index), knew[signal.0]);
        knew[rank] = index as u32 + 1;
        if let Some(puts) = self.puts.get_mut(&signal) {
            puts.knew.insert((rank, index), knew);
        }
    }

    /// A wait is about to end: its rank learns what the puts knew that must have come before.
    pub(super) fn wait(&mut self, (rank, index): (usize, usize), instruction: &Instruction, clocks: &mut Clocks) {
        let Some(puts) = self.puts.get_mut(&(rank, instruction.signal_id)) else { return };
        puts.waited = puts.waited.saturating_add(instruction.signal_value.into());
        // Those of each rank that may come before the wait ends: not those that are known to begin behind it.
        let may_come = |of: &[Put]| {
            of.partition_point(|put| self.seen.get(&(put.rank, put.index)).is_none_or(|seen| *seen as usize <= index))
        };
        let sum = |of: &[Put], count: usize| count.checked_sub(1).map_or(0, |last| of[last].sum);
        let most: u64 = puts.by_rank.iter().map(|(_, of)| sum(of, may_come(of))).fold(0, u64::saturating_add);
        let spare = most.saturating_sub(puts.waited);
        for (_, of) in &puts.by_rank {
            let count = may_come(of);
            // Without a put there are neither it nor those behind it: it came if the rest is not enough.
            let needed = sum(of, count).saturating_sub(spare);
            let came = of[..count].partition_point(|put| put.sum < needed);
            let Some(put) = of.get(came).filter(|_| needed > 0) else { continue };
            if let Some(knew) = puts.knew.get(&(put.rank, put.index)) {
                clocks.learn(rank, knew);
            }
        }
    }
}

/// The signal that an instruction of `rank` adds to.
pub(super) fn signal_of_put(rank: usize, instruction: &Instruction, members: &Members) -> Option<Signal> {
    if instruction.operation != Operation::PutSignal {
        return None;
    }
    let peer = members.of(rank, instruction)?.program_rank(instruction.peer.into())?;
    Some((peer, instruction.signal_id))
}
