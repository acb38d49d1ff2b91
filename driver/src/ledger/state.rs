//! Whether a queue takes instructions.

use std::fmt;

/// Whether a queue takes instructions, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The sequencer runs what is pushed.
    Running,
    /// The sequencer has certainly stopped: nothing is in flight on the card.
    Stopped,
    /// The state of the card is unknown: an abort or a reset failed, a completion was invalid, or another program has reset the
    /// card. The memory of instructions in flight is kept.
    Poisoned,
    /// The card no longer answers.
    Gone,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Running => "running",
            State::Stopped => "stopped",
            State::Poisoned => "poisoned",
            State::Gone => "gone",
        })
    }
}

/// What is wrong with a completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Broken {
    pub(crate) what: &'static str,
    pub(crate) expected: u16,
    pub(crate) found: u16,
}

/// Why a queue is poisoned.
#[derive(Debug, Clone)]
pub(crate) enum Poison {
    Completion(Broken),
    /// The sequencer was not stopped or not started: why, in a sentence.
    Failed(String),
    /// A reset failed, or another program has reset the card: why, in a sentence. Only a reset helps.
    Reset(String),
}
