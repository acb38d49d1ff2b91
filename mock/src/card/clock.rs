//! The clock that a card counts on.

use crate::engine::Time;
use crate::net::noise::Dice;

/// Counts of different cards at one moment are this far apart, so that nobody takes them for one count.
const APART: u64 = 1_000_003;
const MILLION: i64 = 1_000_000;

/// The clock of one card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    period_ps: u64,
    /// How much faster it is than the period says, in millionths.
    ppm: i64,
    /// Of the first cycle, passed when the fabric was made.
    phase_ps: u64,
    first: u64,
}

impl Clock {
    /// The clock of the card at `node` of `nodes`. The clocks of a fabric are off by up to `drift_ppm`: the first card's runs
    /// slow, the last one's fast, those between by their number.
    pub(crate) fn new(period_ps: u64, node: u32, nodes: u32, drift_ppm: u32) -> Self {
        let first = u64::from(node) * APART;
        if drift_ppm == 0 {
            return Clock { period_ps, ppm: 0, phase_ps: 0, first };
        }
        let (drift, last) = (i64::from(drift_ppm), i64::from(nodes.max(2) - 1));
        let ppm = (2 * i64::from(node) - last) * drift / last;
        Clock { period_ps, ppm, phase_ps: Dice::new(node.into()).below(period_ps), first }
    }

    /// Returns the free-running counter. It is a register, and wraps.
    pub(crate) fn count(&self, at: Time) -> u64 {
        let cycles = match self.ppm {
            0 => (at + Time::from(self.phase_ps)) / Time::from(self.period_ps),
            ppm => {
                let (rate, million) = ((MILLION + ppm).cast_unsigned(), MILLION.cast_unsigned());
                (at + Time::from(self.phase_ps)) * Time::from(rate) / (Time::from(self.period_ps) * Time::from(million))
            }
        };
        (cycles as u64).wrapping_add(self.first)
    }

    /// Returns when the counter has the value `count`, of which the low 48 bits are known: the beginning of that cycle, the nearest
    /// to `now`. 0 if that was before the fabric was made.
    pub(crate) fn time(&self, count: u64, now: Time) -> Time {
        let present = self.count(now).wrapping_sub(self.first);
        let ago = (present.wrapping_add(self.first).wrapping_sub(count) << 16).cast_signed() >> 16;
        let cycles = Time::try_from(i128::from(present) - i128::from(ago)).unwrap_or(0);
        let (rate, million) = ((MILLION + self.ppm).cast_unsigned(), MILLION.cast_unsigned());
        let at = (cycles * Time::from(self.period_ps) * Time::from(million)).div_ceil(Time::from(rate));
        at.saturating_sub(Time::from(self.phase_ps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_apart_by_as_much_as_they_are_off() {
        let cycles = |node, drift, at| {
            let clock = Clock::new(5_000, node, 4, drift);
            clock.count(at) - clock.count(0)
        };
        let second = 1_000_000_000_000;
        let counts = |drift| [0, 1, 2, 3].map(|node| cycles(node, drift, second));
        assert_eq!(counts(0), [200_000_000; 4]);
        // 99, 33, 33 and 99 millionths off, within the cycle that a phase is.
        let expected = [200_000_000 - 19_800, 200_000_000 - 6_600, 200_000_000 + 6_600, 200_000_000 + 19_800];
        assert!(counts(99).iter().zip(expected).all(|(count, exact)| count.abs_diff(exact) <= 1), "{:?}", counts(99));
    }

    #[test]
    fn the_time_of_a_count_is_the_beginning_of_its_cycle() {
        let now = 3_000_000_000_000_000_000;
        for (node, drift) in [(0, 0), (3, 0), (0, 99), (2, 99), (3, 1000)] {
            let clock = Clock::new(5_000, node, 4, drift);
            for at in [0, 4_999, 5_000, 123_456_789, now - 5_001, now] {
                let (count, known) = (clock.count(at), (1 << 48) - 1);
                let found = clock.time(count & known, if at < now / 2 { at + 77_777 } else { now });
                assert_eq!(clock.count(found), count, "node {node}, {drift} ppm, at {at}");
                assert!(found <= at && at - found <= 5_010, "node {node}, {drift} ppm: {found} for {at}");
            }
        }
    }
}
