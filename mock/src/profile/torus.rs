//! Tori of cards with routers: the links of CIRCUS and BlueLink, under OPTWEB's command sequencer.
//!
//! Neither paper has a command sequencer. What `coll` does on these fabrics is an extension: the links, their rates and the time
//! of a hop are the papers'; the sequencer, its switch and the receive buffers are OPTWEB's.

use cmdseq::Topology;

use super::{Basis, Profile, System, bluelink, circus, optweb};

/// Bits of a flit of BlueLink, and of its payload (VI).
const FLIT_BITS: u64 = 128;
const PAYLOAD_BITS: u64 = 64;
const SEQUENCER: &str = "extension: OPTWEB's command sequencer, in the cycles of this card";
impl Profile {
    /// Cards on the links and routers of CIRCUS, on a torus of `rows` x `columns`. The published one is 8 x 8. A destination is
    /// named by 6 bits there; more than 64 cards need a wider field.
    pub fn circus(rows: u32, columns: u32) -> Self {
        let published = circus::Profile::published();
        let router_cycles = published.lookup_cycles + published.arbiter_cycles + published.crossbar_cycles;
        let router_ps = router_cycles * 1_000_000_000_000 / published.router_hertz;
        Profile {
            system: System::Circus,
            published_nodes: 64,
            nodes: rows.saturating_mul(columns),
            topology: Topology::Torus { rows },
            cycle_ps: 1_000_000_000_000u64.div_ceil(published.kernel_hertz),
            link_ps: router_ps + published.link_ps + router_ps,
            hop_ps: published.link_ps + router_ps,
            link_mbps: payload_mbps(&published),
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
        let published = bluelink::Parameters::published();
        let line = published.line;
        let cycle_ps = 1_000_000_000_000 / published.clock_hz;
        let (data, coded) = line.coding.ratio();
        let coded_mbps = line.lane_bps / 1_000_000 * u64::from(line.lanes) * data / coded;
        let flit_ps = FLIT_BITS * 1_000_000 / coded_mbps;
        let link_ps = line.latency_ps + flit_ps + 2 * (published.crc_cycles + published.crossing_cycles) * cycle_ps;
        Profile {
            system: System::Bluelink,
            published_nodes: 16,
            nodes: rows.saturating_mul(columns),
            topology: Topology::Torus { rows },
            cycle_ps,
            link_ps,
            hop_ps: link_ps,
            link_mbps: (coded_mbps * PAYLOAD_BITS / FLIT_BITS) as u32,
            channel_mbps: 51_200,
            beat_bytes: 8,
            memory_bytes: 8 << 30,
            memory_channels: 2,
            ..Profile::optweb(0)
        }
    }
}

/// Payload of a link of CIRCUS, Mb/s: what line code, meta frames, control words behind bursts, and headers leave.
fn payload_mbps(of: &circus::Profile) -> u32 {
    let shares = [
        (64, of.coded_bits),
        (of.meta_frame_words - of.meta_overhead_words, of.meta_frame_words),
        (of.burst_words, of.burst_words + 1),
        ((circus::PACKET_BYTES - circus::HEADER_BYTES) as u64, circus::PACKET_BYTES as u64),
    ];
    let rate = shares.into_iter().fold(of.lanes * of.lane_hertz, |rate, (part, of)| {
        (u128::from(rate) * u128::from(part) / u128::from(of)) as u64
    });
    (rate / 1_000_000) as u32
}

/// Returns the source of a component of CIRCUS.
pub(super) fn circus_basis(component: &str) -> Basis {
    use Basis::{Fitted, Source};
    match component {
        "clock period" => Source("CIRCUS 6.1.2: 295.8 MHz"),
        optweb::LINK => Fitted("CIRCUS, latency at seven hops 1.87 us: a link between two routers of 9 cycles"),
        "hop" => Fitted("CIRCUS, latency at seven hops 1.87 us: a link and a router of 9 cycles"),
        "link rate" => Fitted("CIRCUS table 4: 103.125 Gb/s, less line code, meta frames, bursts and headers"),
        "pseudo channel rate" => Source("CIRCUS table 2: DDR4-2400, 64 bits"),
        "card memory" | "pseudo channels" => Source("CIRCUS table 2: 4 x 8 GB"),
        "beat" | "loop-back rate" => Source("CIRCUS 6.2: I/O channels of 512 bits"),
        _ => sequencer(component),
    }
}

/// Returns the source of a component of BlueLink.
pub(super) fn bluelink_basis(component: &str) -> Basis {
    use Basis::{Assumed, Fitted, Source};
    match component {
        "clock period" => Assumed("250 MHz: no clock published; that of the words of the transceivers"),
        optweb::LINK | "hop" => {
            Fitted("BlueLink, 10 to 20 cycles over an on-chip FIFO: line, flit, CRC and clock crossing")
        }
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
