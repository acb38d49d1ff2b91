//! Tori of cards with routers: the links of CIRCUS and BlueLink, under OPTWEB's command sequencer.
//!
//! Neither paper has a command sequencer. What `coll` does on these fabrics is an extension: the links, their rates and the time
//! of a hop are the papers'; the sequencer, its switch and the receive buffers are OPTWEB's.

use cmdseq::Topology;

use super::{Basis, Profile, System, optweb};

const SEQUENCER: &str = "extension: OPTWEB's command sequencer, in the cycles of this card";
/// Cycles of a router of CIRCUS (4.3).
const ROUTER_CYCLES: u64 = 9;
/// Clock of the router, MHz (4.3).
const ROUTER_MHZ: u64 = 384;
/// From router to router, picoseconds (6.1.3).
const CIRCUS_LINK_PS: u64 = 225_000;
/// Shares of the physical rate that table 4 leaves after each layer, in thousandths: coding, meta frames, bursts.
const CIRCUS_SHARES: [u64; 3] = [955, 998, 985];
/// Bytes of a packet, and of its payload (6.1.3).
const CIRCUS_PACKET: (u64, u64) = (64, 60);

impl Profile {
    /// Cards on the links and routers of CIRCUS, on a torus of `rows` x `columns`. The published one is 8 x 8. A destination is
    /// named by 6 bits there; more than 64 cards need a wider field.
    pub fn circus(rows: u32, columns: u32) -> Self {
        let router_ps = ROUTER_CYCLES * 1_000_000 / ROUTER_MHZ;
        Profile {
            system: System::Circus,
            published_nodes: 64,
            nodes: rows.saturating_mul(columns),
            topology: Topology::Torus { rows },
            cycle_ps: 3_381,
            link_ps: router_ps + CIRCUS_LINK_PS + router_ps,
            hop_ps: CIRCUS_LINK_PS + router_ps,
            link_mbps: circus_payload_mbps(),
            channel_mbps: 153_600,
            beat_bytes: 64,
            memory_bytes: 32 << 30,
            memory_channels: 4,
            ..Profile::optweb(0)
        }
    }

    /// Cards on the links of BlueLink at 10 Gb/s, on a torus of `rows` x `columns`; one row is a ring. The published system has
    /// 16 boards in a box.
    pub fn bluelink(rows: u32, columns: u32) -> Self {
        let cycle_ps = 5_000;
        Profile {
            system: System::Bluelink,
            published_nodes: 16,
            nodes: rows.saturating_mul(columns),
            topology: Topology::Torus { rows },
            cycle_ps,
            link_ps: 15 * cycle_ps,
            hop_ps: 15 * cycle_ps,
            // 8b10b leaves 8 of 10 Gb/s, and a flit of 128 bits carries 64.
            link_mbps: 10_000 * 8 / 10 * 64 / 128,
            channel_mbps: 51_200,
            beat_bytes: 8,
            memory_bytes: 8 << 30,
            memory_channels: 2,
            ..Profile::optweb(0)
        }
    }
}

/// Payload of a link of CIRCUS, Mb/s: four lanes of 25 781.25 Mb/s, and what table 4 leaves of them.
fn circus_payload_mbps() -> u32 {
    let (packet, payload) = CIRCUS_PACKET;
    let physical_kbps = 4 * 25_781_250;
    let packets = CIRCUS_SHARES.iter().fold(physical_kbps, |rate, share| rate * share / 1000);
    (packets * payload / packet / 1000) as u32
}

/// Returns the source of a component of CIRCUS.
pub(super) fn circus_basis(component: &str) -> Basis {
    use Basis::Source;
    match component {
        "clock period" => Source("CIRCUS 6.1.2: 295.8 MHz"),
        optweb::LINK => Source("CIRCUS 4.3 and 6.1.3: two routers of 9 cycles at 384 MHz, and 225 ns between them"),
        "hop" => Source("CIRCUS 4.3 and 6.1.3: a router of 9 cycles at 384 MHz, and 225 ns"),
        "link rate" => Source("CIRCUS table 4: 103.125 Gb/s, less coding, meta frames, bursts and headers"),
        "pseudo channel rate" => Source("CIRCUS table 2: DDR4-2400, 64 bits"),
        "card memory" | "pseudo channels" => Source("CIRCUS table 2: 4 x 8 GB"),
        "beat" | "loop-back rate" => Source("CIRCUS 6.2: I/O channels of 512 bits"),
        _ => sequencer(component),
    }
}

/// Returns the source of a component of BlueLink.
pub(super) fn bluelink_basis(component: &str) -> Basis {
    use Basis::{Assumed, Source};
    match component {
        "clock period" => Assumed("200 MHz: no clock published"),
        optweb::LINK | "hop" => Source("BlueLink VI-B: 10 to 20 cycles over an on-chip FIFO; 15"),
        "link rate" => Source("BlueLink VI: 10 Gb/s, 8b10b, 64 bits in flits of 128"),
        "pseudo channel rate" => Source("BlueLink VIII-A: DDR2-800, 64 bits"),
        "pseudo channels" => Source("BlueLink VIII-A: two memory channels"),
        "card memory" => Assumed("two modules of 4 GiB"),
        "beat" | "loop-back rate" => Source("BlueLink VI: 64 bits of payload"),
        _ => sequencer(component),
    }
}

/// The source of a component that is OPTWEB's.
fn sequencer(component: &str) -> Basis {
    use Basis::{Assumed, Fitted, Source};
    match optweb::basis(component) {
        Source(_) | Fitted(_) => Assumed(SEQUENCER),
        assumed @ Assumed(_) => assumed,
    }
}
