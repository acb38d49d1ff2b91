//! The time between `MPI_Init` and `MPI_Finalize`: the card of this rank, agreed with all others.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::abi::Constants;
use crate::engine::{Engine, with_causes};
use crate::entry::Inside;
use crate::folding::Seat;
use crate::foreign::{Code, SUCCESS, Word};
use crate::mpi::{self, Comm, Key};
use crate::records::{Cards, Records};
use crate::rounds::Rounds;
use crate::settings::{Policy, Settings};
use crate::shape::Reason;
use crate::statistics::Statistics;
use crate::team::Team;

/// What this process has of MPI and of its card.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) constants: Arc<Constants>,
    pub(crate) settings: Option<Settings>,
    pub(crate) world: Comm,
    /// A communicator of this rank alone that returns errors, on which no handler of the program is called.
    pub(crate) probe: Comm,
    pub(crate) rank: u32,
    size: u32,
    /// The cards, or why no call goes to them; the same on all ranks.
    pub(crate) cards: Result<JobCards, Reason>,
    /// What failed. The calls of this rank fail from then on.
    pub(crate) failed: Option<String>,
    /// Whether the cards have refused a communicator that has this rank.
    pub(crate) was_refused: bool,
    /// Groups whose cards differ, by ranks in the world, sorted. All members know it, so none of them tries again.
    pub(crate) differing: HashSet<Vec<u32>>,
    /// Of the number of a communicator's record.
    pub(crate) key: Key,
    /// Of what the program wishes for a communicator.
    pub(crate) hint: Key,
    pub(crate) records: Records,
    pub(crate) statistics: Statistics,
}

/// The cards of a job.
#[derive(Debug)]
pub(crate) struct JobCards {
    /// The card of this rank; `None` if its host has more ranks than cards.
    pub(crate) engine: Option<Engine>,
    /// By rank of `MPI_COMM_WORLD`.
    pub(crate) seats: Vec<Seat>,
    /// Contributions are folded in the order of ranks.
    pub(crate) in_rank_order: bool,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Numbers of records whose communicators are gone.
static FORGOTTEN: Mutex<Vec<Word>> = Mutex::new(Vec::new());

/// The session, held by this thread. MPI may call back while it is held, from any of its functions: the delete functions of
/// attributes when the last request of a freed communicator ends. That of this library does not take the session. Those of the
/// program find this thread inside.
pub(crate) fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread holds the session.
pub(crate) fn is_held() -> bool {
    matches!(SESSION.try_lock(), Err(TryLockError::WouldBlock))
}

/// Begins MPI by `pass`, and then the session. Collective over all ranks.
pub(crate) fn begin(pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let code = pass();
    if code == SUCCESS && mpi::is_running() {
        match Session::begin() {
            Ok(begun) => *session() = Some(begun),
            Err(code) => eprintln!("fpga-mpi: {}; all calls go to the MPI library", mpi::text(code)),
        }
    }
    code
}

/// Ends the session, and then MPI by `pass`. Collective over all ranks.
pub(crate) fn end(pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    // The lock is free while the session ends.
    let ended = session().take();
    if let Some(session) = ended {
        session.end();
    }
    pass()
}

/// Frees a communicator of the program by `pass`, and its record. A collective call of a delete function of the program goes to the
/// MPI library, on all ranks alike: its communicator may have lost its record, and must not get another one.
pub(crate) fn free(pass: impl FnOnce() -> Code) -> Code {
    let Some(_inside) = Inside::enter() else { return pass() };
    let code = pass();
    forget_all();
    code
}

/// Frees the records of communicators that are gone.
pub(crate) fn forget_all() {
    if let Some(session) = session().as_mut() {
        session.forget_all();
    }
}

/// Notes that a communicator is gone. MPI may call it while this thread holds the session: [`Session::forget_all`] does the rest.
unsafe extern "C" fn forget(_: Word, _: Word, number: Word, _: Word) -> Code {
    forgotten().push(number);
    SUCCESS
}

fn forgotten() -> MutexGuard<'static, Vec<Word>> {
    FORGOTTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees a number, which needs nothing.
unsafe extern "C" fn keep_nothing(_: Word, _: Word, _: Word, _: Word) -> Code {
    SUCCESS
}

impl Session {
    fn begin() -> mpi::Result<Self> {
        let constants = Arc::new(Constants::detect());
        let world = Comm(constants.world);
        let (rank, size) = (world.rank()?, world.size()?);
        let settings = Settings::read();
        // Rank 0 prints what it has counted.
        let are_printed = rank == 0 && settings.as_ref().is_ok_and(|settings| settings.output.is_some());
        let cards = agree(world, &constants, &settings, size)?;
        Ok(Session {
            settings: settings.ok(),
            world,
            probe: Comm(constants.comm_self).returning_errors(&constants)?,
            rank,
            size,
            cards,
            failed: None,
            was_refused: false,
            differing: HashSet::new(),
            key: Key::create(forget)?,
            hint: Key::create(keep_nothing)?,
            records: Records::default(),
            statistics: Statistics::new(are_printed),
            constants,
        })
    }

    /// Collective over all ranks.
    fn end(mut self) {
        self.forget_all();
        self.report();
        let _ = self.probe.free();
        // A card that closes is reset, and drops what its neighbours have sent. Also after a failure, which other ranks may not have
        // seen. Without a timeout: all ranks come here, as to MPI_Finalize.
        if self.cards.is_ok() {
            let _ = Rounds { comm: self.world, constants: &self.constants, timeout: None }.barrier();
        }
    }

    /// Longest wait for a card or for another rank.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.settings.as_ref()?.timeout
    }

    /// Exchanges on a communicator.
    pub(crate) fn rounds(&self, comm: Comm) -> Rounds<'_> {
        Rounds { comm, constants: &self.constants, timeout: self.timeout() }
    }

    /// The card of this rank, if it has one.
    pub(crate) fn engine(&mut self) -> Option<&mut Engine> {
        self.cards.as_mut().ok()?.engine.as_mut()
    }

    /// Frees the records of communicators that are gone. Sends nothing.
    pub(crate) fn forget_all(&mut self) {
        // MPI may add some meanwhile, so the list is not held: a team is freed by MPI.
        let numbers = std::mem::take(&mut *forgotten());
        for number in numbers {
            let (registered, team) = match self.records.remove(number).map(|record| record.cards) {
                None | Some(Err(_)) => continue,
                Some(Ok(Cards::Own(registered))) => (Some(registered), None),
                Some(Ok(Cards::Shared(registered, team))) => (registered, Some(team)),
            };
            if let (Some(registered), None) = (registered, &self.failed)
                && let Some(Err(error)) = self.engine().map(|engine| engine.forget(registered))
            {
                self.failed = Some(with_causes(&error));
            }
            // MPI has raised the error if there is one.
            let _ = team.map(Team::free);
        }
    }

    /// Prints the statistics of rank 0.
    fn report(&self) {
        let output = self.settings.as_ref().and_then(|settings| settings.output.as_ref());
        let (Some(output), 0) = (output, self.rank) else { return };
        let engine = self.cards.as_ref().ok().and_then(|cards| cards.engine.as_ref());
        let clock_khz = engine.map_or(0, Engine::clock_khz);
        let mpi = self.constants.abi.name();
        let text = self.statistics.report(output.format, mpi, (self.rank, self.size), clock_khz);
        let written = match &output.file {
            Some(path) => std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display())),
            None => std::io::stderr().write_all(text.as_bytes()).map_err(|error| error.to_string()),
        };
        if let Err(error) = written {
            eprintln!("fpga-mpi: rank {}: cannot write FPGA_MPI_STATS: {error}", self.rank);
        }
    }
}

/// Opens the cards of all hosts, or none: rank 0 then prints the first cause, and every rank knows it. Collective.
fn agree(
    world: Comm,
    constants: &Constants,
    settings: &Result<Settings, String>,
    size: u32,
) -> mpi::Result<Result<JobCards, Reason>> {
    let rounds = Rounds { comm: world, constants, timeout: None };
    let is_multiple = mpi::thread_level()? >= constants.thread_multiple;
    let terms = |settings: &Settings| {
        if is_multiple {
            return "multiple".to_owned();
        }
        let terms = settings.common().map(|(name, value)| format!("{name}={value}"));
        [&[if settings.cards.is_empty() { "no cards" } else { "cards" }.to_owned()], &terms[..]].concat().join("\n")
    };
    let stated = statement(settings.as_ref().map(terms).map_err(Clone::clone));
    let all = rounds.allgather(&stated)?;
    if let Some(cause) = first_failure(&all) {
        tell(world, &cause)?;
        return Ok(Err(Reason::NoCards));
    }
    if all.iter().any(|one| one.ends_with(b"multiple")) {
        return Ok(Err(Reason::ThreadMultiple));
    }
    if let Some(rank) = all.iter().position(|one| *one != all[0]) {
        let lines = |rank: usize| String::from_utf8_lossy(&all[rank][1..]).into_owned();
        let (first, other) = (lines(0), lines(rank));
        let differing = first.lines().zip(other.lines()).find(|(a, b)| a != b);
        let (first, other) = differing.unwrap_or(("", ""));
        tell(world, &format!("rank {rank}: {other}, but rank 0: {first}"))?;
        return Ok(Err(Reason::NoCards));
    }
    // Equal statements: all ranks have these.
    let Ok(settings) = settings else { return Ok(Err(Reason::NoCards)) };
    if settings.policy == Policy::Never {
        return Ok(Err(Reason::Never));
    }
    if size < 2 {
        return Ok(Err(Reason::SingleRank));
    }
    if settings.cards.is_empty() {
        tell(world, "no cards: FPGACTL_CARDS is not set")?;
        return Ok(Err(Reason::NoCards));
    }
    let (number, host) = world.on_host(constants)?;
    let card = settings.cards.get(number as usize);
    let engine = card.map(|card| Engine::open(card, settings.in_rank_order, settings.timeout)).transpose();
    let opened = statement(engine.as_ref().map(|_| String::new()).map_err(Clone::clone));
    let all = rounds.allgather(&opened)?;
    let seats = rounds.allgather_numbers(vec![host, i64::from(card.is_some())])?;
    match (first_failure(&all), engine) {
        (None, Ok(engine)) => {
            let seats = seats.chunks_exact(2).map(|seat| Seat { host: seat[0], has_card: seat[1] != 0 }).collect();
            Ok(Ok(JobCards { engine, seats, in_rank_order: settings.in_rank_order }))
        }
        (cause, _) => {
            tell(world, &cause.unwrap_or_default())?;
            Ok(Err(Reason::NoCards))
        }
    }
}

/// What a rank tells the others: a byte, 1 if it failed, and a text.
fn statement(outcome: Result<String, String>) -> Vec<u8> {
    let (kind, text) = outcome.map_or_else(|cause| (1, cause), |text| (0, text));
    [&[kind], text.as_bytes()].concat()
}

/// The first rank that failed, and why.
fn first_failure(all: &[Vec<u8>]) -> Option<String> {
    let rank = all.iter().position(|one| one.first() == Some(&1))?;
    Some(format!("rank {rank}: {}", String::from_utf8_lossy(&all[rank][1..])))
}

/// Prints on rank 0 why no call goes to the cards.
fn tell(world: Comm, cause: &str) -> mpi::Result<()> {
    if world.rank()? == 0 {
        eprintln!("fpga-mpi: {cause}; all calls go to the MPI library");
    }
    Ok(())
}
