//! State of the command sequencer between instructions.

use std::collections::VecDeque;

use cmdseq::Instruction;
use cmdseq::instruction;

use crate::card::in_flight::InFlight;
use crate::card::launch::Launch;
use crate::engine::Time;
use crate::proto::optweb::lane::Claim;
use crate::proto::refusal::Refusal;

/// State between instructions.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    pub(crate) prefetched: VecDeque<[u8; instruction::BYTES]>,
    pub(crate) may_run: bool,
    pub(crate) is_halted: bool,
    pub(crate) retired: u64,
    /// The next instruction, and when it is issued, if that is scheduled.
    pub(crate) next: Option<Next>,
    pub(crate) issue_at: Option<Time>,
    /// Earliest time of the next issue.
    pub(crate) ready_at: Time,
    /// The next instruction waits for all before it.
    pub(crate) is_fenced: bool,
    pub(crate) in_flight: InFlight,
    pub(crate) is_fetching: bool,
    /// Number of completions being written.
    pub(crate) completing: usize,
    pub(crate) launch: Option<Launch>,
}

impl Sequencer {
    /// Returns whether an issue is scheduled, or host memory is in use.
    pub(crate) fn is_busy(&self) -> bool {
        self.issue_at.is_some() || self.is_fetching || self.completing > 0
    }

    pub(crate) fn may_go_on(&self) -> bool {
        self.may_run && !self.is_halted && !self.is_busy()
    }

    /// Number of instructions of the ring that were issued, and whose completions are not in host memory.
    pub(crate) fn unfinished(&self) -> usize {
        self.in_flight.len() + self.completing
    }

    /// Forgets the fetched instructions, because the queue was enabled or disabled.
    pub(crate) fn forget_fetched(&mut self) {
        self.prefetched.clear();
        if self.launch.is_none() {
            self.next = None;
        }
    }
}

/// The next instruction, not issued yet.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) instruction: Instruction,
    /// Why it fails as soon as it is issued.
    pub(crate) refusal: Option<Refusal>,
    /// Index in the resident program.
    pub(crate) place: usize,
    pub(crate) claim: Claim,
    /// It is the first of a further round of a loop, which takes a dispatch.
    pub(crate) turns: bool,
}

impl Next {
    /// An instruction with its claim, or the refusal of it.
    pub(crate) fn of(instruction: Instruction, claim: Result<Claim, Refusal>) -> Self {
        let (claim, refusal) = match claim {
            Ok(claim) => (claim, None),
            Err(refusal) => (Claim::ALONE, Some(refusal)),
        };
        Next { instruction, refusal, place: 0, claim, turns: false }
    }
}
