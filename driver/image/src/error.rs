//! Why a file is refused.

/// Error of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is longer than any image.
    #[error("the file has {bytes} bytes, more than the {limit} that any image has")]
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The file breaks a rule of its format.
    #[error("byte {offset:#x} of the {format} file: {what}")]
    Invalid {
        /// The format.
        format: &'static str,
        /// Where in the file.
        offset: u64,
        /// What is there, and what was expected.
        what: String,
    },
}

/// Result with an [`enum@Error`] of a file.
pub type Result<T> = std::result::Result<T, Error>;
