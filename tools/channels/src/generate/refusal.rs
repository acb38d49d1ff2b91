//! Why no code is generated.

/// Reason for which no code is generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Files cannot have this name.
    #[error("invalid name {0:?} of an application: expected at most 64 letters, digits, _ or -, and no - in front")]
    Application(String),
    /// OpenCL code cannot have a channel of this name.
    #[error("channel {name}: generated code cannot have this name: {why}")]
    Reserved {
        /// Name of the end.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The definition has no end of this name.
    #[error("no end {name} in the definition (available: {})", available.join(", "))]
    NoEnd {
        /// The name.
        name: String,
        /// Names of all ends.
        available: Vec<String>,
    },
    /// Two ends have one name in Rust.
    #[error("channels {first} and {second} are both {type_name} in Rust: rename one, or generate no Rust")]
    SameType {
        /// Name of the one end.
        first: String,
        /// Name of the other.
        second: String,
        /// Name of both in Rust.
        type_name: String,
    },
}
