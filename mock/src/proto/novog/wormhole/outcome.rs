//! Configurations of a router, and what a run measures or fails with.

use super::arbitration::Arbitration;
use super::deadlock::Deadlock;
use super::routing::Routing;
use super::traffic::TraceError;
use crate::profile::wormhole::CHANNELS_MAX;

/// A routing function and an arbitration policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// The routing function.
    pub routing: Routing,
    /// The policy.
    pub arbitration: Arbitration,
}

impl Configuration {
    /// Returns all 15 of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |routing| Arbitration::ALL.map(|arbitration| Configuration { routing, arbitration });
        Routing::ALL.into_iter().flat_map(of)
    }

    /// Returns the name, such as `romm-of`.
    pub fn name(self) -> String {
        format!("{}-{}", self.routing.name(), self.arbitration.name())
    }
}

/// Error of a network or a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WormholeError {
    /// Too few or too many virtual channels.
    #[error("invalid number of virtual channels: {channels} (a router has {least} to {CHANNELS_MAX})")]
    Channels {
        /// Channels of a router.
        channels: usize,
        /// Fewest that its rules against deadlocks need.
        least: usize,
    },
    /// Buffers or intervals that do not fit the latency of the links.
    #[error("invalid router: {what}")]
    Profile {
        /// What does not fit.
        what: &'static str,
    },
    /// A packet that no buffer holds.
    #[error("a packet of {flits} flits does not fit a buffer (at most {most})")]
    Long {
        /// Flits of the packet.
        flits: u16,
        /// Most flits of a packet.
        most: u16,
    },
    /// A packet from or to a wrong node.
    #[error(transparent)]
    Message(#[from] TraceError),
    /// Packets wait for each other.
    #[error("{0}")]
    Deadlock(Deadlock),
    /// The run took too long.
    #[error("{packets} packets are still under way in cycle {cycle}")]
    Late {
        /// The cycle.
        cycle: u64,
        /// Packets that did not arrive.
        packets: usize,
    },
}

/// What a run measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WormholeOutcome {
    /// The cycle in which the first flit was injected.
    pub first: u64,
    /// The cycle in which the last flit was ejected.
    pub last: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Flits delivered.
    pub flits: u64,
    /// Sum of the packets' latencies in cycles: from the cycle in which a packet can be sent to its last flit's ejection.
    pub latency_sum: u64,
    /// Largest of them.
    pub latency_max: u64,
    /// Most virtual channels of an input that were in use in a cycle.
    pub channels_max: u8,
    /// Most flits in the buffer of a virtual channel.
    pub depth_max: u16,
    /// Flits times links.
    pub flit_hops: u64,
    /// Credit flits on links.
    pub credit_flits: u64,
    /// Packets by receiving node.
    pub received: Vec<u64>,
}

impl WormholeOutcome {
    pub(super) fn new(nodes: u32) -> Self {
        WormholeOutcome {
            first: 0,
            last: 0,
            packets: 0,
            flits: 0,
            latency_sum: 0,
            latency_max: 0,
            channels_max: 0,
            depth_max: 0,
            flit_hops: 0,
            credit_flits: 0,
            received: vec![0; nodes as usize],
        }
    }

    pub(super) fn deliver(&mut self, to: u32, flits: u16, created: u64, now: u64) {
        let latency = now - created;
        self.last = now;
        self.packets += 1;
        self.flits += u64::from(flits);
        self.latency_sum += latency;
        self.latency_max = self.latency_max.max(latency);
        self.received[to as usize] += 1;
    }

    /// Returns the cycles from the first flit injected to the last one ejected.
    pub fn batch_cycles(&self) -> u64 {
        self.last - self.first
    }

    /// Returns the mean latency of a packet in cycles.
    pub fn latency_mean(&self) -> f64 {
        self.latency_sum as f64 / self.packets.max(1) as f64
    }

    /// Returns the flits that a node gets in a cycle, on average.
    pub fn throughput(&self) -> f64 {
        self.flits as f64 / self.received.len() as f64 / self.batch_cycles().max(1) as f64
    }
}
