//! OPTWEB: cards with a link between every two, or a Dragonfly of them.

use cmdseq::Topology;

use super::{Basis, Hardware, Profile, System, version};

/// Cards that the memory of the published card serves with one memory I/O each (section 4.1).
const MEMORY_IOS: u32 = 16;
/// Window slots of a card: the published system has no one-sided operations.
pub(super) const WINDOWS: u32 = 16;
/// Name of the component that is the link block and the fibre.
pub(super) const LINK: &str = "link";
const BEAT: &str =
    "OPTWEB 3.1.1 and 4.1: a control signal is one active cycle, more are data; the paths of a card have 256 lanes";
pub(super) const ONE_SIDED: &str = "extension: the published beats carry no address, so a second one does";
pub(super) const REDUCTION_BEAT: &str =
    "extension: behind the receiving side of the switch, as MPI-FPGA 4.3: fully pipelined units of 256 bits";
pub(super) const REDUCTION_UNIT: &str =
    "extension: no latency published; a pipelined f64 adder, in a chain as MPI-FPGA 4.3";
const LANES: &str = "extension: published times are of one instruction at a time; each lane has a loop-back and reduction units of its own";

impl Profile {
    /// OPTWEB: `nodes` cards with a link between every two. The published prototype has 4 and is designed for 8; past 16
    /// cards the memory I/Os are shared and everything is an extrapolation.
    pub fn optweb(nodes: u32) -> Self {
        Profile {
            system: System::Optweb,
            published_nodes: MEMORY_IOS,
            nodes,
            topology: Topology::FullyConnected,
            cycle_ps: 5_000,
            dispatch_cycles: 7,
            memory_read_cycles: 54,
            switch_cycles: 10,
            link_management_cycles: 22,
            link_ps: 150_000,
            hop_ps: 0,
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
}

/// Returns the source of a component.
pub(super) fn basis(component: &str) -> Basis {
    use Basis::{Assumed, Fitted, Source};
    match component {
        "clock period" => Source("OPTWEB 4.1: 200 MHz"),
        "control signal" | "announcing beat" => Source(BEAT),
        "one-sided announcement" => Assumed(ONE_SIDED),
        "dispatch" => Fitted("barrier configuration 0.04 us"),
        "memory read" => Fitted("eager configuration 0.32 us"),
        "distributed switch" => Source("OPTWEB 4.1: about ten cycles"),
        "link management" => Fitted("barrier migration 0.36 us"),
        LINK => Source("OPTWEB 4.3.2: SerialLite III, 0.15 us"),
        "size check" => Fitted("eager migration 0.39 us"),
        "hand-over" => Fitted("multipath start-up 1.87 us"),
        "link rate" => Fitted("effective link bandwidth 45 Gb/s"),
        "pseudo channel rate" | "loop-back rate" => Source("OPTWEB 4.1: 256 lanes at 200 MHz"),
        "host link rate" => Assumed("about PCIe 3.0 x16; in no published row"),
        "beat" => Source("OPTWEB 4.1: 256 lanes"),
        "receive buffer" => Source("OPTWEB 4.1: 16 KiB"),
        "card memory" => Source("OPTWEB 4.1: 8 GiB"),
        "pseudo channels" => Source("OPTWEB 4.1: 16 memory I/Os of two"),
        "reduction beat" => Assumed(REDUCTION_BEAT),
        "reduction unit" => Assumed(REDUCTION_UNIT),
        "lanes" => Assumed(LANES),
        _ => Assumed("no source"),
    }
}
