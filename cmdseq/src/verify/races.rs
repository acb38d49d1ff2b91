//! Whether one-sided transfers leave alone what others use at the same time.
//!
//! Only rdma_read, rdma_write and put_signal touch the memory of a card that runs something else. Of memory that they touch,
//! a [`Shadow`] keeps who has used it. Programs are taken in an order in which they can run, so a range was used before only
//! by what is over, or by what nothing orders with the new use.

use super::limits::{COMPARED_MAX, USES_MAX, too_long};
use super::order::{Clocks, Signals, check_size, signal_of_put};
use super::shadow::{Conflict, Shadow, Use};
use super::spread::{Sides, Spans};
use crate::matching::{Matching, Members, is_one_sided};
use crate::program::Program;
use crate::ranges::{Context, Range, card_ranges, remote};
use crate::refusal::{Reason, Refusal};
use crate::table::Tables;
use crate::{Capabilities, Instruction, Layout, Operation};

/// Runs after the first in which what is known of shared signals may grow.
pub(super) const MORE_RUNS: usize = 3;

pub(super) struct Races<'a> {
    programs: &'a [Program],
    members: &'a Members,
    capabilities: &'a Capabilities,
    /// By rank.
    spans: &'a [Spans],
    clocks: Clocks,
    memory: Vec<Shadow>,
    /// Ranges that are looked at.
    list: Vec<(Range, bool)>,
    /// Uses that were noted.
    uses: usize,
    /// Ranges that were listed, and earlier uses that they were compared with.
    compared: u64,
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
        check_size(programs)?;
        let spans: Vec<Spans> = programs.iter().map(|program| Spans::new(&program.tables)).collect();
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
                spans: &spans,
                clocks: Clocks::new(programs.len()),
                memory: Vec::new(),
                list: Vec::new(),
                uses: 0,
                compared: 0,
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
        let there = remote(instruction, &membership.context(tables, self.capabilities)).ok()??;
        let peer = membership.program_rank(there.peer_rank)?;
        Some((peer, Range { address: there.address, bytes: there.bytes }))
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
                    signals.put(rank, signal, &self.clocks);
                }
                if instruction.operation == Operation::WaitSignal {
                    signals.wait((rank, index), instruction, &mut self.clocks);
                }
                signals.check_work()?;
                self.check_work()?;
            }
            self.clocks.end_together(&together, self.programs, self.members, self.capabilities);
        }
        Ok(found)
    }

    /// Refuses to go on when too much is kept or was compared.
    fn check_work(&self) -> Result<(), Refusal> {
        if self.uses > USES_MAX {
            return Err(too_long("USES_MAX", USES_MAX, "uses of memory that one-sided operations touch"));
        }
        if self.compared > COMPARED_MAX {
            return Err(too_long("COMPARED_MAX", COMPARED_MAX, "comparisons of uses of memory with earlier ones"));
        }
        Ok(())
    }

    /// Notes a use of the memory of `card`; the first conflict with what was before.
    fn add(&mut self, card: usize, range: Range, now: Use) -> Option<Conflict> {
        let memory = &mut self.memory[card];
        let before = memory.compared();
        let conflict = memory.add(range, now, &self.clocks);
        self.uses += 1;
        self.compared += memory.compared() - before;
        conflict
    }

    /// All that instruction `index` of `rank` does to memory that others touch.
    fn uses(&mut self, rank: usize, index: usize) -> Option<Refusal> {
        let program = &self.programs[rank];
        let instruction = &program.instructions[index];
        if is_one_sided(instruction.operation)
            && let Some((peer, range)) = self.remote(rank, instruction, &program.tables)
        {
            let is_write = instruction.operation != Operation::RdmaRead;
            let conflict = self.add(peer, range, Use { rank, index, is_write });
            if let Some(conflict) = conflict {
                return Some(self.refusal(peer, Use { rank, index, is_write }, &conflict));
            }
        }
        let touched = self.memory[rank].touched?;
        let alone =
            Context { rank: 0, ranks: 1, stripe_bytes: self.capabilities.stripe_bytes(), tables: &program.tables };
        let context = self.members.of(rank, instruction);
        let context = context.map_or(alone, |one| one.context(&program.tables, self.capabilities));
        let sides = Sides::of(instruction, &context, &self.spans[rank]);
        if sides.is_some_and(|sides| !sides.meet(touched)) {
            return None;
        }
        self.list_ranges(instruction, &context)?;
        let list = std::mem::take(&mut self.list);
        self.compared += list.len() as u64;
        let found = list.iter().find_map(|(range, is_write)| {
            let is_touched = range.address < touched.1 && range.end() > touched.0;
            let it = Use { rank, index, is_write: *is_write };
            let conflict = if is_touched { self.add(rank, *range, it) } else { None };
            Some(self.refusal(rank, it, &conflict?))
        });
        self.list = list;
        found
    }

    /// Puts what the card at `context` uses of its own memory into `list`; `None` if that cannot be said.
    fn list_ranges(&mut self, instruction: &Instruction, context: &Context<'_>) -> Option<()> {
        let Instruction { operation, source, destination, bytes, .. } = *instruction;
        self.list.clear();
        let is_single = matches!(operation, Operation::Send | Operation::Recv) || is_one_sided(operation);
        if is_single && source.layout == Layout::Block && destination.layout == Layout::Block {
            let is_read = matches!(operation, Operation::Send | Operation::RdmaWrite | Operation::PutSignal);
            let address = if is_read { source.address } else { destination.address };
            self.list.push((Range { address, bytes }, !is_read));
            return Some(());
        }
        let ranges = card_ranges(instruction, context).ok()?;
        let reads = ranges.reads.iter().map(|range| (*range, false));
        let writes = ranges.writes.iter().map(|range| (*range, true));
        // What lies in place is read, if it is sent, and else left alone.
        let in_place = ranges.in_place.iter().map(|range| (*range, false));
        for (range, is_write) in reads.chain(writes).chain(in_place) {
            match self.list.last_mut() {
                // Blocks one behind the other are one range.
                Some((last, same)) if *same == is_write && last.end() == range.address => last.bytes += range.bytes,
                _ => self.list.push((range, is_write)),
            }
        }
        Some(())
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
