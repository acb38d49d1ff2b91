//! What the planner takes parts of cards and fabric to cost, and what the time of a plan is made of.

use std::collections::BTreeMap;

use crate::Capabilities;
use crate::capability::Timing;

/// The parameters predictions are made with: what the cards say of themselves, or what was measured where it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CostModel {
    /// Times and rates of all cards and links.
    pub timing: Timing,
    /// Rates of the links that do not have that of all, by the nodes they lead from and to, Mb/s.
    pub links: BTreeMap<(u32, u32), u32>,
}

impl CostModel {
    /// As the cards say.
    pub fn stated(capabilities: &Capabilities) -> Self {
        CostModel { timing: capabilities.timing, links: BTreeMap::new() }
    }

    /// Rate of the link from node `from` to node `to`, Mb/s.
    pub fn link_mbps(&self, from: u32, to: u32) -> u32 {
        self.links.get(&(from, to)).copied().unwrap_or(self.timing.link_mbps)
    }
}

/// What a time is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Steps that take the same however much is moved.
    Latency,
    /// Beats at the rate of a link.
    Link,
    /// Beats at the rate of a pseudo channel, or of the share of it that they have.
    Channel,
    /// Beats at the rate of the reduction units.
    Reduce,
    /// Bytes at the rate of the host link.
    Host,
}

impl Bound {
    /// All of them.
    pub const ALL: [Bound; 5] = [Bound::Latency, Bound::Link, Bound::Channel, Bound::Reduce, Bound::Host];

    /// Name in messages and files.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Latency => "latency",
            Bound::Link => "link",
            Bound::Channel => "memory channel",
            Bound::Reduce => "reduction",
            Bound::Host => "host link",
        }
    }
}

/// A time by what it is spent on, along the chain of steps that ends last. In picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    picoseconds: [u64; Bound::ALL.len()],
}

impl Terms {
    /// What is spent on `bound`.
    pub const fn of(&self, bound: Bound) -> u64 {
        self.picoseconds[bound as usize]
    }

    /// Adds to what is spent on `bound`. Saturates.
    pub fn add(&mut self, bound: Bound, picoseconds: u64) {
        let term = &mut self.picoseconds[bound as usize];
        *term = term.saturating_add(picoseconds);
    }

    /// The sum.
    pub fn total(&self) -> u64 {
        self.picoseconds.iter().fold(0, |sum, term| sum.saturating_add(*term))
    }

    /// What most is spent on; of equal ones, the first.
    pub fn dominant(&self) -> Bound {
        let mut most = Bound::Latency;
        for bound in Bound::ALL {
            if self.of(bound) > self.of(most) {
                most = bound;
            }
        }
        most
    }
}

/// A point in time, with what the way to it was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    pub(crate) ps: u64,
    pub(crate) terms: Terms,
}

impl Moment {
    /// `picoseconds` later, spent on `bound`.
    pub(crate) fn after(mut self, bound: Bound, picoseconds: u64) -> Self {
        self.ps = self.ps.saturating_add(picoseconds);
        self.terms.add(bound, picoseconds);
        self
    }

    /// `picoseconds` later, whatever is moved.
    pub(crate) fn later(self, picoseconds: u64) -> Self {
        self.after(Bound::Latency, picoseconds)
    }

    /// The later of two: what waits for both goes on then.
    pub(crate) fn max(self, other: Self) -> Self {
        if other.ps > self.ps { other } else { self }
    }
}
