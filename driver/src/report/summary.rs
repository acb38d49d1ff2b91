//! Statistics of any number of values in bounded memory.

/// Number of values up to which all are kept and percentiles are exact.
const EXACT: usize = 1 << 16;
/// Bits of a value, after the highest, that select its bucket: within 1/128 of the value.
const BITS: u32 = 7;
const BUCKETS: usize = ((u64::BITS - BITS + 1) as usize) << BITS;

/// Statistics of values: number, least, largest and mean are exact; percentiles are exact up to 65 536 values, and within 1/128
/// of the value beyond. Takes at most 0.6 MiB, for any number of values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    count: u64,
    sum: u128,
    least: u64,
    largest: u64,
    /// All values, until there are too many.
    all: Vec<u64>,
    /// Number of values in each bucket; empty while `all` has them.
    buckets: Box<[u64]>,
}

impl Summary {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.largest = self.largest.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        if self.buckets.is_empty() && self.all.len() < EXACT {
            return self.all.push(value);
        }
        if self.buckets.is_empty() {
            self.buckets = vec![0; BUCKETS].into();
            for value in std::mem::take(&mut self.all) {
                self.buckets[bucket(value)] += 1;
            }
        }
        self.buckets[bucket(value)] += 1;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least; 0 if there are none.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The largest; 0 if there are none.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The arithmetic mean; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns the value that `percent` percent of all are below: the median for 50. 0 if there are none.
    pub fn percentile(&self, percent: u8) -> u64 {
        let Some(last) = self.count.checked_sub(1) else { return 0 };
        let index = ((u128::from(self.count) * u128::from(percent) / 100) as u64).min(last);
        if self.buckets.is_empty() {
            let mut all = self.all.clone();
            return *all.select_nth_unstable(index as usize).1;
        }
        let mut before = 0;
        let reached = self.buckets.iter().position(|count| {
            before += count;
            before > index
        });
        reached.map_or(self.largest, floor).clamp(self.least, self.largest)
    }
}

/// Index of the bucket of `value`: one for each value below 2^[`BITS`], and then 2^[`BITS`] for each power of two.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    let power = if value >> BITS == 0 { 0 } else { shift + 1 };
    ((power as usize) << BITS) + ((value >> shift) as usize & ((1 << BITS) - 1))
}

/// The least value of a bucket.
fn floor(bucket: usize) -> u64 {
    let (power, low) = (bucket >> BITS, (bucket & ((1 << BITS) - 1)) as u64);
    if power == 0 { low } else { (low + (1 << BITS)) << (power - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        assert_eq!((bucket(0), bucket(127), bucket(128), bucket(u64::MAX)), (0, 127, 128, BUCKETS - 1));
        for index in 0..BUCKETS {
            assert_eq!(bucket(floor(index)), index);
            if index > 0 {
                assert_eq!(bucket(floor(index) - 1), index - 1);
            }
        }
    }

    #[test]
    fn few_counts_are_exact_and_many_nearly() {
        let mut summary = Summary::default();
        assert_eq!((summary.percentile(50), summary.mean()), (0, 0.0));
        for value in [5, 1, 9, 7] {
            summary.add(value);
        }
        assert_eq!((summary.least(), summary.largest(), summary.count()), (1, 9, 4));
        assert_eq!((summary.percentile(0), summary.percentile(50), summary.percentile(100)), (1, 7, 9));
        assert_eq!(summary.mean(), 5.5);

        let mut summary = Summary::default();
        let many = 1_000_000;
        (0..many).for_each(|value| summary.add(value + 1000));
        assert_eq!((summary.least(), summary.largest(), summary.count()), (1000, many + 999, many));
        assert_eq!(summary.mean(), 1000.0 + (many - 1) as f64 / 2.0);
        for percent in [1, 50, 90, 99] {
            let (exact, found) = (1000 + many / 100 * u64::from(percent), summary.percentile(percent));
            assert!(found <= exact && exact - found <= exact / 128, "{percent}: {found} of {exact}");
        }
        assert!(
            summary.all.capacity() == 0 && summary.buckets.len() == BUCKETS,
            "what was kept one by one is released"
        );
    }

    #[test]
    fn percentiles_of_65536_counts_are_exact_and_of_one_more_in_the_bucket() {
        let mut summary = Summary::default();
        let least = 1_000_000_007;
        (0..65_536).for_each(|value| summary.add(least + value));
        assert_eq!(
            [0, 25, 50, 100].map(|percent| summary.percentile(percent)),
            [0, 16_384, 32_768, 65_535].map(|at| least + at)
        );
        summary.add(least);
        assert_eq!(summary.percentile(50), floor(bucket(least + 32_768)).max(least));
        assert_eq!(summary.count(), 65_537);
    }

    #[test]
    fn the_count_that_half_are_below_is_of_the_upper_half() {
        let mut summary = Summary::default();
        (0..80_000).for_each(|at| summary.add(if at % 2 == 0 { 10 } else { 100 }));
        assert_eq!([0, 49, 50, 51, 100].map(|percent| summary.percentile(percent)), [10, 10, 100, 100, 100]);
    }
}
