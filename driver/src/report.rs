//! What became of an executed plan: the cards' own cycle counts, and what is computed from them.

use std::sync::Arc;

use cmdseq::Completion;
use fpga_hal::DmaBuffer;

use crate::state::CYCLES_MASK;

/// How a plan is to be executed.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Cycles each rank waits between the barriers and its program, by rank; empty for none.
    pub start_delay_cycles: Vec<u64>,
    /// How often the program is run, one run behind the other; at least 1.
    pub repeat: u32,
    /// The most that all of it may take, in the host's time.
    pub timeout: std::time::Duration,
    /// Host memory that the programs name. Each instruction in flight keeps the buffers that it names.
    pub buffers: Vec<Arc<DmaBuffer>>,
}

impl Default for Execution {
    fn default() -> Self {
        let timeout = std::time::Duration::from_secs(10);
        Execution { start_delay_cycles: Vec::new(), repeat: 1, timeout, buffers: Vec::new() }
    }
}

/// What one rank's card counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankReport {
    /// Rank in the group of the plan.
    pub rank: u32,
    /// Place of the card in the fabric.
    pub node: u32,
    /// Completions of what ran before the program: barriers, and the delay if there was one.
    pub prologue: Vec<Completion>,
    /// Counter at the start that all cards have, behind the last barrier; `None` if there was no barrier to run.
    pub synchronised: Option<u64>,
    /// Completions of the program, by repetition.
    pub repetitions: Vec<Vec<Completion>>,
}

/// What a program took on one card or, with the largest of each, on all, in cycles from the issue of its first
/// instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// T1: all beats of the last instruction counted out.
    pub t1_cycles: u64,
    /// T2: the last instruction complete.
    pub t2_cycles: u64,
    /// The last byte of any instruction counted in; 0 if none was.
    pub arrival_cycles: u64,
}

/// What became of an executed plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// By rank.
    pub ranks: Vec<RankReport>,
    /// T1 of the last repetition: the largest over the ranks.
    pub t1_cycles: u64,
    /// T2 of the last repetition: the largest over the ranks.
    pub t2_cycles: u64,
    /// When the last byte of the last repetition had arrived at the last destination, counted on that card from the
    /// issue there; for a barrier, when the last card was released.
    pub arrival_cycles: u64,
    /// Clock of the counters, kHz.
    pub clock_khz: u32,
    /// Per repetition: the largest difference between ranks in when they were done, each counted on its own card from
    /// the end of the last barrier before the program. Empty if no barrier ran before.
    pub skew_cycles: Vec<u64>,
    /// Times of every repetition.
    pub repetitions: Vec<Times>,
}

impl Report {
    /// Computes the times from what was counted.
    pub(crate) fn new(ranks: Vec<RankReport>, clock_khz: u32, is_barrier: bool) -> Self {
        let count = ranks.iter().map(|rank| rank.repetitions.len()).max().unwrap_or(0);
        let repetitions: Vec<_> = (0..count).map(|index| largest(&ranks, index, is_barrier)).collect();
        let skew_cycles = (0..count).filter_map(|index| skew(&ranks, index)).collect();
        let last = repetitions.last().copied().unwrap_or_default();
        Report {
            ranks,
            t1_cycles: last.t1_cycles,
            t2_cycles: last.t2_cycles,
            arrival_cycles: last.arrival_cycles,
            clock_khz,
            skew_cycles,
            repetitions,
        }
    }

    /// `cycles` of the cards' clock in microseconds.
    pub fn microseconds(&self, cycles: u64) -> f64 {
        cycles as f64 * 1e3 / f64::from(self.clock_khz)
    }
}

impl Times {
    /// Times of one run of a program on one card.
    pub fn of(program: &[Completion]) -> Times {
        let (Some(first), Some(last)) = (program.first(), program.last()) else { return Times::default() };
        let arrival = program.iter().filter(|completion| completion.arrival != 0);
        Times {
            t1_cycles: since(first.issued, last.issued, last.t1),
            t2_cycles: since(first.issued, last.issued, last.t2),
            arrival_cycles: arrival.map(|at| since(first.issued, at.issued, at.arrival)).max().unwrap_or(0),
        }
    }
}

/// Cycles from the counter value `start` to `cycles` after `issued`, over any wrap of the 48-bit counter.
fn since(start: u64, issued: u64, cycles: u64) -> u64 {
    issued.wrapping_add(cycles).wrapping_sub(start) & CYCLES_MASK
}

fn largest(ranks: &[RankReport], index: usize, is_barrier: bool) -> Times {
    let times = ranks.iter().filter_map(|rank| rank.repetitions.get(index)).map(|program| Times::of(program));
    let mut all = times.fold(Times::default(), |all, one| Times {
        t1_cycles: all.t1_cycles.max(one.t1_cycles),
        t2_cycles: all.t2_cycles.max(one.t2_cycles),
        arrival_cycles: all.arrival_cycles.max(one.arrival_cycles),
    });
    if is_barrier {
        all.arrival_cycles = all.t2_cycles;
    }
    all
}

fn skew(ranks: &[RankReport], index: usize) -> Option<u64> {
    let mut done = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let start = rank.synchronised?;
        // A rank whose program is empty takes no part in the repetition.
        if let Some(last) = rank.repetitions.get(index)?.last() {
            done.push(since(start, last.issued, last.t2));
        }
    }
    Some(done.iter().max()? - done.iter().min()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cmdseq::Status;

    fn completion(issued: u64, t1: u64, t2: u64, arrival: u64) -> Completion {
        Completion { tag: 0, status: Status::Done, detail: 0, issued, t1, t2, arrival, bytes: 0, phase: true }
    }

    #[test]
    fn times_cross_the_wrap_of_the_counter() {
        let start = (1 << 48) - 100;
        let program = [completion(start, 40, 60, 50), completion(20, 30, 35, 0)];
        assert_eq!(Times::of(&program), Times { t1_cycles: 150, t2_cycles: 155, arrival_cycles: 50 });
    }

    #[test]
    fn takes_the_slowest_rank_of_the_last_repetition_and_keeps_all() {
        let rank = |rank: u32, shift: u64| RankReport {
            rank,
            node: rank,
            prologue: Vec::new(),
            synchronised: Some(1000 * u64::from(rank)),
            repetitions: vec![
                vec![completion(1000 * u64::from(rank) + 10, 5, 6 + shift, 3)],
                vec![completion(1000 * u64::from(rank) + 30, 7, 9 + 2 * shift, 8)],
            ],
        };
        let report = Report::new(vec![rank(0, 0), rank(1, 4)], 200_000, false);
        assert_eq!((report.t1_cycles, report.t2_cycles, report.arrival_cycles), (7, 17, 8));
        assert_eq!(report.skew_cycles, [4, 8]);
        assert_eq!(report.repetitions[0], Times { t1_cycles: 5, t2_cycles: 10, arrival_cycles: 3 });
        assert_eq!(report.microseconds(200), 1.0);
        let barrier = Report::new(vec![rank(0, 0), rank(1, 4)], 200_000, true);
        assert_eq!(barrier.arrival_cycles, 17);
    }
}
