//! Schedules that stay on the cards and are launched again and again: planned once, encoded once, one doorbell per card.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cmdseq::completion::OUT_OF_MEMORY;
use cmdseq::graph::Schedule;
use cmdseq::instruction::ARGUMENTS;
use cmdseq::plan::ProgramSet;
use cmdseq::verify::{verify_in_flight, verify_resident};
use cmdseq::{Capabilities, Completion, Encoded, Instruction, Operation, Refusal, Status, instruction};

use crate::card::Card;
use crate::card::resident::Resident;
use crate::cluster::agreement::{agreed, digest};
use crate::cluster::blame::{Late, Unfinished};
use crate::cluster::ending::{Ending, Told};
use crate::cluster::ranks::{self, RankRun};
use crate::cluster::windows::Through;
use crate::cluster::{Cluster, check_count, in_phase};
use crate::communicators::contexts::Contexts;
use crate::deadline::Deadline;
use crate::error::{Error, NO_DETAIL, Result};
use crate::ledger::token::Tokens;
use crate::report::times::Times;

/// Launches in flight for which there is room without allocating.
const FLIGHTS: usize = 16;

/// What becomes of a launch after a timeout.
const GOES_ON: &str = "it goes on, and may be waited for again";

/// The error of a schedule of another cluster, and of one whose programs are not all on the cards any more.
const STALE: Error = Error::Stale { what: "prepared schedule" };

/// A schedule stored on the cards of a [`Cluster`], ready to be [launched](Cluster::launch).
///
/// It is there as long as it lives and none of its cards is reset; dropping it releases its slots and communicators. The
/// windows of its one-sided instructions are closed by the next call that opens some, or by [`Cluster::close_windows`].
/// Launches in flight then run to their end.
#[derive(Debug)]
pub struct Prepared {
    schedule: Schedule,
    capabilities: Capabilities,
    ranks: Vec<Rank>,
    in_flight: usize,
    /// Why a launch in flight was not launched on the cards held here.
    not_launched: Option<Error>,
    /// Why a launch needs its cards exclusively, if it does.
    exclusive: Option<Refusal>,
    /// That of its cluster.
    cluster: Arc<()>,
    /// Its claim of the cards, while somebody may finish what is in flight.
    pin: Arc<()>,
    /// As long as it lives, its windows are open.
    _windows: Through,
    /// As long as it lives, its communicators are defined.
    _contexts: Contexts,
}

/// One card's part.
#[derive(Debug)]
struct Rank {
    rank: u32,
    card: usize,
    resident: Resident,
    /// The launch. Each goes into the ring with a tag of its own, so that none can take the completion of another.
    word: Encoded,
    /// Of the launches in flight, the oldest first.
    tokens: Tokens,
    /// Of the launch that is waited for, if it is complete on this card.
    current: Option<Completion>,
    /// Of the launch that was finished last.
    completion: Option<Completion>,
}

impl Rank {
    fn instruction(&self, arguments: [u64; ARGUMENTS]) -> Instruction {
        Instruction::launch(u64::from(self.resident.slot()), arguments)
    }
}

impl Prepared {
    /// What is launched.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Launches not waited for.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Cards that a launch rings: those whose program is not empty.
    pub fn cards(&self) -> usize {
        self.ranks.len()
    }

    /// By rank, the completion of the launch that was finished last.
    pub fn completions(&self) -> impl Iterator<Item = (u32, Completion)> {
        self.ranks.iter().filter_map(|rank| Some((rank.rank, rank.completion?)))
    }

    /// Binds a buffer to another address on every card, for the launches to come. One word per card is encoded anew; what
    /// is on the cards stays, windows too: one-sided instructions go on to reach the ranges of when they were prepared.
    ///
    /// # Errors
    /// [`Error::Unbound`] if the buffer is none that can be bound, or the address is invalid; then nothing has changed.
    pub fn rebind(&mut self, buffer: &str, address: u64) -> Result<()> {
        self.schedule.rebind(buffer, address, &self.capabilities).map_err(Error::Unbound)?;
        self.encode();
        Ok(())
    }

    fn encode(&mut self) {
        let arguments = self.schedule.arguments();
        for rank in &mut self.ranks {
            rank.word = Encoded::new(&rank.instruction(arguments));
        }
    }

    fn times(&self) -> Times {
        largest(self.completions().map(|(_, one)| one))
    }

    /// Times of the launch that is waited for, as far as it is complete.
    fn times_now(&self) -> Times {
        largest(self.ranks.iter().filter_map(|rank| rank.current))
    }

    /// Notes that the oldest launch has ended.
    fn end_launch(&mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.completion = rank.current.take());
        self.in_flight -= 1;
    }

    /// Returns the failure to report, as [`Cluster::execute`] does: of the lowest rank that was not merely aborted, or of
    /// the lowest that was.
    fn first_failure(&self, cards: &[Card]) -> Result<()> {
        ranks::first_failure(&self.ranks, |rank, aborted| self.failure(rank, cards, aborted))
    }

    fn failure(&self, rank: &Rank, cards: &[Card], aborted: bool) -> Option<Error> {
        let Completion { status, detail, .. } = rank.current?;
        if status == Status::Done || (!aborted && status == Status::Aborted) {
            return None;
        }
        let is_of_launch =
            matches!(status, Status::BadProgram | Status::BadChecksum | Status::BadVersion | Status::BadOperation);
        let program = &self.schedule.set.programs[rank.rank as usize].instructions;
        let of_program = program.get(usize::from(detail)).filter(|_| !is_of_launch);
        let (instruction, operation, detail) = match of_program {
            // The card whose window it missed is known without the detail.
            Some(one) if status == Status::BadWindow => {
                (usize::from(detail), one.operation, self.peer(rank, one).unwrap_or(NO_DETAIL))
            }
            // Verified programs stay within card memory.
            Some(one) if status == Status::OutOfRange && cards[rank.card].is_mock() => {
                (usize::from(detail), one.operation, OUT_OF_MEMORY)
            }
            Some(one) => (usize::from(detail), one.operation, NO_DETAIL),
            None => (0, Operation::Launch, detail),
        };
        let node = cards[rank.card].node();
        Some(Error::Failed { node, rank: Some(rank.rank), instruction, operation, status, detail })
    }

    /// Returns the node of the peer that `instruction` of a rank names.
    fn peer(&self, rank: &Rank, instruction: &Instruction) -> Option<u16> {
        let Instruction { operation, communicator, peer, .. } = *instruction;
        if !operation.fields().peer {
            return None;
        }
        if communicator == instruction::WORLD {
            return Some(peer);
        }
        let set = &self.schedule.set;
        let node = set.nodes.get(rank.rank as usize)?;
        set.communicator(*node, communicator)?.members.get(usize::from(peer)).and_then(|node| u16::try_from(*node).ok())
    }

    /// Observes the ranks that are not done.
    fn late(&self, cards: &[Card], waited: Duration) -> Late {
        let unfinished = |rank: &Rank| Unfinished {
            rank: rank.rank,
            card: rank.card,
            phase: "launched program",
            instruction: None,
            operation: Operation::Launch,
            completed: 0,
        };
        let unfinished: Vec<_> = self.ranks.iter().filter(|rank| !rank.is_done()).map(unfinished).collect();
        Late::observe(cards, &unfinished, waited)
    }
}

/// The largest times of several cards.
fn largest(completions: impl Iterator<Item = Completion>) -> Times {
    let times = |one: Completion| Times { t1_cycles: one.t1, t2_cycles: one.t2, arrival_cycles: one.arrival };
    completions.fold(Times::default(), |all, one| all.largest(times(one)))
}

impl RankRun for Rank {
    type Shared = ();

    fn card(&self) -> usize {
        self.card
    }

    fn advance(&mut self, card: &mut Card, _: &mut ()) -> Result<bool> {
        if self.is_done() {
            return Ok(false);
        }
        let queue = card.queue_mut();
        queue.poll()?;
        if let Some(token) = self.tokens.pop_done() {
            self.current = queue.take(token)?.ok();
        }
        Ok(false)
    }

    fn is_done(&self) -> bool {
        self.current.is_some()
    }

    fn has_failed(&self) -> bool {
        self.current.is_some_and(|completion| completion.status != Status::Done)
    }
}

impl Cluster {
    /// Stores the programs of `schedule` on its cards, verified for these cards, and defines its communicators. Nothing runs
    /// yet. [`Schedule::of`] makes a schedule of a plan, and `Schedule::from` one of a program set.
    ///
    /// # Errors
    /// [`Error::Refused`] by the verifier, which knows what a card can store; [`Error::BadArgument`] if a node is not among the
    /// cards, or no slot is free; [`Error::Differs`] if the ranks have other programs, or have bound their buffers differently; those
    /// of [`contexts`](Cluster::contexts) and [`Card::store`]. The whole call
    /// takes no longer than the shortest of the cards' [timeouts](Card::timeout).
    pub fn prepare(&mut self, schedule: &Schedule) -> Result<Prepared> {
        let Schedule { set, .. } = schedule;
        let (group, arguments) = (&set.nodes, vec![schedule.arguments(); schedule.set.programs.len()]);
        let verified = check_count(set.programs.len(), group)
            .and_then(|()| Ok(verify_resident(set, &arguments, self.capabilities())?));
        let deadline = self.deadline();
        let held = verified.and_then(|()| self.running(group));
        let terms = || {
            let binding = schedule.arguments().map(|address| format!("0x{address:x}")).join(" ");
            vec![("program digest".to_owned(), digest(set)), ("binding".to_owned(), binding)]
        };
        let held = self.compare_until(held, terms, deadline)?;
        let exclusive = verify_in_flight(set, &arguments, self.capabilities()).err();
        let contexts = self
            .contexts_apart(&set.communicators, &BTreeSet::new(), deadline)
            .map_err(|error| in_phase(error, group, "communicators"))?;
        let through = self
            .open_windows(set, Some(&arguments), &held, |node, id| contexts.id(node, id), deadline)
            .map_err(|error| in_phase(error, group, "windows"))?;
        let stored = self.store_all(set, &held, &contexts, &through, deadline);
        let ranks = self.agree_until(stored, deadline)?;
        let (schedule, capabilities) = (schedule.clone(), self.capabilities().clone());
        let mut prepared = Prepared {
            schedule,
            capabilities,
            ranks,
            in_flight: 0,
            not_launched: None,
            exclusive,
            cluster: Arc::clone(&self.identity),
            pin: Arc::default(),
            _windows: through,
            _contexts: contexts,
        };
        prepared.encode();
        Ok(prepared)
    }

    /// Stores the programs of the cards held here.
    fn store_all(
        &mut self,
        set: &ProgramSet,
        held: &[(usize, usize)],
        contexts: &Contexts,
        through: &Through,
        deadline: Deadline,
    ) -> Result<Vec<Rank>> {
        let mut ranks = Vec::with_capacity(held.len());
        for (rank, index) in held {
            let program = &set.programs[*rank];
            if program.instructions.is_empty() {
                continue;
            }
            let card = self.card_mut(*index);
            let slot = card.free_slot()?;
            let mut program = contexts.translate(card.node(), &program.instructions);
            through.name(*rank, &mut program);
            let resident = card
                .store_until(slot, &*program, deadline)
                .map_err(|error| in_phase(error, &set.nodes, "storing the program"))?;
            let tokens = card.queue().tokens(FLIGHTS);
            ranks.push(Rank {
                rank: *rank as u32,
                card: *index,
                resident,
                word: Encoded::new(&Instruction::nop()),
                tokens,
                current: None,
                completion: None,
            });
        }
        Ok(ranks)
    }

    /// Launches `prepared` on all its cards held here: one word that was encoded before into each ring, and one doorbell for each
    /// card. [`finish`](Cluster::finish) waits for it. Asks no other rank: all ranks launch the same, in the same order. If other
    /// processes hold members, a launch that fails here is reported by `finish`, on all ranks. Several launches may be in flight;
    /// each card runs them one after another, but not all cards at the same time. If a one-sided operation of `prepared` can reach a
    /// card before or after that card runs the same launch, the launch needs its cards for itself until it is finished, and asks the
    /// other ranks whether it can have them.
    ///
    /// # Errors
    /// [`Error::Refused`] if `prepared` needs its cards for itself and something is in flight there, or a launch in flight needs them
    /// for itself; [`Error::Stale`] if a card was reset or the slot stored anew since, or `prepared` is another cluster's;
    /// [`Error::BadArgument`] if the eager limit of a card is not that for which `prepared` was verified; [`Error::Full`] if a ring
    /// is; [`Error::Removed`], [`Error::BadCompletion`] or [`Error::NotRunning`] if a queue does
    /// not run: then nothing was launched. If a bus fails, what is in flight was aborted.
    #[inline]
    pub fn launch(&mut self, prepared: &mut Prepared) -> Result<()> {
        if let Some(why) = &prepared.exclusive {
            self.claim(&prepared.schedule.set.nodes, why, &prepared.pin)?;
        }
        match self.launch_here(prepared) {
            Ok(()) => Ok(()),
            Err(error) if self.is_alone() || self.check_own(prepared).is_err() => {
                self.unclaim(&prepared.pin);
                Err(error)
            }
            Err(error) => {
                prepared.in_flight += 1;
                prepared.not_launched.get_or_insert(error);
                Ok(())
            }
        }
    }

    #[inline]
    fn launch_here(&mut self, prepared: &mut Prepared) -> Result<()> {
        if prepared.exclusive.is_none() {
            self.check_unclaimed(&prepared.schedule.set.nodes)?;
        }
        let eager_limit = prepared.capabilities.eager_limit;
        let cards = &mut self.cards;
        for rank in &prepared.ranks {
            let Some(card) = cards.get_mut(rank.card).filter(|card| card.has(&rank.resident)) else {
                return Err(STALE);
            };
            if card.eager_limit() != eager_limit {
                return Err(verified_for(eager_limit, card));
            }
            let queue = card.queue_mut();
            if !queue.may_push()? {
                let instruction = rank.instruction(prepared.schedule.arguments());
                let instruction = Box::new(instruction.into());
                return Err(Error::Full { instruction, in_flight: queue.in_flight(), depth: queue.depth() });
            }
        }
        match start(cards, &mut prepared.ranks) {
            Ok(()) => prepared.in_flight += 1,
            failed if self.is_alone() => return failed.and(self.give_up_all(prepared)),
            failed => return failed,
        }
        Ok(())
    }

    /// Waits for the oldest launch in flight, for at most `timeout`, and returns its times: the largest over the ranks, from
    /// the launch on each. Collective: the first rank whose time is over ends the wait of all. After a timeout nothing was consumed or
    /// aborted: the launch goes on, and may be waited for again or [given up](Cluster::give_up).
    ///
    /// # Errors
    /// [`Error::Timeout`] for the rank that the others wait for. [`Error::Failed`] for the lowest rank that failed, with the
    /// index of the instruction in its program; after it, and after an error of a bus or a queue, the cards of `prepared`
    /// were aborted, with whatever they had in flight, and those that run can be launched again. [`Error::BadArgument`] if
    /// nothing is in flight. [`Error::Stale`] if a card was reset or the slot stored anew since: what was in flight is forgotten then;
    /// and if `prepared` is of another cluster, which changes nothing.
    pub fn finish(&mut self, prepared: &mut Prepared, timeout: Duration) -> Result<Times> {
        self.check_own(prepared)?;
        if prepared.in_flight == 0 {
            return Err(Error::argument("number of launches in flight", 0, "at least one to finish"));
        }
        let stale = self.check_stored(prepared).err();
        let deadline = Deadline::after(timeout);
        if !self.is_alone() {
            prepared.not_launched = prepared.not_launched.take().or(stale);
            return self.finish_together(prepared, deadline);
        }
        if let Some(stale) = stale {
            prepared.forget();
            return Err(stale);
        }
        let begin = self.moment();
        let ran = ranks::run(&mut self.cards, &mut prepared.ranks, &mut (), &mut *self.group.peers, deadline);
        self.end_span("wait", begin);
        let cards = &mut self.cards;
        let mut ended = ran.map(drop);
        let has_failed = prepared.ranks.iter().any(Rank::has_failed);
        if ended.is_ok() && !has_failed && !prepared.ranks.iter().all(Rank::is_done) {
            match prepared.late(cards, deadline.waited()).error(&prepared.schedule.set.nodes, GOES_ON) {
                late @ Error::Timeout { .. } => return Err(late),
                // The card that the others wait for is gone.
                other => ended = Err(other),
            }
        }
        let failed = prepared.first_failure(cards);
        prepared.end_launch();
        self.unclaim(&prepared.pin);
        let aborted = if ended.is_err() || has_failed { self.give_up_all(prepared) } else { Ok(()) };
        failed.and(ended).and(aborted).map(|()| prepared.times())
    }

    /// Waits for the oldest launch in flight with the ranks of other processes.
    fn finish_together(&mut self, prepared: &mut Prepared, deadline: Deadline) -> Result<Times> {
        let begin = self.moment();
        let ended = match prepared.not_launched.take() {
            Some(error) => Err(error),
            None => {
                ranks::run(&mut self.cards, &mut prepared.ranks, &mut (), &mut *self.group.peers, deadline).map(drop)
            }
        };
        self.end_span("wait", begin);
        let is_clean = prepared.ranks.iter().all(Rank::is_done);
        let late = (ended.is_ok() && !is_clean).then(|| prepared.late(&self.cards, deadline.waited()));
        let failed = prepared.first_failure(&self.cards);
        let times = prepared.times_now();
        let told = self.tell(Ending { failed, ended, late, is_clean }, times, deadline);
        let (own, all) = match told {
            Ok(told) => told,
            Err(error) => {
                prepared.forget();
                let indices: Vec<usize> = prepared.ranks.iter().map(|rank| rank.card).collect();
                self.stop_without_others(&indices);
                return Err(error);
            }
        };
        if all.iter().all(Told::is_complete) {
            prepared.end_launch();
            self.unclaim(&prepared.pin);
            return Ok(all.into_iter().map(|told| told.data).fold(Times::default(), Times::largest));
        }
        if own.is_none() && all.iter().all(|told| told.failing.is_none()) {
            let seen = all.into_iter().flat_map(|told| told.seen).collect();
            return Err(Late::together(seen, deadline.waited()).error(&prepared.schedule.set.nodes, GOES_ON));
        }
        prepared.end_launch();
        let failing: Vec<_> = all.into_iter().map(|told| told.failing).collect();
        let aborted = self.give_up_all(prepared);
        agreed(own.map_or(Ok(()), Err), &failing).and(aborted).map(|()| Times::default())
    }

    /// Aborts the cards of `prepared` with whatever they have in flight: its launches, and what others have pushed. Collective.
    ///
    /// # Errors
    /// [`Error::Stale`] if a card was reset or the slot stored anew since, or if `prepared` is of another cluster, and on the other
    /// ranks [`Error::Peer`]: then nothing was aborted. The first card's that could not be aborted: it takes nothing more before it is reset.
    pub fn give_up(&mut self, prepared: &mut Prepared) -> Result<()> {
        let own = self.check_own(prepared);
        let is_own = own.is_ok();
        match self.agree(own.and_then(|()| self.check_stored(prepared))) {
            Ok(()) => self.give_up_all(prepared),
            Err(error) => {
                if is_own {
                    prepared.forget();
                }
                Err(error)
            }
        }
    }

    /// Makes sure that `prepared` is of this cluster: what another has in flight may be waited for there.
    fn check_own(&self, prepared: &Prepared) -> Result<()> {
        if Arc::ptr_eq(&prepared.cluster, &self.identity) { Ok(()) } else { Err(STALE) }
    }

    /// Makes sure that all programs of `prepared` are still on the cards.
    fn check_stored(&self, prepared: &Prepared) -> Result<()> {
        let is_stored = |rank: &Rank| self.cards().get(rank.card).is_some_and(|card| card.has(&rank.resident));
        if prepared.ranks.iter().all(is_stored) { Ok(()) } else { Err(STALE) }
    }

    /// Abandons all launches in flight and aborts them on the cards.
    fn give_up_all(&mut self, prepared: &mut Prepared) -> Result<()> {
        self.unclaim(&prepared.pin);
        prepared.forget();
        self.abort(prepared.ranks.iter().map(|rank| rank.card))
    }

    /// Writes bytes `offset` and on of a buffer of rank `rank`.
    ///
    /// # Errors
    /// [`Error::Stale`] if `prepared` is of another cluster; [`Error::BadArgument`] if there is no such rank or buffer, or it is
    /// smaller; else those of [`Card::write_memory`].
    pub fn write_buffer(&mut self, prepared: &Prepared, rank: u32, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        self.check_own(prepared)?;
        let (node, pieces) = prepared.find(rank, name)?;
        self.write_range(node, &pieces, "buffer", offset, data)
    }

    /// Reads bytes `offset` and on of a buffer of rank `rank`.
    ///
    /// # Errors
    /// As [`write_buffer`](Cluster::write_buffer).
    pub fn read_buffer(
        &mut self,
        prepared: &Prepared,
        rank: u32,
        name: &str,
        offset: u64,
        data: &mut [u8],
    ) -> Result<()> {
        self.check_own(prepared)?;
        let (node, pieces) = prepared.find(rank, name)?;
        self.read_range(node, &pieces, "buffer", offset, data)
    }
}

impl Prepared {
    /// Node of a rank, and where a buffer lies on it.
    fn find(&self, rank: u32, name: &str) -> Result<(u32, Vec<cmdseq::plan::Piece>)> {
        let group = &self.schedule.set.nodes;
        let expected = || format!("the schedule has {} ranks", group.len());
        let node = group.get(rank as usize).ok_or_else(|| Error::argument("rank", rank, expected()))?;
        let placed = self.schedule.buffer(name).ok_or_else(|| {
            let names: Vec<&str> = self.schedule.buffers.iter().map(|one| one.buffer.name.as_str()).collect();
            Error::argument("buffer", name, format!("one of: {}", names.join(", ")))
        })?;
        Ok((*node, placed.pieces(group.len() as u64, &self.capabilities)))
    }

    /// Abandons all launches in flight.
    fn forget(&mut self) {
        self.pin = Arc::default();
        for rank in &mut self.ranks {
            rank.tokens.abandon();
            rank.current = None;
        }
        self.in_flight = 0;
        self.not_launched = None;
    }
}

/// The error of a launch on a card with another eager limit: pieces that the verifier took for eager ones may wait for each other.
#[cold]
fn verified_for(eager_limit: u64, card: &Card) -> Error {
    let value = format!("{} bytes on node {}", card.eager_limit(), card.node());
    Error::argument("eager limit", value, format!("{eager_limit} bytes, for which the schedule was prepared"))
}

/// Stores a launch in the ring of each card, and rings it. The queues run and have room.
#[inline]
fn start(cards: &mut [Card], ranks: &mut [Rank]) -> Result<()> {
    for rank in ranks {
        cards[rank.card].queue_mut().submit_launch(&rank.word, &mut rank.tokens)?;
    }
    Ok(())
}
