//! What can go wrong between a program and a card.

use std::time::Duration;

use cmdseq::completion::{OUT_OF_MEMORY, READ_POISONED, READ_TIMED_OUT};
use cmdseq::graph::GraphError;
use cmdseq::{Operation, Refusal, Status};
use fpga_hal::{Ending, Function};

use crate::board::WrongBoard;
use crate::ledger::bound::{Bound, Unowned};
use crate::ledger::state::State;
use crate::peers::PeersError;
use crate::sequencer::health::Health;

/// The detail in [`Error::Failed`] if the card reports none. Details of cards have 15 bits.
pub const NO_DETAIL: u16 = u16::MAX;

/// Result with the driver's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong between a program and a card.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bus refused an access, a mapping or an interrupt, or the host had no memory, address or descriptor for it.
    #[error(transparent)]
    Bus(fpga_hal::Error),
    /// The Device Feature List of the register BAR leads to no command sequencer.
    #[error("{name} has no command sequencer: {looked}")]
    NoSequencer {
        /// The function.
        name: String,
        /// Where the walk of the list ended, and why.
        looked: String,
    },
    /// The board file that a user has named is for another board.
    #[error(transparent)]
    Board(#[from] WrongBoard),
    /// The card's registers or its instruction word are of a version this driver does not know.
    #[error("{name}: {what} is {found:#x}, and this driver knows {known:#x}")]
    Version {
        /// The card.
        name: String,
        /// Which version: of the register block, or of the instruction word.
        what: &'static str,
        /// What the card says.
        found: u32,
        /// What this driver knows.
        known: u32,
    },
    /// A capability register holds an invalid value.
    #[error("{name}: register {register} reads {value:#x}, but must be {expected}")]
    BadCapability {
        /// The card.
        name: String,
        /// The register.
        register: &'static str,
        /// What it reads.
        value: u32,
        /// What is allowed.
        expected: &'static str,
    },
    /// No room for another instruction: the ring is full, or too many completions wait to be taken. The instruction is
    /// given back.
    #[error("The queue is full: {in_flight} of {depth} instructions in flight, the others not waited for")]
    Full {
        /// The instruction that was not stored, with its buffers.
        instruction: Box<Bound>,
        /// Instructions stored and not completed.
        in_flight: u32,
        /// Entries of the ring.
        depth: u32,
    },
    /// A wait reached its time limit. Where data was being moved, its destination is undefined.
    #[error("Waited {waited:.1?} for {what}; last seen: {last_seen}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// Its node in the fabric.
        node: Option<u32>,
        /// Its rank in the group of the plan.
        rank: Option<u32>,
        /// Index of the instruction in the program.
        instruction: Option<usize>,
        /// How long.
        waited: Duration,
        /// The sequencer's state at the end.
        last_seen: String,
    },
    /// The card ended an instruction with a status other than done.
    #[error("Node {node}, instruction {instruction} ({operation}): {status}{}", about(*.operation, *.status, *.detail))]
    Failed {
        /// Its node in the fabric.
        node: u32,
        /// Its rank in the group of the plan, if it ran one.
        rank: Option<u32>,
        /// Index of the instruction in the program given.
        instruction: usize,
        /// Its operation.
        operation: Operation,
        /// Its status.
        status: Status,
        /// Detail of the status: see [`cmdseq::Completion::detail`]. [`NO_DETAIL`] in a resident program, because there the
        /// card reports the index of the instruction instead; unless the status and the program tell the detail.
        detail: u16,
    },
    /// The card no longer answers: its registers read all-ones, and so does its vendor id.
    #[error("{name} is gone{}", if .source.is_none() { ": its registers read all-ones" } else { "" })]
    Removed {
        /// The card.
        name: String,
        /// Why, if the bus knows.
        source: Option<Ending>,
    },
    /// A register that cannot read all-ones does, although the card's configuration space answers.
    #[error(
        "{name}: the register at {register:#05x} reads all-ones although configuration space answers; reset the card"
    )]
    AllOnes {
        /// The card.
        name: String,
        /// Offset in the sequencer's block; of other blocks, in their BAR.
        register: u64,
    },
    /// The card's function has reported a PCIe error that was not corrected. What was in flight may be wrong.
    #[error("{name} reported an uncorrected PCIe error ({health}); reset the card")]
    Uncorrected {
        /// The card.
        name: String,
        /// What the card says.
        health: Health,
    },
    /// The queue takes no instructions, because an abort or a reset failed, or because another program has reset the card.
    #[error("{name} takes no instructions (its queue is {state}): {why}; reset the card")]
    NotRunning {
        /// The card.
        name: String,
        /// The queue's state: [`State::Stopped`] or [`State::Poisoned`].
        state: State,
        /// What failed.
        why: String,
    },
    /// An instruction names host memory that no buffer bound to it covers. Nothing was stored.
    #[error(
        "{operation} names {bytes} bytes of host memory at {address:#x}, which no buffer bound to the instruction covers; \
         bind the buffer with Bound::holding"
    )]
    HostMemoryUnbound {
        /// What the instruction does.
        operation: Operation,
        /// The IOVA it names.
        address: u64,
        /// Bytes from there.
        bytes: u64,
    },
    /// The card wrote an invalid completion. The queue is poisoned until the card is aborted or reset.
    #[error("{name} wrote an invalid completion: {what} (tag {found:#06x}, expected {expected:#06x})")]
    BadCompletion {
        /// The card.
        name: String,
        /// What is wrong with it.
        what: &'static str,
        /// Tag expected next.
        expected: u16,
        /// Tag found.
        found: u16,
    },
    /// A buffer of a prepared graph cannot be bound to an address.
    #[error("The buffer is bound as before")]
    Unbound(#[source] GraphError),
    /// The planner or the verifier refused.
    #[error("Refused before anything was launched")]
    Refused(#[source] Refusal),
    /// Two cards do not belong together.
    #[error("Node {node} and node {other} do not belong together: {what}")]
    Mismatch {
        /// One card.
        node: u32,
        /// The other.
        other: u32,
        /// The difference.
        what: String,
    },
    /// Ranks that must be alike are not. All ranks have this error.
    #[error("Rank {rank}: {what}")]
    Differs {
        /// The rank that differs from the others.
        rank: u32,
        /// In what.
        what: String,
    },
    /// Another rank has failed, and all ranks have given up.
    #[error("Rank {rank} failed: {message}")]
    Peer {
        /// The rank.
        rank: u32,
        /// Kind of its error.
        kind: ErrorKind,
        /// Its error, with the causes.
        message: String,
    },
    /// The ranks could not exchange data. Cards that ran are stopped.
    #[error("The ranks lost each other")]
    Peers(#[source] PeersError),
    /// An argument is invalid for this card. Nothing was done.
    #[error("Invalid {what} ({value}): {expected}")]
    BadArgument {
        /// Which argument.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        expected: String,
    },
    /// No entry of the communicator table is free on all cards that a communicator was to be on. Nothing was done.
    #[error(
        "No entry of the communicator table is free on all of {cards} cards: each holds {limit} communicators, the one of \
         all cards included; free one of them first"
    )]
    TableFull {
        /// Cards it was to be on.
        cards: usize,
        /// Entries of a card's table.
        limit: u32,
    },
    /// Every id of a communicator that is free on all its cards was given to one of them before. Nothing was done.
    #[error(
        "No id of a communicator is left on {cards} cards: one that was freed is not given again before the cards that had \
         it are reset"
    )]
    IdsSpent {
        /// Cards it was to be on.
        cards: usize,
    },
    /// The sequencer stopped by itself.
    #[error("{name}: the sequencer halted: {health}")]
    Halted {
        /// The card.
        name: String,
        /// Why.
        health: Health,
    },
    /// The DMA engine that moves data to and from the card has failed: an [`xdma::Error`](crate::xdma::Error) or a
    /// [`msgdma::Error`](crate::msgdma::Error).
    #[error("The card's DMA engine failed")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The control function of the card has failed: a [`dfl::Error`](crate::dfl::Error).
    #[error("The card's control function failed")]
    Control {
        /// The kind of the error.
        kind: ErrorKind,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An instruction names host memory, and the card's sequencer reaches none. Nothing was stored.
    #[error(
        "{operation} names host memory, which the sequencer of {name} does not reach; move the data with write_memory and \
         read_memory"
    )]
    NoHostMemory {
        /// The card.
        name: String,
        /// What the instruction does.
        operation: Operation,
    },
    /// The operating system gives no random number for the key of a window. Nothing was launched.
    #[error("No random number for the key of a window")]
    NoKey(#[source] std::io::Error),
    /// A token, resident program or communicator outlived what it belongs to: its card was reset, its slot was stored anew,
    /// it was freed.
    #[error("This {what} is of another owner, or is gone: freed, stored anew, or lost in a reset")]
    Stale {
        /// What is stale.
        what: &'static str,
    },
}

/// Kind of an error, as ranks tell each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ErrorKind {
    /// The operation failed.
    Failed,
    /// Refused before anything was launched.
    Refused,
    /// A wait timed out.
    Timeout,
    /// A card or a link is gone.
    Gone,
}

impl Error {
    /// Whether the error is about the card of this name, which is node `node` of its fabric. An error that names no card is about
    /// none.
    pub fn is_about(&self, name: &str, node: u32) -> bool {
        match self {
            Error::NoSequencer { name: of, .. }
            | Error::Version { name: of, .. }
            | Error::BadCapability { name: of, .. }
            | Error::Removed { name: of, .. }
            | Error::AllOnes { name: of, .. }
            | Error::Uncorrected { name: of, .. }
            | Error::NotRunning { name: of, .. }
            | Error::BadCompletion { name: of, .. }
            | Error::Halted { name: of, .. }
            | Error::NoHostMemory { name: of, .. } => of == name,
            Error::Timeout { node: of, .. } => *of == Some(node),
            Error::Failed { node: of, .. } => *of == node,
            _ => false,
        }
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Peer { kind, .. } | Error::Control { kind, .. } => *kind,
            Error::Refused(_)
            | Error::Unbound(_)
            | Error::BadArgument { .. }
            | Error::Mismatch { .. }
            | Error::Differs { .. }
            | Error::TableFull { .. }
            | Error::IdsSpent { .. }
            | Error::Full { .. }
            | Error::Board(_)
            | Error::HostMemoryUnbound { .. }
            | Error::NoHostMemory { .. } => ErrorKind::Refused,
            Error::Timeout { .. } => ErrorKind::Timeout,
            Error::Removed { .. }
            | Error::Bus(fpga_hal::Error::Removed { .. })
            | Error::Failed { status: Status::LinkDown, .. } => ErrorKind::Gone,
            _ => ErrorKind::Failed,
        }
    }

    /// Returns the error of a function that is gone.
    pub(crate) fn removed(function: &Function) -> Self {
        Error::Removed { name: function.identity().name.clone(), source: function.ending() }
    }

    pub(crate) fn argument(what: &'static str, value: impl ToString, expected: impl Into<String>) -> Self {
        Error::BadArgument { what, value: value.to_string(), expected: expected.into() }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::Refused(refusal)
    }
}

fn about(operation: Operation, status: Status, detail: u16) -> String {
    match status {
        _ if detail == NO_DETAIL => String::new(),
        Status::BadWindow if matches!(operation, Operation::Open | Operation::Close) => format!(" (slot {detail})"),
        Status::LinkDown
        | Status::LinkError
        | Status::MemoryError
        | Status::Mismatch
        | Status::BadRank
        | Status::BadWindow => format!(" (node {detail})"),
        Status::BadField => format!(" (byte {detail} of the word)"),
        Status::OutOfRange if detail == OUT_OF_MEMORY => {
            " (the machine has no memory left for mock cards, or `mock serve` none of its --memory)".to_owned()
        }
        Status::HostReadFault if detail == 0 => " (the bus refused it)".to_owned(),
        Status::HostReadFault if detail == READ_TIMED_OUT => {
            " (not answered before the card's completion timeout)".to_owned()
        }
        Status::HostReadFault if detail == READ_POISONED => " (the answer was poisoned, and not used)".to_owned(),
        _ if detail != 0 => format!(" (detail {detail:#x})"),
        _ => String::new(),
    }
}

impl From<Unowned> for Error {
    fn from(unowned: Unowned) -> Self {
        match unowned {
            Unowned::Operand { operation, address, bytes } => Error::HostMemoryUnbound { operation, address, bytes },
            Unowned::Read(error) => Error::Bus(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_told_by_what_it_means() {
        for (status, detail, expected) in [
            (Status::LinkDown, 5, " (node 5)"),
            (Status::Mismatch, 0, " (node 0)"),
            (Status::LinkError, 0, " (node 0)"),
            (Status::MemoryError, 2, " (node 2)"),
            (Status::BadRank, 7, " (node 7)"),
            (Status::BadWindow, 3, " (node 3)"),
            (Status::BadField, 0, " (byte 0 of the word)"),
            (
                Status::OutOfRange,
                OUT_OF_MEMORY,
                " (the machine has no memory left for mock cards, or `mock serve` none of its --memory)",
            ),
            (Status::OutOfRange, OUT_OF_MEMORY + 1, " (detail 0x"),
            (Status::HostReadFault, 0, " (the bus refused it)"),
            (Status::HostReadFault, READ_TIMED_OUT, " (not answered"),
            (Status::HostReadFault, READ_POISONED, " (the answer was poisoned"),
            (Status::HostWriteFault, READ_POISONED, " (detail 0x2)"),
            (Status::BadProgram, 3, " (detail 0x3)"),
            (Status::Aborted, 0, ""),
            (Status::OutOfRange, 0, ""),
        ] {
            let found = about(Operation::PutSignal, status, detail);
            assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{status}: {found}");
        }
        assert_eq!(about(Operation::Open, Status::BadWindow, 3), " (slot 3)");
        for status in Status::ALL {
            assert_eq!(about(Operation::Nop, *status, NO_DETAIL), "", "{status}");
        }
    }
}
