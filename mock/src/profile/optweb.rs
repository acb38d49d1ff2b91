//! OPTWEB: cards with a link between every two, or a Dragonfly of them.

use cmdseq::Topology;

use super::{Hardware, Profile, Shell, System, version};

/// Cards that the memory of the published card serves with one memory I/O each (section 4.1).
const MEMORY_IOS: u32 = 16;
/// Window slots of a card: the published system has no one-sided operations.
const WINDOWS: u32 = 16;
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
            switch: None,
            router: None,
            hardware: Hardware::default(),
            shell: Shell::default(),
        }
    }

    /// OPTWEB's Dragonfly: `groups` groups of `size` cards (section 5.3 and figure 20).
    pub fn optweb_dragonfly(groups: u32, size: u32) -> Self {
        Profile { topology: Topology::Dragonfly { groups }, nodes: groups.saturating_mul(size), ..Profile::optweb(0) }
    }
}
