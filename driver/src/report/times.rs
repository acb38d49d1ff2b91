//! The times of one run of a program.

use cmdseq::Completion;

/// Times of a program on one card, or the largest of each over all cards, in cycles from the issue of its first
/// instruction on the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Times {
    /// T1: all beats of all instructions counted out.
    pub t1_cycles: u64,
    /// T2: all instructions complete.
    pub t2_cycles: u64,
    /// The last byte of any instruction counted in; 0 if none was. In a [`Report`](crate::Report), from the first issue on any card.
    pub arrival_cycles: u64,
}

/// One repetition on one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Run {
    count: usize,
    pub(crate) first_issued: u64,
    /// The largest so far: with several lanes, the last instruction of a program need not end last.
    pub(crate) times: Times,
}

impl Run {
    /// Adds the next completion.
    pub(crate) fn add(&mut self, completion: &Completion) {
        if self.count == 0 {
            self.first_issued = completion.issued;
        }
        self.count += 1;
        let at = |cycles| since(self.first_issued, completion.issued, cycles);
        self.times = self.times.largest(Times {
            t1_cycles: at(completion.t1),
            t2_cycles: at(completion.t2),
            arrival_cycles: if completion.arrival == 0 { 0 } else { at(completion.arrival) },
        });
    }

    /// Completions added.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Times {
    /// Times of one run of a program on one card.
    pub fn of(program: &[Completion]) -> Times {
        let mut run = Run::default();
        program.iter().for_each(|completion| run.add(completion));
        run.times
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
    issued.wrapping_add(cycles).wrapping_sub(start) & Completion::CYCLES_MASK
}
