//! What can go wrong with a control function.

use std::time::Duration;

use fpga_regs::dfl::reconfiguration::ERRORS;

use crate::error::ErrorKind;
use crate::meanings::meanings;

/// Error of a control function.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function's feature lists hold no management engine.
    #[error("{name} is no control function: {looked}")]
    NoControl {
        /// The function.
        name: String,
        /// What was looked at, and found.
        looked: String,
    },
    /// The function's feature list leads to no host exerciser.
    #[error("{name} has no host exerciser: {looked}")]
    NoExerciser {
        /// The function.
        name: String,
        /// What was looked at, and found.
        looked: String,
    },
    /// The host exerciser noted an error.
    #[error("{name}: the host exerciser reports errors {errors:#x}")]
    Exercise {
        /// The function.
        name: String,
        /// The bits in its status.
        errors: u32,
    },
    /// The host exerciser wrote something else than it was to read.
    #[error("{name}: byte {at} that the host exerciser has written is {found:#04x}; expected {expected:#04x}")]
    WrongData {
        /// The function.
        name: String,
        /// Which byte.
        at: u64,
        /// What was to be there.
        expected: u8,
        /// What is there.
        found: u8,
    },
    /// The card's shell lacks a feature.
    #[error("{name} has no {what}")]
    Missing {
        /// The function.
        name: String,
        /// Which feature.
        what: &'static str,
    },
    /// What was asked for cannot be done. Nothing was started.
    #[error("{name}: {what}")]
    Refused {
        /// The function.
        name: String,
        /// What, and why.
        what: String,
    },
    /// The board's controller answered something that is no answer to the request.
    #[error("{name}: the board's controller answered {address:#x} wrongly: {what}")]
    Board {
        /// The function.
        name: String,
        /// The register that was asked for.
        address: u32,
        /// What was wrong.
        what: String,
    },
    /// The card did not answer in time.
    #[error("Waited {waited:.1?} for {name} to {to}; last seen: {last_seen}")]
    TimedOut {
        /// The function.
        name: String,
        /// What it was to do.
        to: &'static str,
        /// How long.
        waited: Duration,
        /// The register that was polled.
        last_seen: String,
    },
    /// Partial reconfiguration failed. The accelerator is gone; the engine takes another image.
    #[error("{name} refused the image after {pushed} of {total} bytes: {}", meanings(*.errors, &ERRORS))]
    Failed {
        /// The function.
        name: String,
        /// Bytes pushed before.
        pushed: u64,
        /// Bytes of the image.
        total: u64,
        /// Bits of the engine's ERROR.
        errors: u64,
    },
    /// The caller broke off. The accelerator is gone; the engine takes another image.
    #[error("{name}: interrupted after {pushed} of {total} bytes of the image; no accelerator is loaded")]
    Interrupted {
        /// The function.
        name: String,
        /// Bytes pushed before.
        pushed: u64,
        /// Bytes of the image.
        total: u64,
    },
    /// The card's or the bus's.
    #[error(transparent)]
    Card(#[from] crate::error::Error),
}

impl Error {
    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Card(error) => error.kind(),
            Error::TimedOut { .. } => ErrorKind::Timeout,
            Error::Refused { .. } | Error::Missing { .. } | Error::NoControl { .. } | Error::NoExerciser { .. } => {
                ErrorKind::Refused
            }
            _ => ErrorKind::Failed,
        }
    }
}

/// Result with an [`enum@Error`] of a control function.
pub type Result<T> = std::result::Result<T, Error>;
