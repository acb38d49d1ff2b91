//! Who is told of what a queue does: nobody, readers of published counts, a trace.

use cmdseq::{Completion, Instruction};

use crate::ledger::state::State;
use crate::stats::publication::Publication;
use crate::trace::recording::Recording;

/// Who is told of what a queue does.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    pub(crate) publication: Option<Publication>,
    pub(crate) recording: Option<Recording>,
}

impl Observers {
    /// Instruction number `count` was stored.
    pub(crate) fn stored(&mut self, count: u32, instruction: &Instruction) {
        if let Some(recording) = &mut self.recording {
            recording.stored(count, instruction);
        }
    }

    /// The doorbell is about to be rung.
    pub(crate) fn ringing(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.ringing();
        }
    }

    /// The card was told of the instructions from `from` to `to`.
    #[inline]
    pub(crate) fn rung(&mut self, from: u32, to: u32) {
        if let Some(publication) = &mut self.publication {
            publication.submitted(to.wrapping_sub(from));
        }
        if let Some(recording) = &mut self.recording {
            recording.rung(from, to);
        }
    }

    /// The card is not told of these instructions: they are aborted.
    pub(crate) fn never_rung(&mut self, count: u32) {
        if let Some(publication) = &mut self.publication {
            publication.submitted(count);
        }
    }

    /// The completion of instruction number `count` has come.
    #[inline]
    pub(crate) fn completed(&mut self, count: u32, completion: &Completion) {
        if let Some(publication) = &mut self.publication {
            publication.completed(completion);
        }
        if let Some(recording) = &mut self.recording {
            recording.completed(count, completion);
        }
    }

    pub(crate) fn state(&mut self, state: State) {
        if let Some(publication) = &mut self.publication {
            publication.state(state);
        }
    }

    pub(crate) fn restarted(&mut self) {
        if let Some(publication) = &mut self.publication {
            publication.restarted();
        }
    }
}
