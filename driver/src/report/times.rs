//! The times of one run of a program.

use cmdseq::Completion;

use crate::sequencer::state::CYCLES_MASK;

/// Times of a program on one card, or the largest of each over all cards, in cycles from the issue of its first
/// instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Times {
    /// T1: all beats of the last instruction counted out.
    pub t1_cycles: u64,
    /// T2: the last instruction complete.
    pub t2_cycles: u64,
    /// The last byte of any instruction counted in; 0 if none was.
    pub arrival_cycles: u64,
}

/// One repetition on one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Run {
    count: usize,
    pub(crate) first_issued: u64,
    /// Issue, T1 and T2 of the last completion.
    pub(crate) last: (u64, u64, u64),
    arrival_cycles: u64,
}

impl Run {
    /// Adds the next completion.
    pub(crate) fn add(&mut self, completion: &Completion) {
        if self.count == 0 {
            self.first_issued = completion.issued;
        }
        self.count += 1;
        self.last = (completion.issued, completion.t1, completion.t2);
        if completion.arrival != 0 {
            let arrival = since(self.first_issued, completion.issued, completion.arrival);
            self.arrival_cycles = self.arrival_cycles.max(arrival);
        }
    }

    /// Completions added.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn times(&self) -> Times {
        let (issued, t1, t2) = self.last;
        Times {
            t1_cycles: since(self.first_issued, issued, t1),
            t2_cycles: since(self.first_issued, issued, t2),
            arrival_cycles: self.arrival_cycles,
        }
    }
}

impl Times {
    /// Times of one run of a program on one card.
    pub fn of(program: &[Completion]) -> Times {
        let mut run = Run::default();
        program.iter().for_each(|completion| run.add(completion));
        if run.count() == 0 { Times::default() } else { run.times() }
    }

    /// The larger of each.
    pub(crate) fn largest(self, other: Times) -> Times {
        Times {
            t1_cycles: self.t1_cycles.max(other.t1_cycles),
            t2_cycles: self.t2_cycles.max(other.t2_cycles),
            arrival_cycles: self.arrival_cycles.max(other.arrival_cycles),
        }
    }
}

/// Cycles from the counter value `start` to `cycles` after `issued`, over any wrap of the 48-bit counter.
pub(crate) fn since(start: u64, issued: u64, cycles: u64) -> u64 {
    issued.wrapping_add(cycles).wrapping_sub(start) & CYCLES_MASK
}
