//! Scopes of a reset.

use std::fmt;

/// How much of a card a reset covers.
///
/// A reset clears all state of a function except its BARs, including its engines. [`None`](Self::None) clears nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetOutcome {
    /// The function alone: a function-level reset, or another method that the kernel knows for this function.
    Function,
    /// Every function of the slot or bus. All of them belong to this process, and no other of them was open.
    Hot,
    /// The bus, and the function is alone on it.
    Bus,
    /// Nothing: work that the previous user started may still run. Bus mastering is off.
    None,
}

impl fmt::Display for ResetOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResetOutcome::Function => "function",
            ResetOutcome::Hot => "hot",
            ResetOutcome::Bus => "bus",
            ResetOutcome::None => "none",
        })
    }
}
