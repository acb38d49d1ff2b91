//! Errors on lines: rare events, at a rate and from a seed.
//!
//! The number of trials up to the next error has a geometric distribution, and is drawn at once. So trials without an error
//! cost a subtraction, however many there are.

/// A sequence of numbers from a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone, Default)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// Returns the next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// Returns a number more than 0 and not more than 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        // 53 bits are what an f64 holds.
        ((self.roll() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// Independent trials that fail at a rate.
#[derive(Debug, Clone)]
pub struct Failures {
    dice: Dice,
    /// The logarithm of the probability that a trial succeeds; 0 if all do.
    log_success: f64,
    /// Trials before the next failure.
    good: u64,
}

impl Failures {
    /// Trials of which each fails with probability `rate`; a rate outside of 0 to 1 is taken as the nearer of both.
    pub fn new(rate: f64, seed: u64) -> Self {
        let mut failures = Failures { dice: Dice::new(seed), log_success: (-rate.clamp(0.0, 1.0)).ln_1p(), good: 0 };
        failures.draw();
        failures
    }

    /// Makes up to `trials` trials, and returns the number of those before the first failure. Trials after it are not made.
    #[inline]
    pub fn first_within(&mut self, trials: u64) -> Option<u64> {
        if self.good >= trials {
            self.good -= trials;
            return None;
        }
        let before = self.good;
        self.draw();
        Some(before)
    }

    fn draw(&mut self) {
        // Rates below 2^-53 draw what no run reaches. The cast saturates.
        self.good =
            if self.log_success == 0.0 { u64::MAX } else { (self.dice.fraction().ln() / self.log_success) as u64 };
    }
}

/// A line's bit errors.
#[derive(Debug, Clone)]
pub struct BitErrors(Failures);

impl BitErrors {
    /// Errors of which each bit has one with probability `rate`.
    pub fn new(rate: f64, seed: u64) -> Self {
        BitErrors(Failures::new(rate, seed))
    }

    /// Passes `bytes` over the line, and returns how many of their bits were inverted.
    #[inline]
    pub fn pass(&mut self, bytes: &mut [u8]) -> u32 {
        let bits = bytes.len() as u64 * 8;
        let (mut passed, mut inverted) = (0, 0);
        while let Some(good) = self.0.first_within(bits - passed) {
            passed += good;
            bytes[(passed / 8) as usize] ^= 1 << (passed % 8);
            passed += 1;
            inverted += 1;
        }
        inverted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors in `bits` bits, as single trials.
    fn count(rate: f64, bits: u64, at_once: u64) -> u64 {
        let mut failures = Failures::new(rate, 7);
        let mut failed = 0;
        for _ in 0..bits / at_once {
            let mut left = at_once;
            while let Some(good) = failures.first_within(left) {
                left -= good + 1;
                failed += 1;
            }
        }
        failed
    }

    #[test]
    fn failures_come_at_their_rate() {
        for (rate, bits) in [(0.5, 100_000), (1e-2, 1_000_000), (1e-4, 100_000_000), (1e-9, 10_u64.pow(13))] {
            let (expected, found) = (rate * bits as f64, count(rate, bits, bits.min(1_000_000)) as f64);
            // Five standard deviations.
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{rate}: {found} of {expected}");
        }
        assert_eq!((count(0.0, 1 << 40, 1 << 20), count(1.0, 1000, 10)), (0, 1000));
    }

    #[test]
    fn failures_do_not_depend_on_how_trials_are_grouped() {
        assert_eq!(count(1e-3, 1 << 20, 1), count(1e-3, 1 << 20, 1 << 10));
    }

    #[test]
    fn every_bit_can_be_inverted() {
        let mut errors = BitErrors::new(0.01, 3);
        let mut ever = [0_u8; 16];
        for _ in 0..10_000 {
            let mut bytes = [0_u8; 16];
            let inverted = errors.pass(&mut bytes);
            assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), inverted);
            ever.iter_mut().zip(bytes).for_each(|(ever, byte)| *ever |= byte);
        }
        assert_eq!(ever, [0xff; 16]);
        let mut bytes = [0x55; 4];
        assert_eq!((BitErrors::new(1.0, 3).pass(&mut bytes), bytes), (32, [0xaa; 4]));
    }
}
