//! Jobs of the cards on host memory.

use std::collections::VecDeque;

use cmdseq::completion::Completion;

/// Most bytes that one request asks for.
pub(crate) const REQUEST_BYTES: u64 = 1 << 20;
/// Most instructions that are fetched at once.
pub(crate) const FETCH_WORDS: u32 = 64;
/// Most bytes of a table of node numbers or of a resident program.
pub(crate) const TABLE_BYTES: usize = 64 << 10;

/// A job on host memory.
#[derive(Debug)]
pub(crate) enum Job {
    /// Fetch the next instructions of a queue.
    Fetch { queue: usize },
    /// Write a completion to a queue's ring.
    Complete { queue: usize, completion: Completion, interrupt: bool },
    /// Copy host memory to card memory.
    In { iova: u64, address: u64, bytes: u64 },
    /// Copy card memory to host memory.
    Out { address: u64, iova: u64, bytes: u64 },
    /// Copy host memory to host memory.
    Through { from: u64, to: u64, bytes: u64 },
    /// Read a table that an instruction names.
    Table { iova: u64, bytes: u64 },
}

/// A job at work.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) card: usize,
    /// Epoch of the card, or of the instruction that the job belongs to.
    pub(crate) epoch: u64,
    /// Life of the queue that the job belongs to.
    pub(crate) life: u32,
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
}

/// Waiting jobs, and the outstanding one.
#[derive(Debug, Default)]
pub(crate) struct HostDma {
    pub(crate) waiting: VecDeque<Active>,
    pub(crate) outstanding: Option<Active>,
    pub(crate) tag: u64,
    /// Buffer of the last job, for the next.
    pub(crate) spare: Vec<u8>,
}
