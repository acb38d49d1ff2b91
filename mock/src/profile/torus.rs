//! Tori of cards with routers: the links of CIRCUS and BlueLink, under OPTWEB's command sequencer.
//!
//! Neither paper has a command sequencer. What `coll` does on these fabrics is an extension: the links, their rates and the time
//! of a hop are the papers'; the sequencer, its switch and the receive buffers are OPTWEB's.

use cmdseq::Topology;
use cmdseq::routing::{Torus, TorusError};

use super::{Profile, System, bluelink, circus};

/// Bits of a flit of BlueLink, and of its payload (VI).
const FLIT_BITS: u64 = 128;
const PAYLOAD_BITS: u64 = 64;
impl Profile {
    /// Returns the torus that the cards stand on; `None` for cards of another topology.
    ///
    /// # Errors
    /// [`TorusError`] for a torus that routing tables are not made for.
    pub fn torus(&self) -> Option<Result<Torus, TorusError>> {
        match self.topology {
            Topology::Torus { rows } => Some(Torus::new(self.nodes / rows.max(1), rows)),
            Topology::FullyConnected | Topology::Dragonfly { .. } | Topology::Switched(_) => None,
        }
    }

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
