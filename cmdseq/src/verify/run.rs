//! Runs programs in a possible order, with the vector clock of each rank.

use super::order::{Clocks, Signals, signal_of_put};
use crate::matching::{Matching, Members};
use crate::program::Program;
use crate::refusal::Refusal;
use crate::{Capabilities, Operation};

/// Further runs after the first: each knows more of the order that shared signals imply.
const MORE_RUNS: usize = 3;

/// Programs to run.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) programs: &'a [Program],
    pub(super) members: &'a Members,
    pub(super) capabilities: &'a Capabilities,
}

impl Run<'_> {
    /// Calls `find`, which runs the programs with the given signals, until it finds nothing, up to four times. Returns what the
    /// last call finds.
    pub(super) fn until_none<T>(
        &self,
        mut signals: Signals,
        mut find: impl FnMut(&mut Signals) -> Result<Option<T>, Refusal>,
    ) -> Result<Option<T>, Refusal> {
        let mut runs = MORE_RUNS;
        loop {
            let found = find(&mut signals)?;
            if found.is_none() || runs == 0 {
                return Ok(found);
            }
            runs -= 1;
            signals.again();
        }
    }

    /// Runs all programs, and returns the clocks at their ends. `each` gets rank and index of each instruction, and the clocks at
    /// its begin.
    ///
    /// # Errors
    /// As [`Matching::step`], too much work, and errors of `each`.
    pub(super) fn clocks(
        &self,
        signals: &mut Signals,
        mut each: impl FnMut(usize, usize, &Clocks) -> Result<(), Refusal>,
    ) -> Result<Clocks, Refusal> {
        let Run { programs, members, capabilities } = *self;
        let mut clocks = Clocks::new(programs.len());
        let mut matching = Matching::new(programs, members, capabilities);
        let mut together = Vec::new();
        while matching.step_into(&mut together)? {
            for (rank, index) in together.iter().copied() {
                let instruction = &programs[rank].instructions[index];
                each(rank, index, &clocks)?;
                if let Some(signal) = signal_of_put(rank, instruction, members) {
                    signals.put(rank, signal, &clocks);
                }
                if instruction.operation == Operation::WaitSignal {
                    signals.wait((rank, index), instruction, &mut clocks);
                }
                signals.check_work()?;
            }
            clocks.end_together(&together, programs, members, capabilities);
        }
        Ok(clocks)
    }
}
