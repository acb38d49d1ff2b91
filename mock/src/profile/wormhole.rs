//! Novo-G#'s wormhole router: virtual channels, credits, and a switch of reduction trees.

use crate::profile::novog;
use crate::profile::{Basis, Component};

/// The switch for a number of virtual channels (Sheng, table 4.2). The areas are those of the whole router, as published: a mock has
/// no area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Virtual channels of each input.
    pub channels: usize,
    /// Levels of its reduction trees, each of which takes a cycle.
    pub levels: u64,
    /// Adaptive logic modules of the router.
    pub alms: u32,
    /// The same in percent of a Stratix V 5SGSMD8.
    pub percent: u32,
}

/// Fewest virtual channels: one for each class of a dateline.
pub const CHANNELS_MIN: usize = 2;
/// Most virtual channels, for which a router takes a quarter of the card.
pub const CHANNELS_MAX: usize = 9;

impl Switch {
    /// Returns the switch for so many virtual channels; `None` above [`CHANNELS_MAX`].
    pub fn of(channels: usize) -> Option<Self> {
        let row = |channels, levels, alms, percent| Switch { channels, levels, alms, percent };
        let rows = [
            row(1, 2, 12_980, 5),
            row(2, 3, 18_980, 7),
            row(3, 3, 24_860, 9),
            row(4, 4, 30_980, 12),
            row(5, 4, 42_470, 16),
            row(6, 4, 42_470, 16),
            row(7, 5, 54_980, 21),
            row(8, 5, 54_980, 21),
            row(9, 4, 60_500, 23),
        ];
        rows.into_iter().find(|row| row.channels == channels)
    }
}

/// Components of Novo-G#'s wormhole router and its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WormholeProfile {
    /// Clock of the routers, and of the flits on a link.
    pub hertz: u64,
    /// Latency of a link, in picoseconds.
    pub link_ps: u64,
    /// Virtual channels of each input.
    pub channels: usize,
    /// Flits that the buffer of a virtual channel holds.
    pub channel_flits: u32,
    /// Cycles from one credit flit of a link to the next.
    pub credit_cycles: u64,
    /// Age in cycles above which the policy MIX lets the oldest packet pass first.
    pub old_cycles: u64,
    /// Packets that wait at a node for its links. Later ones wait in the program.
    pub waiting_packets: usize,
    /// Seed of all random choices of a route.
    pub seed: u64,
}

impl WormholeProfile {
    /// Cycles of routing computation and allocation of a virtual channel.
    pub const LOOKUP_CYCLES: u64 = 2;

    /// The published router, with its largest number of virtual channels.
    pub const fn published() -> Self {
        WormholeProfile {
            hertz: 142_000_000,
            link_ps: novog::Profile::published().link_ps,
            channels: CHANNELS_MAX,
            channel_flits: 512,
            credit_cycles: 100,
            old_cycles: 1_000,
            waiting_packets: 4_096,
            seed: 1,
        }
    }

    /// Returns the latency of a link, in cycles.
    pub fn link_cycles(&self) -> u64 {
        let ps = u128::from(self.link_ps) * u128::from(self.hertz);
        ps.div_ceil(1_000_000_000_000) as u64
    }

    /// Returns the cycles from an output to the buffer of the next input: link, routing and allocation, and the levels of the switch.
    pub fn hop_cycles(&self) -> u64 {
        self.link_cycles() + self.levels() + Self::LOOKUP_CYCLES
    }

    fn levels(&self) -> u64 {
        Switch::of(self.channels).map_or(0, |switch| switch.levels)
    }

    /// Returns every component with its source.
    pub fn components(&self) -> Vec<Component> {
        use Basis::{Assumed, Source};
        let line = |name, value, unit, basis| Component { name, value, unit, basis };
        vec![
            line("wormhole router clock", self.hertz, "Hz", Source("Sheng 4.2.2: 142 MHz, flits of 128 bits")),
            line("virtual channels", self.channels as u64, "", Source("Sheng 5.1.4: 9 in every experiment")),
            line("routing and allocation", Self::LOOKUP_CYCLES, "cycles", Source("Sheng 4.2.1: RC and VA")),
            line("levels of the switch", self.levels(), "cycles", Source("Sheng table 4.2")),
            line("credit flits every", self.credit_cycles, "cycles", Source("Sheng 4.2.2")),
            line(
                "buffer of a virtual channel",
                self.channel_flits.into(),
                "flits",
                Assumed("no size published; four M20K blocks"),
            ),
            line("age of an old packet", self.old_cycles, "cycles", Assumed("threshold of MIX, not published")),
            line("packets waiting at a node", self.waiting_packets as u64, "", Assumed("no size published")),
        ]
    }
}
