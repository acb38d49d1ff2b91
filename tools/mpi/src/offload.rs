//! A collective call: to the card if all ranks decide so, else to the MPI library.

use std::time::Instant;

use fpga_driver::Error;

use crate::abi::Constants;
use crate::arguments::Arguments;
use crate::buffers::Places;
use crate::engine::{Engine, Registered, with_causes};
use crate::foreign::{Code, Inside, SUCCESS, Word};
use crate::hints::{self, Wish};
use crate::mpi::{self, Comm};
use crate::peers::MpiPeers;
use crate::records::Record;
use crate::session::{Session, session};
use crate::settings::Policy;
use crate::shape::{Reason, Shape, shape};
use crate::statistics::Name;
use crate::vector;

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

/// Why a call did not succeed on the card.
enum Trouble {
    Card(Error),
    Mpi(Code),
    /// The card has failed in an earlier call.
    Earlier(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Card(error)
    }
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Trouble::Mpi(code)
    }
}

impl Trouble {
    fn text(&self) -> String {
        match self {
            Trouble::Card(error) => with_causes(error),
            Trouble::Mpi(code) => mpi::text(*code),
            Trouble::Earlier(cause) => format!("the card has failed before: {cause}"),
        }
    }
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

/// Runs each way that calls of this shape may go, on data of its own, and returns whether the cards were faster on the slowest
/// rank. Collective.
fn measure(
    engine: &mut Engine,
    registered: &Registered,
    shape: &Shape,
    comm: Comm,
    handles: (Word, Word),
    constants: &Constants,
) -> Result<bool, Trouble> {
    let (input, output) = registered.bytes(shape);
    // The address of no memory at all is that of MPI_IN_PLACE: there is at least a byte.
    let room = (comm.size()? as usize * shape.bytes as usize).max(input).max(output).max(1);
    let (send, mut receive) = (vec![0; room], vec![0; room]);
    let mut best = [u64::MAX; 2];
    for _ in 0..MEASUREMENTS {
        comm.barrier()?;
        let began = Instant::now();
        engine.run(registered, shape, &send[..input], || comm.progress(constants))?;
        engine.fetch(registered, shape, &mut receive[..output])?;
        best[0] = best[0].min(began.elapsed().as_nanos() as u64);
        comm.barrier()?;
        let began = Instant::now();
        comm.collective(shape, &send, &mut receive, handles, constants)?;
        best[1] = best[1].min(began.elapsed().as_nanos() as u64);
    }
    let own = best.map(u64::to_le_bytes).concat();
    let all = comm.allgather(&own, constants)?;
    let slowest = |from: usize| {
        let times = all.iter().filter_map(|times| times.get(from..from + 8)?.try_into().ok());
        times.map(u64::from_le_bytes).max()
    };
    Ok(slowest(0) < slowest(8))
}

impl Session {
    /// # Safety
    /// As [`collective`].
    unsafe fn collective(&mut self, arguments: &Arguments) -> Outcome {
        let operation = arguments.collective.name();
        if let Err(reason) = self.engine {
            self.statistics.passed(&any(), operation, reason);
            return Outcome::Pass;
        }
        if self.constants.abi.handle(arguments.communicator) == self.constants.comm_null {
            return Outcome::Pass;
        }
        // The number of its record, so that the record can be taken apart from the rest.
        let number = match self.record(Comm(arguments.communicator)) {
            Ok(number) => number,
            Err(Trouble::Mpi(_)) => return Outcome::Pass,
            Err(trouble) => return self.fail(&trouble),
        };
        let Some(mut record) = self.records.remove(number) else { return Outcome::Pass };
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
        let registered = match &mut record.cards {
            Ok(registered) => registered,
            Err(reason) => return Ok(Some(*reason)),
        };
        let shape = if arguments.collective.has_counts() {
            // The others wait for this rank in the round of counts, and then for its card.
            if let Some(cause) = &self.failed {
                return Err(Trouble::Earlier(cause.clone()));
            }
            vector::shape(arguments, &self.constants, record.comm, (record.rank, record.size))?
        } else {
            shape(arguments, &self.constants, record.rank, record.size)
        };
        let shape = match shape {
            Ok(shape) => shape,
            Err(reason) => return Ok(Some(reason)),
        };
        let Some(places) = Places::of(arguments, &shape, &self.constants, (record.rank, record.size)) else {
            return Ok(Some(Reason::Invalid));
        };
        let Ok(engine) = &mut self.engine else { return Ok(Some(Reason::NoCards)) };
        if let Some(cause) = &self.failed {
            return Err(Trouble::Earlier(cause.clone()));
        }
        let (comm, constants) = (record.comm, &self.constants);
        if !engine.plan(registered, &shape)? {
            return Ok(Some(Reason::NoPlan));
        }
        if record.policy == Policy::Auto {
            let is_faster = match registered.is_faster(&shape) {
                Some(known) => known,
                None => {
                    let handles = (arguments.receive.datatype, arguments.operation);
                    let is_faster = measure(engine, registered, &shape, comm, handles, constants)?;
                    registered.set_faster(&shape, is_faster);
                    is_faster
                }
            };
            if !is_faster {
                return Ok(Some(Reason::Slower));
            }
        }
        let began = Instant::now();
        let progress = || comm.progress(constants);
        let finished = match &places.input {
            None => engine.run(registered, &shape, &[], progress),
            // SAFETY: by this function's contract.
            Some(place) => unsafe { place.read(comm, |input| engine.run(registered, &shape, input, progress)) }?,
        }?;
        if let Some(place) = &places.output {
            // SAFETY: by this function's contract.
            unsafe { place.write(comm, |output| engine.fetch(registered, &shape, output).map_err(Trouble::from)) }?;
        }
        let operation = arguments.collective.name();
        self.statistics.offloaded(&record.name, operation, places.bytes(), began.elapsed(), finished.cycles);
        Ok(None)
    }

    /// The number of the record of `comm`, which is made by the first call. Collective then.
    fn record(&mut self, comm: Comm) -> Result<usize, Trouble> {
        if let Some(number) = comm.attribute(self.key)? {
            return Ok(number);
        }
        let (rank, size) = (comm.rank()?, comm.size()?);
        let reason = if comm.is_inter()? {
            Some(Reason::Intercommunicator)
        } else if size < 2 {
            Some(Reason::SingleRank)
        } else if !comm.is_within(self.world)? {
            Some(Reason::OtherProcesses)
        } else {
            None
        };
        let mut policy = self.settings.as_ref().map_or(Policy::Never, |settings| settings.policy);
        let cards = match reason {
            Some(reason) => Err(reason),
            None => match self.wish(comm, rank)? {
                None => Err(Reason::Hint),
                Some(Wish::Policy(Policy::Never)) => Err(Reason::Never),
                Some(wish) => {
                    if let Wish::Policy(wished) = wish {
                        policy = wished;
                    }
                    self.register(comm, (rank, size))?
                }
            },
        };
        let name = Name::new(comm.name(), size);
        let number = self.records.add(Record { comm, rank, size, name, policy, cards });
        comm.set_attribute(self.key, number)?;
        Ok(number)
    }

    /// What all ranks of `comm` wish for it; `None` if they differ. Collective: waits for the last rank, as late as it may be.
    fn wish(&self, comm: Comm, rank: u32) -> Result<Option<Wish>, Trouble> {
        let own = comm.attribute(self.hint)?.map_or(Wish::Unsaid, Wish::numbered);
        let agreed = hints::agreed(&comm.allgather(&[own.number()], &self.constants)?);
        if let (Err(cause), 0) = (&agreed, rank) {
            eprintln!("fpga-mpi: {cause}; calls of the communicator go to the MPI library");
        }
        Ok(agreed.ok())
    }

    /// Makes the counterpart of `comm` on the cards, or says why there is none. Collective.
    fn register(&mut self, comm: Comm, (rank, size): (u32, u32)) -> Result<Result<Registered, Reason>, Trouble> {
        let engine = match &mut self.engine {
            Ok(engine) => engine,
            Err(reason) => return Ok(Err(*reason)),
        };
        let peers = MpiPeers::new(comm, rank, size, self.constants.clone());
        match engine.register(Box::new(peers)) {
            Ok(registered) => Ok(Ok(registered)),
            // All ranks have this error.
            Err(error @ (Error::TableFull { .. } | Error::IdsSpent { .. } | Error::Differs { .. })) => {
                if rank == 0 {
                    eprintln!("fpga-mpi: {}; its calls go to the MPI library", with_causes(&error));
                }
                Ok(Err(Reason::Registration))
            }
            Err(error) => Err(error.into()),
        }
    }
}
