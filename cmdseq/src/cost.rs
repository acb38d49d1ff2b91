//! Cost model of cards and links, and the terms of a predicted time.

use std::collections::BTreeMap;

use crate::Capabilities;
use crate::capability::Timing;
use crate::named::named;

/// The parameters of predictions: reported by the cards, or measured.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CostModel {
    /// Times and rates of all cards and links.
    pub timing: Timing,
    /// Rates of links that differ from the others, by source and destination node, Mb/s.
    pub links: BTreeMap<(u32, u32), u32>,
}

impl CostModel {
    /// Returns the reported parameters.
    pub fn stated(capabilities: &Capabilities) -> Self {
        CostModel { timing: capabilities.timing, links: BTreeMap::new() }
    }

    /// Returns the rate of the link from node `from` to node `to`, Mb/s.
    pub fn link_mbps(&self, from: u32, to: u32) -> u32 {
        self.links.get(&(from, to)).copied().unwrap_or(self.timing.link_mbps)
    }
}

named! {
    /// What a part of a time is spent on.
    Bound {
        /// Steps whose time does not depend on the bytes.
        Latency, "latency";
        /// Beats at the rate of a link.
        Link, "link";
        /// Beats at the rate of a pseudo channel or of a card's loop-back, or of their share of it.
        Channel, "memory channel";
        /// Beats at the rate of the reduction units.
        Reduce, "reduction";
        /// Bytes at the rate of the host link.
        Host, "host link";
    }
}

/// The terms of a time along the critical path, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    picoseconds: [u64; Bound::ALL.len()],
}

impl Terms {
    /// Returns the time spent on `bound`.
    pub const fn of(&self, bound: Bound) -> u64 {
        self.picoseconds[bound as usize]
    }

    /// Adds to the time spent on `bound`. Saturates.
    pub fn add(&mut self, bound: Bound, picoseconds: u64) {
        let term = &mut self.picoseconds[bound as usize];
        *term = term.saturating_add(picoseconds);
    }

    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.picoseconds.iter().fold(0, |sum, term| sum.saturating_add(*term))
    }

    /// Returns the largest term; of equal terms, the first.
    pub fn dominant(&self) -> Bound {
        let mut most = Bound::Latency;
        for bound in Bound::ALL {
            if self.of(*bound) > self.of(most) {
                most = *bound;
            }
        }
        most
    }
}

/// A point in time, with the terms that lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    pub(crate) ps: u64,
    pub(crate) terms: Terms,
}

impl Moment {
    /// Returns the moment `picoseconds` later, spent on `bound`.
    pub(crate) fn after(mut self, bound: Bound, picoseconds: u64) -> Self {
        self.ps = self.ps.saturating_add(picoseconds);
        self.terms.add(bound, picoseconds);
        self
    }

    /// Returns the moment `picoseconds` of latency later.
    pub(crate) fn later(self, picoseconds: u64) -> Self {
        self.after(Bound::Latency, picoseconds)
    }

    /// Returns the later of two moments.
    pub(crate) fn max(self, other: Self) -> Self {
        if other.ps > self.ps { other } else { self }
    }
}
