//! The command sequencer: fetches instructions, issues them in order, writes completions.

mod begin;
mod in_flight;
mod issue;
mod launch;
mod retire;

use std::collections::VecDeque;

use cmdseq::Instruction;
use cmdseq::completion::{OUT_OF_MEMORY, Status};
use cmdseq::instruction;

use self::in_flight::InFlight;
use self::issue::Next;
use self::launch::Launch;
use crate::engine::Time;
use crate::memory::{CardMemory, MemoryError};
use crate::rdma::Rdma;
use crate::signals::Signal;
use crate::switch::{Barrier, Transfer};
use crate::windows::Admission;

/// Arguments of a call to user logic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserCall {
    /// Card address of the input.
    pub source: u64,
    /// Card address of the output.
    pub destination: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The instruction's extent, with a meaning defined by the logic.
    pub extent: u64,
}

/// User logic at the changeover switch. It has exclusive access to the card memory while it runs.
pub trait UserLogic: Send {
    /// Runs on `memory`, and returns the cycles used.
    ///
    /// # Errors
    /// The status that the instruction ends with.
    fn run(&mut self, memory: &mut CardMemory, call: UserCall) -> Result<u64, Status>;
}

/// State between instructions.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    prefetched: VecDeque<[u8; instruction::BYTES]>,
    pub(crate) may_run: bool,
    pub(crate) is_halted: bool,
    pub(crate) retired: u64,
    /// The next instruction, and when it is issued, if that is scheduled.
    next: Option<Next>,
    issue_at: Option<Time>,
    /// Earliest time of the next issue.
    ready_at: Time,
    /// The next instruction waits for all before it.
    is_fenced: bool,
    pub(crate) in_flight: InFlight,
    is_fetching: bool,
    /// Number of completions being written.
    completing: usize,
    launch: Option<Launch>,
}

impl Sequencer {
    /// Returns whether an issue is scheduled, or host memory is in use.
    pub(crate) fn is_busy(&self) -> bool {
        self.issue_at.is_some() || self.is_fetching || self.completing > 0
    }

    fn may_go_on(&self) -> bool {
        self.may_run && !self.is_halted && !self.is_busy()
    }

    /// Number of instructions of the ring that were issued, and whose completions are not in host memory.
    fn unfinished(&self) -> usize {
        self.in_flight.len() + self.completing
    }

    /// Forgets the fetched instructions, because the queue was enabled or disabled.
    pub(crate) fn forget_fetched(&mut self) {
        self.prefetched.clear();
        if self.launch.is_none() {
            self.next = None;
        }
    }
}

/// An instruction that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its order among all instructions of the card, and its index in the resident program.
    pub(crate) order: u64,
    pub(crate) place: usize,
    pub(crate) instruction: Instruction,
    /// When it was issued, and when its last beat was counted out: picoseconds of the fabric's time.
    pub(crate) issued: Time,
    pub(crate) counted_out: Time,
    /// When the last byte for this card was counted in.
    pub(crate) arrival: Option<Time>,
    pub(crate) bytes: u64,
    pub(crate) status: Status,
    pub(crate) detail: u16,
    pub(crate) work: Work,
}

impl Running {
    pub(crate) fn begun(instruction: Instruction, now: Time, order: u64) -> Self {
        Running {
            order,
            place: 0,
            instruction,
            issued: now,
            counted_out: now,
            arrival: None,
            bytes: 0,
            status: Status::Done,
            detail: 0,
            work: Work::Timed,
        }
    }
}

/// Rest of the instruction's work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Only time.
    Timed,
    /// Signals from all ranks.
    Barrier(Barrier),
    /// Blocks out and in.
    Transfer(Box<Transfer>),
    /// A one-sided transfer.
    Rdma(Rdma),
    /// A signal of this card, checked after it is read.
    Signal { signal: Signal, is_read: bool },
    /// A stream within the card's own memory: a fill without a source, a copy of one, or a fold of two.
    Local { sources: Vec<u64>, destination: u64 },
    /// A window of this card that transfers of others go through.
    Closing(Admission),
    /// A table in host memory.
    HostTable,
    /// A copy from or to host memory, with the bytes done.
    HostCopy { done: u64 },
}

/// Refusal of an instruction: status and detail of its completion.
pub(crate) type Refusal = (Status, u16);

/// Converts an error of card memory to the refusal of the instruction.
pub(crate) fn memory_refusal(error: MemoryError) -> Refusal {
    match error {
        MemoryError::OutOfRange { .. } => (error.into(), 0),
        MemoryError::Exhausted { .. } => (error.into(), OUT_OF_MEMORY),
    }
}

pub(crate) fn bad_field(offset: usize) -> Refusal {
    (Status::BadField, offset as u16)
}
