//! A collective call: to the card if all ranks decide so, else to the MPI library.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpga_driver::Error;

use crate::arguments::Arguments;
use crate::buffers::{Place, Places};
use crate::data::{Apart, Data as _};
use crate::engine::{Ends, Engine, Finished, Registered, with_causes};
use crate::entry::Inside;
use crate::folding;
use crate::foreign::{Code, SUCCESS};
use crate::hints::{self, Wish};
use crate::memory;
use crate::mpi::Comm;
use crate::peers::MpiPeers;
use crate::records::{Cards, NO_RECORD, Record};
use crate::rounds::Rounds;
use crate::session::{Session, session};
use crate::settings::Policy;
use crate::shape::{Reason, shape};
use crate::statistics::{Call as Counted, Name};
use crate::team::{Call, Team, Told, folds};
use crate::trouble::Trouble;
use crate::vector;
use crate::verdicts::Verdicts;

/// How often each way is measured. The best counts.
const MEASUREMENTS: usize = 3;

/// What became of a call.
enum Outcome {
    /// The card has done it.
    Done,
    /// The MPI library is to do it.
    Pass,
    /// The card failed, and the call with it.
    Failed(String),
}

/// Runs a collective that the program has called with `arguments`, on the card or by `pass`.
///
/// # Safety
/// The program has called a function of MPI with these arguments, and what MPI requires of them holds.
pub(crate) unsafe fn collective(arguments: impl FnOnce() -> Arguments, pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let arguments = arguments();
    let outcome = match session().as_mut() {
        None => Outcome::Pass,
        // SAFETY: by this function's contract.
        Some(session) => unsafe { session.collective(&arguments) },
    };
    match outcome {
        Outcome::Done => SUCCESS,
        Outcome::Pass => pass(),
        Outcome::Failed(cause) => Comm(arguments.communicator).raise(&cause),
    }
}

/// Counts a call that always goes to the MPI library, and makes it.
pub(crate) fn counted(operation: &'static str, reason: Reason, pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    if let Some(session) = session().as_mut() {
        session.statistics.passed(&any(), operation, reason);
    }
    pass()
}

/// Calls that are not counted by communicator.
fn any() -> Name {
    Name::new("(any communicator)".to_owned(), 0)
}

/// Runs each way that calls of this shape may go, on data of its own with so many bytes of input and output, and returns whether the
/// cards, by `on_cards`, were faster on the slowest rank. Collective.
fn measure(
    call: &Call<'_>,
    rounds: Rounds<'_>,
    (input, output): (usize, usize),
    mut on_cards: impl FnMut(&[u8], &mut [u8]) -> Result<(), Trouble>,
) -> Result<bool, Trouble> {
    let (&Call { shape, handles, constants }, comm) = (call, rounds.comm);
    rounds.confirm()?;
    // The address of no memory at all is that of MPI_IN_PLACE: there is at least a byte.
    let room = input.max(output).max(1);
    let (send, mut receive) = (vec![0; room], vec![0; room]);
    let mut best = [u64::MAX; 2];
    for _ in 0..MEASUREMENTS {
        rounds.barrier()?;
        let began = Instant::now();
        on_cards(&send[..input], &mut receive[..output])?;
        best[0] = best[0].min(began.elapsed().as_nanos() as u64);
        rounds.barrier()?;
        let began = Instant::now();
        comm.collective(shape, &send, &mut receive, handles, constants)?;
        best[1] = best[1].min(began.elapsed().as_nanos() as u64);
    }
    let own = best.map(u64::to_le_bytes).concat();
    let all = rounds.allgather(&own)?;
    let slowest = |from: usize| {
        let times = all.iter().filter_map(|times| times.get(from..from + 8)?.try_into().ok());
        times.map(u64::from_le_bytes).max()
    };
    Ok(slowest(0) < slowest(8))
}

/// What the cards did and the time of the host; or why the MPI library is to run the call.
type Done = Result<(Finished, Duration), Reason>;

impl Session {
    /// # Safety
    /// As [`collective`].
    unsafe fn collective(&mut self, arguments: &Arguments) -> Outcome {
        let operation = arguments.collective.name();
        if let Err(reason) = self.cards {
            self.statistics.passed(&any(), operation, reason);
            return Outcome::Pass;
        }
        self.forget_all();
        if self.constants.abi.handle(arguments.communicator) == self.constants.comm_null {
            return Outcome::Pass;
        }
        // The number of its record, so that the record can be taken apart from the rest.
        let number = match self.record(Comm(arguments.communicator)) {
            Ok(number) => number,
            Err(Trouble::Mpi(_)) => return Outcome::Pass,
            Err(trouble) => return self.fail(&trouble),
        };
        let Some(mut record) = self.records.remove(number) else {
            return self.check().map_or_else(|trouble| self.fail(&trouble), |()| Outcome::Pass);
        };
        // SAFETY: by this function's contract.
        let outcome = unsafe { self.on(&mut record, arguments) };
        let outcome = match outcome {
            Ok(None) => Outcome::Done,
            Ok(Some(reason)) => {
                self.statistics.passed(&record.name, operation, reason);
                Outcome::Pass
            }
            Err(trouble) => self.fail(&trouble),
        };
        self.records.put(number, record);
        outcome
    }

    /// Notes that the card failed: this rank uses it no more.
    fn fail(&mut self, trouble: &Trouble) -> Outcome {
        let cause = trouble.text();
        let line = format!("fpga-mpi: rank {}: {cause}", self.rank);
        if self.failed.is_none() {
            eprintln!("{line}");
            self.failed = Some(cause);
        }
        Outcome::Failed(line)
    }

    /// Runs a call on the cards. Returns why not, if the MPI library is to run it.
    ///
    /// # Safety
    /// As [`collective`].
    unsafe fn on(&mut self, record: &mut Record, arguments: &Arguments) -> Result<Option<Reason>, Trouble> {
        let collective = arguments.collective;
        match &record.cards {
            Err(reason) => return Ok(Some(*reason)),
            Ok(Cards::Shared(..)) if !folds(collective) => return Ok(Some(Reason::SharedCard)),
            _ => {}
        }
        let constants = Arc::clone(&self.constants);
        let rounds = Rounds { comm: record.comm, constants: &constants, timeout: self.timeout() };
        let shape = if collective.has_counts() {
            // The others wait for this rank in the round of counts, and then for its card.
            self.check()?;
            vector::shape(arguments, rounds, (record.rank, record.size))?
        } else {
            shape(arguments, &self.constants, record.rank, record.size)
        };
        let shape = match shape {
            Ok(shape) => shape,
            Err(reason) => return Ok(Some(reason)),
        };
        let places = Places::of(arguments, &shape, &self.constants, (record.rank, record.size));
        let Some(places) = places.filter(|places| places.can_be_packed(self.probe)) else {
            return Ok(Some(Reason::Invalid));
        };
        let verdicts = (record.policy == Policy::Auto).then_some(&mut record.verdicts);
        if verdicts.as_ref().is_some_and(|verdicts| verdicts.known(&shape) == Some(false)) {
            return Ok(Some(Reason::Slower));
        }
        let handles = (arguments.receive.datatype, arguments.operation);
        let call = Call { shape: &shape, handles, constants: &constants };
        let done = match &mut record.cards {
            Err(reason) => Err(*reason),
            // SAFETY: by this function's contract.
            Ok(Cards::Own(registered)) => unsafe { self.on_own(registered, &call, (rounds, verdicts), &places) }?,
            Ok(Cards::Shared(registered, team)) => {
                if self.cards.as_ref().is_ok_and(|cards| cards.in_rank_order) && !team.keeps_order(&shape) {
                    return Ok(Some(Reason::RankOrder));
                }
                // SAFETY: by this function's contract.
                unsafe { self.on_shared((registered.as_mut(), team), &call, (rounds, verdicts), &places) }?
            }
        };
        let (Finished { cycles, copied }, host) = match done {
            Ok(done) => done,
            Err(reason) => return Ok(Some(reason)),
        };
        let (input, output) = places.bytes();
        let counted = Counted { bytes: (input + output) as u64, copied, host, card_cycles: cycles };
        self.statistics.offloaded(&record.name, collective.name(), counted);
        Ok(None)
    }

    /// Fails if an earlier call of this rank has failed.
    fn check(&self) -> Result<(), Trouble> {
        self.failed.as_ref().map_or(Ok(()), |cause| Err(Trouble::Earlier(cause.clone())))
    }

    /// Runs a call of ranks that all have cards. Returns why not, if the MPI library is to run it.
    ///
    /// # Safety
    /// As [`collective`].
    unsafe fn on_own(
        &mut self,
        registered: &mut Registered,
        call: &Call<'_>,
        (rounds, verdicts): (Rounds<'_>, Option<&mut Verdicts>),
        places: &Places,
    ) -> Result<Done, Trouble> {
        self.check()?;
        let (shape, constants, comm) = (call.shape, call.constants, rounds.comm);
        let reach = |place: &Option<Place>| {
            let (address, bytes) = place.as_ref()?.range()?;
            memory::reach(address, bytes)
        };
        let ends = Ends { input: reach(&places.input), output: reach(&places.output) };
        let Some(engine) = self.engine() else { return Ok(Err(Reason::NoCards)) };
        if !engine.plan(registered, shape)? {
            return Ok(Err(Reason::NoPlan));
        }
        let progress: &dyn Fn() = &|| comm.progress(constants);
        if let Some(verdicts) = verdicts {
            let is_faster = verdicts.known_or(shape, || {
                measure(call, rounds, registered.bytes(shape), |input, output| {
                    let mut data = Apart { input, output };
                    engine.call(registered, shape, &Ends::default(), &mut data, progress)?;
                    Ok(())
                })
            })?;
            if !is_faster {
                registered.forget_plan(shape);
                return Ok(Err(Reason::Slower));
            }
        }
        let began = Instant::now();
        // SAFETY: by this function's contract.
        let mut held = unsafe { places.hold(comm) }?;
        let finished = engine.call(registered, shape, &ends, &mut held, progress)?;
        held.release(comm)?;
        Ok(Ok((finished, began.elapsed())))
    }

    /// Runs a call of ranks that share cards. Returns why not, if the MPI library is to run it.
    ///
    /// # Safety
    /// As [`collective`].
    unsafe fn on_shared(
        &mut self,
        (mut registered, team): (Option<&mut Registered>, &mut Team),
        call: &Call<'_>,
        (rounds, verdicts): (Rounds<'_>, Option<&mut Verdicts>),
        places: &Places,
    ) -> Result<Done, Trouble> {
        let comm = rounds.comm;
        let progress = &|| comm.progress(call.constants);
        let verdict = match team.verdict(call.shape) {
            Some(known) => known,
            None => {
                team.make_room(registered.as_deref_mut());
                let verdict = self.judge((registered.as_deref_mut(), team), call, (rounds, verdicts), places)?;
                team.keep_verdict(call.shape, verdict);
                verdict
            }
        };
        if let Err(reason) = verdict {
            return Ok(Err(reason));
        }
        let began = Instant::now();
        // SAFETY: by this function's contract.
        let mut held = unsafe { places.hold(comm) }?;
        let (input, output) = places.bytes();
        team.give(call, held.input(0, input))?;
        let usable = self.usable(registered.as_deref(), team);
        let finished = team.exchange(usable, call, progress)?;
        let output = if held.wants_output() { Some(held.output(0, output)) } else { None };
        team.take(call, output)?;
        held.release(comm)?;
        Ok(Ok((finished, began.elapsed())))
    }

    /// Finds out whether the cards take calls of a shape that is new, or why not. Collective.
    fn judge(
        &mut self,
        (mut registered, team): (Option<&mut Registered>, &mut Team),
        call: &Call<'_>,
        (rounds, verdicts): (Rounds<'_>, Option<&mut Verdicts>),
        places: &Places,
    ) -> Result<Result<(), Reason>, Trouble> {
        let planned = match registered.as_deref_mut() {
            Some(registered) => self.plan_of_leaders(registered, team, call),
            None => Ok(false),
        };
        let own = match planned {
            Ok(true) => Told::Yes,
            Ok(false) => Told::No,
            Err(_) => Told::Failed,
        };
        let told = team.tell(own, call.constants)?;
        planned?;
        match told {
            Told::Failed => return Err(team.trouble()),
            Told::No => return Ok(Err(Reason::NoPlan)),
            Told::Yes => {}
        }
        let Some(verdicts) = verdicts else { return Ok(Ok(())) };
        let is_faster = verdicts.known_or(call.shape, || {
            measure(call, rounds, places.bytes(), |input, output| {
                team.give(call, input)?;
                let usable = self.usable(registered.as_deref(), team);
                team.exchange(usable, call, &|| rounds.comm.progress(call.constants))?;
                Ok(team.take(call, places.output.as_ref().map(|_| output))?)
            })
        })?;
        Ok(if is_faster { Ok(()) } else { Err(Reason::Slower) })
    }

    /// The card of a leader. It has a plan for each call with a verdict.
    fn usable<'a>(
        &'a mut self,
        registered: Option<&'a Registered>,
        team: &Team,
    ) -> Result<(&'a mut Engine, &'a Registered), Trouble> {
        let registered = registered.ok_or_else(|| team.trouble())?;
        self.check()?;
        let engine = self.engine().ok_or_else(|| team.trouble())?;
        Ok((engine, registered))
    }

    /// Makes sure that there is a plan for the leaders' part of a call: `false` if there is none. Collective over the leaders if it is the
    /// first such call.
    fn plan_of_leaders(&mut self, registered: &mut Registered, team: &Team, call: &Call<'_>) -> Result<bool, Trouble> {
        self.check()?;
        let engine = self.engine().ok_or_else(|| team.trouble())?;
        Ok(engine.plan(registered, &team.of_leaders(call.shape))?)
    }

    /// The number of the record of `comm`, which is made by the first call. Collective then.
    fn record(&mut self, comm: Comm) -> Result<usize, Trouble> {
        if let Some(number) = comm.attribute(self.key)? {
            return Ok(number);
        }
        match self.make_record(comm) {
            Ok(record) => {
                let number = self.records.add(record);
                comm.set_attribute(self.key, number)?;
                Ok(number)
            }
            Err(Trouble::Mpi(code)) => Err(code.into()),
            // This rank does not try again: the others may be at a later exchange.
            Err(trouble) => {
                let _ = comm.set_attribute(self.key, NO_RECORD);
                Err(trouble)
            }
        }
    }

    /// The record of `comm`, with its counterpart on the cards. Collective.
    fn make_record(&mut self, comm: Comm) -> Result<Record, Trouble> {
        let (rank, size) = (comm.rank()?, comm.size()?);
        let ranks = if comm.is_inter()? {
            Err(Reason::Intercommunicator)
        } else if size < 2 {
            Err(Reason::SingleRank)
        } else {
            comm.ranks_in(self.world)?.ok_or(Reason::OtherProcesses)
        };
        let mut policy = self.settings.as_ref().map_or(Policy::Never, |settings| settings.policy);
        let cards = match ranks {
            Err(reason) => Err(reason),
            Ok(ranks) => match self.wish(comm, rank)? {
                None => Err(Reason::Hint),
                Some(Wish::Policy(Policy::Never)) => Err(Reason::Never),
                Some(wish) => {
                    if let Wish::Policy(wished) = wish {
                        policy = wished;
                    }
                    self.register(comm, rank, &ranks)?
                }
            },
        };
        let name = Name::new(comm.name(), size);
        Ok(Record { comm, rank, size, name, policy, verdicts: Verdicts::default(), cards })
    }

    /// What all ranks of `comm` wish for it; `None` if they differ. Collective.
    fn wish(&self, comm: Comm, rank: u32) -> Result<Option<Wish>, Trouble> {
        let own = comm.attribute(self.hint)?.map_or(Wish::Unsaid, Wish::numbered);
        let agreed = hints::agreed(&self.rounds(comm).allgather(&[own.number()])?);
        if let (Err(cause), 0) = (&agreed, rank) {
            eprintln!("fpga-mpi: {cause}; calls of the communicator go to the MPI library");
        }
        Ok(agreed.ok())
    }

    /// Makes the counterpart of `comm` on the cards, or says why there is none. `ranks` are those of its members in the world. Collective.
    fn register(&mut self, comm: Comm, rank: u32, ranks: &[u32]) -> Result<Result<Cards, Reason>, Trouble> {
        let cards = match &self.cards {
            Ok(cards) => cards,
            Err(reason) => return Ok(Err(*reason)),
        };
        let seats: Vec<_> = ranks.iter().map(|rank| cards.seats[*rank as usize]).collect();
        if seats.iter().all(|seat| seat.has_card) {
            return Ok(self.enrol(comm, ranks)?.map(Cards::Own));
        }
        let leaders = match folding::leaders(&seats, cards.in_rank_order) {
            Ok(leaders) => leaders,
            Err(reason) => return Ok(Err(reason)),
        };
        let own_leaders = leaders.iter().enumerate().filter(|(rank, leader)| *rank == **leader as usize);
        let ranks_of_leaders: Vec<u32> = own_leaders.map(|(rank, _)| ranks[rank]).collect();
        self.rounds(comm).confirm()?;
        let team = Team::new(comm, rank, leaders)?;
        let enrolled = team.leaders().map(|leaders| self.enrol(leaders, &ranks_of_leaders)).transpose();
        let own = match enrolled {
            Ok(Some(Ok(_))) => Told::Yes,
            Ok(_) => Told::No,
            Err(_) => Told::Failed,
        };
        let told = team.tell(own, &self.constants)?;
        match (enrolled?, told) {
            (_, Told::Failed) => Err(team.trouble()),
            (Some(Err(reason)), _) => {
                team.free()?;
                Ok(Err(reason))
            }
            (None, Told::No) => {
                team.free()?;
                Ok(Err(Reason::Registration))
            }
            (Some(Ok(registered)), _) => Ok(Ok(Cards::Shared(Some(registered), team))),
            (None, Told::Yes) => Ok(Ok(Cards::Shared(None, team))),
        }
    }

    /// Makes the counterpart of `comm`, whose members all have cards and are `ranks` of the world, or says why there is none. Collective.
    fn enrol(&mut self, comm: Comm, ranks: &[u32]) -> Result<Result<Registered, Reason>, Trouble> {
        let (rank, size, constants, timeout) = (comm.rank()?, comm.size()?, self.constants.clone(), self.timeout());
        let mut group = ranks.to_vec();
        group.sort_unstable();
        if self.differing.contains(&group) {
            return Ok(Err(Reason::Registration));
        }
        let Some(engine) = self.engine() else { return Ok(Err(Reason::NoCards)) };
        match engine.register(Box::new(MpiPeers::new(comm, (rank, size), constants, timeout))) {
            Ok(registered) => Ok(Ok(registered)),
            // All ranks have this error.
            Err(error @ (Error::TableFull { .. } | Error::IdsSpent { .. } | Error::Differs { .. })) => {
                if matches!(error, Error::Differs { .. }) {
                    self.differing.insert(group);
                }
                // A program may make any number of communicators: the first rank of the first that is refused says so, and those for
                // whom it was the first, too, say nothing later. The statistics count the calls of all.
                if !std::mem::replace(&mut self.was_refused, true) && rank == 0 {
                    eprintln!("fpga-mpi: {}; its calls go to the MPI library", with_causes(&error));
                }
                Ok(Err(Reason::Registration))
            }
            Err(error) => Err(error.into()),
        }
    }
}
