//! Serial links of several lanes: line code, framing, and latency.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::engine::{Clock, Cycle, Time};

/// What a serial link is made of. All lanes together carry one row at a time: a word of 64 bits on each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Framing {
    /// Bits a second on one lane.
    pub(crate) lane_hertz: u64,
    /// Bits of a word on the lane, with those that the line code adds to its 64.
    pub(crate) coded_bits: u64,
    /// Rows from one meta frame to the next, and those of them that are no payload; without meta frames both are 0.
    pub(crate) meta_frame_rows: u64,
    /// Rows of a meta frame that are no payload.
    pub(crate) meta_overhead_rows: u64,
    /// Payload rows of a burst, after which one row is a control word; 0 without bursts.
    pub(crate) burst_rows: u64,
}

impl Framing {
    /// Clock of the rows.
    fn clock(&self) -> Clock {
        let rows = self.lane_hertz / self.coded_bits.max(1);
        Clock::new(NonZeroU64::new(rows).unwrap_or(NonZeroU64::MIN), 0)
    }
}

/// The sending side of one link, which is as wide as a flit.
#[derive(Debug, Clone)]
pub(crate) struct Transmitter {
    framing: Framing,
    clock: Clock,
    /// First row that is still free.
    next: Cycle,
    /// Payload rows since the last row that was none.
    burst: u64,
    /// When the flits that wait here begin to leave, oldest first.
    waiting: VecDeque<Time>,
    /// Most flits that wait.
    depth: usize,
}

impl Transmitter {
    pub(crate) fn new(framing: Framing, depth: usize) -> Self {
        let clock = framing.clock();
        Transmitter { framing, clock, next: 0, burst: 0, waiting: VecDeque::new(), depth }
    }

    /// Returns since when, or from when on, there is room for a flit.
    pub(crate) fn room_at(&mut self, now: Time) -> Time {
        while self.waiting.front().is_some_and(|leaves| *leaves <= now) {
            self.waiting.pop_front();
        }
        match self.waiting.len().checked_sub(self.depth) {
            None => now,
            Some(place) => self.waiting[place],
        }
    }

    /// Takes a flit, and returns when it has left.
    pub(crate) fn send(&mut self, now: Time) -> Time {
        let earliest = self.clock.cycle_at_or_after(now);
        if earliest > self.next {
            // An idle row does what the control word after a burst does.
            (self.next, self.burst) = (earliest, 0);
        }
        let Framing { meta_frame_rows, meta_overhead_rows, burst_rows, .. } = self.framing;
        if burst_rows > 0 && self.burst == burst_rows {
            (self.next, self.burst) = (self.next + 1, 0);
        }
        if meta_frame_rows > 0 {
            let row = self.next % Cycle::from(meta_frame_rows);
            self.next += Cycle::from(meta_overhead_rows).saturating_sub(row);
        }
        let row = self.next;
        (self.next, self.burst) = (row + 1, self.burst + 1);
        self.waiting.push_back(self.clock.edge(row));
        self.clock.edge(row + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four lanes at 1 Gb/s with a word of 64 bits: a row takes 64 ns.
    const PLAIN: Framing =
        Framing { lane_hertz: 1_000_000_000, coded_bits: 64, meta_frame_rows: 0, meta_overhead_rows: 0, burst_rows: 0 };

    fn rows(framing: Framing, flits: usize) -> Vec<Time> {
        let mut transmitter = Transmitter::new(framing, 4);
        (0..flits).map(|_| transmitter.send(0) / 64_000).collect()
    }

    #[test]
    fn framing_takes_rows_from_the_payload() {
        assert_eq!(rows(PLAIN, 3), [1, 2, 3]);
        let meta = Framing { meta_frame_rows: 5, meta_overhead_rows: 2, ..PLAIN };
        assert_eq!(rows(meta, 5), [3, 4, 5, 8, 9]);
        let burst = Framing { burst_rows: 2, ..PLAIN };
        assert_eq!(rows(burst, 5), [1, 2, 4, 5, 7]);
    }

    #[test]
    fn an_idle_row_ends_a_burst() {
        let mut transmitter = Transmitter::new(Framing { burst_rows: 2, ..PLAIN }, 4);
        transmitter.send(0);
        assert_eq!([transmitter.send(128_000), transmitter.send(0)], [192_000, 256_000]);
        assert_eq!(transmitter.send(0), 384_000);
    }

    #[test]
    fn flits_wait_for_their_rows() {
        let mut transmitter = Transmitter::new(PLAIN, 2);
        for _ in 0..3 {
            assert_eq!(transmitter.room_at(0), 0);
            transmitter.send(0);
        }
        // The first one left at once; two wait.
        assert_eq!(transmitter.room_at(0), 64_000);
        assert_eq!(transmitter.room_at(64_000), 64_000);
        // What is sent again does not ask for room.
        (0..3).for_each(|_| _ = transmitter.send(64_000));
        assert_eq!(transmitter.room_at(64_000), 64_000 * 4);
    }
}
