//! Errors by class: the exit codes of `fpgactl`, and what its libraries return.

use cmdseq::text::causes;
use cmdseq::{Reason, Refusal};
use fpga_driver::{Card, ErrorKind};

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. The numbers are those of the exit codes of `fpgactl`; 3, "the result is wrong", is its alone, because no
/// library checks results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// The operation failed.
    Failed = 1,
    /// An argument is invalid.
    Usage = 2,
    /// A card does not exist, or this user may not open it.
    NoCard = 4,
    /// A time limit expired.
    Timeout = 5,
    /// A card or a link is gone.
    Gone = 6,
    /// Refused before any launch.
    Refused = 7,
}

/// A failed call: what is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The class.
    pub class: Class,
    /// What is wrong, and what fixes it.
    pub message: String,
    /// The causes, the nearest first.
    pub causes: Vec<String>,
    /// The rank that failed, if it was one.
    pub rank: Option<u32>,
    /// Index of the instruction in the program of that rank.
    pub instruction: Option<usize>,
    /// Why the planner or the verifier refused.
    pub reason: Option<Reason>,
}

impl Error {
    /// Returns an error without causes.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Error { class, message: message.into(), causes: Vec::new(), rank: None, instruction: None, reason: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Error::new(Class::Usage, message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Error::new(Class::Refused, message)
    }

    /// Converts an error with its sources; omits a source whose text is part of its parent's.
    fn chain(class: Class, error: &dyn std::error::Error) -> Self {
        Error { causes: causes(error), ..Error::new(class, error.to_string()) }
    }

    /// Converts `error`, and adds the rank of the card that the error is about. If the error names no card, that is card `used`. All
    /// cards run all collectives, so ranks are indices.
    pub(crate) fn of(error: fpga_driver::Error, cards: &[Card], used: Option<usize>) -> Self {
        let rank = cards.iter().position(|card| error.is_about(card.name(), card.node())).or(used);
        let converted = Error::from(error);
        Error { rank: converted.rank.or(rank.map(|rank| rank as u32)), ..converted }
    }

    fn at(mut self, rank: Option<u32>, instruction: Option<usize>) -> Self {
        (self.rank, self.instruction) = (rank, instruction);
        self
    }

    fn with_destinations_undefined(mut self) -> Self {
        // The driver already adds this to errors of data transfers, and says of launches that they go on.
        if !self.message.contains("undefined") {
            self.message += "; destinations are undefined";
        }
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.causes.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for Error {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let error = Error::refused(refusal.to_string()).at(refusal.rank, refusal.instruction);
        Error { reason: Some(refusal.reason), ..error }
    }
}

impl From<fpga_select::Error> for Error {
    fn from(error: fpga_select::Error) -> Self {
        use fpga_select::Error::{NotMock, Open, Syntax};
        let class = match error {
            _ if error.is_out_of_resources() => Class::Failed,
            Syntax { .. } | NotMock { .. } => Class::Usage,
            Open { source: fpga_hal::Error::Removed { .. }, .. } => Class::Gone,
            Open { source: fpga_hal::Error::Unresponsive { .. }, .. } => Class::Timeout,
            _ => Class::NoCard,
        };
        Error::chain(class, &error)
    }
}

impl From<ErrorKind> for Class {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Failed => Class::Failed,
            ErrorKind::Refused => Class::Refused,
            ErrorKind::Timeout => Class::Timeout,
            ErrorKind::Gone => Class::Gone,
        }
    }
}

impl From<fpga_driver::Error> for Error {
    fn from(error: fpga_driver::Error) -> Self {
        use fpga_driver::Error::{Failed, Refused, Timeout};
        let class = error.kind().into();
        match error {
            Refused(refusal) => refusal.into(),
            Timeout { rank, instruction, .. } => {
                Error::chain(class, &error).at(rank, instruction).with_destinations_undefined()
            }
            Failed { rank, instruction, .. } => {
                Error::chain(class, &error).at(rank, Some(instruction)).with_destinations_undefined()
            }
            _ => Error::chain(class, &error),
        }
    }
}
