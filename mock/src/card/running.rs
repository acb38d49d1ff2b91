//! An instruction that runs.

use cmdseq::Instruction;
use cmdseq::completion::{OUT_OF_MEMORY, Status};
use cmdseq::switch::Call;

use crate::card::memory::MemoryError;
use crate::engine::Time;
use crate::proto::optweb::one_sided::{Admission, Issued};
use crate::proto::optweb::signal::Signal;
use crate::proto::optweb::transfer::{Barrier, Transfer};
use crate::proto::refusal::Refusal;

/// An instruction that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its order among all instructions of the card, and its index in the resident program.
    pub(crate) order: u64,
    pub(crate) place: usize,
    pub(crate) instruction: Instruction,
    /// Life of the queue in which it was issued.
    pub(crate) life: u32,
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
    pub(crate) fn begun(instruction: Instruction, now: Time, order: u64, life: u32) -> Self {
        Running {
            order,
            place: 0,
            instruction,
            life,
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
    /// A collective that the switches of the network compute.
    Switched(Call),
    /// A one-sided operation.
    Rdma(Issued),
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

/// Converts an error of card memory to the refusal of the instruction.
pub(crate) fn memory_refusal(error: MemoryError) -> Refusal {
    match error {
        MemoryError::NoCard { .. } | MemoryError::OutOfRange { .. } => (error.into(), 0),
        MemoryError::Exhausted { .. } => (error.into(), OUT_OF_MEMORY),
        MemoryError::Uncorrectable { node, .. } => (error.into(), node as u16),
    }
}
