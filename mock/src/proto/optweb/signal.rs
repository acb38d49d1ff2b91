//! Additions to signals.

use cmdseq::Instruction;
use cmdseq::completion::Status;

use crate::proto::refusal::Refusal;

/// Signals of a card.
pub(crate) const SIGNALS: usize = 64;

/// An addition to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) id: u16,
    pub(crate) value: u32,
}

impl Signal {
    /// Returns the signal of `instruction`, if the cards have it.
    pub(crate) fn of(instruction: &Instruction) -> Result<Self, Refusal> {
        let (id, value) = (instruction.signal_id, instruction.signal_value);
        if usize::from(id) < SIGNALS { Ok(Signal { id, value }) } else { Err((Status::BadSignal, id)) }
    }
}
