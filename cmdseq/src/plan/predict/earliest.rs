//! When programs can have ended at the earliest, without their prediction.

use super::clock::{Clock, wire};
use crate::Operation;
use crate::cost::CostModel;
use crate::matching::{Job, Recent};
use crate::program::Program;

/// What an instruction moves, for all of its kind.
#[derive(Clone, Copy)]
struct Moves {
    /// Whether it sends or receives anything.
    any: bool,
    /// Bytes of the longest block that it sends, if it sends any.
    longest: Option<u64>,
}

/// A time, in picoseconds, before which the last byte of `programs` cannot arrive: that of the card with most to do, if it never
/// had to wait for another.
pub(crate) fn at_least(job: Job<'_>, model: &CostModel) -> u64 {
    let clock = Clock { capabilities: job.capabilities, model };
    let timing = &model.timing;
    let fastest = model.links.values().copied().fold(timing.link_mbps, u32::max);
    let of_rank = |(rank, program): (usize, &Program)| {
        // By lane, all before the last instruction that moves something: what is behind it moves nothing that could arrive.
        let mut sums: Vec<(u64, u64)> = Vec::new();
        let mut known = Recent::default();
        for instruction in &program.instructions {
            let Moves { any, longest } = *known.of(instruction, || {
                if instruction.form().is_some() {
                    return Moves { any: true, longest: None };
                }
                let moved = job.moved(rank, instruction);
                let longest = moved.sends.iter().map(|send| send.bytes).max();
                Moves { any: longest.is_some() || !moved.receives.is_empty(), longest }
            });
            let mut least = u64::from(timing.dispatch_cycles) + u64::from(timing.handover_cycles);
            let mut moves = 0;
            let lane = usize::from(instruction.lane);
            sums.resize(sums.len().max(lane + 1), (0, 0));
            let (before, all) = &mut sums[lane];
            if any {
                *before = *all;
            }
            if let Some(longest) = longest {
                least += u64::from(timing.memory_read_cycles) + 1;
                moves = wire(longest, fastest) + u64::from(timing.data_ps) + u64::from(timing.acknowledge_ps);
            }
            if matches!(instruction.operation, Operation::Delay) {
                least = instruction.extent.saturating_add(timing.handover_cycles.into());
            }
            *all = all.saturating_add(clock.cycles(least)).saturating_add(moves);
        }
        sums.into_iter().map(|(before, _)| before).max().unwrap_or(0)
    };
    job.programs.iter().enumerate().map(of_rank).max().unwrap_or(0)
}
