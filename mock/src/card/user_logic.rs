//! User logic at the changeover switch.

use cmdseq::completion::Status;

use crate::card::memory::CardMemory;

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
