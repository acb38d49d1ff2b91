//! Running a plan: the same start for all ranks, one doorbell per card, one deadline.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cmdseq::plan::{Collective, Communicator, Plan};
use cmdseq::{Capabilities, Completion, Instruction, Operation, Status, Topology, instruction};
use fpga_hal::DmaBuffer;

use crate::bound::Bound;
use crate::card::Card;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::lanes::{self, Ended, Lane};
use crate::queue::check;
use crate::report::{Execution, RankReport, Report};
use crate::state::CYCLES_MASK;
use crate::token::Token;

/// Barriers before a program: the first lets all arrive, the second releases all at once (OPTWEB paper, section 4.2).
const BARRIERS: usize = 2;

impl Cluster {
    /// Runs `plan` on its cards: defines those of its communicators that are not defined, loads the tables that are not
    /// loaded, synchronises the cards by barriers, runs the programs, and
    /// waits for all. The input is to be in place before: see [`write_input`](Cluster::write_input). A communicator that a
    /// program defines itself needs an entry in which the cluster has none: those at the end are taken last.
    ///
    /// # Errors
    /// [`Error::Failed`] for the lowest rank that failed, with the index in its program (0 for the barriers before it);
    /// [`Error::Timeout`] for the lowest rank that did not complete. After either, all cards of the plan were
    /// aborted and the destinations of the plan are undefined. Those of [`contexts`](Cluster::contexts), and
    /// [`Error::BadArgument`] if a node of the group is not among the cards.
    pub fn execute(&mut self, plan: &Plan, execution: &Execution) -> Result<Report> {
        let ranks = plan.request.group.len();
        if plan.programs.len() != ranks {
            return Err(Error::argument("programs", plan.programs.len(), format!("one for each of {ranks} ranks")));
        }
        if execution.repeat == 0 {
            return Err(Error::argument("repeat", 0, "at least 1"));
        }
        let delays = &execution.start_delay_cycles;
        if !delays.is_empty() && delays.len() != ranks {
            return Err(Error::argument("start delays", delays.len(), format!("one for each of {ranks} ranks")));
        }
        let places = plan.request.group.iter().map(|node| self.place(*node)).collect::<Result<Vec<_>>>()?;
        let start = synchronise(plan, self.capabilities());
        let changed = changed_ids(plan);
        let freed = changed.iter().map(|(_, id)| *id).collect();
        let contexts = self.contexts_apart(plan.communicators.iter().chain(&start.communicators), &freed)?;
        self.load_tables(plan, &places)?;

        let mut lanes: Vec<_> = (0..ranks)
            .map(|rank| {
                let delay = delays.get(rank).copied().filter(|cycles| *cycles != 0);
                let node = plan.request.group[rank];
                let start = start.of(rank, plan, self.capabilities()).repeat(BARRIERS);
                let synchronising = start.len();
                let mut prologue = contexts.translate(node, &start).into_owned();
                prologue.extend(delay.map(Instruction::delay));
                let program = contexts.translate(node, &plan.programs[rank].instructions);
                Rank::new(rank as u32, places[rank], prologue, synchronising, program, execution)
            })
            .collect();
        let began = Instant::now();
        let mut outcome = self.run_lanes(&mut lanes, began, execution.timeout);
        if outcome.is_err() || lanes.iter().any(|lane| !lane.is_done() || lane.has_failed()) {
            outcome = outcome.and(self.abort_all(&mut lanes));
        }
        changed.iter().try_for_each(|(node, id)| self.unsettle(*node, contexts.id(*node, *id)))?;
        first_failure(&lanes, self.cards())?;
        outcome?;
        let clock_khz = self.capabilities().clock_khz;
        let is_barrier = plan.request.collective == Collective::Barrier;
        let reports = lanes.into_iter().map(|lane| lane.report(self.cards())).collect();
        Ok(Report::new(reports, clock_khz, is_barrier))
    }

    /// Loads the tables of the programs that the cards do not have yet, on all of them at once.
    fn load_tables(&mut self, plan: &Plan, places: &[usize]) -> Result<()> {
        let cards = self.all_mut();
        let mut loading = Vec::new();
        for (place, program) in places.iter().zip(&plan.programs) {
            let tokens = cards[*place].push_tables(&program.tables)?;
            if !tokens.is_empty() {
                loading.push((*place, &program.tables, tokens));
            }
        }
        loading.into_iter().try_for_each(|(place, tables, tokens)| cards[place].await_tables(tables, tokens))
    }

    /// Fills the rings, and runs the lanes until all are done, or some have failed and the others had time to.
    fn run_lanes(&mut self, lanes: &mut [Rank<'_>], began: Instant, timeout: Duration) -> Result<()> {
        let cards = self.all_mut();
        for lane in lanes.iter_mut() {
            lane.fill(&mut cards[lane.place])?;
        }
        match lanes::run(cards, lanes, began, timeout)? {
            Ended::Done => Ok(()),
            Ended::Late => Err(late(lanes, cards, timeout)),
        }
    }

    /// Ends what is not done. Cards that have failed are told as well: what came in for them is of no use any more.
    fn abort_all(&mut self, lanes: &mut [Rank<'_>]) -> Result<()> {
        lanes.iter_mut().flat_map(|lane| lane.tokens.drain(..)).for_each(Token::abandon);
        lanes::abort(self.all_mut(), lanes.iter().map(|lane| lane.place))
    }
}

/// One rank's run.
struct Rank<'p> {
    rank: u32,
    place: usize,
    prologue: Vec<Instruction>,
    /// So many of the prologue bring the cards to one start.
    synchronising: usize,
    program: Cow<'p, [Instruction]>,
    /// Host memory that the program may name.
    buffers: &'p [Arc<DmaBuffer>],
    total: usize,
    next: usize,
    tokens: VecDeque<Token>,
    completions: Vec<Completion>,
}

impl<'p> Rank<'p> {
    fn new(
        rank: u32,
        place: usize,
        prologue: Vec<Instruction>,
        synchronising: usize,
        program: Cow<'p, [Instruction]>,
        execution: &'p Execution,
    ) -> Self {
        let total = prologue.len() + program.len() * execution.repeat as usize;
        let buffers = &execution.buffers;
        let (tokens, completions) = (VecDeque::new(), Vec::with_capacity(total));
        Rank { rank, place, prologue, synchronising, program, buffers, total, next: 0, tokens, completions }
    }

    fn instruction(&self, count: usize) -> &Instruction {
        match count.checked_sub(self.prologue.len()) {
            None => &self.prologue[count],
            Some(behind) => &self.program[behind % self.program.len()],
        }
    }

    /// Index in the program of the lane's instruction `count`; 0 before the program.
    fn index(&self, count: usize) -> usize {
        count.checked_sub(self.prologue.len()).map_or(0, |behind| behind % self.program.len())
    }

    /// Stores what fits into the ring. Says whether anything did.
    fn fill(&mut self, card: &mut Card) -> Result<bool> {
        let before = self.next;
        while self.next < self.total && card.queue_mut().has_room() {
            let bound = Bound::covered_by(self.instruction(self.next), self.buffers);
            self.tokens.push_back(card.queue_mut().push(bound)?);
            self.next += 1;
        }
        Ok(self.next != before)
    }

    /// Takes the completions that are there. Says whether there were any.
    fn collect(&mut self, card: &mut Card) -> Result<bool> {
        let queue = card.queue_mut();
        queue.poll()?;
        let before = self.completions.len();
        while let Some(token) = self.tokens.pop_front() {
            match queue.take(token)? {
                Ok(completion) => self.completions.push(completion),
                Err(token) => {
                    self.tokens.push_front(token);
                    break;
                }
            }
        }
        Ok(self.completions.len() != before)
    }

    /// Its first failure, with the rank; those that were only aborted count only if `aborted` says so.
    fn failure(&self, node: u32, aborted: bool) -> Option<Error> {
        let failed = |completion: &Completion| {
            completion.status != Status::Done && (aborted || completion.status != Status::Aborted)
        };
        let count = self.completions.iter().position(failed)?;
        let operation = self.instruction(count).operation;
        match check(self.completions[count], node, self.index(count), operation) {
            Err(Error::Failed { node, instruction, operation, status, detail, .. }) => {
                Some(Error::Failed { node, rank: Some(self.rank), instruction, operation, status, detail })
            }
            _ => None,
        }
    }

    fn report(self, cards: &[Card]) -> RankReport {
        let (prologue, program) = self.completions.split_at(self.prologue.len());
        let start = self.synchronising.checked_sub(1).and_then(|last| prologue.get(last));
        let repetitions = match self.program.len() {
            0 => vec![Vec::new()],
            length => program.chunks(length).map(<[Completion]>::to_vec).collect(),
        };
        RankReport {
            rank: self.rank,
            node: cards[self.place].node(),
            prologue: prologue.to_vec(),
            synchronised: start.map(|completion| (completion.issued + completion.t2) & CYCLES_MASK),
            repetitions,
        }
    }
}

impl Lane for Rank<'_> {
    fn place(&self) -> usize {
        self.place
    }

    fn advance(&mut self, card: &mut Card) -> Result<bool> {
        let collected = self.collect(card)?;
        Ok(self.fill(card)? || collected)
    }

    fn is_done(&self) -> bool {
        self.completions.len() == self.total
    }

    fn has_failed(&self) -> bool {
        self.completions.iter().any(|completion| completion.status != Status::Done)
    }

    fn is_filling(&self) -> bool {
        self.next < self.total
    }
}

/// Nodes, and the ids of communicators that their programs define or free themselves.
fn changed_ids(plan: &Plan) -> BTreeSet<(u32, u16)> {
    let each = plan.request.group.iter().zip(&plan.programs);
    let each = each.flat_map(|(node, program)| program.instructions.iter().map(move |one| (*node, one)));
    let changes = each.filter(|(_, one)| matches!(one.operation, Operation::Group | Operation::Free));
    changes.map(|(node, one)| (node, one.communicator)).collect()
}

/// The failure to tell of: of the lowest rank that was not merely aborted, or of the lowest that was.
fn first_failure(lanes: &[Rank<'_>], cards: &[Card]) -> Result<()> {
    let failure = |aborted| lanes.iter().find_map(|lane| lane.failure(cards[lane.place].node(), aborted));
    failure(false).or_else(|| failure(true)).map_or(Ok(()), Err)
}

fn late(lanes: &[Rank<'_>], cards: &[Card], waited: Duration) -> Error {
    let mut unfinished = lanes.iter().filter(|lane| !lane.is_done());
    let Some(lane) = unfinished.next() else { unreachable!("called with a lane that is not done") };
    let (count, ranks) = (1 + unfinished.count(), lanes.len());
    let card = &cards[lane.place];
    let at = lane.completions.len();
    let (rank, index, operation) = (lane.rank, lane.index(at), lane.instruction(at).operation);
    let before = if at < lane.prologue.len() { " before the program" } else { "" };
    let what = format!(
        "rank {rank}, instruction {index} ({operation}{before}) to complete, {count} of {ranks} ranks not being done; \
         the destinations of the plan are undefined"
    );
    match card.queue().timeout(what, waited) {
        Error::Timeout { what, node, waited, last_seen, .. } => {
            Error::Timeout { what, node, rank: Some(rank), instruction: Some(index), waited, last_seen }
        }
        other => other,
    }
}

/// How the cards of a group are brought to one start.
#[derive(Debug, Default, PartialEq, Eq)]
struct Synchronisation {
    /// Communicators that the plan itself does not have.
    communicators: Vec<Communicator>,
    /// By rank, the communicators on which one barrier after another makes one of the whole group.
    barriers: Vec<Vec<u16>>,
}

impl Synchronisation {
    /// What `rank` runs once to come to the start that all have.
    fn of(&self, rank: usize, plan: &Plan, capabilities: &Capabilities) -> Vec<Instruction> {
        let node = plan.request.group[rank];
        let all = || plan.communicators.iter().chain(&self.communicators);
        let mut instructions = Vec::new();
        for id in &self.barriers[rank] {
            let barrier = Instruction::barrier().on(*id);
            let of_node = all().find(|one| one.id == *id && one.members.contains(&node));
            let size = of_node.map_or(capabilities.nodes as usize, |one| one.members.len());
            let is_first = of_node.map_or(node == 0, |one| one.members.first() == Some(&node));
            if size == 2 && capabilities.runs(Operation::Delay) {
                instructions.extend(level(barrier, is_first, capabilities));
            } else {
                instructions.push(barrier);
            }
        }
        instructions
    }
}

/// A barrier that two cards leave together. Among more than two, whoever came last waits for nobody and the next barrier
/// makes up for that; two would leave every barrier a signal's way apart. So it is made sure who comes last, and that one
/// waits for as long as its own signal takes.
fn level(barrier: Instruction, is_first: bool, capabilities: &Capabilities) -> Vec<Instruction> {
    let cycles = u64::from(capabilities.timing.control_ps) * u64::from(capabilities.clock_khz) / 1_000_000_000;
    match is_first {
        true => vec![barrier, Instruction::delay(1)],
        false => vec![Instruction::delay(2 * cycles), barrier, Instruction::delay(1 + cycles)],
    }
}

/// One barrier over the group if all its cards are linked; else one within and one across the groups of the Dragonfly,
/// which together hold nobody back and let nobody through early.
fn synchronise(plan: &Plan, capabilities: &Capabilities) -> Synchronisation {
    let group = &plan.request.group;
    let members: BTreeSet<_> = group.iter().copied().collect();
    let nodes = capabilities.nodes;
    let none = Synchronisation { communicators: Vec::new(), barriers: vec![Vec::new(); group.len()] };
    if members.len() < 2 {
        return none;
    }
    let same = |id: u16| vec![vec![id]; group.len()];
    let is_linked = members.iter().all(|a| members.range(a + 1..).all(|b| capabilities.topology.linked(*a, *b, nodes)));
    let whole = members.len() as u32 == nodes;
    if is_linked {
        if whole {
            return Synchronisation { barriers: same(instruction::WORLD), ..none };
        }
        let covers = |one: &&Communicator| one.members.iter().copied().collect::<BTreeSet<_>>() == members;
        if let Some(communicator) = plan.communicators.iter().find(covers) {
            return Synchronisation { barriers: same(communicator.id), ..none };
        }
        let Some(id) = free_id(plan, capabilities, 1) else { return none };
        let all = Communicator { id, members: group.clone() };
        return Synchronisation { communicators: vec![all], barriers: same(id) };
    }
    let within: Vec<_> =
        plan.communicators.iter().filter(|one| one.members.iter().all(|node| members.contains(node))).collect();
    let of = |communicators: &[&Communicator], node: u32| {
        let ids = communicators.iter().filter(|one| one.members.contains(&node)).map(|one| one.id);
        ids.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    if !within.is_empty() {
        return Synchronisation { barriers: group.iter().map(|node| of(&within, *node)).collect(), ..none };
    }
    let (Topology::Dragonfly { groups }, true) = (capabilities.topology, whole) else { return none };
    let Some(id) = free_id(plan, capabilities, 2) else { return none };
    let size = nodes / groups;
    let rows = (0..groups).map(|row| Communicator { id, members: (row * size..(row + 1) * size).collect() });
    let columns = (0..size)
        .map(|place| Communicator { id: id + 1, members: (0..groups).map(|row| row * size + place).collect() });
    let communicators: Vec<_> = rows.chain(columns).collect();
    let all: Vec<_> = communicators.iter().collect();
    let barriers = group.iter().map(|node| of(&all, *node)).collect();
    Synchronisation { communicators, barriers }
}

/// The first of `count` indices behind those of the plan, if the cards' tables have room.
fn free_id(plan: &Plan, capabilities: &Capabilities, count: u32) -> Option<u16> {
    let first = plan.communicators.iter().map(|one| one.id).max().unwrap_or(instruction::WORLD).checked_add(1)?;
    (u32::from(first) + count <= capabilities.communicators).then_some(first)
}
