//! Novo-G#: 64 Stratix V cards in a torus of 4 x 4 x 4, with six links each.

use crate::profile::{Basis, Component};

/// Stages of a router (section 5.1 of the dissertation).
pub(crate) const ROUTER_CYCLES: u64 = 7;

/// When the latency of a link is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Never: all links have the mean.
    Fixed,
    /// For each packet.
    PerPacket,
    /// Once for each link, as if it came up at the begin of the run.
    PerLinkUp,
}

/// Components of Novo-G#'s links and statically scheduled routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Clock of the routers.
    pub router_hertz: u64,
    /// Mean latency of a link, in picoseconds.
    pub link_ps: u64,
    /// Its standard deviation.
    pub link_sd_ps: u64,
    /// Smallest latency ever measured.
    pub link_min_ps: u64,
    /// Largest latency ever measured.
    pub link_max_ps: u64,
    /// Standard deviation of the mean latencies of lanes.
    pub lane_sd_ps: u64,
    /// Largest deviation of a card's clock, in millionths.
    pub clock_ppm: u64,
    /// When latencies are drawn.
    pub sampling: Sampling,
    /// Packets in the buffer of an input.
    pub input_packets: usize,
    /// Packets in each virtual output queue.
    pub queue_packets: usize,
    /// Seed of all latencies and clocks.
    pub seed: u64,
}

/// Cores in the user logic of each card that transform lines of a 3-D FFT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FftCores {
    /// Their clock.
    pub hertz: u64,
    /// Cores of a card. Those that have no line in a phase are idle.
    pub count: u32,
}

impl FftCores {
    /// Sixteen cores (table 6.4) at 150 MHz (section 3.4.6).
    pub const fn published() -> Self {
        FftCores { hertz: 150_000_000, count: 16 }
    }

    /// Returns how many cores for lines of this length fit a card (table 6.3); 0 without a published number.
    pub const fn most(side: u32) -> u32 {
        match side {
            16 => 75,
            32 | 64 => 41,
            128 | 256 => 31,
            _ => 0,
        }
    }
}

impl Profile {
    /// Links of the Interlaken PHY, with measured jitter.
    pub const fn published() -> Self {
        Profile {
            router_hertz: 156_250_000,
            link_ps: 175_700,
            link_sd_ps: 12_340,
            link_min_ps: 112_000,
            link_max_ps: 224_000,
            lane_sd_ps: 3_000,
            clock_ppm: 315,
            sampling: Sampling::PerPacket,
            input_packets: 2_048,
            queue_packets: 16,
            seed: 1,
        }
    }

    /// The same with links of SerialLite III, whose jitter is not published.
    pub const fn serial_lite() -> Self {
        Profile { link_ps: 307_000, sampling: Sampling::Fixed, ..Profile::published() }
    }

    /// The same with buffers for the corner turns of an FFT of 128 x 128 x 128 points on 4 x 4 x 4 cards.
    pub const fn fft() -> Self {
        Profile { input_packets: 8_192, ..Profile::published() }
    }

    /// Returns every component with its source.
    pub fn components(&self) -> Vec<Component> {
        use Basis::{Assumed, Fitted, Source};
        let line = |name, value, unit, basis| Component { name, value, unit, basis };
        let measured = "Sheng 3.3: lanes of four links on two boards";
        vec![
            line("router clock", self.router_hertz, "Hz", Source("Sheng 5.2: 156.25 MHz, the clock of the links")),
            line("stages of a router", ROUTER_CYCLES, "cycles", Source("Sheng 5.1: IC, RL, ML, VA, SA, ReL, ReW")),
            line("link latency", self.link_ps, "ps", Fitted("link/interlaken: mean of the fitted normal distribution")),
            line("link deviation", self.link_sd_ps, "ps", Source("Sheng 3.3: standard deviation of the fit")),
            line("least link latency", self.link_min_ps, "ps", Source(measured)),
            line("largest link latency", self.link_max_ps, "ps", Source(measured)),
            line("deviation of lanes", self.lane_sd_ps, "ps", Source("Sheng 3.3: deviation of 16 lanes' means")),
            line("deviation of clocks", self.clock_ppm, "ppm", Source("Sheng 3.3: spread of four boards, half of it")),
            line("input buffer", self.input_packets as u64, "packets", Assumed("no size published; 1532 are needed")),
            line("output queue", self.queue_packets as u64, "packets", Assumed("no size published")),
        ]
    }
}
