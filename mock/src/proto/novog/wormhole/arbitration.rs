//! Priorities of packets that want the same output.

/// Which packet passes first (Sheng, section 5.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arbitration {
    /// Farthest first: the packet with most links ahead.
    Ff,
    /// Oldest first.
    Of,
    /// Farthest first, but packets above an age before all others, and of these the oldest first.
    Mix,
}

/// Largest age: the field has 16 bits.
const AGE_MAX: u64 = u16::MAX as u64;

impl Arbitration {
    /// All of them.
    pub const ALL: [Arbitration; 3] = [Arbitration::Ff, Arbitration::Of, Arbitration::Mix];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Arbitration::Ff => "ff",
            Arbitration::Of => "of",
            Arbitration::Mix => "mix",
        }
    }

    /// Returns the priority of a packet with `hops` links ahead that was injected `age` cycles ago; larger ones pass first.
    #[inline]
    pub(super) fn priority(self, hops: u32, age: u64, old_cycles: u64) -> u64 {
        let age = age.min(AGE_MAX);
        match self {
            Arbitration::Ff => u64::from(hops),
            Arbitration::Of => age,
            Arbitration::Mix if age > old_cycles => AGE_MAX + age,
            Arbitration::Mix => u64::from(hops),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_packets_pass_before_far_ones() {
        let first = |policy: Arbitration, packets: &[(u32, u64)]| {
            packets.iter().copied().max_by_key(|(hops, age)| policy.priority(*hops, *age, 100)).unwrap()
        };
        let packets = [(6, 50), (2, 99), (1, 60)];
        assert_eq!(first(Arbitration::Ff, &packets), (6, 50));
        assert_eq!(first(Arbitration::Of, &packets), (2, 99));
        assert_eq!(first(Arbitration::Mix, &packets), (6, 50));
        assert_eq!(first(Arbitration::Mix, &[(6, 50), (1, 101), (2, 102)]), (2, 102));
        assert_eq!(Arbitration::Of.priority(0, 1 << 40, 0), AGE_MAX);
    }
}
