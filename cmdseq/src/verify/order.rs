//! Vector clocks: which instructions of all ranks have ended when an instruction begins.
//!
//! An instruction that exchanges bytes with another card, or a barrier, ends after the partner's instruction has begun, and so
//! after all earlier instructions of the partner. A wait for a signal ends after the puts without which its value is not
//! reached.

use std::collections::HashMap;

use crate::limits::{COMPARED_MAX, KNOWN_MAX, ORDERED_MAX, too_long};
use crate::matching::{Job, Membership, Signal, directions, is_paired};
use crate::program::Program;
use crate::ranges::{lengths, transfers};
use crate::refusal::Refusal;
use crate::{Instruction, Operation};

/// Refuses programs whose vector clocks would take too much time or memory.
pub(super) fn check_size(programs: &[Program]) -> Result<(), Refusal> {
    let instructions: u64 = programs.iter().map(|program| program.instructions.len() as u64).sum();
    let ranks = programs.len();
    if ranks.saturating_mul(ranks) > KNOWN_MAX / 2 {
        return Err(too_long("KNOWN_MAX", KNOWN_MAX / 2, "pairs of ranks with one-sided operations"));
    }
    if instructions.saturating_mul(ranks as u64) > ORDERED_MAX {
        return Err(too_long("ORDERED_MAX", ORDERED_MAX, "instructions times ranks with one-sided operations"));
    }
    Ok(())
}

/// The vector clock of each rank: how many instructions of every rank have ended when its next one begins.
#[derive(Debug)]
pub(super) struct Clocks {
    ranks: usize,
    /// By rank; each clock has an entry for every rank.
    over: Vec<u32>,
    /// Clocks at the begin of instructions that end together.
    before: Vec<u32>,
}

impl Clocks {
    pub(super) fn new(ranks: usize) -> Self {
        Clocks { ranks, over: vec![0; ranks * ranks], before: Vec::new() }
    }

    /// Returns the clock of `rank`: instructions that have ended when its next one begins.
    pub(super) fn of(&self, rank: usize) -> &[u32] {
        &self.over[rank * self.ranks..][..self.ranks]
    }

    fn of_mut(&mut self, rank: usize) -> &mut [u32] {
        &mut self.over[rank * self.ranks..][..self.ranks]
    }

    /// Whether instruction `index` of `other` has ended when `rank`'s next one begins.
    pub(super) fn is_over(&self, other: usize, index: usize, rank: usize) -> bool {
        other == rank || self.of(rank)[other] as usize > index
    }

    /// Merges `known` into the clock of `rank`.
    pub(super) fn learn(&mut self, rank: usize, known: &[u32]) {
        join(self.of_mut(rank), known);
    }

    /// Notes for `rank` that instruction `index` of `other` has ended.
    fn learn_end(&mut self, rank: usize, (other, index): (usize, usize)) {
        let known = &mut self.of_mut(rank)[other];
        *known = (*known).max(index as u32 + 1);
    }

    /// Ends instruction `index` of `rank`.
    pub(super) fn end(&mut self, rank: usize, index: usize) {
        self.of_mut(rank)[rank] = index as u32 + 1;
    }

    /// Number of ranks.
    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns how many instructions of each rank have ended by every clock.
    pub(super) fn known_to_all(&self) -> Vec<u32> {
        let mut floor = self.over.get(..self.ranks).unwrap_or_default().to_vec();
        for known in self.over.chunks_exact(self.ranks.max(1)) {
            floor.iter_mut().zip(known).for_each(|(floor, known)| *floor = (*floor).min(*known));
        }
        floor
    }

    /// Ends instructions that run together.
    pub(super) fn end_together(&mut self, together: &[(usize, usize)], job: Job<'_>) {
        if let [(rank, index)] = together {
            return self.end(*rank, *index);
        }
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        together.iter().for_each(|(rank, _)| before.extend_from_slice(self.of(*rank)));
        let all = Together { all: together, before: &before, ranks: self.ranks, job };
        let operation = all.operation();
        if operation == Some(Operation::Alltoallv) {
            self.end_listed(&all);
        } else if operation.is_some_and(is_all_to_all) {
            self.end_all_to_all(&all);
        } else {
            self.end_paired(&all);
        }
        together.iter().for_each(|(rank, index)| self.end(*rank, *index));
        self.before = before;
    }

    /// Merges the clocks of an [all-to-all](is_all_to_all) collective.
    fn end_all_to_all(&mut self, together: &Together<'_>) {
        // Of all members, and of those that exchange data with all others.
        let (mut all, mut of_full) = (vec![0; self.ranks], vec![0; self.ranks]);
        let are_full: Vec<bool> = (0..together.all.len()).map(|place| together.exchanges_with_all(place)).collect();
        for (place, is_full) in are_full.iter().enumerate() {
            join(if *is_full { &mut of_full } else { &mut all }, together.began(place));
        }
        join(&mut all, &of_full);
        for ((rank, _), is_full) in together.all.iter().zip(&are_full) {
            self.learn(*rank, if *is_full { &all } else { &of_full });
        }
    }

    /// Merges the clocks of an alltoallv: each member with those of its partners, which mostly are all.
    fn end_listed(&mut self, together: &Together<'_>) {
        // By rank of the communicator: its index in `together`, and its partners.
        let count = together.all.len();
        let (mut places, mut meets) = (vec![0; count], vec![false; count * count]);
        for place in 0..count {
            let Some((instruction, membership)) = together.member(place) else { continue };
            let context = together.job.context_in(together.all[place].0, &membership);
            let Some([sent, _]) = lengths(instruction, &context) else { continue };
            let own = membership.own as usize;
            places[own] = place;
            for other in (0..count).filter(|other| *other != own && sent.of(*other as u32) > 0) {
                meets[own * count + other] = true;
                meets[other * count + own] = true;
            }
        }
        let mut all = vec![0; self.ranks];
        (0..count).for_each(|place| join(&mut all, together.began(place)));
        for (place, met) in places.iter().zip(meets.chunks_exact(count)) {
            let (rank, _) = together.all[*place];
            if met.iter().filter(|met| !**met).count() == 1 {
                self.learn(rank, &all);
                continue;
            }
            for (_, other) in met.iter().zip(&places).filter(|(met, _)| **met) {
                self.learn(rank, together.began(*other));
            }
        }
    }

    /// Merges the clocks of partners that exchange data.
    fn end_paired(&mut self, together: &Together<'_>) {
        let mut partners = Vec::new();
        for (place, (rank, _)) in together.all.iter().enumerate() {
            partners.clear();
            together.list_partners(place, &mut partners);
            for partner in &partners {
                let Ok(other) = together.all.binary_search_by_key(partner, |(rank, _)| *rank) else { continue };
                self.learn(*rank, together.began(other));
            }
        }
    }
}

/// Instructions that run together.
struct Together<'a> {
    /// Rank of the programs and index, by rank.
    all: &'a [(usize, usize)],
    /// Their clocks at their begin.
    before: &'a [u32],
    ranks: usize,
    job: Job<'a>,
}

impl<'a> Together<'a> {
    /// Returns the clock of the instruction at `place` at its begin.
    fn began(&self, place: usize) -> &'a [u32] {
        &self.before[place * self.ranks..][..self.ranks]
    }

    /// Returns the operation of the collective, or of one of the pair.
    fn operation(&self) -> Option<Operation> {
        let (rank, index) = *self.all.first()?;
        Some(self.job.instruction(rank, index).operation)
    }

    /// Returns the instruction at `place` and its membership.
    fn member(&self, place: usize) -> Option<(&'a Instruction, Membership<'a>)> {
        let (rank, index) = self.all[place];
        let instruction = self.job.instruction(rank, index);
        Some((instruction, self.job.membership(rank, instruction)?))
    }

    /// Whether the instruction at `place` exchanges data with all others, in an [all-to-all](is_all_to_all) collective.
    fn exchanges_with_all(&self, place: usize) -> bool {
        let Some((instruction, membership)) = self.member(place) else { return false };
        match instruction.operation {
            Operation::Barrier => true,
            // Its block goes to all ranks, or comes from all.
            Operation::Allgather | Operation::ReduceScatter => instruction.block_bytes(membership.own.into()) > 0,
            _ => instruction.bytes > 0,
        }
    }

    /// Lists the ranks with which the instruction at `place` exchanges data. To switches that compute, it gives its data and goes on:
    /// only what it gets tells it of others.
    fn list_partners(&self, place: usize, partners: &mut Vec<usize>) {
        let Some((instruction, membership)) = self.member(place) else { return };
        if is_paired(instruction.operation) {
            let all = directions(instruction, membership.own).into_iter().flatten();
            partners.extend(all.filter_map(|(_, partner)| membership.program_rank(partner)));
            return;
        }
        let context = self.job.context_in(self.all[place].0, &membership);
        let moved = transfers(instruction, &context).unwrap_or_default();
        let given = if instruction.form().is_some() { &[] } else { &moved.sends[..] };
        let all = given.iter().chain(&moved.receives);
        partners.extend(all.filter_map(|block| membership.program_rank(block.peer_rank)));
    }
}

/// Whether each member of the collective exchanges data either with all others, or only with members that do.
const fn is_all_to_all(operation: Operation) -> bool {
    use Operation::{Allgather, Allgatherv, Allreduce, Alltoall, AlltoallScan, Barrier, Exscan, ReduceScatter, Scan};
    matches!(
        operation,
        Barrier | Alltoall | AlltoallScan | Allgather | Allgatherv | Allreduce | ReduceScatter | Scan | Exscan
    )
}

fn join(into: &mut [u32], from: &[u32]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = (*into).max(*from));
}

/// One put_signal.
#[derive(Debug)]
struct Put {
    index: usize,
    /// Sum of this and all earlier puts of the same rank to the same signal.
    sum: u64,
    /// From an earlier run: instructions of the waiting rank that have ended when the put begins.
    seen: Option<u32>,
    /// The same in this run.
    seeing: Option<u32>,
}

/// The puts of one rank to one signal.
#[derive(Debug)]
struct Putter {
    rank: usize,
    /// In order.
    puts: Vec<Put>,
    /// The rank's clock at the begin of each put that has ended, by its position in [`Signals::clocks`].
    knew: Vec<usize>,
}

impl Putter {
    /// Returns the sum of the first `count` puts.
    fn sum(&self, count: usize) -> u64 {
        count.checked_sub(1).map_or(0, |last| self.puts[last].sum)
    }

    /// Returns how many puts may precede the end of instruction `index` of the waiting rank.
    fn may_come(&self, index: usize) -> usize {
        self.puts.partition_point(|put| put.seen.is_none_or(|seen| seen as usize <= index))
    }
}

/// The puts to one signal.
#[derive(Debug, Default)]
struct Puts {
    /// By rank.
    by_rank: Vec<Putter>,
    waited: u64,
}

/// Puts and waits of all signals.
#[derive(Debug, Default)]
pub(super) struct Signals {
    puts: HashMap<Signal, Puts>,
    /// Clocks of ranks at their puts, one after another.
    clocks: Vec<u32>,
    /// Position of the last clock of each rank.
    last_clock: HashMap<usize, usize>,
    /// Reused between calls.
    may_come: Vec<usize>,
    /// Number of comparisons of a wait with a putter.
    compared: u64,
}

impl Signals {
    /// Finds all puts of the programs.
    pub(super) fn new(job: Job<'_>) -> Self {
        let mut signals = Signals::default();
        for (rank, program) in job.programs.iter().enumerate() {
            for (index, instruction) in program.instructions.iter().enumerate() {
                let Some(signal) = job.signal_of_put(rank, instruction) else { continue };
                let putters = &mut signals.puts.entry(signal).or_default().by_rank;
                if putters.last().is_none_or(|last| last.rank != rank) {
                    putters.push(Putter { rank, puts: Vec::new(), knew: Vec::new() });
                }
                let Some(putter) = putters.last_mut() else { continue };
                let sum = putter.sum(putter.puts.len()).saturating_add(instruction.signal_value.into());
                putter.puts.push(Put { index, sum, seen: None, seeing: None });
            }
        }
        signals
    }

    /// Returns a signal whose puts exceed 32 bits, the last rank that puts, and the index of its last put.
    pub(super) fn overflow(&self) -> Option<(Signal, usize, usize)> {
        let total = |puts: &Puts| {
            let sums = puts.by_rank.iter().map(|putter| putter.sum(putter.puts.len()));
            sums.fold(0_u64, u64::saturating_add)
        };
        let over = self.puts.iter().filter(|(_, puts)| total(puts) > u64::from(u32::MAX)).min_by_key(|(it, _)| **it)?;
        let putter = over.1.by_rank.last()?;
        Some((*over.0, putter.rank, putter.puts.last()?.index))
    }

    /// Refuses programs with too many stored clocks or comparisons.
    pub(super) fn check_work(&self) -> Result<(), Refusal> {
        if self.clocks.len() > KNOWN_MAX {
            return Err(too_long("KNOWN_MAX", KNOWN_MAX, "entries of vector clocks at puts"));
        }
        if self.compared > COMPARED_MAX {
            return Err(too_long("COMPARED_MAX", COMPARED_MAX, "comparisons of waits with putters"));
        }
        Ok(())
    }

    /// Begins another run with the order found in this one.
    pub(super) fn again(&mut self) {
        self.clocks.clear();
        self.last_clock.clear();
        for puts in self.puts.values_mut() {
            puts.waited = 0;
            for putter in &mut puts.by_rank {
                putter.knew.clear();
                putter.puts.iter_mut().for_each(|put| put.seen = put.seeing.take());
            }
        }
    }

    /// Notes the clock of `rank` at its next put to `signal`, which is about to end.
    pub(super) fn put(&mut self, rank: usize, signal: Signal, clocks: &Clocks) {
        let Some(puts) = self.puts.get_mut(&signal) else { return };
        let Ok(place) = puts.by_rank.binary_search_by_key(&rank, |putter| putter.rank) else { return };
        let putter = &mut puts.by_rank[place];
        let Some(put) = putter.puts.get_mut(putter.knew.len()) else { return };
        let known = clocks.of(rank);
        put.seeing = Some(known[signal.0]);
        // Mostly the clock is that of the rank's last put, except for its own entry.
        let last = self.last_clock.get(&rank).copied();
        let same = last.filter(|at| {
            let last = &self.clocks[*at..][..known.len()];
            last[..rank] == known[..rank] && last[rank + 1..] == known[rank + 1..]
        });
        let at = same.unwrap_or_else(|| {
            self.clocks.extend_from_slice(known);
            self.clocks.len() - known.len()
        });
        self.last_clock.insert(rank, at);
        putter.knew.push(at);
    }

    /// Merges into the clock of a wait, which is about to end, the clocks of all puts that must precede it.
    pub(super) fn wait(&mut self, (rank, index): (usize, usize), instruction: &Instruction, clocks: &mut Clocks) {
        let Some(puts) = self.puts.get_mut(&(rank, instruction.signal_id)) else { return };
        puts.waited = puts.waited.saturating_add(instruction.signal_value.into());
        self.compared += puts.by_rank.len() as u64;
        self.may_come.clear();
        self.may_come.extend(puts.by_rank.iter().map(|putter| putter.may_come(index)));
        let sums = puts.by_rank.iter().zip(&self.may_come).map(|(putter, count)| putter.sum(*count));
        let spare = sums.fold(0, u64::saturating_add).saturating_sub(puts.waited);
        for (putter, count) in puts.by_rank.iter().zip(&self.may_come) {
            // Without a put, its later ones are missing too: it must precede if the rest is not sufficient.
            let needed = putter.sum(*count).saturating_sub(spare);
            let came = putter.puts[..*count].partition_point(|put| put.sum < needed);
            let Some(put) = putter.puts.get(came).filter(|_| needed > 0) else { continue };
            if let Some(at) = putter.knew.get(came) {
                clocks.learn(rank, &self.clocks[*at..][..clocks.ranks]);
                clocks.learn_end(rank, (putter.rank, put.index));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::Communicator;
    use crate::table::{Table, Tables};
    use crate::verify::sample::{card, members, programs};
    use crate::{Combine, Element, Operand, Reduction};

    const NODES: usize = 5;
    /// Whose third rank is node 0.
    const MEMBERS: [usize; 4] = [3, 1, 0, 4];
    const RANKS: u16 = MEMBERS.len() as u16;

    /// An instruction of each member that goes with those of the others. `counts` are bytes from each rank to each.
    fn together(number: usize, root: u16, bytes: u64, counts: &[Vec<u64>]) -> Vec<(Instruction, Tables)> {
        let sum = Combine::new(Reduction::Sum, Element::U8);
        let (a, b) = (Operand::card(0), Operand::card(2048));
        let listed = |lengths: &mut dyn Iterator<Item = u64>| Table::packed(lengths, 1);
        let each = |rank: u16| {
            let (next, last) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
            let place = usize::from(rank);
            // As many bytes to or from each as the root says.
            let from_root = &counts[usize::from(root)];
            let (mut sends, mut receives) = (counts[place].iter().copied(), counts.iter().map(|row| row[place]));
            let instruction = match number {
                0 => Instruction::barrier(),
                1 => Instruction::scatter(root, a, b, bytes),
                2 => Instruction::gather(root, a, b, bytes),
                3 => Instruction::broadcast(root, a, b, bytes),
                4 => Instruction::alltoall(a, b, bytes),
                5 => Instruction::allgather(a, b, bytes),
                // One block is full, one short, and two are empty.
                6 => Instruction::allgather(a, b, bytes).dividing(bytes * 3 / 2),
                7 => Instruction::reduce(sum, root, a, b, bytes),
                8 => Instruction::allreduce(sum, a, b, bytes),
                9 => Instruction::reduce_scatter(sum, a, b, bytes),
                10 => Instruction::reduce_scatter(sum, a, b, bytes).dividing(bytes * 3 / 2),
                11 => Instruction::scan(sum, a, b, bytes),
                12 => Instruction::exscan(sum, a, b, bytes),
                13 => Instruction::scatterv(root, a, b, from_root[place], 0),
                14 => Instruction::gatherv(root, a, b, from_root[place], 0),
                15 => Instruction::allgatherv(a, b, from_root[place], 0),
                16 => Instruction::alltoallv(a, b, 0, 1),
                17 => Instruction::sendrecv(next, last, a, b, bytes),
                18 => Instruction::sendrecv_reduce(sum, (next, last), a, Operand::card(4000), b, bytes),
                // A line: the first sends, the last receives.
                _ if rank == 0 => Instruction::send(next, a, bytes),
                19 if rank == RANKS - 1 => Instruction::recv(last, b, bytes),
                _ if rank == RANKS - 1 => Instruction::recv_reduce(sum, last, a, b, bytes),
                _ => Instruction::sendrecv(next, last, a, b, bytes),
            };
            let tables = match number {
                16 => Tables::from([(0, listed(&mut sends)), (1, listed(&mut receives))]),
                _ => Tables::from([(0, listed(&mut from_root.iter().copied()))]),
            };
            (instruction.on(1), tables)
        };
        (0..RANKS).map(each).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

        /// Two that move a byte between them, or meet in a barrier, learn what the other knew when it began, and no more.
        #[test]
        fn those_that_exchange_something_learn_from_each_other(
            number in 0..21_usize,
            root in 0..RANKS,
            bytes in prop::sample::select(vec![0_u64, 2, 8]),
            counts in prop::collection::vec(
                prop::collection::vec(prop::sample::select(vec![0_u64, 0, 8]), MEMBERS.len()), MEMBERS.len()),
            over in prop::collection::vec(0..9_u32, NODES * NODES),
        ) {
            // What is empty meets nobody, and then these end by themselves.
            prop_assume!(number < 17 || bytes > 0);
            let mut all = vec![(Vec::new(), Tables::new()); NODES];
            for (own, (instruction, tables)) in together(number, root, bytes, &counts).into_iter().enumerate() {
                all[MEMBERS[own]] = (vec![instruction], tables);
            }
            let (capabilities, programs) = (card(NODES as u32), programs(all));
            let members = members(&capabilities, &[Communicator { id: 1, members: MEMBERS.map(|it| it as u32).to_vec() }]);

            let job = Job { programs: &programs, members: &members, capabilities: &capabilities };
            let mut expected = over.clone();
            for rank in MEMBERS {
                let instruction = &programs[rank].instructions[0];
                let moved = transfers(instruction, &job.context(rank, instruction)).unwrap();
                let partners: Vec<usize> = match instruction.operation {
                    Operation::Barrier => MEMBERS.to_vec(),
                    _ => moved.sends.iter().chain(&moved.receives).map(|one| MEMBERS[one.peer_rank as usize]).collect(),
                };
                for partner in partners {
                    let known = &over[partner * NODES..][..NODES];
                    join(&mut expected[rank * NODES..][..NODES], known);
                }
                expected[rank * NODES + rank] = 1;
            }

            let mut clocks = Clocks { ranks: NODES, over, before: Vec::new() };
            let mut sorted = MEMBERS.map(|rank| (rank, 0));
            sorted.sort_unstable();
            clocks.end_together(&sorted, job);
            prop_assert_eq!(clocks.over, expected);
        }
    }

    /// What a rank knew is kept once for as long as it learns nothing from others.
    #[test]
    fn puts_keep_what_is_new_and_waits_learn_it() {
        let put = |to| Instruction::put_signal(to, Operand::card(0), Operand::card(0), 0, 0, 1);
        // Rank 1 adds four to the signal of rank 0, and rank 2 one.
        let all = [vec![Instruction::wait_signal(0, 3)], vec![put(0); 4], vec![put(0)]];
        let (capabilities, programs) = (card(3), programs(all.map(|it| (it, Tables::new()))));
        let members = members(&capabilities, &[]);
        let job = Job { programs: &programs, members: &members, capabilities: &capabilities };
        let (mut signals, mut clocks) = (Signals::new(job), Clocks::new(3));
        let put = |signals: &mut Signals, clocks: &mut Clocks, rank: usize, index: usize| {
            signals.put(rank, (0, 0), clocks);
            clocks.end(rank, index);
            signals.clocks.len()
        };
        clocks.learn(1, &[7, 0, 7]);
        assert_eq!(put(&mut signals, &mut clocks, 1, 0), 3);
        assert_eq!(put(&mut signals, &mut clocks, 1, 1), 3, "it has only come further itself");
        clocks.learn(1, &[8, 0, 0]);
        assert_eq!(put(&mut signals, &mut clocks, 1, 2), 6);
        clocks.learn(1, &[0, 0, 9]);
        assert_eq!(put(&mut signals, &mut clocks, 1, 3), 9);
        assert_eq!(put(&mut signals, &mut clocks, 2, 0), 12);
        assert_eq!(signals.clocks[..9], [7, 0, 7, 8, 2, 7, 8, 3, 9]);
        // Of three that came, two are of rank 1 at least.
        signals.wait((0, 0), &programs[0].instructions[0], &mut clocks);
        assert_eq!(clocks.of(0), [7, 2, 7]);
        assert_eq!(signals.compared, 2, "both that add to it");
        signals.wait((0, 0), &programs[0].instructions[0], &mut clocks);
        assert_eq!((clocks.of(0), signals.compared), (&[8, 4, 9][..], 4), "more than there are: all came");
    }

    fn sized(ranks: usize, instructions: usize) -> Result<(), Refusal> {
        let mut all = vec![(Vec::new(), Tables::new()); ranks];
        all[ranks / 2].0 = vec![Instruction::nop(); instructions];
        check_size(&programs(all))
    }

    #[test]
    fn programs_with_one_sided_operations_have_a_largest_size() {
        let ranks = (KNOWN_MAX / 2).isqrt();
        let most = (ORDERED_MAX / ranks as u64) as usize;
        assert_eq!((ranks * ranks * 2, (most * ranks) as u64), (KNOWN_MAX, ORDERED_MAX), "both can be reached");
        assert_eq!(sized(ranks, most), Ok(()));
        let refused = |ranks, instructions| sized(ranks, instructions).unwrap_err().cause;
        let cause = refused(ranks, most + 1);
        assert!(cause.contains("more than 2147483648 instructions times ranks"), "{cause}");
        assert!(cause.contains("(limit ORDERED_MAX)"), "{cause}");
        let cause = refused(ranks + 1, 1);
        assert!(cause.contains("more than 16777216 pairs of ranks"), "{cause}");
        assert!(cause.contains("(limit KNOWN_MAX)"), "{cause}");
    }

    #[test]
    fn what_is_kept_of_signals_has_a_limit() {
        // The memory is asked for, and not touched.
        let mut signals = Signals { clocks: vec![0; KNOWN_MAX], compared: COMPARED_MAX, ..Signals::default() };
        assert_eq!(signals.check_work(), Ok(()));
        for compared in [COMPARED_MAX + 1, COMPARED_MAX + 2] {
            signals.compared = compared;
            assert!(signals.check_work().unwrap_err().cause.contains("(limit COMPARED_MAX)"));
        }
        let signals = Signals { clocks: vec![0; KNOWN_MAX + 2], ..Signals::default() };
        assert!(signals.check_work().unwrap_err().cause.contains("(limit KNOWN_MAX)"));
    }
}
