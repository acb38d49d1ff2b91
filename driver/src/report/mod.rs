//! The report of executed programs: the cards' own cycle counts, and what is computed from them.

pub(crate) mod repetitions;
pub(crate) mod summary;
pub(crate) mod times;

use std::sync::Arc;

use cmdseq::Completion;
use cmdseq::completion::microseconds;
use fpga_hal::DmaBuffer;

use crate::report::repetitions::{Release, Repetitions};
use crate::report::summary::Summary;
use crate::report::times::Times;

/// How programs are to be executed.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Cycles each rank waits between the barriers and its program: one for each program, or empty for none.
    pub start_delay_cycles: Vec<u64>,
    /// How often the program is run, one run after the other; at least 1.
    pub repeat: u32,
    /// Whether the barriers come before each run, and not before the first only: then no run overlaps with another, and the times of
    /// all are those of one alone.
    pub apart: bool,
    /// Time limit of the whole call, in the host's time: communicators, tables, barriers and programs.
    pub timeout: std::time::Duration,
    /// Host memory that the programs name. Each instruction in flight keeps the buffers that it names.
    pub buffers: Vec<Arc<DmaBuffer>>,
}

impl Default for Execution {
    fn default() -> Self {
        let timeout = std::time::Duration::from_secs(10);
        Execution { start_delay_cycles: Vec::new(), repeat: 1, apart: false, timeout, buffers: Vec::new() }
    }
}

/// Completions of the program that a [`RankReport`] has at most, unless one repetition has more.
pub const COMPLETIONS_KEPT: usize = 1 << 14;

/// What one rank's card counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankReport {
    /// Index of its program in the set: in a plan, the rank in the group; relays are numbered after the ranks.
    pub rank: u32,
    /// Node of the card.
    pub node: u32,
    /// Completions of what ran before the program: barriers, and the delay if there was one.
    pub prologue: Vec<Completion>,
    /// Counter at the start that all cards have, after the last barrier; of runs [apart](Execution::apart), at that of the last run.
    /// `None` if there was no barrier to run.
    pub synchronised: Option<u64>,
    /// Completions of the program in the first repetitions: as many as have [`COMPLETIONS_KEPT`] together, at least one.
    pub repetitions: Vec<Vec<Completion>>,
}

/// The report of executed programs. Its size is bounded, for any number of repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// By rank, of the cards that this process holds. All else is of all ranks.
    pub ranks: Vec<RankReport>,
    /// T1 of the last repetition: the largest over the ranks, each from its own first issue.
    pub t1_cycles: u64,
    /// T2 of the last repetition: the largest over the ranks, each from its own first issue.
    pub t2_cycles: u64,
    /// When the last byte of the last repetition had arrived at the last destination; 0 if none did. If barriers ran right before,
    /// it is counted from the first issue on any card, by counters compared at the end of these. Else it is counted on the card
    /// where it arrived, from the issue there: such repetitions overlap, and clocks drift apart. A barrier is over at T2.
    pub arrival_cycles: u64,
    /// Clock of the counters, kHz.
    pub clock_khz: u32,
    /// For each of the first [`REPETITIONS_KEPT`](crate::REPETITIONS_KEPT) repetitions: the largest difference between ranks
    /// in when they were done, each counted on its own card from the end of the last barrier before the program. Empty if no
    /// barrier ran before. Clocks that are 100 millionths apart add 0.1 ns for each microsecond since that barrier.
    pub skew_cycles: Vec<u64>,
    /// Times of the first [`REPETITIONS_KEPT`](crate::REPETITIONS_KEPT) repetitions.
    pub repetitions: Vec<Times>,
    /// T2 of all repetitions: of each, the largest over the ranks.
    pub t2_summary: Summary,
    /// Skew of all repetitions.
    pub skew_summary: Summary,
    /// Of all repetitions, the one in which a rank was done the longest before all had begun; none if no barrier ran before.
    pub earliest_release: Option<Release>,
}

impl Report {
    /// Takes what was counted together.
    pub(crate) fn new(ranks: Vec<RankReport>, clock_khz: u32, counted: Repetitions) -> Self {
        let Repetitions { mut times, skew, last, t2_summary, skew_summary, earliest_release, .. } = counted;
        if times.is_empty() {
            // No rank had anything to run.
            times.push(Times::default());
        }
        Report {
            ranks,
            t1_cycles: last.t1_cycles,
            t2_cycles: last.t2_cycles,
            arrival_cycles: last.arrival_cycles,
            clock_khz,
            skew_cycles: skew,
            repetitions: times,
            t2_summary,
            skew_summary,
            earliest_release,
        }
    }

    /// `cycles` of the cards' clock in microseconds.
    pub fn microseconds(&self, cycles: u64) -> f64 {
        microseconds(cycles, self.clock_khz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::repetitions::Start;
    use crate::report::times::Run;
    use cmdseq::Status;

    fn completion(issued: u64, t1: u64, t2: u64, arrival: u64) -> Completion {
        Completion { tag: 0, status: Status::Done, detail: 0, issued, t1, t2, arrival, bytes: 0, phase: true }
    }

    #[test]
    fn times_cross_the_wrap_of_the_counter() {
        let start = (1 << 48) - 100;
        let program = [completion(start, 40, 60, 50), completion(20, 30, 35, 0)];
        assert_eq!(Times::of(&program), Times { t1_cycles: 150, t2_cycles: 155, arrival_cycles: 50 });
        assert_eq!(Times::of(&[]), Times::default());
    }

    #[test]
    fn with_lanes_a_program_ends_with_whatever_instruction_ends_last() {
        let program = [completion(0, 40, 100, 90), completion(10, 15, 20, 18)];
        assert_eq!(Times::of(&program), Times { t1_cycles: 40, t2_cycles: 100, arrival_cycles: 90 });
    }

    #[test]
    fn a_report_has_the_times_of_the_last_repetition() {
        let mut counted = Repetitions::new(1);
        for (index, one) in [completion(10, 5, 6, 3), completion(30, 7, 9, 8)].iter().enumerate() {
            let mut run = Run::default();
            run.add(one);
            counted.add(0, index as u64, Some(Start { counter: 0, is_new: index == 0 }), &run);
        }
        let report = Report::new(Vec::new(), 200_000, counted);
        assert_eq!((report.t1_cycles, report.t2_cycles, report.arrival_cycles), (7, 9, 8));
        assert_eq!((report.repetitions.len(), report.t2_summary.count()), (2, 2));
        assert_eq!(report.microseconds(200), 1.0);
        let none = Report::new(Vec::new(), 200_000, Repetitions::new(0));
        assert_eq!((none.repetitions, none.t2_cycles), (vec![Times::default()], 0));
    }
}
