//! What can go wrong in a pipe.

use std::io;
use std::time::Duration;

use cmdseq::Status;

use crate::error::Error;

/// Error of an end of a pipe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipeError {
    /// EPIPE: the reader has closed its end.
    #[error("The reader has closed the pipe")]
    Broken,
    /// The other end was not opened in time.
    #[error(
        "Waited {waited:.1?} for node {node} to open the other end of the pipe{}",
        .gone.map(|status| format!(": {status}")).unwrap_or_default()
    )]
    NoPeer {
        /// Node of the other end.
        node: u32,
        /// How long.
        waited: Duration,
        /// Why the card of the other end was not reached, if so.
        gone: Option<Status>,
    },
    /// No message came, or no slot became free, in time. The call may be repeated.
    #[error("Waited {waited:.1?} for {what}{}", .gone.map(|status| format!(", whose card refused a signal: {status}")).unwrap_or_default())]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
        /// Why the other end's card took no signal, if so: then that end is gone.
        gone: Option<Status>,
    },
    /// The writer has ended before all that was written had left, or a message was lost with the link, after which it ends. What
    /// came before was read.
    #[error("The writer has ended before all its data had left")]
    Truncated,
    /// The first slot holds what no writer of this version greets with.
    #[error("The writer of the pipe has greeted with {found:#x}, which no writer of this version does")]
    Greeting {
        /// The word that is wrong.
        found: u64,
    },
    /// A slot holds what no writer of this version writes.
    #[error("Message {sequence} of the pipe has an invalid {field}: {found:#x}")]
    Invalid {
        /// Number of the message, from 0.
        sequence: u64,
        /// The field of its header.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// The card's.
    #[error(transparent)]
    Card(#[from] Error),
}

impl From<PipeError> for io::Error {
    fn from(error: PipeError) -> Self {
        let kind = match &error {
            PipeError::Broken => io::ErrorKind::BrokenPipe,
            PipeError::NoPeer { .. } | PipeError::TimedOut { .. } => io::ErrorKind::TimedOut,
            PipeError::Truncated => io::ErrorKind::UnexpectedEof,
            PipeError::Greeting { .. } | PipeError::Invalid { .. } => io::ErrorKind::InvalidData,
            PipeError::Card(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
