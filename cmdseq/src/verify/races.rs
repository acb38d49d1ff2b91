//! Whether one-sided transfers leave alone what others use at the same time.
//!
//! Only rdma_read, rdma_write and put_signal touch the memory of a card that runs something else. Memory that they touch is
//! kept as a map of ranges with who wrote each last and who has read it since. Programs are taken in an order in which they
//! can run, so a range was used before only by what is over, or by what nothing orders with the new use.

use std::collections::BTreeMap;

use super::order::{Clocks, Signals, signal_of_put};
use super::refusal::{Reason, Refusal};
use crate::matching::{Matching, Members, is_one_sided};
use crate::plan::Program;
use crate::ranges::{Context, Range, card_ranges, transfers};
use crate::table::Tables;
use crate::{Capabilities, Instruction, Operation};

/// Runs after the first in which what is known of shared signals may grow.
pub(super) const MORE_RUNS: usize = 3;

/// Who uses a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    rank: usize,
    index: usize,
    is_write: bool,
}

/// What was done with a range.
#[derive(Debug, Clone, Default)]
struct Past {
    end: u64,
    write: Option<Use>,
    /// Since the write: the last of each rank.
    reads: Vec<Use>,
}

/// Memory of one card, as far as other cards touch it.
#[derive(Debug, Default)]
struct Shadow {
    /// All that other cards ever touch of it lies in here.
    touched: Option<(u64, u64)>,
    /// By where a range begins.
    ranges: BTreeMap<u64, Past>,
}

/// Two uses of a range that nothing orders.
struct Conflict {
    earlier: Use,
    address: u64,
}

pub(super) struct Races<'a> {
    programs: &'a [Program],
    members: &'a Members,
    capabilities: &'a Capabilities,
    clocks: Clocks,
    memory: Vec<Shadow>,
    /// Ranges that are looked at.
    list: Vec<(Range, bool)>,
}

impl<'a> Races<'a> {
    /// Takes the programs to their ends, with their one-sided transfers.
    ///
    /// # Errors
    /// As [`Matching::step`]; and a race, a use before a signal, or an overflow of one.
    pub(super) fn check(
        programs: &'a [Program],
        members: &'a Members,
        capabilities: &'a Capabilities,
    ) -> Result<(), Refusal> {
        let mut signals = Signals::new(programs, members);
        if let Some(((rank, signal), putter, index)) = signals.overflow() {
            let cause = format!(
                "put_signal: together more is added to signal {signal} of rank {rank} than its 32 bits hold ({})",
                u32::MAX
            );
            return Err(Refusal::at(putter, index, cause).because(Reason::SignalOverflow));
        }
        let mut runs = if signals.are_shared() { MORE_RUNS } else { 0 };
        loop {
            let mut races = Races {
                programs,
                members,
                capabilities,
                clocks: Clocks::new(programs.len()),
                memory: Vec::new(),
                list: Vec::new(),
            };
            races.memory.resize_with(programs.len(), Shadow::default);
            races.find_touched();
            match races.run(&mut signals)? {
                Some(_) if runs > 0 => runs -= 1,
                Some(refusal) => return Err(refusal),
                None => return Ok(()),
            }
            signals.again();
        }
    }

    /// Notes which memory one-sided transfers touch: nothing else can race.
    fn find_touched(&mut self) {
        for (rank, program) in self.programs.iter().enumerate() {
            for instruction in program.instructions.iter().filter(|one| is_one_sided(one.operation)) {
                let Some((peer, range)) = self.remote(rank, instruction, &program.tables) else { continue };
                let touched = self.memory[peer].touched.get_or_insert((range.address, range.end()));
                *touched = (touched.0.min(range.address), touched.1.max(range.end()));
            }
        }
    }

    /// The rank of the programs whose memory is touched, and where.
    fn remote(&self, rank: usize, instruction: &Instruction, tables: &Tables) -> Option<(usize, Range)> {
        let membership = self.members.of(rank, instruction)?;
        let moved = transfers(instruction, &membership.context(tables, self.capabilities)).ok()?;
        let remote = moved.remote?;
        let peer = membership.program_rank(remote.peer_rank)?;
        Some((peer, Range { address: remote.address, bytes: remote.bytes }))
    }

    /// The refusal comes as a value if another run may do without.
    fn run(&mut self, signals: &mut Signals) -> Result<Option<Refusal>, Refusal> {
        let mut found = None;
        let mut matching = Matching::new(self.programs, self.members, self.capabilities);
        let mut together = Vec::new();
        while matching.step_into(&mut together)? {
            for (rank, index) in together.iter().copied() {
                if found.is_none() {
                    found = self.uses(rank, index);
                }
                let instruction = &self.programs[rank].instructions[index];
                if let Some(signal) = signal_of_put(rank, instruction, self.members) {
                    signals.put((rank, index), signal, &self.clocks);
                }
                if instruction.operation == Operation::WaitSignal {
                    signals.wait((rank, index), instruction, &mut self.clocks);
                }
            }
            self.clocks.end_together(&together, self.programs, self.members, self.capabilities);
        }
        Ok(found)
    }

    /// All that instruction `index` of `rank` does to memory that others touch.
    fn uses(&mut self, rank: usize, index: usize) -> Option<Refusal> {
        let program = &self.programs[rank];
        let instruction = &program.instructions[index];
        if is_one_sided(instruction.operation)
            && let Some((peer, range)) = self.remote(rank, instruction, &program.tables)
        {
            let is_write = instruction.operation != Operation::RdmaRead;
            let conflict = self.memory[peer].add(range, Use { rank, index, is_write }, &self.clocks);
            if let Some(conflict) = conflict {
                return Some(self.refusal(peer, Use { rank, index, is_write }, &conflict));
            }
        }
        let touched = self.memory[rank].touched?;
        let alone =
            Context { rank: 0, ranks: 1, stripe_bytes: self.capabilities.stripe_bytes(), tables: &program.tables };
        let context = self.members.of(rank, instruction);
        let context = context.map_or(alone, |one| one.context(&program.tables, self.capabilities));
        let ranges = card_ranges(instruction, &context).ok()?;
        self.list.clear();
        self.list.extend(ranges.reads.iter().map(|range| (*range, false)));
        self.list.extend(ranges.writes.iter().map(|range| (*range, true)));
        // What lies in place is read, if it is sent, and else left alone.
        self.list.extend(ranges.in_place.map(|range| (range, false)));
        for (range, is_write) in &self.list {
            if range.address >= touched.1 || range.end() <= touched.0 {
                continue;
            }
            let it = Use { rank, index, is_write: *is_write };
            if let Some(conflict) = self.memory[rank].add(*range, it, &self.clocks) {
                return Some(self.refusal(rank, it, &conflict));
            }
        }
        None
    }

    fn refusal(&self, card: usize, later: Use, conflict: &Conflict) -> Refusal {
        let operation = |it: Use| self.programs[it.rank].instructions[it.index].operation;
        let earlier = conflict.earlier;
        // Named is the one-sided one, whose author can know; or the user of what a put brings.
        let is_put = |it: Use| operation(it) == Operation::PutSignal && it.is_write;
        let is_local = |it: Use| it.rank == card && !is_put(it);
        let (named, other) = match (is_local(earlier), is_local(later)) {
            (true, false) => (later, earlier),
            _ => (earlier, later),
        };
        let verb = |it: Use| if it.is_write { "writes" } else { "reads" };
        let address = conflict.address;
        if is_put(named) && is_local(other) {
            let (put, user) = (named, other);
            let cause = format!(
                "{} {} {address:#x}, which instruction {} of rank {} (put_signal) writes, and no wait for its signal \
                 orders the two; a wait_signal has to come in between, or the put only after",
                operation(user),
                verb(user),
                put.index,
                put.rank
            );
            return Refusal::at(user.rank, user.index, cause).because(Reason::UseBeforeSignal);
        }
        let cause = format!(
            "{} {} {address:#x} of rank {card}, which instruction {} of rank {} ({}) {}, and nothing orders the two; a \
             barrier has to come in between",
            operation(named),
            verb(named),
            other.index,
            other.rank,
            operation(other),
            verb(other),
        );
        Refusal::at(named.rank, named.index, cause).because(Reason::Race)
    }
}

impl Past {
    /// An earlier use that `now` has to come behind and does not.
    fn conflict(&self, now: Use, clocks: &Clocks) -> Option<Use> {
        let is_loose = |one: &&Use| !clocks.is_over(one.rank, one.index, now.rank);
        let reads = if now.is_write { &self.reads[..] } else { &[] };
        self.write.iter().chain(reads).find(is_loose).copied()
    }

    fn note(&mut self, now: Use) {
        if now.is_write {
            self.write = Some(now);
            self.reads.clear();
            return;
        }
        match self.reads.iter_mut().find(|read| read.rank == now.rank) {
            Some(read) => *read = now,
            None => self.reads.push(now),
        }
    }
}

impl Shadow {
    /// Notes a use of `range`; the first conflict with what was before.
    fn add(&mut self, range: Range, now: Use, clocks: &Clocks) -> Option<Conflict> {
        let (mut at, end) = (range.address, range.end());
        if range.bytes == 0 {
            return None;
        }
        self.split(at);
        self.split(end);
        while at < end {
            let next = self.ranges.range_mut(at..end).next();
            match next {
                Some((start, past)) if *start == at => {
                    if let Some(earlier) = past.conflict(now, clocks) {
                        return Some(Conflict { earlier, address: at });
                    }
                    past.note(now);
                    at = past.end;
                }
                next => {
                    // Nothing was done here.
                    let until = next.map_or(end, |(start, _)| *start);
                    let mut past = Past { end: until, ..Past::default() };
                    past.note(now);
                    self.ranges.insert(at, past);
                    at = until;
                }
            }
        }
        self.join(range.address, end);
        None
    }

    /// Makes ranges begin at `at` that have it inside.
    fn split(&mut self, at: u64) {
        let Some((start, past)) = self.ranges.range_mut(..at).next_back() else { return };
        if past.end > at && *start < at {
            let upper = past.clone();
            past.end = at;
            self.ranges.insert(at, upper);
        }
    }

    /// Makes one range of those that a write has made alike.
    fn join(&mut self, start: u64, end: u64) {
        let Some(first) = self.ranges.get(&start) else { return };
        if !first.reads.is_empty() || first.end == end {
            return;
        }
        let write = first.write;
        let is_alike = |past: &Past| past.reads.is_empty() && past.write == write;
        if self.ranges.range(start..end).all(|(_, past)| is_alike(past)) {
            while let Some(next) = self.ranges.range(start + 1..end).next().map(|(at, _)| *at) {
                self.ranges.remove(&next);
            }
            if let Some(first) = self.ranges.get_mut(&start) {
                first.end = end;
            }
        }
    }
}
