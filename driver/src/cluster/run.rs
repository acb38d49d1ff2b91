//! Runs a caller's own instructions, with the host memory that they name: one program for each rank.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cmdseq::plan::{Communicator, ProgramSet};
use cmdseq::{Completion, Status};

use crate::card::Card;
use crate::cluster::agreement::digest;
use crate::cluster::blame::Unfinished;
use crate::cluster::communicators::changed_ids;
use crate::cluster::ending::{self, Ending};
use crate::cluster::ranks::{self, RankRun};
use crate::cluster::windows::Through;
use crate::cluster::{Cluster, check_count};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::bound::Bound;
use crate::ledger::token::Token;

/// What became of programs that [`Cluster::run`] ran.
#[derive(Debug)]
pub struct Outcome {
    /// By rank, the completions of the program in order; of ranks whose cards other processes hold, none. If the run ended early, there
    /// are fewer than instructions.
    pub completions: Vec<Vec<Completion>>,
    /// [`Error::Failed`] for the lowest rank that failed, an aborted instruction only if no other failed;
    /// [`Error::Timeout`] for the rank that the others wait for; [`Error::Full`] if only tokens that the caller keeps fill the queue of
    /// a card; or the error of a card or a bus.
    pub result: Result<()>,
}

impl Cluster {
    /// Runs `programs` on the cards of `group`, by rank, and waits for all of them for at most `timeout`. Collective.
    ///
    /// Each program starts as soon as its card is told of it: there is no barrier before it, as
    /// [`execute`](Cluster::execute) has. Instructions name communicators and tables by the ids that the cards have: see
    /// [`define`](Cluster::define) and [`Card::load_tables`]. One-sided instructions that name no window reach the cards of
    /// `group` through windows that are open while the programs run. After a failure, the other ranks have a moment to end. If not
    /// all instructions are complete at the end, all cards of the group are aborted, and destinations are undefined.
    ///
    /// ```no_run
    /// # fn example(cluster: &mut fpga_driver::Cluster) -> fpga_driver::Result<()> {
    /// use cmdseq::{Instruction, Operand};
    /// use fpga_driver::Bound;
    /// use std::time::Duration;
    ///
    /// // Node 0 sends 4 KiB of host memory to node 1.
    /// let buffer = cluster.cards()[0].allocate(4096)?;
    /// let load = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(0), 4096);
    /// let send = Instruction::send(1, Operand::card(0), 4096);
    /// let receive = Instruction::recv(0, Operand::card(0), 4096);
    /// let programs = [vec![Bound::from(load).holding(buffer), send.into()], vec![receive.into()]];
    /// let outcome = cluster.run(&[0, 1], &programs, Duration::from_secs(1))?;
    /// outcome.result?;
    /// println!("received after {} cycles", outcome.completions[1][0].t2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadArgument`] if there is not one program for each rank, or a node is not among the cards; [`Error::Mismatch`] if the
    /// cards' eager limits differ; the error that the state of a card stands for if a card of the group does not run. Then nothing was
    /// launched. What fails later is in [`Outcome::result`].
    pub fn run(&mut self, group: &[u32], programs: &[Vec<Bound>], timeout: Duration) -> Result<Outcome> {
        let (deadline, begin) = (Deadline::after(timeout), self.moment());
        let held = check_count(programs.len(), group);
        let held = held.and_then(|()| self.check_unclaimed(group)).and_then(|()| self.running(group));
        let terms = || vec![("programs".to_owned(), digest(&plain(group, programs)))];
        let held = self.compare_until(held, terms, deadline)?;
        let through = self.expose(group, &held, programs, deadline)?;
        let mut runs: Vec<_> = held
            .iter()
            .map(|(rank, card)| ProgramRun::new(*rank as u32, *card, named(&programs[*rank], *rank, &through)))
            .collect();
        self.end_span("prepare", begin);
        let begin = self.moment();
        let ending = self.run_programs(group, &mut runs, deadline);
        self.end_span("wait", begin);
        let indices: Vec<usize> = held.iter().map(|(_, index)| *index).collect();
        let result = self.conclude(group, &indices, ending, (), deadline).map(drop);
        self.close_after(through);
        for (rank, index) in held {
            self.unsettle(index, changed_ids(programs[rank].iter().map(Bound::instruction)));
        }
        let mut completions = vec![Vec::new(); group.len()];
        runs.into_iter().for_each(|run| completions[run.rank as usize] = run.completions);
        Ok(Outcome { completions, result })
    }

    /// Opens windows for what the programs reach on the cards of the group.
    fn expose(
        &mut self,
        group: &[u32],
        held: &[(usize, usize)],
        programs: &[Vec<Bound>],
        deadline: Deadline,
    ) -> Result<Through> {
        if !programs.iter().flatten().any(|bound| bound.instruction().needs_window()) {
            return Ok(Through::default());
        }
        let set = plain(group, programs).with(self.defined_on(group, held, deadline)?);
        self.open_windows(&set, None, held, |_, id| id, deadline)
    }

    /// Returns the communicators, except for the one of all cards, that all their members in `group` have. Collective.
    fn defined_on(&mut self, group: &[u32], held: &[(usize, usize)], deadline: Deadline) -> Result<Vec<Communicator>> {
        let mut own = Vec::new();
        for card in held.iter().map(|(_, index)| &self.cards()[*index]) {
            let certain = card.entries.iter().flatten().filter(|defined| defined.is_certain);
            own.extend(certain.map(|defined| (card.node(), defined.id.raw(), defined.members.to_vec())));
        }
        let ((), all) = self.exchange(Ok(()), |()| own, deadline)?;
        let mut having: BTreeMap<(u16, Vec<u32>), BTreeSet<u32>> = BTreeMap::new();
        for (node, id, members) in all.into_iter().flatten() {
            having.entry((id, members)).or_default().insert(node);
        }
        having.retain(|(_, members), nodes| members.iter().all(|node| nodes.contains(node) || !group.contains(node)));
        Ok(having.into_keys().map(|(id, members)| Communicator { id, members }).collect())
    }

    /// Runs programs on the cards held here, of a group of these nodes. What is in flight at the end is abandoned.
    pub(crate) fn run_programs(&mut self, group: &[u32], runs: &mut [ProgramRun<'_>], deadline: Deadline) -> Ending {
        let filled = runs.iter_mut().try_for_each(|run| run.fill(&mut self.cards[run.card]).map(drop));
        let ran = filled.and_then(|()| ranks::run(&mut self.cards, runs, &mut (), &mut *self.group.peers, deadline));
        let unfinished = runs.iter().filter_map(ProgramRun::unfinished);
        let (ended, late) = ending::of_run(&self.cards, ran, unfinished, deadline);
        runs.iter_mut().flat_map(|run| run.tokens.drain(..)).for_each(Token::abandon);
        let failed = ranks::first_failure(runs, |run, aborted| run.failure(group[run.rank as usize], aborted));
        // What has failed and is complete is the caller's: the cards keep what came in for them.
        Ending { failed, ended, late, is_clean: runs.iter().all(ProgramRun::is_done) }
    }
}

/// The programs without the host memory that is bound to them.
fn plain(group: &[u32], programs: &[Vec<Bound>]) -> ProgramSet {
    let instructions = |program: &Vec<Bound>| program.iter().map(|bound| *bound.instruction()).collect::<Vec<_>>();
    ProgramSet::new(group, programs.iter().map(instructions))
}

/// The program of `rank`, with the windows that its instructions go through.
fn named<'p>(program: &'p [Bound], rank: usize, through: &Through) -> Cow<'p, [Bound]> {
    let mut program = Cow::Borrowed(program);
    for (index, window) in through.of(rank) {
        let bound = &mut program.to_mut()[index];
        bound.instruction = bound.instruction.through(window);
    }
    program
}

/// The run of one rank's program.
pub(crate) struct ProgramRun<'p> {
    rank: u32,
    /// Index of the card.
    card: usize,
    program: Cow<'p, [Bound]>,
    /// Instructions stored.
    next: usize,
    tokens: VecDeque<Token>,
    completions: Vec<Completion>,
    has_failed: bool,
}

impl<'p> ProgramRun<'p> {
    pub(crate) fn new(rank: u32, card: usize, program: Cow<'p, [Bound]>) -> Self {
        let completions = Vec::with_capacity(program.len());
        ProgramRun { rank, card, program, next: 0, tokens: VecDeque::new(), completions, has_failed: false }
    }

    /// Stores as many instructions as fit into the ring. Returns whether there was any.
    fn fill(&mut self, card: &mut Card) -> Result<bool> {
        let before = self.next;
        while let Some(bound) = self.program.get(self.next) {
            if !ranks::may_push(card.queue_mut(), &self.tokens) {
                break;
            }
            self.tokens.push_back(card.queue_mut().push(bound)?);
            self.next += 1;
        }
        Ok(self.next != before)
    }

    /// Takes the completions that are there.
    fn collect(&mut self, card: &mut Card) -> Result<()> {
        ranks::collect(card.queue_mut(), &mut self.tokens, |completion| {
            self.has_failed |= completion.status != Status::Done;
            self.completions.push(completion);
        })
    }

    /// Returns the first failure; an aborted instruction is one only if `aborted` says so.
    fn failure(&self, node: u32, aborted: bool) -> Option<Error> {
        let is_failure = |one: &Completion| one.status != Status::Done && (aborted || one.status != Status::Aborted);
        let index = self.completions.iter().position(is_failure)?;
        let operation = self.program[index].instruction().operation;
        ranks::failure((self.rank, node), index, operation, self.completions[index])
    }

    /// Returns what the rank is at, unless it is done.
    fn unfinished(&self) -> Option<Unfinished> {
        let done = self.completions.len();
        Some(Unfinished {
            rank: self.rank,
            card: self.card,
            phase: "program",
            instruction: Some(done),
            operation: self.program.get(done)?.instruction().operation,
            completed: done as u64,
        })
    }
}

impl RankRun for ProgramRun<'_> {
    type Shared = ();

    fn card(&self) -> usize {
        self.card
    }

    fn advance(&mut self, card: &mut Card, _: &mut ()) -> Result<bool> {
        self.collect(card)?;
        self.fill(card)
    }

    fn is_done(&self) -> bool {
        self.completions.len() == self.program.len()
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }
}
