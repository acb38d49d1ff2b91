//! Random numbers for tests that draw their own cases, and the seed that all of them start from.

/// Environment variable that seeds every property test; proptest reads the same one.
const SEED_VARIABLE: &str = "PROPTEST_RNG_SEED";

/// Returns the seed of this run: the value of `PROPTEST_RNG_SEED`, or 1.
///
/// # Panics
/// If the value is not a number, as a typing error must not look like a passed run.
pub fn seed() -> u64 {
    match std::env::var(SEED_VARIABLE) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE}={value} is not a number")),
        Err(_) => 1,
    }
}

/// SplitMix64. Every state starts a good sequence.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Returns the next 64 random bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// Returns true once in `count` calls on average.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns a copy of one of `all`.
    ///
    /// # Panics
    /// If `all` is empty.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Returns an element of `all`, or nothing if `all` is empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len() as u64) as usize)
    }

    /// Returns at least one of `0..size`, without repetition, in random order.
    pub fn some(&mut self, size: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..size).collect();
        for place in (1..all.len()).rev() {
            all.swap(place, self.below(place as u64 + 1) as usize);
        }
        all.truncate(1 + self.below(size.into()) as usize);
        all
    }
}
