//! One direction of a serial line: how long frames take on it, and what happens to them.

use std::num::NonZeroU64;

use crate::engine::{Clock, Cycle, Time};
use crate::net::noise::{BitErrors, Failures};

/// Bits of a word between transceiver and logic.
const WORD_BITS: u64 = 32;

/// Line coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// 8b10b: ten bits on the line for eight of data.
    B8B10,
    /// 64b66b.
    B64B66,
}

impl Coding {
    /// Returns the bits of data and the bits on the line for them.
    pub const fn ratio(self) -> (u64, u64) {
        match self {
            Coding::B8B10 => (8, 10),
            Coding::B64B66 => (64, 66),
        }
    }
}

/// A serial line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineConfig {
    /// Lanes that are bonded to one line.
    pub lanes: u32,
    /// Bits a second on each lane.
    pub lane_bps: u64,
    /// Line coding.
    pub coding: Coding,
    /// From the last bit at the sender's transceiver to the same behind the receiver's, in picoseconds.
    pub latency_ps: u64,
    /// Probability that a bit of data is inverted.
    pub bit_error_rate: f64,
    /// Probability that a frame is lost.
    pub loss_rate: f64,
}

impl LineConfig {
    /// Returns the clock of words of 32 bits of data. A rate below one word a second is taken as one.
    pub fn word_clock(&self) -> Clock {
        let (data, line) = self.coding.ratio();
        let words = u64::from(self.lanes).saturating_mul(self.lane_bps) / line * data / WORD_BITS;
        Clock::new(NonZeroU64::new(words).unwrap_or(NonZeroU64::MIN), 0)
    }

    /// Returns the rate of all lanes on the line, in bits a second.
    pub fn line_bps(&self) -> u64 {
        u64::from(self.lanes).saturating_mul(self.lane_bps)
    }
}

/// The sending side of a line: frames of words, one after another.
#[derive(Debug, Clone)]
pub(crate) struct Serializer {
    clock: Clock,
    /// The first word that is free.
    next: Cycle,
    sent: u64,
}

impl Serializer {
    pub(crate) fn new(config: &LineConfig) -> Self {
        Serializer { clock: config.word_clock(), next: 0, sent: 0 }
    }

    /// Returns from when on a frame that reaches the line `lead` words later begins at once.
    pub(crate) fn free_at(&self, lead: Cycle) -> Time {
        match self.next.checked_sub(lead + 1) {
            // The word before must have begun.
            Some(last) => self.clock.edge(last) + 1,
            None => 0,
        }
    }

    /// Sends a frame that reaches the line `lead` words after the time `ready`, and returns the end of its last word.
    pub(crate) fn send(&mut self, ready: Time, lead: Cycle, bytes: usize) -> Time {
        let words = (bytes as u64 * 8).div_ceil(WORD_BITS);
        self.next = (self.clock.cycle_at_or_after(ready) + lead).max(self.next) + Cycle::from(words);
        self.sent += words;
        self.clock.edge(self.next)
    }

    /// Returns the words sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

/// What may happen to frames between the transceivers.
#[derive(Debug, Clone)]
pub(crate) struct Medium {
    errors: BitErrors,
    losses: Failures,
    pub(crate) damaged: u64,
    pub(crate) lost: u64,
}

impl Medium {
    pub(crate) fn new(config: &LineConfig, seed: u64) -> Self {
        let errors = BitErrors::new(config.bit_error_rate, seed);
        let losses = Failures::new(config.loss_rate, !seed);
        Medium { errors, losses, damaged: 0, lost: 0 }
    }

    /// Passes a frame; returns whether it gets through, perhaps damaged.
    pub(crate) fn pass(&mut self, bytes: &mut [u8]) -> bool {
        if self.losses.first_within(1).is_some() {
            self.lost += 1;
            return false;
        }
        self.damaged += u64::from(self.errors.pass(bytes) > 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(lanes: u32, lane_bps: u64, coding: Coding) -> LineConfig {
        LineConfig { lanes, lane_bps, coding, latency_ps: 0, bit_error_rate: 0.0, loss_rate: 0.0 }
    }

    #[test]
    fn words_have_the_rate_of_the_coding() {
        let hertz = |line: LineConfig| line.word_clock().hertz.get();
        assert_eq!(hertz(line(1, 10_000_000_000, Coding::B8B10)), 250_000_000);
        assert_eq!(hertz(line(4, 10_000_000_000, Coding::B8B10)), 1_000_000_000);
        assert_eq!(hertz(line(1, 10_312_500_000, Coding::B64B66)), 312_500_000);
        assert_eq!(hertz(line(0, 0, Coding::B8B10)), 1);
    }

    #[test]
    fn frames_follow_each_other() {
        let mut serializer = Serializer::new(&line(1, 10_000_000_000, Coding::B8B10));
        assert_eq!(serializer.free_at(2), 0);
        assert_eq!(serializer.send(1, 2, 16), 4_000 + 8_000 + 16_000);
        assert_eq!(serializer.send(2, 2, 16), 44_000);
        // A frame that is ready two words before the end follows at once.
        let free_at = serializer.free_at(2);
        assert_eq!(free_at, 32_001);
        assert_eq!(serializer.send(free_at, 2, 4), 48_000);
        assert_eq!(serializer.sent(), 9);
    }
}
