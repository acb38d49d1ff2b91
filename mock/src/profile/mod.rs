//! Profiles: the components of a published system, each with the source of its value.

pub(crate) mod bluelink;
pub(crate) mod circus;
mod component;
mod hardware;
mod limits;
pub(crate) mod mpi_fpga;
pub(crate) mod novog;
mod optweb;
mod routed;
mod shell;
mod sources;
mod switched;
mod torus;
pub(crate) mod version;
pub(crate) mod wormhole;

use cmdseq::switch::ShapeError;
use cmdseq::{Topology, TopologyError};

pub use component::{Basis, Component};
pub use hardware::Hardware;
pub use shell::Shell;

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
    /// Too few groups, or too few cards in each: they would be fully connected.
    #[error("invalid Dragonfly of {groups} x {size} cards (a Dragonfly has 2 groups or more, of 2 cards or more)")]
    Dragonfly {
        /// Requested groups.
        groups: u32,
        /// Requested cards of a group.
        size: u32,
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
    /// Too few or too many cards on a torus.
    #[error("invalid torus of {rows} x {columns} cards (a torus has 2 to {most} cards)")]
    Torus {
        /// Requested rows.
        rows: u32,
        /// Requested cards of a row.
        columns: u32,
        /// Largest number of cards.
        most: u32,
    },
    /// A network of switches that cannot be built.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A torus of three dimensions that cannot be built.
    #[error(
        "invalid torus {shape:?} (expected three sides of 1 to 16 cards, such as 4x4x4, with 2 to 512 cards){fits}"
    )]
    Torus3 {
        /// Requested sides.
        shape: String,
        /// What would fit, as the end of a sentence.
        fits: String,
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
        "invalid version of the registers: 1.{minor} (a mock card has 1.{oldest} to 1.{current}, lanes from 1.{lanes} on, and bit \
         errors from 1.{bit_errors} on)"
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
        /// First minor version of cards that report bit errors.
        bit_errors: u32,
    },
    /// Too many windows.
    #[error("invalid number of windows: {windows} (a card has at most {most})")]
    Windows {
        /// Requested number of windows.
        windows: u32,
        /// Largest number of windows.
        most: u32,
    },
    /// No fabric of so many cards has these links.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A number is out of its range.
    #[error("invalid {what}: {value} (expected {least} to {most})")]
    Number {
        /// Which number, with its unit.
        what: &'static str,
        /// Requested value.
        value: u64,
        /// Least value.
        least: u64,
        /// Largest value.
        most: u64,
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
/// Maximum number of cards of a torus: 16 x 16. The published headers of CIRCUS name 64.
const TORUS_NODES_MAX: u32 = 256;
/// Maximum number of lanes of one card: exchanges that run at once use different links.
const LANES_MAX: u32 = PORTS_MAX;
/// Maximum number of window slots: a slot is named by 16 bits, and each has comparators of its own.
const WINDOWS_MAX: u32 = 1024;
/// Cycles of a control signal, and of the beat that announces data: the first beat of an active line tells them apart.
pub(crate) const BEAT_CYCLES: u64 = 1;
/// Cycles in which a one-sided operation is announced: a beat, and one with address and size.
pub(crate) const ONE_SIDED_CYCLES: u64 = 2;

/// A published system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Mizutani et al., OPTWEB.
    Optweb,
    /// Fujita et al., CIRCUS: its links and routers, with OPTWEB's command sequencer.
    Circus,
    /// Markettos et al., BlueLink: its links and hop-by-hop routing, with OPTWEB's command sequencer.
    Bluelink,
    /// Haghi et al., MPI-FPGA: its links and its switches, which compute collectives, with OPTWEB's command sequencer.
    MpiFpga,
    /// Sheng, Novo-G#: its links and its statically scheduled routers, with OPTWEB's command sequencer.
    NovoG,
}

impl System {
    /// All of them.
    pub const ALL: [System; 5] = [System::Optweb, System::Circus, System::Bluelink, System::MpiFpga, System::NovoG];

    /// Returns the name in selectors.
    pub const fn name(self) -> &'static str {
        match self {
            System::Optweb => "optweb",
            System::Circus => "circus",
            System::Bluelink => "bluelink",
            System::MpiFpga => "mpi-fpga",
            System::NovoG => "novo-g",
        }
    }
}

/// A fabric of a published system: shape and components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The system.
    pub system: System,
    /// Cards of the largest fabric that was published, or designed for.
    pub published_nodes: u32,
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
    /// Latency of the link block and the fibre, and of the routers at both ends.
    pub link_ps: u64,
    /// Latency that each link after the first adds, with its router; 0 without routers.
    pub hop_ps: u64,
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
    /// The components of switches that compute collectives; `None` if they only route, or if there are none.
    pub switch: Option<mpi_fpga::Profile>,
    /// The components of statically scheduled routers, whose tables the host loads; `None` if there are none.
    pub router: Option<novog::Profile>,
    /// What the cards do as hardware does: tests turn it on.
    pub hardware: Hardware,
    /// What stands between the bus and the sequencer.
    pub shell: Shell,
}

impl Profile {
    /// Checks that the fabric can be built: every number is in its range, and the links reach all cards.
    ///
    /// # Errors
    /// [`ProfileError`] with the limit.
    pub fn check(&self) -> Result<(), ProfileError> {
        self.hardware.check().map_err(|(what, most)| ProfileError::Hardware { what, most })?;
        self.check_numbers()?;
        if self.windows > WINDOWS_MAX {
            return Err(ProfileError::Windows { windows: self.windows, most: WINDOWS_MAX });
        }
        // What several lanes send over shared links is not predicted.
        let most = if self.topology.has_routers() { 1 } else { LANES_MAX };
        if !(1..=most).contains(&self.lanes) {
            return Err(ProfileError::Lanes { lanes: self.lanes, most });
        }
        let oldest = match self.topology {
            Topology::Switched(_) => version::SWITCHES,
            Topology::Torus { .. } => version::ROUTERS,
            Topology::FullyConnected | Topology::Dragonfly { .. } => version::OLDEST,
        };
        let is_possible = (oldest..=version::CURRENT).contains(&self.version);
        let has_all = (self.lanes == 1 || self.version >= version::LANES)
            && (self.hardware.bits_per_error.is_none() || self.version >= version::BIT_ERRORS);
        if !is_possible || !has_all {
            let (current, lanes, bit_errors) = (version::CURRENT, version::LANES, version::BIT_ERRORS);
            return Err(ProfileError::Version { minor: self.version, oldest, current, lanes, bit_errors });
        }
        self.check_topology()?;
        Ok(self.topology.check(self.nodes)?)
    }

    /// Checks that there are as many cards as the links of a card can reach.
    fn check_topology(&self) -> Result<(), ProfileError> {
        match self.topology {
            Topology::FullyConnected if !(2..=PORTS_MAX).contains(&self.nodes) => {
                Err(ProfileError::Nodes { nodes: self.nodes, most: PORTS_MAX })
            }
            Topology::FullyConnected => Ok(()),
            Topology::Dragonfly { groups } => {
                let size = self.nodes.checked_div(groups).unwrap_or(0);
                let needed = groups.saturating_add(size).saturating_sub(2);
                if groups < 2 || size < 2 {
                    return Err(ProfileError::Dragonfly { groups, size });
                }
                if needed > PORTS_MAX {
                    return Err(ProfileError::Links { groups, size, needed, ports: PORTS_MAX });
                }
                Ok(())
            }
            Topology::Switched(shape) => Ok(shape.check()?),
            Topology::Torus { rows } => {
                let columns = self.nodes.checked_div(rows).unwrap_or(0);
                if !(2..=TORUS_NODES_MAX).contains(&self.nodes) || rows * columns != self.nodes {
                    return Err(ProfileError::Torus { rows, columns, most: TORUS_NODES_MAX });
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

    /// Returns whether the fabric is larger than the published system and its design.
    pub fn is_extrapolated(&self) -> bool {
        self.nodes > self.published_nodes
    }

    /// K of equation 1, in whole MiB: what lies behind one memory interface if every peer has a memory I/O, and the
    /// share of a peer if there are more peers than that.
    pub(crate) fn stripe_half_bytes(&self) -> u64 {
        let peers = u64::from((self.topology.reached(self.nodes) + 1).max(self.memory_channels / 2));
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
        self.beat_bytes.saturating_mul(8_000_000) / self.cycles(self.reduce_beat_cycles).max(1)
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
        let basis = match self.system {
            System::Optweb => sources::optweb,
            System::Circus => sources::circus,
            System::Bluelink => sources::bluelink,
            System::MpiFpga => sources::mpi_fpga,
            System::NovoG => sources::novo_g,
        };
        let line = |name, value, unit| Component { name, value, unit, basis: basis(name) };
        let mut components = vec![
            line("clock period", self.cycle_ps, "ps"),
            line("control signal", BEAT_CYCLES, "cycles"),
            line("announcing beat", BEAT_CYCLES, "cycles"),
            line("one-sided announcement", ONE_SIDED_CYCLES, "cycles"),
            line("dispatch", self.dispatch_cycles, "cycles"),
            line("memory read", self.memory_read_cycles, "cycles"),
            line("distributed switch", self.switch_cycles, "cycles"),
            line("link management", self.link_management_cycles, "cycles"),
            line(sources::LINK, self.link_ps, "ps"),
            line("size check", self.size_check_cycles, "cycles"),
            line("hand-over", self.handover_cycles, "cycles"),
            line("link rate", self.link_mbps.into(), "Mb/s"),
            line("pseudo channel rate", self.channel_mbps.into(), "Mb/s"),
            line("loop-back rate", self.loop_back_mbps(), "Mb/s"),
            line("host link rate", self.host_mbps.into(), "Mb/s"),
            line("beat", self.beat_bytes, "bytes"),
            line("receive buffer", self.receive_buffer_bytes, "bytes"),
            line("card memory", self.memory_bytes, "bytes"),
            line("pseudo channels", self.memory_channels.into(), ""),
            line("reduction beat", self.reduce_beat_cycles, "cycles"),
            line("reduction unit", self.reduce_unit_cycles, "cycles"),
        ];
        if let Some(switch) = &self.switch {
            let of_switch = switch.components().into_iter();
            let is_known = |one: &Component| !matches!(one.name, "clock" | "overhead of a processor");
            components.extend(of_switch.filter(is_known));
        }
        if let Some(router) = &self.router {
            components.extend(router.components());
        }
        if self.topology.has_routers() {
            components.push(line("hop", self.hop_ps, "ps"));
        }
        if self.lanes > 1 {
            components.push(line("lanes", self.lanes.into(), ""));
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
        assert!(matches!(Profile::optweb_dragonfly(22, 45).check(), Err(ProfileError::Links { needed: 65, .. })));
        for (groups, size) in [(0, 4), (1, 4), (4, 1)] {
            assert!(matches!(Profile::optweb_dragonfly(groups, size).check(), Err(ProfileError::Dragonfly { .. })));
        }
        assert!(Profile { lanes: 64, ..Profile::optweb(4) }.check().is_ok());
        assert!(Profile { lanes: 65, ..Profile::optweb(4) }.check().is_err());
        assert!(Profile { lanes: 0, ..Profile::optweb(4) }.check().is_err());
        for (version, lanes, is_possible) in
            [(2, 1, false), (3, 1, true), (3, 2, false), (4, 2, true), (7, 1, true), (8, 1, false)]
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
    fn every_component_has_a_source() {
        let lanes = Profile { lanes: 2, ..Profile::optweb(4) };
        let switched = Profile::mpi_fpga("fat:4".parse().unwrap());
        let routed = Profile::novo_g_of("2x2x2").unwrap();
        for profile in [lanes, Profile::circus(2, 2), Profile::bluelink(2, 2), switched, routed] {
            for component in profile.components() {
                assert_ne!(component.basis, Basis::Assumed(sources::NONE), "{:?}: {}", profile.system, component.name);
            }
        }
    }

    #[test]
    fn stripes_shrink_only_when_peers_outnumber_memory_ios() {
        assert_eq!(Profile::optweb(4).stripe_half_bytes(), 256 << 20);
        assert_eq!(Profile::optweb(16).stripe_half_bytes(), 256 << 20);
        assert_eq!(Profile::optweb(64).stripe_half_bytes(), 64 << 20);
    }
}
