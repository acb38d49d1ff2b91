//! Runs program sets, such as those of plans, once or many times: the same start for all ranks, one doorbell per card, one deadline.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use cmdseq::plan::ProgramSet;
use cmdseq::{Completion, Flags, Instruction, Status};
use fpga_hal::DmaBuffer;

use crate::card::Card;
use crate::cluster::agreement::{digest, malformed};
use crate::cluster::blame::Unfinished;
use crate::cluster::communicators::changed_ids;
use crate::cluster::ending::{self, Ending};
use crate::cluster::ranks::{self, RankRun};
use crate::cluster::synchronise::synchronise;
use crate::cluster::{Cluster, check_count, in_phase};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::bound::Bound;
use crate::ledger::token::Token;
use crate::report::repetitions::{Counted, REPETITIONS_KEPT, Repetitions, Start};
use crate::report::times::Run;
use crate::report::{COMPLETIONS_KEPT, Execution, RankReport, Report};

/// Barriers before a program: the first lets all arrive, the second releases all at once (OPTWEB paper, section 4.2).
const BARRIERS: usize = 2;

impl Cluster {
    /// Runs the programs of `set`, such as those of a plan, on its cards. Collective. Defines those of its communicators that are not
    /// defined, loads the tables that are not loaded, synchronises the cards by barriers, runs the programs, and waits for all. Write
    /// the input before: see [`write_input`](Cluster::write_input). One-sided instructions that name no window reach the cards of the
    /// set through windows that are open while the programs run. A communicator that a program defines itself needs an entry in which
    /// the cluster has none: those at the end are taken last.
    ///
    /// # Errors
    /// [`Error::Failed`] for the lowest rank that failed, with the index in its program (0 for the barriers before it);
    /// [`Error::Timeout`] for the rank that the others wait for. After either, all cards of the set were aborted and the
    /// destinations of the programs are undefined. Those of [`contexts`](Cluster::contexts), and [`Error::BadArgument`] if a node is
    /// not among the cards, or there is not one program for each. [`Error::Mismatch`] if the cards' eager limits differ; if a card of
    /// the set does not run, [`Error::Removed`] or [`Error::NotRunning`]: then nothing was launched. [`Error::Full`] if only tokens that
    /// the caller keeps fill the queue of a card; the cards may be aborted then.
    pub fn execute(&mut self, set: &ProgramSet, execution: &Execution) -> Result<Report> {
        let (group, delays, begin) = (&set.nodes, &execution.start_delay_cycles, self.moment());
        let deadline = Deadline::after(execution.timeout);
        let held = self.launchable(set, execution, deadline)?;
        let start = synchronise(set, self.capabilities(), BARRIERS);
        let changed = changed_ids(set.instructions()).map(|(_, id)| id).collect();
        let contexts = self
            .contexts_apart(&start.communicators, &changed, deadline)
            .map_err(|error| in_phase(error, group, "communicators"))?;
        let loaded = self.load_tables(set, &held, deadline).map_err(|error| in_phase(error, group, "tables"));
        self.agree_until(loaded, deadline)?;
        let mut opened = Vec::with_capacity(2);
        for programs in [&start, set] {
            let through = self.open_windows(programs, None, &held, |node, id| contexts.id(node, id), deadline);
            opened.push(through.map_err(|error| in_phase(error, group, "windows"))?);
        }

        let has_lanes = self.capabilities().lanes > 1;
        let mut runs: Vec<_> = held
            .iter()
            .map(|(rank, index)| {
                let (rank, index) = (*rank, *index);
                let delay = delays.get(rank).copied().filter(|cycles| *cycles != 0);
                let [mut prologue, mut program] =
                    [&start, set].map(|set| contexts.translate(group[rank], &set.programs[rank].instructions));
                opened[0].name(rank, &mut prologue);
                opened[1].name(rank, &mut program);
                let mut prologue = prologue.into_owned();
                let synchronising = prologue.len();
                // Of the repetition before, the other lanes may still run some.
                if let Some(first) = prologue.first_mut().filter(|_| execution.apart && has_lanes) {
                    first.flags |= Flags::FENCE;
                }
                prologue.extend(delay.map(Instruction::delay));
                RepeatedRun::new(rank as u32, index, prologue, synchronising, program, execution)
            })
            .collect();
        let mut counted = match self.is_alone() {
            true => Repetitions::new(runs.iter().filter(|run| !run.program.is_empty()).count()),
            false => Repetitions::listing(),
        };
        self.end_span("prepare", begin);
        let begin = self.moment();
        let ending = self.run_ranks(&mut runs, &mut counted, deadline);
        self.end_span("wait", begin);
        let indices: Vec<usize> = held.iter().map(|(_, index)| *index).collect();
        let outcome = self.conclude(group, &indices, ending, counted.list(), deadline);
        opened.into_iter().for_each(|through| self.close_after(through));
        for (rank, index) in held {
            let changed = changed_ids(&set.programs[rank].instructions);
            self.unsettle(index, changed.map(|(operation, id)| (operation, contexts.id(group[rank], id))));
        }
        let lists = outcome?;
        if !self.is_alone() {
            if let Some(rank) = lists.iter().position(|list| !list.iter().all(Counted::is_listed)) {
                return Err(malformed(rank, "repetitions"));
            }
            counted =
                Repetitions::together(lists, set.programs.iter().filter(|one| !one.instructions.is_empty()).count());
        }
        let clock_khz = self.capabilities().clock_khz;
        let reports = runs.into_iter().map(|run| run.report(self.cards())).collect();
        Ok(Report::new(reports, clock_khz, counted))
    }

    /// Places in the set and indices of the cards held here, if all cards of the set run and all ranks execute the same.
    fn launchable(
        &mut self,
        set: &ProgramSet,
        execution: &Execution,
        deadline: Deadline,
    ) -> Result<Vec<(usize, usize)>> {
        let held = self.check_execution(set, execution);
        let held = held.and_then(|()| self.check_unclaimed(&set.nodes)).and_then(|()| self.running(&set.nodes));
        let terms = || {
            let Execution { repeat, apart, start_delay_cycles, .. } = execution;
            let term = |name: &str, value: String| (name.to_owned(), value);
            let delays = format!("{start_delay_cycles:?}");
            vec![
                term("repeat", repeat.to_string()),
                term("apart", apart.to_string()),
                term("start delay", delays),
                term("program digest", digest(set)),
            ]
        };
        self.compare_until(held, terms, deadline)
    }

    /// Refuses an execution that is none of the programs of `set`.
    fn check_execution(&self, set: &ProgramSet, execution: &Execution) -> Result<()> {
        let Execution { repeat, start_delay_cycles: delays, .. } = execution;
        check_count(set.programs.len(), &set.nodes)?;
        if *repeat == 0 {
            return Err(Error::argument("repeat", 0, "at least 1"));
        }
        if !self.is_alone() && *repeat as usize > REPETITIONS_KEPT {
            let expected = format!("at most {REPETITIONS_KEPT} if several processes hold the cards");
            return Err(Error::argument("repeat", repeat, expected));
        }
        if !delays.is_empty() && delays.len() != set.nodes.len() {
            let expected = format!("one for each of {} ranks", set.nodes.len());
            return Err(Error::argument("start delays", delays.len(), expected));
        }
        Ok(())
    }

    /// Loads the tables of the programs that the cards do not have yet, on all of them at once.
    fn load_tables(&mut self, set: &ProgramSet, held: &[(usize, usize)], deadline: Deadline) -> Result<()> {
        let cards = &mut self.cards;
        let mut loading = Vec::new();
        for (rank, index) in held {
            let tables = &set.programs[*rank].tables;
            let tokens = cards[*index].push_tables(tables, deadline)?;
            if !tokens.is_empty() {
                loading.push((*index, tables, tokens));
            }
        }
        loading.into_iter().try_for_each(|(index, tables, tokens)| cards[index].await_tables(tables, tokens, deadline))
    }

    /// Fills the rings, and runs all ranks until all are done, or one has failed and the others had time to end. What is in flight at
    /// the end is abandoned.
    fn run_ranks(&mut self, runs: &mut [RepeatedRun<'_>], counted: &mut Repetitions, deadline: Deadline) -> Ending {
        let filled = runs.iter_mut().try_for_each(|run| run.fill(&mut self.cards[run.card], counted).map(drop));
        let ran = filled.and_then(|()| ranks::run(&mut self.cards, runs, counted, &mut *self.group.peers, deadline));
        let unfinished = runs.iter().filter_map(RepeatedRun::unfinished);
        let (ended, late) = ending::of_run(&self.cards, ran, unfinished, deadline);
        runs.iter_mut().flat_map(|run| run.tokens.drain(..)).for_each(Token::abandon);
        let failed = ranks::first_failure(runs, |run, aborted| run.failure(self.cards[run.card].node(), aborted));
        // Cards that have failed are aborted too, to drop the data that came in for them.
        let is_clean = runs.iter().all(|run| run.is_done() && !run.has_failed());
        Ending { failed, ended, late, is_clean }
    }
}

/// A place in a prologue or in a program.
enum Place {
    Before(usize),
    Within(usize),
}

/// The run of one rank's program, with the instructions before it.
struct RepeatedRun<'p> {
    rank: u32,
    card: usize,
    prologue: Vec<Instruction>,
    /// Number of instructions of the prologue that synchronise the cards, its first ones, and of those that do so between repetitions.
    synchronising: usize,
    between: u64,
    program: Cow<'p, [Instruction]>,
    /// Host memory that the program may name.
    buffers: &'p [Arc<DmaBuffer>],
    repeat: u64,
    /// Instructions in all, stored, and completed.
    total: u64,
    next: u64,
    done: u64,
    tokens: VecDeque<Token>,
    before: Vec<Completion>,
    /// The card's counter at the end of the last barrier before the program.
    synchronised: Option<Start>,
    /// The repetition whose completions come in, and those of the first ones.
    run: Run,
    repetition: u64,
    kept: Vec<Vec<Completion>>,
    is_kept: bool,
    /// The first completion that is not done, and the first that was not merely aborted, with their counts.
    failed: Option<(u64, Completion)>,
    not_aborted: Option<(u64, Completion)>,
}

impl<'p> RepeatedRun<'p> {
    fn new(
        rank: u32,
        card: usize,
        prologue: Vec<Instruction>,
        synchronising: usize,
        program: Cow<'p, [Instruction]>,
        execution: &'p Execution,
    ) -> Self {
        let repeat = u64::from(execution.repeat);
        let between = if execution.apart { synchronising as u64 } else { 0 };
        let instructions = program.len() as u64 * repeat + between * (repeat - 1);
        RepeatedRun {
            rank,
            card,
            synchronising,
            between,
            buffers: &execution.buffers,
            repeat,
            total: prologue.len() as u64 + instructions,
            next: 0,
            done: 0,
            tokens: VecDeque::new(),
            before: Vec::with_capacity(prologue.len()),
            synchronised: None,
            run: Run::default(),
            repetition: 0,
            kept: vec![Vec::new()],
            is_kept: true,
            failed: None,
            not_aborted: None,
            prologue,
            program,
        }
    }

    /// Instructions of a repetition, with those between it and the next.
    fn period(&self) -> u64 {
        self.program.len() as u64 + self.between
    }

    /// Returns the place of instruction `count` in the prologue, whose first instructions also come between repetitions, or in the
    /// program.
    fn place(&self, count: u64) -> Place {
        // As if the prologue ended like what is between repetitions.
        let Some(after) = count.checked_sub(self.prologue.len() as u64) else { return Place::Before(count as usize) };
        let place = (after + self.between) % self.period().max(1);
        match place.checked_sub(self.between) {
            None => Place::Before(place as usize),
            Some(index) => Place::Within(index as usize),
        }
    }

    /// Returns the index in the program of instruction `count`; `None` before it and between repetitions.
    fn index(&self, count: u64) -> Option<usize> {
        match self.place(count) {
            Place::Within(index) => Some(index),
            Place::Before(_) => None,
        }
    }

    fn instruction(&self, count: u64) -> &Instruction {
        match self.place(count) {
            Place::Before(index) => &self.prologue[index],
            Place::Within(index) => &self.program[index],
        }
    }

    /// Stores as many instructions as fit into the ring, and returns whether there was any. Bounds how far a rank runs ahead.
    fn fill(&mut self, card: &mut Card, counted: &Repetitions) -> Result<bool> {
        let (before, end) = (self.next, counted.end());
        let limit = (end.min(self.repeat) * self.period()).saturating_add(self.prologue.len() as u64).min(self.total);
        while self.next < limit && ranks::may_push(card.queue_mut(), &self.tokens) {
            let bound = Bound::covered_by(self.instruction(self.next), self.buffers);
            self.tokens.push_back(card.queue_mut().push(bound)?);
            self.next += 1;
        }
        Ok(self.next != before)
    }

    /// Takes the completions that are there, and returns whether there were any.
    fn collect(&mut self, card: &mut Card, counted: &mut Repetitions) -> Result<bool> {
        let before = self.done;
        let mut tokens = std::mem::take(&mut self.tokens);
        let collected = ranks::collect(card.queue_mut(), &mut tokens, |completion| self.take(completion, counted));
        self.tokens = tokens;
        collected.map(|()| self.done != before)
    }

    /// Takes the next completion.
    fn take(&mut self, completion: Completion, counted: &mut Repetitions) {
        let count = self.done;
        self.done += 1;
        if completion.status != Status::Done {
            self.failed.get_or_insert((count, completion));
            if completion.status != Status::Aborted {
                self.not_aborted.get_or_insert((count, completion));
            }
        }
        if let Place::Before(place) = self.place(count) {
            if count < self.prologue.len() as u64 {
                self.before.push(completion);
            }
            if place + 1 == self.synchronising {
                let counter = completion.issued.wrapping_add(completion.t2) & Completion::CYCLES_MASK;
                self.synchronised = Some(Start { counter, is_new: true });
            }
            return;
        }
        self.run.add(&completion);
        if self.is_kept
            && let Some(last) = self.kept.last_mut()
        {
            last.push(completion);
        }
        if self.run.count() == self.program.len() {
            counted.add(self.rank, self.repetition, self.synchronised, &std::mem::take(&mut self.run));
            self.synchronised.iter_mut().for_each(|start| start.is_new = false);
            self.repetition += 1;
            let next = (self.kept.len() + 1) * self.program.len();
            self.is_kept &= next <= COMPLETIONS_KEPT && self.repetition < self.repeat;
            if self.is_kept {
                self.kept.push(Vec::with_capacity(self.program.len()));
            }
        }
    }

    /// Returns the first failure; an aborted instruction is one only if `aborted` says so.
    fn failure(&self, node: u32, aborted: bool) -> Option<Error> {
        let (count, completion) = if aborted { self.failed? } else { self.not_aborted? };
        let index = self.index(count).unwrap_or(0);
        ranks::failure((self.rank, node), index, self.instruction(count).operation, completion)
    }

    /// Returns what the rank is at, unless it is done.
    fn unfinished(&self) -> Option<Unfinished> {
        if self.is_done() {
            return None;
        }
        let (phase, index) = match self.index(self.done) {
            None => ("synchronisation before the program", 0),
            Some(index) => ("program", index),
        };
        Some(Unfinished {
            rank: self.rank,
            card: self.card,
            phase,
            instruction: Some(index),
            operation: self.instruction(self.done).operation,
            completed: self.done,
        })
    }

    fn report(self, cards: &[Card]) -> RankReport {
        RankReport {
            rank: self.rank,
            node: cards[self.card].node(),
            prologue: self.before,
            synchronised: self.synchronised.map(|start| start.counter),
            repetitions: self.kept,
        }
    }
}

impl RankRun for RepeatedRun<'_> {
    type Shared = Repetitions;

    fn card(&self) -> usize {
        self.card
    }

    fn advance(&mut self, card: &mut Card, counted: &mut Repetitions) -> Result<bool> {
        let collected = self.collect(card, counted)?;
        Ok(self.fill(card, counted)? || collected)
    }

    fn is_done(&self) -> bool {
        self.done == self.total
    }

    fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}
