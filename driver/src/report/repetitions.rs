//! The repetitions of programs while they run: each is counted when the last rank has done it, and then forgotten.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::report::summary::Summary;
use crate::report::times::{Run, Times, since};

/// Repetitions of which a [`Report`](crate::Report) lists times and skew: the first ones. Its summaries are of all.
pub const REPETITIONS_KEPT: usize = 1 << 16;
/// Repetitions that a rank may be ahead of the slowest: more than any ring holds.
const AHEAD: u64 = 1 << 14;

/// How far the clock of a card is off at most, in millionths: the reference clock of PCIe (PCI Express Base 5.0, section 8.6.3);
/// serial links allow less.
const CLOCK_PPM: u64 = 300;

/// The repetition in which a rank was done the longest before the last one had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The rank that was done first.
    pub rank: u32,
    /// Which repetition.
    pub repetition: u64,
    /// Cycles from there to the beginning of the last rank; 0 if that had begun, or may have: both are counted from the common
    /// start, on clocks of which each may be off by 300 millionths.
    pub early_cycles: u64,
}

/// A repetition that not all ranks have done.
#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    ranks: usize,
    times: Times,
    /// None if the ranks have no common start.
    span: Option<Span>,
}

/// When ranks did a repetition, in cycles since the common start.
#[derive(Debug, Clone, Copy)]
struct Span {
    first_came: u64,
    last_came: u64,
    first_done: u64,
    last_done: u64,
    /// The rank that was done first.
    first: u32,
    /// When the last byte was counted in; 0 if none was.
    arrived: u64,
}

impl Span {
    fn of(rank: u32, came: u64, done: u64, arrival_cycles: u64) -> Self {
        let arrived = if arrival_cycles == 0 { 0 } else { came.saturating_add(arrival_cycles) };
        Span { first_came: came, last_came: came, first_done: done, last_done: done, first: rank, arrived }
    }

    fn with(self, other: Span) -> Self {
        Span {
            first_came: self.first_came.min(other.first_came),
            last_came: self.last_came.max(other.last_came),
            first_done: self.first_done.min(other.first_done),
            last_done: self.last_done.max(other.last_done),
            first: if other.first_done < self.first_done { other.first } else { self.first },
            arrived: self.arrived.max(other.arrived),
        }
    }
}

/// When ranks began together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    /// The rank's counter then.
    pub(crate) counter: u64,
    /// Whether no repetition came between.
    pub(crate) is_new: bool,
}

/// One repetition on one rank: its times, and cycles since the common start at which it had begun and was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    rank: u32,
    index: u64,
    times: Times,
    came_and_done: Option<(u64, u64)>,
    /// Whether the ranks began together, right after their start.
    is_together: bool,
}

impl Counted {
    /// Whether its repetition is one that may be listed, whoever says so.
    pub(crate) fn is_listed(&self) -> bool {
        self.index < REPETITIONS_KEPT as u64
    }
}

/// All repetitions of programs.
#[derive(Debug, Default)]
pub(crate) struct Repetitions {
    /// Ranks that have a program.
    ranks: usize,
    /// Repetitions that all ranks have done, and those after them that some have.
    done: u64,
    partial: VecDeque<Partial>,
    pub(crate) times: Vec<Times>,
    pub(crate) skew: Vec<u64>,
    pub(crate) last: Times,
    pub(crate) t2_summary: Summary,
    pub(crate) skew_summary: Summary,
    pub(crate) earliest_release: Option<Release>,
    /// What ranks have done, for other processes to count; none if this process holds all cards.
    list: Option<Vec<Counted>>,
}

impl Repetitions {
    /// Of `ranks` ranks that have a program.
    pub(crate) fn new(ranks: usize) -> Self {
        Repetitions { ranks, ..Repetitions::default() }
    }

    /// Lists repetitions, of which other processes do some.
    pub(crate) fn listing() -> Self {
        Repetitions { list: Some(Vec::new()), ..Repetitions::default() }
    }

    /// Counts the repetitions that all processes have listed, of `ranks` ranks that have a program.
    pub(crate) fn together(lists: Vec<Vec<Counted>>, ranks: usize) -> Self {
        let mut all = lists.concat();
        all.sort_by_key(|one| (one.index, one.rank));
        let mut counted = Repetitions::new(ranks);
        all.iter().for_each(|one| counted.count(one));
        counted
    }

    /// What the ranks of this process have done.
    pub(crate) fn list(&self) -> Vec<Counted> {
        self.list.clone().unwrap_or_default()
    }

    /// The first repetition that no rank may begin yet.
    pub(crate) fn end(&self) -> u64 {
        if self.list.is_some() { u64::MAX } else { self.done + AHEAD }
    }

    /// Counts `run`, the next repetition of `rank`, which is its `index`th. `start` is what the rank's counter was when all
    /// began, this repetition or one before it.
    pub(crate) fn add(&mut self, rank: u32, index: u64, start: Option<Start>, run: &Run) {
        let came_and_done = start.map(|start| {
            let at = |cycles| since(start.counter, run.first_issued, cycles);
            (at(0), at(run.times.t2_cycles))
        });
        let is_together = start.is_some_and(|start| start.is_new);
        let one = Counted { rank, index, times: run.times, came_and_done, is_together };
        match &mut self.list {
            Some(list) => list.push(one),
            None => self.count(&one),
        }
    }

    fn count(&mut self, one: &Counted) {
        let Counted { rank, index, times, came_and_done, is_together } = *one;
        let Some(at) = index.checked_sub(self.done) else { return };
        let at = at as usize;
        if at >= self.partial.len() {
            self.partial.resize(at + 1, Partial::default());
        }
        let partial = &mut self.partial[at];
        partial.times = partial.times.largest(times);
        if let Some((came, done)) = came_and_done {
            let own = Span::of(rank, came, done, if is_together { times.arrival_cycles } else { 0 });
            partial.span = Some(partial.span.map_or(own, |span| span.with(own)));
        }
        partial.ranks += 1;
        while self.partial.front().is_some_and(|first| first.ranks == self.ranks) {
            self.settle();
        }
    }

    /// Counts the oldest repetition, which all ranks have done.
    fn settle(&mut self) {
        let Some(Partial { mut times, span, .. }) = self.partial.pop_front() else { return };
        if let Some(Span { first_came, last_came, first_done, last_done, first: rank, arrived }) = span {
            // Data may wait for a card that comes late, and its own time begins then.
            times.arrival_cycles = times.arrival_cycles.max(arrived.saturating_sub(first_came));
            self.skew_summary.add(last_done - first_done);
            if self.skew.len() < REPETITIONS_KEPT {
                self.skew.push(last_done - first_done);
            }
            let off = last_came.saturating_add(first_done).saturating_mul(CLOCK_PPM) / 1_000_000;
            let early_cycles = last_came.saturating_sub(first_done.saturating_add(off));
            if self.earliest_release.is_none_or(|known| known.early_cycles < early_cycles) {
                self.earliest_release = Some(Release { rank, repetition: self.done, early_cycles });
            }
        }
        self.t2_summary.add(times.t2_cycles);
        if self.times.len() < REPETITIONS_KEPT {
            self.times.push(times);
        }
        self.last = times;
        self.done += 1;
    }
}

#[cfg(test)]
mod tests {
    use cmdseq::Completion;

    use super::*;
    use cmdseq::Status;

    fn completion(issued: u64, t1: u64, t2: u64, arrival: u64) -> Completion {
        Completion { tag: 0, status: Status::Done, detail: 0, issued, t1, t2, arrival, bytes: 0, phase: true }
    }

    fn since_start(counter: u64) -> Option<Start> {
        Some(Start { counter, is_new: false })
    }

    fn run(issued: u64, t1: u64, t2: u64, arrival: u64) -> Run {
        let mut run = Run::default();
        run.add(&completion(issued, t1, t2, arrival));
        run
    }

    #[test]
    fn the_slowest_rank_of_each_repetition_counts_whoever_is_ahead() {
        let mut all = Repetitions::new(2);
        all.add(0, 0, since_start(0), &run(10, 5, 6, 3));
        all.add(0, 1, since_start(0), &run(30, 7, 9, 8));
        assert_eq!((all.times.len(), all.partial.len(), all.end()), (0, 2, AHEAD));
        all.add(1, 0, since_start(1000), &run(1010, 5, 10, 3));
        assert_eq!((all.times.len(), all.partial.len(), all.end()), (1, 1, AHEAD + 1));
        all.add(1, 1, since_start(1000), &run(1030, 7, 17, 8));
        assert_eq!((all.last.t1_cycles, all.last.t2_cycles, all.last.arrival_cycles), (7, 17, 8));
        assert_eq!(all.skew, [4, 8]);
        assert_eq!((all.times[0].t2_cycles, all.t2_summary.largest(), all.skew_summary.count()), (10, 17, 2));
        assert_eq!((all.skew_summary.least(), all.skew_summary.largest()), (4, 8));
    }

    #[test]
    fn the_arrival_counts_from_the_first_rank_that_began_however_late_the_others_come() {
        let mut all = Repetitions::new(3);
        // All begin together. Then the first, which sends, is 100 cycles ahead, and the second 40 cycles behind the third.
        for (index, issued) in [[10, 10, 10], [100, 240, 200]].into_iter().enumerate() {
            let [sender, late, receiver] = issued;
            let at = |counter| Some(Start { counter, is_new: true });
            all.add(0, index as u64, at(0), &run(sender, 5, 60, 0));
            // Its counter crosses the wrap on the way.
            let start = (1 << 48) - 50;
            all.add(1, index as u64, at(start), &run((start + late) & ((1 << 48) - 1), 5, 55, 50));
            all.add(2, index as u64, at(0), &run(receiver, 5, 80, 70));
        }
        let arrivals: Vec<u64> = all.times.iter().map(|times| times.arrival_cycles).collect();
        // T2 stays each card's own.
        assert_eq!((arrivals, all.last.t2_cycles), (vec![70, 240 + 50 - 100], 80));
        // Without a common start, there is only each card's own time; and where nothing arrives, no arrival.
        let mut all = Repetitions::new(2);
        all.add(0, 0, None, &run(10, 5, 60, 0));
        all.add(1, 0, None, &run(500, 5, 55, 50));
        all.add(0, 1, since_start(0), &run(10, 5, 60, 0));
        all.add(1, 1, since_start(0), &run(500, 5, 55, 0));
        assert_eq!((all.times[0].arrival_cycles, all.times[1].arrival_cycles), (50, 0));
    }

    #[test]
    fn a_rank_is_done_when_its_last_instruction_is_complete_wherever_that_is_in_the_program() {
        let mut all = Repetitions::new(2);
        let mut lanes = run(0, 40, 100, 90);
        lanes.add(&completion(10, 15, 20, 18));
        all.add(0, 0, since_start(0), &lanes);
        all.add(1, 0, since_start(0), &run(0, 30, 70, 60));
        assert_eq!(all.last, Times { t1_cycles: 40, t2_cycles: 100, arrival_cycles: 90 });
        assert_eq!(all.skew, [30]);
    }

    #[test]
    fn the_first_65536_are_listed_and_all_are_summed_up() {
        let mut all = Repetitions::new(1);
        let count = 65_536 + 3;
        for index in 0..count {
            all.add(0, index, since_start(0), &run(10 * index, 5, 6, 3));
        }
        assert_eq!((all.times.len(), all.skew.len()), (65_536, 65_536));
        assert_eq!((all.t2_summary.count(), all.skew_summary.count()), (count, count));
    }

    #[test]
    fn several_processes_count_as_one() {
        let add = |all: &mut Repetitions, rank: u32| {
            for index in 0..5 {
                let start = u64::from(rank) * 1000;
                all.add(
                    rank,
                    index,
                    since_start(start),
                    &run(start + 10 + 30 * index, 5, 6 + u64::from(rank) + index, 3),
                );
            }
        };
        let mut one = Repetitions::new(2);
        let mut lists = Vec::new();
        for rank in 0..2 {
            add(&mut one, rank);
            let mut listing = Repetitions::listing();
            add(&mut listing, rank);
            lists.push(listing.list());
        }
        let several = Repetitions::together(lists, 2);
        assert_eq!((&several.times, &several.skew, several.last), (&one.times, &one.skew, one.last));
        assert_eq!(several.earliest_release, one.earliest_release);
        assert_eq!(several.t2_summary, one.t2_summary);
    }

    #[test]
    fn clocks_that_drift_release_nobody() {
        let released = |drift: u64| {
            let mut all = Repetitions::new(2);
            // 20 ms on both clocks, the second of which runs ahead.
            all.add(0, 0, since_start(0), &run(100, 5, 4_000_000, 0));
            all.add(1, 0, since_start(0), &run(4_000_000 + 100 + drift, 5, 6, 0));
            all.earliest_release.map(|release| release.early_cycles)
        };
        // Each of the clocks is off by 300 millionths of 4 000 100 cycles at most.
        assert_eq!((released(0), released(2400), released(2401)), (Some(0), Some(0), Some(1)));
    }

    #[test]
    fn who_was_released_before_all_had_come_is_named() {
        let mut all = Repetitions::new(2);
        all.add(0, 0, since_start(0), &run(10, 5, 50, 0));
        all.add(1, 0, since_start(0), &run(20, 5, 50, 0));
        assert_eq!(all.earliest_release, Some(Release { rank: 0, repetition: 0, early_cycles: 0 }));
        all.add(0, 1, since_start(0), &run(100, 5, 200, 0));
        all.add(1, 1, since_start(0), &run(90, 5, 6, 0));
        let earliest = Some(Release { rank: 1, repetition: 1, early_cycles: 4 });
        assert_eq!(all.earliest_release, earliest);
        // Of several that are as early, the first.
        all.add(0, 2, since_start(0), &run(100, 5, 6, 0));
        all.add(1, 2, since_start(0), &run(110, 5, 6, 0));
        assert_eq!(all.earliest_release, earliest);
        // And of several ranks.
        let mut all = Repetitions::new(3);
        for (rank, issued) in [(0, 50), (1, 50), (2, 90)] {
            all.add(rank, 0, since_start(0), &run(issued, 5, 6, 0));
        }
        assert_eq!(all.earliest_release, Some(Release { rank: 0, repetition: 0, early_cycles: 34 }));
    }
}
