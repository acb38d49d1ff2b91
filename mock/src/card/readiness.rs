//! How far a card is after a reset.

/// How far a card is after a reset. Only a reset that takes time leads through all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Readiness {
    /// The function answers nothing.
    Resetting,
    /// The function answers, and its sequencer trains links.
    Training,
    /// The sequencer accepts commands.
    #[default]
    Ready,
}
