//! What can go wrong with an mSGDMA engine.

use std::time::Duration;

use fpga_regs::msgdma::Status;

/// Error of an mSGDMA engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No feature list of the function leads to the engine.
    #[error("{name} has no mSGDMA engine: {looked}")]
    NoEngine {
        /// The function.
        name: String,
        /// What was looked at, and found.
        looked: String,
    },
    /// A register holds an invalid value.
    #[error("{name}: register {register} reads {value:#x}, but must be {expected}")]
    BadRegister {
        /// The function.
        name: String,
        /// The register.
        register: &'static str,
        /// What it reads.
        value: u64,
        /// What is allowed.
        expected: &'static str,
    },
    /// The engine cannot make the transfer. Nothing was started.
    #[error("{name}: {what}")]
    Refused {
        /// The function.
        name: String,
        /// Which piece, and why.
        what: String,
    },
    /// The engine stopped with an error. What it moved before is moved; the destination of the rest is undefined.
    #[error("mSGDMA of {name} stopped at descriptor {descriptor} of {descriptors} (card address {address:#x}): {}", cause(*.status))]
    Failed {
        /// The function.
        name: String,
        /// Number of the descriptor, from 1, at which the engine says it stopped.
        descriptor: u32,
        /// Descriptors of the list.
        descriptors: u32,
        /// Where that descriptor is in card memory.
        address: u64,
        /// Bits of STATUS.
        status: Status,
    },
    /// The engine did not end in time, but was stopped. The destination is undefined.
    #[error("Waited {waited:.1?} for mSGDMA of {name}: at descriptor {descriptor} of {descriptors}; it was stopped")]
    TimedOut {
        /// The function.
        name: String,
        /// Number of the descriptor, from 1, at which the engine says it is.
        descriptor: u32,
        /// Descriptors of the list.
        descriptors: u32,
        /// How long.
        waited: Duration,
    },
    /// The engine neither ends nor stops: an access of it is not answered. Its buffers stay mapped until
    /// [`reset`](super::Engine::reset).
    #[error("mSGDMA of {name} does not stop (STATUS {:#x}). Reset the function", .status.bits())]
    Stuck {
        /// The function.
        name: String,
        /// What STATUS read last.
        status: Status,
    },
    /// The card's or the bus's.
    #[error(transparent)]
    Card(#[from] crate::error::Error),
}

impl From<crate::dfl::Error> for Error {
    fn from(error: crate::dfl::Error) -> Self {
        Error::Card(error.into())
    }
}

impl From<Error> for crate::error::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Card(error) => error,
            Error::TimedOut { name, descriptor, descriptors, waited } => crate::error::Error::Timeout {
                what: format!("mSGDMA of {name}"),
                node: None,
                rank: None,
                instruction: None,
                waited,
                last_seen: format!("descriptor {descriptor} of {descriptors}"),
            },
            error => crate::error::Error::Engine(Box::new(error)),
        }
    }
}

/// Result with an [`enum@Error`] of an engine.
pub type Result<T> = std::result::Result<T, Error>;

fn cause(status: Status) -> String {
    let named = [
        (Status::STOPPED_ON_ERROR, "an access was answered with an error"),
        (Status::STOPPED_EARLY, "the transfer ended early"),
    ];
    let named: Vec<&str> = named.iter().filter(|(bit, _)| status.contains(*bit)).map(|(_, what)| *what).collect();
    named.join(", ")
}
