//! Runs programs in a possible order, with the vector clock of each rank.

use super::order::{Clocks, Signals};
use crate::Operation;
use crate::matching::{Job, Matching};
use crate::refusal::Refusal;

/// Further runs after the first: each knows more of the order that shared signals imply.
const MORE_RUNS: usize = 3;

/// Calls `find`, which runs programs with the given signals, until it finds nothing, up to four times. Returns what the last call
/// finds.
pub(super) fn until_none<T>(
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
    job: Job<'_>,
    signals: &mut Signals,
    mut each: impl FnMut(usize, usize, &Clocks) -> Result<(), Refusal>,
) -> Result<Clocks, Refusal> {
    let mut clocks = Clocks::new(job.programs.len());
    let mut matching = Matching::new(job);
    let mut together = Vec::new();
    while matching.step_into(&mut together)? {
        for (rank, index) in together.iter().copied() {
            let instruction = job.instruction(rank, index);
            each(rank, index, &clocks)?;
            if let Some(signal) = job.signal_of_put(rank, instruction) {
                signals.put(rank, signal, &clocks);
            }
            if instruction.operation == Operation::WaitSignal {
                signals.wait((rank, index), instruction, &mut clocks);
            }
            signals.check_work()?;
        }
        clocks.end_together(&together, job);
    }
    Ok(clocks)
}
