//! What can be wrong with a board file.

/// Error of a board file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}")]
pub struct BoardError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, with the name of it, and what is allowed.
    pub what: String,
}
