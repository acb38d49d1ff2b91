//! Races of one-sided transfers.
//!
//! Only rdma_read, rdma_write and put_signal access the memory of a card that runs something else. For that memory, a
//! [`Shadow`] records all uses. Programs run here in a possible order, so each earlier use has ended, or is not ordered with
//! the new one: a race.

use super::bounds::OperandBounds;
use super::order::{Clocks, Signals, check_size};
use super::run;
use super::shadow::{Conflict, Shadow, Use};
use super::windows::Windows;
use crate::limits::{COMPARED_MAX, USES_MAX, too_long};
use crate::matching::{Job, is_one_sided};
use crate::ranges::{Access, Context, Range, Spans, card_ranges, remote};
use crate::refusal::{Reason, Refusal};
use crate::{Instruction, Layout, Operation};

pub(super) struct Races<'a> {
    job: Job<'a>,
    /// By rank.
    spans: &'a [Spans],
    memory: Vec<Shadow>,
    /// Accesses of the current instruction.
    list: Vec<Access>,
    /// Number of recorded uses.
    uses: usize,
    /// Number of listed ranges, and of comparisons with earlier uses.
    compared: u64,
}

impl<'a> Races<'a> {
    /// Runs the programs to their ends. `spans` are the bounds of their tables, by rank.
    ///
    /// # Errors
    /// As [`Matching::step`]; and a race, a use before a signal, or an overflow of a signal.
    pub(super) fn check(job: Job<'a>, spans: &'a [Spans]) -> Result<(), Refusal> {
        check_size(job.programs)?;
        let signals = Signals::new(job);
        if let Some(((rank, signal), putter, index)) = signals.overflow() {
            let cause =
                format!("put_signal: all puts together add more than {} to signal {signal} of rank {rank}", u32::MAX);
            return Err(Refusal::at(putter, index, cause).because(Reason::SignalOverflow));
        }
        let found = run::until_none(signals, |signals| {
            let mut races = Races::new(job, spans);
            let mut windows = Windows::of(job);
            let mut found = None;
            run::clocks(job, signals, |rank, index, clocks| {
                if found.is_none() {
                    let through = windows.as_mut().and_then(|windows| windows.step(rank, index, clocks));
                    found = through.or_else(|| races.uses(rank, index, clocks));
                }
                races.check_work()
            })?;
            Ok(found.or_else(|| windows.as_ref()?.left()))
        })?;
        found.map_or(Ok(()), Err)
    }

    fn new(job: Job<'a>, spans: &'a [Spans]) -> Self {
        let memory = job.programs.iter().map(|_| Shadow::default()).collect();
        let mut races = Races { job, spans, memory, list: Vec::new(), uses: 0, compared: 0 };
        races.find_touched();
        races
    }

    /// Finds the memory that one-sided transfers access: other memory cannot race.
    fn find_touched(&mut self) {
        for (rank, program) in self.job.programs.iter().enumerate() {
            for instruction in program.instructions.iter().filter(|one| is_one_sided(one.operation)) {
                let Some((peer, range)) = self.remote(rank, instruction) else { continue };
                let touched = self.memory[peer].touched.get_or_insert(range);
                *touched = touched.hull(range);
            }
        }
    }

    /// Returns the rank whose memory `instruction` accesses, and the range.
    fn remote(&self, rank: usize, instruction: &Instruction) -> Option<(usize, Range)> {
        let membership = self.job.membership(rank, instruction)?;
        let there = remote(instruction, &self.job.context_in(rank, &membership)).ok()??;
        let peer = membership.program_rank(there.peer_rank)?;
        Some((peer, there.range()))
    }

    /// Refuses programs with too many uses or comparisons.
    fn check_work(&self) -> Result<(), Refusal> {
        if self.uses > USES_MAX {
            return Err(too_long("USES_MAX", USES_MAX, "uses of memory that one-sided operations touch"));
        }
        if self.compared > COMPARED_MAX {
            return Err(too_long("COMPARED_MAX", COMPARED_MAX, "comparisons of uses of memory with earlier ones"));
        }
        Ok(())
    }

    /// Records a use of the memory of `card`; returns its first conflict with an earlier use.
    fn add(&mut self, card: usize, range: Range, now: Use, clocks: &Clocks) -> Option<Conflict> {
        let memory = &mut self.memory[card];
        let before = memory.compared();
        let conflict = memory.add(range, now, clocks);
        self.uses += 1;
        self.compared += memory.compared() - before;
        conflict
    }

    /// Records all uses by instruction `index` of `rank` of memory that others access.
    fn uses(&mut self, rank: usize, index: usize, clocks: &Clocks) -> Option<Refusal> {
        let instruction = self.job.instruction(rank, index);
        if is_one_sided(instruction.operation)
            && let Some((peer, range)) = self.remote(rank, instruction)
        {
            let is_write = instruction.operation != Operation::RdmaRead;
            let conflict = self.add(peer, range, Use { rank, index, is_write }, clocks);
            if let Some(conflict) = conflict {
                return Some(self.refusal(peer, Use { rank, index, is_write }, &conflict));
            }
        }
        let touched = self.memory[rank].touched?;
        let context = self.job.context(rank, instruction);
        let sides = OperandBounds::of(instruction, &context, &self.spans[rank]);
        if sides.is_some_and(|sides| !sides.meet(touched)) {
            return None;
        }
        self.list_ranges(instruction, &context)?;
        let list = std::mem::take(&mut self.list);
        self.compared += list.len() as u64;
        let found = list.iter().find_map(|Access { range, is_write }| {
            let it = Use { rank, index, is_write: *is_write };
            let conflict = if range.overlaps(touched) { self.add(rank, *range, it, clocks) } else { None };
            Some(self.refusal(rank, it, &conflict?))
        });
        self.list = list;
        found
    }

    /// Lists the ranges of its own memory that the card at `context` uses; `None` if they are unknown.
    fn list_ranges(&mut self, instruction: &Instruction, context: &Context<'_>) -> Option<()> {
        let Instruction { operation, source, destination, bytes, .. } = *instruction;
        self.list.clear();
        if is_one_sided(operation) && source.layout == Layout::Block && destination.layout == Layout::Block {
            let is_read = operation != Operation::RdmaRead;
            let address = if is_read { source.address } else { destination.address };
            self.list.push(Access { range: Range { address, bytes }, is_write: !is_read });
            return Some(());
        }
        let ranges = card_ranges(instruction, context).ok()?;
        // The own block in place is read if it is sent.
        let in_place = ranges.in_place.map(|range| Access { range, is_write: false });
        for one in ranges.accesses().chain(in_place) {
            match self.list.last_mut() {
                // Consecutive blocks are one range.
                Some(last) if last.is_write == one.is_write && last.range.end() == one.range.address => {
                    last.range.bytes += one.range.bytes;
                }
                _ => self.list.push(one),
            }
        }
        Some(())
    }

    fn refusal(&self, card: usize, later: Use, conflict: &Conflict) -> Refusal {
        let operation = |it: Use| self.job.instruction(it.rank, it.index).operation;
        let earlier = conflict.earlier;
        // The refusal names the one-sided operation, or the use of the data of a put_signal.
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
                "{} {} {address:#x}, which instruction {} of rank {} (put_signal) writes, without a wait for its signal; \
                 add a wait_signal between the two, or put later",
                operation(user),
                verb(user),
                put.index,
                put.rank
            );
            return Refusal::at(user.rank, user.index, cause).because(Reason::UseBeforeSignal);
        }
        let cause = format!(
            "{} {} {address:#x} of rank {card}, which instruction {} of rank {} ({}) {}, in no defined order; add a \
             barrier between the two",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Tables;
    use crate::verify::sample::{STRIPE, card, members, programs};
    use crate::{Flags, Operand};

    fn at(address: u64) -> Operand {
        Operand::card(address)
    }

    /// Runs `test` on races of two cards: the first writes 64 B at 1024 of the second, which runs `instructions`.
    fn with_races<T>(instructions: &[Instruction], test: impl FnOnce(&mut Races<'_>, &mut Clocks) -> T) -> T {
        let capabilities = card(2);
        let members = members(&capabilities, &[]);
        let write = Instruction::rdma_write(1, at(0), at(1024), 64);
        let programs = programs([(vec![write], Tables::new()), (instructions.to_vec(), Tables::new())]);
        let spans = [Spans::default(), Spans::default()];
        let job = Job { programs: &programs, members: &members, capabilities: &capabilities };
        test(&mut Races::new(job, &spans), &mut Clocks::new(2))
    }

    #[test]
    fn uses_are_noted_where_others_reach_and_nowhere_else() {
        let uses = |instruction: Instruction| {
            with_races(&[instruction], |races, clocks| {
                assert!(races.uses(1, 0, clocks).is_none());
                races.uses
            })
        };
        for (address, bytes, noted) in
            [(960, 64, 0), (1088, 64, 0), (961, 64, 1), (1087, 64, 1), (1024, 64, 1), (1040, 8, 1), (1000, 200, 1)]
        {
            assert_eq!(uses(Instruction::fill(at(address), bytes, 0)), noted, "{bytes} B at {address}");
            assert_eq!(uses(Instruction::send(0, at(address), bytes)), noted, "{bytes} B at {address}");
            assert_eq!(uses(Instruction::recv(0, at(address), bytes)), noted, "{bytes} B at {address}");
        }
        // Both sides, and blocks that lie one after another as one.
        assert_eq!(uses(Instruction::copy(at(1024), at(1056), 32)), 2);
        assert_eq!(uses(Instruction::alltoall(at(1024), at(1056), 16)), 2);
        assert_eq!(uses(Instruction::nop()), 0);
        // What lies far off is not even listed.
        with_races(&[Instruction::send(0, at(0), 64)], |races, clocks| {
            assert!(races.uses(1, 0, clocks).is_none());
            assert_eq!((races.uses, races.compared), (0, 0));
        });
    }

    #[test]
    fn what_is_compared_is_counted() {
        let instructions = [Instruction::fill(at(1024), 64, 0), Instruction::copy(at(0), at(1032), 8)];
        with_races(&instructions, |races, clocks| {
            let count = |races: &Races<'_>| (races.uses, races.compared);
            races.uses(0, 0, clocks);
            let write = (1, 1);
            assert_eq!(count(races), write, "nothing was there before it");
            clocks.learn(1, &[1, 0]);
            races.uses(1, 0, clocks);
            // Its range, the write before, and its own.
            let fill = (write.0 + 1, write.1 + 3);
            assert_eq!(count(races), fill);
            clocks.end(1, 0);
            races.uses(1, 1, clocks);
            // Of two ranges, one that others reach; the fill before, and its own.
            assert_eq!(count(races), (fill.0 + 1, fill.1 + 4));
        });
    }

    #[test]
    fn uses_and_comparisons_have_a_limit() {
        with_races(&[], |races, _| {
            (races.uses, races.compared) = (USES_MAX, COMPARED_MAX);
            assert_eq!(races.check_work(), Ok(()));
            races.uses = USES_MAX + 2;
            assert!(races.check_work().unwrap_err().cause.contains("(limit USES_MAX)"));
            (races.uses, races.compared) = (USES_MAX, COMPARED_MAX + 2);
            assert!(races.check_work().unwrap_err().cause.contains("(limit COMPARED_MAX)"));
        });
    }

    #[test]
    fn an_instruction_uses_what_it_reads_and_writes_block_by_block() {
        let read = |address, bytes| Access { range: Range { address, bytes }, is_write: false };
        let write = |address, bytes| Access { is_write: true, ..read(address, bytes) };
        let (a, b) = (at(256), at(2048));
        for (instruction, expected) in [
            (Instruction::send(0, a, 8), vec![read(256, 8)]),
            (Instruction::recv(0, b, 8), vec![write(2048, 8)]),
            (Instruction::rdma_write(0, a, b, 8), vec![read(256, 8)]),
            (Instruction::put_signal(0, a, b, 8, 0, 1), vec![read(256, 8)]),
            (Instruction::rdma_read(0, a, b, 8), vec![write(2048, 8)]),
            (Instruction::send(2, a.striped(), 8), vec![read(256 + 2 * STRIPE, 8)]),
            (Instruction::recv(2, a.striped(), 8), vec![write(256 + 2 * STRIPE, 8)]),
            (Instruction::rdma_write(2, a.striped(), b, 8), vec![read(256 + 2 * STRIPE, 8)]),
            (Instruction::rdma_write(2, a, b.striped(), 8), vec![read(256, 8)]),
            (Instruction::rdma_read(2, a, b.striped(), 8), vec![write(2048 + 2 * STRIPE, 8)]),
            (Instruction::sendrecv(0, 2, a, b, 8), vec![read(256, 8), write(2048, 8)]),
            // Of rank 1 of 3, or on communicator 1 of rank 0: blocks that follow each other are one.
            (
                Instruction::alltoall(a, b, 8),
                vec![
                    read(256, 8),
                    read(256 + 16, 8),
                    read(256 + 8, 8),
                    write(2048, 8),
                    write(2048 + 16, 8),
                    write(2048 + 8, 8),
                ],
            ),
            (Instruction::alltoall(a, b, 8).on(1), vec![read(264, 16), read(256, 8), write(2056, 16), write(2048, 8)]),
            (Instruction::scatter(1, a, at(264), 8), vec![read(256, 8), read(272, 8), read(264, 8)]),
            (Instruction::gather(1, a, at(264), 8), vec![read(256, 8), write(264, 8), write(280, 8), write(272, 8)]),
            // What is read does not go on in what is written.
            (Instruction::copy(a, at(264), 8), vec![read(256, 8), write(264, 8)]),
            (Instruction::nop(), vec![]),
        ] {
            with_races(&[], |races, _| {
                let tables = Tables::new();
                let rank = 1 - u32::from(instruction.communicator);
                let context = Context { rank, ranks: 3, stripe_bytes: STRIPE, tables: &tables };
                for instruction in [instruction, instruction.with_flags(Flags::INTERRUPT)] {
                    races.list_ranges(&instruction, &context).unwrap();
                    assert_eq!(races.list, expected, "{instruction:?}");
                }
            });
        }
    }
}
