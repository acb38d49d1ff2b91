//! The rate of one saturated link, with more and more of what takes from it.

use crate::engine::Time;
use crate::net::flit::train;
use crate::net::serial::{Framing, Transmitter};
use crate::profile::circus::{HEADER_BYTES, PACKET_BYTES, Profile};
use crate::proto::circus::network::framing;

/// What takes from the rate of a link; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overhead {
    /// Nothing: the rate of the lanes.
    None,
    /// The line code.
    Code,
    /// Meta frames of SerialLite III.
    MetaFrame,
    /// Bursts of SerialLite III.
    Burst,
    /// Headers of packets.
    Header,
}

/// Bits of data a flit carries on a lane.
const WORD_BITS: u64 = 64;
/// Packets of a measurement: about 100 meta frames.
const PACKETS: u64 = 100_000;

/// Measures the rate of data on a link that never waits for data, in Gb/s. The router's clock is not in the way.
pub fn link_gbps(profile: &Profile, overhead: Overhead) -> f64 {
    let all = framing(profile);
    let framing = Framing {
        lane_hertz: all.lane_hertz,
        coded_bits: if overhead < Overhead::Code { WORD_BITS } else { all.coded_bits },
        meta_frame_rows: if overhead < Overhead::MetaFrame { 0 } else { all.meta_frame_rows },
        meta_overhead_rows: if overhead < Overhead::MetaFrame { 0 } else { all.meta_overhead_rows },
        burst_rows: if overhead < Overhead::Burst { 0 } else { all.burst_rows },
    };
    let mut transmitter = Transmitter::new(framing, profile.output_flits);
    let packet = [0; PACKET_BYTES];
    let header = if overhead < Overhead::Header { 0 } else { HEADER_BYTES };
    let (mut end, mut bytes): (Time, u64) = (0, 0);
    for _ in 0..PACKETS {
        for _ in train(&packet) {
            end = transmitter.send(end);
        }
        bytes += (PACKET_BYTES - header) as u64;
    }
    bytes as f64 * 8e3 / end as f64
}
