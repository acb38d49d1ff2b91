//! Results of checks.

/// The last check of each card.
pub(super) const SEQUENCER: &str = "sequencer";

/// Result of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Good(String),
    /// Not checked, for this reason.
    Unknown(String),
    Bad {
        found: String,
        cause: String,
        fix: Fix,
    },
    /// As `Bad`; the fix has a side effect.
    Costly {
        found: String,
        cause: String,
        fix: Fix,
        cost: String,
    },
}

/// How to fix a finding.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// A command for this user.
    User(String),
    /// A command for root.
    Root(String),
    /// An instruction for a person; no command exists.
    Hand(String),
}
