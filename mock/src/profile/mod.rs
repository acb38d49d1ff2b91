//! Profiles: the components of a published system, each with the source of its value.

mod hardware;
pub(crate) mod version;

use cmdseq::Topology;

pub use hardware::Hardware;

/// Source of a component's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Stated by the source, in this section.
    Source(&'static str),
    /// Fitted to this published row.
    Fitted(&'static str),
    /// Assumed: no published row depends on it.
    Assumed(&'static str),
}

/// One line of a profile, for output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// Name of the component.
    pub name: &'static str,
    /// Its value, in `unit`.
    pub value: u64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Source of the value.
    pub basis: Basis,
}

/// Error of a profile: the fabric cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Too few or too many cards.
    #[error(
        "invalid number of cards: {nodes} (a fully connected fabric has 2 to {most}; a larger fabric is a Dragonfly, GROUPSxSIZE)"
    )]
    Nodes {
        /// Requested number of cards.
        nodes: u32,
        /// Largest number of cards.
        most: u32,
    },
    /// The cards have too few links.
    #[error("too few links: {groups} groups of {size} cards need {needed} links per card, a card has {ports}")]
    Links {
        /// Groups.
        groups: u32,
        /// Cards of a group.
        size: u32,
        /// Links needed.
        needed: u32,
        /// Links of a card.
        ports: u32,
    },
    /// No lane, or too many lanes.
    #[error("invalid number of lanes: {lanes} (a card has 1 to {most})")]
    Lanes {
        /// Requested number of lanes.
        lanes: u32,
        /// Largest number of lanes.
        most: u32,
    },
    /// A version of the registers that no mock card has.
    #[error(
        "invalid version of the registers: 1.{minor} (a mock card has 1.{oldest} to 1.{current}, and lanes from 1.{lanes} on)"
    )]
    Version {
        /// Requested minor version.
        minor: u32,
        /// Oldest minor version.
        oldest: u32,
        /// Current minor version.
        current: u32,
        /// First minor version with lanes.
        lanes: u32,
    },
    /// Too many windows.
    #[error("invalid number of windows: {windows} (a card has at most {most})")]
    Windows {
        /// Requested number of windows.
        windows: u32,
        /// Largest number of windows.
        most: u32,
    },
    /// A switch of [`Hardware`] is out of its range.
    #[error("{what} out of range (at most {most})")]
    Hardware {
        /// The switch.
        what: &'static str,
        /// Its largest value.
        most: u32,
    },
}

/// Maximum number of links of one card (OPTWEB paper, section 2.2: up to 64 cards are connected fully; section 5.3: k = 64).
const PORTS_MAX: u32 = 64;
/// Maximum number of lanes of one card: exchanges that run at once use different links.
const LANES_MAX: u32 = PORTS_MAX;
/// Window slots of a card: the published system has no one-sided operations.
const WINDOWS: u32 = 16;
/// Maximum number of window slots: a slot is named by 16 bits, and each has comparators of its own.
const WINDOWS_MAX: u32 = 1024;
/// Cards that the memory of the published card serves with one memory I/O each (section 4.1).
const MEMORY_IOS: u32 = 16;
/// Cycles of a control signal, and of the beat that announces data: the first beat of an active line tells them apart.
pub(crate) const BEAT_CYCLES: u64 = 1;
/// Cycles in which a one-sided operation is announced: a beat, and one with address and size.
pub(crate) const ONE_SIDED_CYCLES: u64 = 2;
const BEAT: &str =
    "OPTWEB 3.1.1 and 4.1: a control signal is one active cycle, more are data; the paths of a card have 256 lanes";
const ONE_SIDED: &str = "extension: the published beats carry no address, so a second one does";
const REDUCTION_BEAT: &str =
    "extension: behind the receiving side of the switch, as MPI-FPGA 4.3: fully pipelined units of 256 bits";
const REDUCTION_UNIT: &str = "extension: no latency published; a pipelined f64 adder, in a chain as MPI-FPGA 4.3";
const LANES: &str = "extension: published times are of one instruction at a time; each lane has a loop-back and reduction units of its own";

/// A named fabric: shape and components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Name in selectors.
    pub name: &'static str,
    /// Cards.
    pub nodes: u32,
    /// Topology of the links.
    pub topology: Topology,
    /// Period of the sequencer, switch and memory clock.
    pub cycle_ps: u64,
    /// Cycles from issue until the switch knows the instruction.
    pub dispatch_cycles: u64,
    /// Cycles from a read request until its first beat is at the switch.
    pub memory_read_cycles: u64,
    /// Cycles through the distributed switch, one way.
    pub switch_cycles: u64,
    /// Cycles of link management between switch and link block, both cards together.
    pub link_management_cycles: u64,
    /// Latency of the link block and the fibre.
    pub link_ps: u64,
    /// Cycles of the size check, before a transfer counts or is acknowledged.
    pub size_check_cycles: u64,
    /// Cycles from the end of an instruction to the issue of the next.
    pub handover_cycles: u64,
    /// Effective rate of a link in one direction.
    pub link_mbps: u32,
    /// Rate of a pseudo channel, shared by its reads and writes.
    pub channel_mbps: u32,
    /// Rate of the host link.
    pub host_mbps: u32,
    /// Bytes of one beat.
    pub beat_bytes: u64,
    /// Receive buffer of a link.
    pub receive_buffer_bytes: u64,
    /// Card memory.
    pub memory_bytes: u64,
    /// Pseudo channels of the card memory.
    pub memory_channels: u32,
    /// Cycles from one beat of a fold to the next: the units take one beat of each contribution at a time.
    pub reduce_beat_cycles: u64,
    /// Cycles of a beat through each reduction unit; a chain of them folds contributions in order, two in the first and one
    /// more in each behind it.
    pub reduce_unit_cycles: u64,
    /// Reductions are an extension: the published system has none.
    pub reductions_extend: bool,
    /// Lanes of each card: more than one are an extension.
    pub lanes: u32,
    /// Minor version of the registers. A card of an older one lacks the later registers and operations (`docs/isa.md`, Versions).
    pub version: u32,
    /// Window slots of each card from version 1.5 on, an extension. Without, a card serves one-sided operations at any address.
    pub windows: u32,
    /// What the cards do as hardware does: tests turn it on.
    pub hardware: Hardware,
}

impl Profile {
    /// OPTWEB: `nodes` cards with a link between every two. The published prototype has 4 and is designed for 8; past 16
    /// cards the memory I/Os are shared and everything is an extrapolation.
    pub fn optweb(nodes: u32) -> Self {
        Profile {
            name: "optweb",
            nodes,
            topology: Topology::FullyConnected,
            cycle_ps: 5_000,
            dispatch_cycles: 7,
            memory_read_cycles: 54,
            switch_cycles: 10,
            link_management_cycles: 22,
            link_ps: 150_000,
            size_check_cycles: 6,
            handover_cycles: 12,
            link_mbps: 45_000,
            channel_mbps: 51_200,
            host_mbps: 100_000,
            beat_bytes: 32,
            receive_buffer_bytes: 16 * 1024,
            memory_bytes: 8 << 30,
            memory_channels: 2 * MEMORY_IOS,
            reduce_beat_cycles: 1,
            reduce_unit_cycles: 8,
            reductions_extend: true,
            lanes: 1,
            version: version::CURRENT,
            windows: WINDOWS,
            hardware: Hardware::default(),
        }
    }

    /// OPTWEB's Dragonfly: `groups` groups of `size` cards (section 5.3 and figure 20).
    pub fn optweb_dragonfly(groups: u32, size: u32) -> Self {
        Profile { topology: Topology::Dragonfly { groups }, nodes: groups.saturating_mul(size), ..Profile::optweb(0) }
    }

    /// Checks that the fabric can be built: enough cards and lanes, and no more than the links reach.
    ///
    /// # Errors
    /// [`ProfileError`] with the limit.
    pub fn check(&self) -> Result<(), ProfileError> {
        self.hardware.check().map_err(|(what, most)| ProfileError::Hardware { what, most })?;
        if self.windows > WINDOWS_MAX {
            return Err(ProfileError::Windows { windows: self.windows, most: WINDOWS_MAX });
        }
        if !(1..=LANES_MAX).contains(&self.lanes) {
            return Err(ProfileError::Lanes { lanes: self.lanes, most: LANES_MAX });
        }
        let is_possible = (version::OLDEST..=version::CURRENT).contains(&self.version);
        if !is_possible || (self.lanes > 1 && self.version < version::LANES) {
            let (oldest, current, lanes) = (version::OLDEST, version::CURRENT, version::LANES);
            return Err(ProfileError::Version { minor: self.version, oldest, current, lanes });
        }
        match self.topology {
            Topology::FullyConnected if !(2..=PORTS_MAX).contains(&self.nodes) => {
                Err(ProfileError::Nodes { nodes: self.nodes, most: PORTS_MAX })
            }
            Topology::FullyConnected => Ok(()),
            Topology::Dragonfly { groups } => {
                let size = self.nodes.checked_div(groups).unwrap_or(0);
                let needed = groups.saturating_add(size).saturating_sub(2);
                if groups < 2 || size < 2 || needed > PORTS_MAX {
                    return Err(ProfileError::Links { groups, size, needed, ports: PORTS_MAX });
                }
                Ok(())
            }
        }
    }

    /// Returns the number of window slots of each card: none before version 1.5 of the registers.
    pub const fn windows(&self) -> u32 {
        if self.version < version::WINDOWS { 0 } else { self.windows }
    }

    /// Returns the number of links of each card.
    pub fn ports(&self) -> u32 {
        self.topology.ports(self.nodes)
    }

    /// Returns whether the fabric is larger than the published prototype and its design.
    pub fn is_extrapolated(&self) -> bool {
        self.nodes > MEMORY_IOS
    }

    /// K of equation 1, in whole MiB: what lies behind one memory interface if every peer has a memory I/O, and the
    /// share of a peer if there are more peers than that.
    pub(crate) fn stripe_half_bytes(&self) -> u64 {
        let peers = u64::from((self.ports() + 1).max(self.memory_channels / 2));
        (self.memory_bytes / (2 * peers)) >> 20 << 20
    }

    /// Converts cycles to picoseconds.
    pub(crate) fn cycles(&self, cycles: u64) -> u64 {
        cycles.saturating_mul(self.cycle_ps)
    }

    /// Rate of the loop-back through a card's switch: a beat a cycle.
    pub(crate) fn loop_back_mbps(&self) -> u64 {
        self.beat_bytes * 8_000_000 / self.cycle_ps.max(1)
    }

    /// Rate at which the reduction units take each contribution, and give the result.
    pub(crate) fn reduce_mbps(&self) -> u64 {
        self.beat_bytes * 8_000_000 / self.cycles(self.reduce_beat_cycles).max(1)
    }

    /// From the last beats of `contributions` at the reduction units to that of the result behind them.
    pub(crate) fn reduce_ps(&self, contributions: usize) -> u64 {
        self.cycles(self.reduce_unit_cycles.saturating_mul(contributions.saturating_sub(1) as u64))
    }

    /// From a control signal's beat at one switch to the same at the other.
    pub(crate) fn control_ps(&self) -> u64 {
        self.to_receive_buffer_ps() + self.cycles(self.switch_cycles)
    }

    /// From a beat at the sending switch to the receive buffer of the other card, which lies before its switch.
    pub(crate) fn to_receive_buffer_ps(&self) -> u64 {
        self.cycles(self.switch_cycles + self.link_management_cycles) + self.link_ps
    }

    /// From the receive buffer to being counted: through the switch and the size check.
    pub(crate) fn past_receive_buffer_ps(&self) -> u64 {
        self.cycles(self.switch_cycles + self.size_check_cycles)
    }

    /// From the last beat counted out to the same counted in.
    pub(crate) fn data_ps(&self) -> u64 {
        self.to_receive_buffer_ps() + self.past_receive_buffer_ps()
    }

    /// From the last beat counted in to the control signal at its source.
    pub(crate) fn acknowledge_ps(&self) -> u64 {
        self.cycles(self.size_check_cycles) + self.control_ps()
    }

    /// Returns every component with its source.
    pub fn components(&self) -> Vec<Component> {
        use Basis::{Assumed, Fitted, Source};
        let line = |name, value, unit, basis| Component { name, value, unit, basis };
        let mut components = vec![
            line("clock period", self.cycle_ps, "ps", Source("OPTWEB 4.1: 200 MHz")),
            line("control signal", BEAT_CYCLES, "cycles", Source(BEAT)),
            line("announcing beat", BEAT_CYCLES, "cycles", Source(BEAT)),
            line("one-sided announcement", ONE_SIDED_CYCLES, "cycles", Assumed(ONE_SIDED)),
            line("dispatch", self.dispatch_cycles, "cycles", Fitted("barrier configuration 0.04 us")),
            line("memory read", self.memory_read_cycles, "cycles", Fitted("eager configuration 0.32 us")),
            line("distributed switch", self.switch_cycles, "cycles", Source("OPTWEB 4.1: about ten cycles")),
            line("link management", self.link_management_cycles, "cycles", Fitted("barrier migration 0.36 us")),
            line("SerialLite III", self.link_ps, "ps", Source("OPTWEB 4.3.2: 0.15 us")),
            line("size check", self.size_check_cycles, "cycles", Fitted("eager migration 0.39 us")),
            line("hand-over", self.handover_cycles, "cycles", Fitted("multipath start-up 1.87 us")),
            line("link rate", self.link_mbps.into(), "Mb/s", Fitted("effective link bandwidth 45 Gb/s")),
            line("pseudo channel rate", self.channel_mbps.into(), "Mb/s", Source("OPTWEB 4.1: 256 lanes at 200 MHz")),
            line("loop-back rate", self.loop_back_mbps(), "Mb/s", Source("OPTWEB 4.1: 256 lanes at 200 MHz")),
            line("host link rate", self.host_mbps.into(), "Mb/s", Assumed("about PCIe 3.0 x16; in no published row")),
            line("beat", self.beat_bytes, "bytes", Source("OPTWEB 4.1: 256 lanes")),
            line("receive buffer", self.receive_buffer_bytes, "bytes", Source("OPTWEB 4.1: 16 KiB")),
            line("card memory", self.memory_bytes, "bytes", Source("OPTWEB 4.1: 8 GiB")),
            line("pseudo channels", self.memory_channels.into(), "", Source("OPTWEB 4.1: 16 memory I/Os of two")),
            line("reduction beat", self.reduce_beat_cycles, "cycles", Assumed(REDUCTION_BEAT)),
            line("reduction unit", self.reduce_unit_cycles, "cycles", Assumed(REDUCTION_UNIT)),
        ];
        if self.lanes > 1 {
            components.push(line("lanes", self.lanes.into(), "", Assumed(LANES)));
        }
        components
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        assert!(Profile::optweb(2).check().is_ok());
        assert!(Profile::optweb(64).check().is_ok());
        assert!(Profile::optweb(1).check().is_err());
        assert!(Profile::optweb(65).check().is_err());
        assert!(Profile::optweb_dragonfly(22, 44).check().is_ok());
        assert!(Profile::optweb_dragonfly(22, 45).check().is_err());
        assert!(Profile::optweb_dragonfly(0, 4).check().is_err());
        assert!(Profile { lanes: 64, ..Profile::optweb(4) }.check().is_ok());
        assert!(Profile { lanes: 65, ..Profile::optweb(4) }.check().is_err());
        assert!(Profile { lanes: 0, ..Profile::optweb(4) }.check().is_err());
        for (version, lanes, is_possible) in
            [(2, 1, false), (3, 1, true), (3, 2, false), (4, 2, true), (6, 1, true), (7, 1, false)]
        {
            let profile = Profile { version, lanes, ..Profile::optweb(4) };
            assert_eq!(profile.check().is_ok(), is_possible, "version 1.{version} with {lanes} lanes");
        }
        assert!(Profile { windows: 0, ..Profile::optweb(4) }.check().is_ok());
        assert!(Profile { windows: 1024, ..Profile::optweb(4) }.check().is_ok());
        assert!(Profile { windows: 1025, ..Profile::optweb(4) }.check().is_err());
        assert!(Profile::optweb_dragonfly(u32::MAX, u32::MAX).check().is_err());
    }

    #[test]
    fn stripes_shrink_only_when_peers_outnumber_memory_ios() {
        assert_eq!(Profile::optweb(4).stripe_half_bytes(), 256 << 20);
        assert_eq!(Profile::optweb(16).stripe_half_bytes(), 256 << 20);
        assert_eq!(Profile::optweb(64).stripe_half_bytes(), 64 << 20);
    }
}
