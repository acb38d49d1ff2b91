//! What can be wrong with a board file, and with its use.

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

/// The board file that a user has named is for another board than the function's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: the named board file is for another board: {why}")]
pub struct WrongBoard {
    /// The function.
    pub name: String,
    /// What differs.
    pub why: String,
}
