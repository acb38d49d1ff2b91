//! CIRCUS: 64 Stratix 10 cards of Cygnus in a torus of 8 by 8, with a router of five ports on each card.

use crate::net::flit::FLIT_BYTES;
use crate::profile::{Basis, Component};

/// Bytes of a packet.
pub(crate) const PACKET_BYTES: usize = 64;
/// Bytes of its header.
pub(crate) const HEADER_BYTES: usize = 4;

/// Components of CIRCUS, and the options that close its stated gaps. All are pipelines without software: times are cycles of
/// the router's clock, of the clock of OpenCL kernels, or of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Clock of router and links' data paths.
    pub router_hertz: u64,
    /// Cycles from a router's input to its arbiter: input register and table lookup.
    pub lookup_cycles: u64,
    /// Cycles of the arbiter.
    pub arbiter_cycles: u64,
    /// Cycles of the crossbar.
    pub crossbar_cycles: u64,
    /// Flits of 32 bytes in the buffer of a router's input, for each virtual channel.
    pub input_flits: usize,
    /// Flits that wait between crossbar and link.
    pub output_flits: usize,
    /// Lanes of a link; together they carry a flit.
    pub lanes: u64,
    /// Bits a second on one lane.
    pub lane_hertz: u64,
    /// Bits on a lane for each 64 bits of data.
    pub coded_bits: u64,
    /// Words of a lane from one meta frame to the next.
    pub meta_frame_words: u64,
    /// Words of a meta frame that are no data.
    pub meta_overhead_words: u64,
    /// Data words of a burst, after which a control word follows.
    pub burst_words: u64,
    /// Latency of a link: SerialLite III of both cards, and the cable.
    pub link_ps: u64,
    /// Clock of OpenCL kernels.
    pub kernel_hertz: u64,
    /// Cycles of a send kernel, and of a receive kernel.
    pub channel_kernel_cycles: u64,
    /// Cycles of a kernel of user logic that passes words on.
    pub forward_cycles: u64,
    /// Cycles of a kernel of user logic that adds to words and takes the time.
    pub add_cycles: u64,
    /// Cycles of the clock of the reading side through an I/O channel.
    pub io_channel_cycles: u64,
    /// Packets in the FIFO behind the I/O channel from the router.
    pub io_channel_packets: usize,
    /// Bits of the header's destination.
    pub destination_bits: u32,
    /// Virtual channels of a link: 1, or 2 with a dateline in each ring.
    pub virtual_channels: usize,
    /// Whether a link sends only what the other end has room for.
    pub has_credits: bool,
    /// Flits that a link keeps until they are acknowledged, to send them again; `None` without retransmission.
    pub replay_flits: Option<usize>,
    /// Bit errors a bit on every link.
    pub bit_error_rate: f64,
    /// Seed of the places of bit errors.
    pub seed: u64,
}

/// Kernel clock of the ping-pong.
const PING_PONG_HERTZ: u64 = 295_800_000;
/// Kernel clock of the allreduce-like pipeline.
const PIPELINE_HERTZ: u64 = 300_000_000;
/// Bits of the published destination.
const DESTINATION_BITS: u32 = 6;

const REST: &str = "CIRCUS 4.3: 9 cycles in all, 5 of them the crossbar";
const BUFFER: &str = "no size published; two round trips of a link at its rate";
const OVERHEAD: &str = "SerialLite III user guide 5.2: overhead is length / (length - 4)";
const SYNCHRONISER: &str = "two registers, as in any such FIFO; the fit of send and receive kernel includes them";
const WIDER: &str = "extension: for more than 64 cards";
const GAP: &str = "extension: CIRCUS 4.5 states that it is missing";

impl Profile {
    /// CIRCUS as published: nothing holds a sender back, a packet that is lost stays lost, and there is one virtual channel.
    pub const fn published() -> Self {
        Profile {
            router_hertz: 384_000_000,
            lookup_cycles: 3,
            arbiter_cycles: 1,
            crossbar_cycles: 5,
            input_flits: 512,
            output_flits: 4,
            lanes: 4,
            lane_hertz: 25_781_250_000,
            coded_bits: 67,
            meta_frame_words: 2_048,
            meta_overhead_words: 4,
            burst_words: 64,
            link_ps: 200_000,
            kernel_hertz: PING_PONG_HERTZ,
            channel_kernel_cycles: 31,
            forward_cycles: 1,
            add_cycles: 22,
            io_channel_cycles: 2,
            io_channel_packets: 16,
            destination_bits: DESTINATION_BITS,
            virtual_channels: 1,
            has_credits: false,
            replay_flits: None,
            bit_error_rate: 0.0,
            seed: 1,
        }
    }

    /// CIRCUS as published, with the kernels of the allreduce-like pipeline, which have another clock.
    pub const fn pipeline() -> Self {
        Profile { kernel_hertz: PIPELINE_HERTZ, ..Profile::published() }
    }

    /// CIRCUS with the gaps closed that section 4.5 of the paper states: credits on every link, go-back-N on every link, and two
    /// virtual channels with a dateline in each ring. The destination has 8 bits, for networks of up to 256 cards.
    pub const fn complete() -> Self {
        Profile {
            destination_bits: 8,
            virtual_channels: 2,
            has_credits: true,
            replay_flits: Some(512),
            ..Profile::published()
        }
    }

    /// Returns every component with its source.
    pub fn components(&self) -> Vec<Component> {
        use Basis::{Assumed, Source};
        let mut components = self.router();
        components.extend(self.link());
        components.extend(self.kernels());
        let is_published = self.destination_bits == DESTINATION_BITS;
        let basis = if is_published { Source("CIRCUS 4.3: 6 bits") } else { Assumed(WIDER) };
        components.push(line("destination", self.destination_bits.into(), "bits", basis));
        if self.virtual_channels > 1 {
            components.push(line("virtual channels", self.virtual_channels as u64, "", Assumed(GAP)));
        }
        if self.has_credits {
            components.push(line("credits of a link", self.input_flits as u64, "flits", Assumed(GAP)));
        }
        if let Some(flits) = self.replay_flits {
            components.push(line("replay buffer", flits as u64, "flits", Assumed(GAP)));
        }
        components
    }

    fn router(&self) -> Vec<Component> {
        use Basis::{Assumed, Source};
        vec![
            line("router clock", self.router_hertz, "Hz", Source("CIRCUS 4.3: 384 MHz")),
            line("data path", 8 * FLIT_BYTES as u64, "bits", Source("CIRCUS 4.3: 256 bits")),
            line("input and lookup", self.lookup_cycles, "cycles", Source(REST)),
            line("arbiter", self.arbiter_cycles, "cycles", Source(REST)),
            line("crossbar", self.crossbar_cycles, "cycles", Source("CIRCUS 4.3: 5 cycles")),
            line("input buffer", self.input_flits as u64, "flits", Assumed(BUFFER)),
            line("output buffer", self.output_flits as u64, "flits", Assumed("no size published")),
        ]
    }

    fn link(&self) -> Vec<Component> {
        use Basis::{Fitted, Source};
        vec![
            line("lanes", self.lanes, "", Source("CIRCUS 6.1.3: 4 x 25.78125 Gb/s")),
            line("lane rate", self.lane_hertz, "bit/s", Source("CIRCUS 6.1.3: 4 x 25.78125 Gb/s")),
            line("line code", self.coded_bits, "bits for 64", Source("CIRCUS 6.1.3: 67b/64b")),
            line("meta frame", self.meta_frame_words, "words", Fitted("rate after meta frames 98.287 Gb/s")),
            line("meta frame overhead", self.meta_overhead_words, "words", Source(OVERHEAD)),
            line("burst", self.burst_words, "words", Fitted("rate after bursts 96.813 Gb/s")),
            line("link", self.link_ps, "ps", Fitted("latency at seven hops 1.87 us")),
            line("packet", PACKET_BYTES as u64, "bytes", Source("CIRCUS 6.1.3: 64 bytes")),
            line("header", HEADER_BYTES as u64, "bytes", Source("CIRCUS 6.1.3: 4 bytes")),
        ]
    }

    fn kernels(&self) -> Vec<Component> {
        use Basis::{Assumed, Fitted, Source};
        let clock = match self.kernel_hertz {
            PING_PONG_HERTZ => Source("CIRCUS 6.1.2: 295.8 MHz"),
            PIPELINE_HERTZ => Source("CIRCUS 6.3.3: 300 MHz"),
            _ => Assumed("the clock of a design depends on its kernels"),
        };
        let channel_kernel = Fitted("latency at one hop 0.50 us");
        let passing_on = Assumed("a register; the fit of send and receive kernel includes it");
        vec![
            line("kernel clock", self.kernel_hertz, "Hz", clock),
            line("send kernel, receive kernel", self.channel_kernel_cycles, "cycles", channel_kernel),
            line("passing kernel", self.forward_cycles, "cycles", passing_on),
            line("adding kernel", self.add_cycles, "cycles", Fitted("latency of the pipeline 1067 ns")),
            line("I/O channel", self.io_channel_cycles, "cycles", Assumed(SYNCHRONISER)),
            line("I/O channel buffer", self.io_channel_packets as u64, "packets", Assumed("no size published")),
        ]
    }
}

fn line(name: &'static str, value: u64, unit: &'static str, basis: Basis) -> Component {
    Component { name, value, unit, basis }
}
