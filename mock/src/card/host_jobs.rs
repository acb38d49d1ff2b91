//! Jobs of the cards on host memory.

use cmdseq::completion::{Completion, READ_POISONED, READ_TIMED_OUT, Status};
use fpga_hal::endpoint::DmaFault;
use fpga_regs::bits::Errors;

use crate::card::memory::MemoryError;
use crate::card::running::memory_refusal;
use crate::proto::refusal::Refusal;

/// Most bytes of a piece of a copy: one job moves a piece.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// Most instructions that are fetched at once.
pub(crate) const FETCH_WORDS: u32 = 64;

/// A job on host memory.
#[derive(Debug)]
pub(crate) enum Job {
    /// Fetch the next instructions, in this life of the queue.
    Fetch { life: u32 },
    /// Write a completion to its ring, if the queue has still this life.
    Complete { completion: Completion, interrupt: bool, life: u32 },
    /// Copy host memory to card memory.
    In { iova: u64, address: u64, bytes: u64 },
    /// Copy card memory to host memory.
    Out { address: u64, iova: u64, bytes: u64 },
    /// Copy host memory to host memory.
    Through { from: u64, to: u64, bytes: u64 },
    /// Read a table that an instruction names.
    Table { iova: u64, bytes: u64 },
}

/// Why a job failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostFault {
    /// The bus refused a request.
    Refused(DmaFault),
    /// A read was not answered within the card's completion timeout.
    TimedOut,
    /// A read was answered with poisoned data, which was not used.
    Poisoned,
    /// Card memory that is to be written to the host cannot be read.
    Unreadable(MemoryError),
}

impl HostFault {
    /// How an instruction fails by it, if it was a write or a read.
    pub(crate) fn refusal(self, is_write: bool) -> Refusal {
        match self {
            HostFault::Refused(_) if is_write => (Status::HostWriteFault, 0),
            HostFault::Refused(_) => (Status::HostReadFault, 0),
            HostFault::TimedOut => (Status::HostReadFault, READ_TIMED_OUT),
            HostFault::Poisoned => (Status::HostReadFault, READ_POISONED),
            HostFault::Unreadable(error) => memory_refusal(error),
        }
    }

    /// Bits of ERROR that tell the cause, if no instruction does.
    pub(crate) fn errors(self) -> Errors {
        match self {
            HostFault::Refused(_) | HostFault::Unreadable(_) => Errors::empty(),
            HostFault::TimedOut => Errors::COMPLETION_TIMEOUT,
            HostFault::Poisoned => Errors::POISONED_DATA,
        }
    }
}

/// What becomes of a read, other than an answer with data: a planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misanswer {
    Never,
    Poisoned,
}

/// A job at work.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) card: usize,
    /// Epoch of the card, or of the instruction that the job belongs to.
    pub(crate) epoch: u64,
    pub(crate) job: Job,
    /// Data of the request. What the last job left is overwritten.
    pub(crate) buffer: Vec<u8>,
    /// A copy within host memory has been read and is being written.
    pub(crate) is_writing: bool,
}

impl Active {
    /// Returns the bytes of one piece of a copy.
    pub(crate) fn bytes(&self) -> u64 {
        match self.job {
            Job::In { bytes, .. } | Job::Out { bytes, .. } | Job::Through { bytes, .. } => bytes,
            Job::Fetch { .. } | Job::Complete { .. } | Job::Table { .. } => 0,
        }
    }

    /// Whether the job writes host memory now.
    pub(crate) fn writes(&self) -> bool {
        self.is_writing || matches!(self.job, Job::Out { .. } | Job::Complete { .. })
    }
}
