//! MPI-FPGA's components (Haghi et al., 2021), each with the source of its value.

use cmdseq::switch::{PHIT_BYTES, Parameters, Shape};

use crate::profile::component::{Basis, Component};

/// What a network of MPI-FPGA is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Clock of the switches, in hertz.
    pub clock_hertz: u64,
    /// Cycles of route computation.
    pub route_cycles: u64,
    /// Cycles of virtual channel allocation.
    pub channel_cycles: u64,
    /// Cycles of switch allocation.
    pub allocation_cycles: u64,
    /// Cycles of switch traversal.
    pub traversal_cycles: u64,
    /// Virtual channels of a link.
    pub virtual_channels: usize,
    /// Phits of an input FIFO.
    pub input_phits: usize,
    /// Phits of an output FIFO.
    pub output_phits: usize,
    /// From a phit's departure at a card to its arrival at the next card, in picoseconds.
    pub link_ps: u64,
    /// Rate of a link between cards, in bits a second.
    pub link_bps: u64,
    /// Between processor and card, one way, in picoseconds.
    pub host_ps: u64,
    /// Phits that the DMA engine moves in a cycle.
    pub dma_phits: u64,
    /// Time of a processor to send a message, and to receive one, in picoseconds.
    pub overhead_ps: u64,
    /// Cycles of the collective control module and of the collectors.
    pub control_cycles: u64,
    /// Cycles of one aggregation unit on floats; on integers it takes one.
    pub float_cycles: u64,
}

const PIPELINE: &str = "MPI-FPGA 4.1: the classic four stages";

impl Profile {
    /// The published system.
    pub const fn published() -> Self {
        Profile {
            clock_hertz: 250_000_000,
            route_cycles: 1,
            channel_cycles: 1,
            allocation_cycles: 1,
            traversal_cycles: 1,
            virtual_channels: 2,
            input_phits: 48 * 1024 / 32,
            output_phits: 16,
            link_ps: 440_000,
            link_bps: 95_900_000_000,
            host_ps: 450_000,
            dma_phits: 2,
            overhead_ps: 250_000,
            control_cycles: 2,
            float_cycles: 8,
        }
    }

    /// The published switches, with a card's sequencer in the place of a processor on PCIe: it gives its data over a clock
    /// crossing of two registers, and its overhead is in the cycles of the sequencer.
    pub const fn on_cards() -> Self {
        Profile { host_ps: 8_000, overhead_ps: 0, ..Profile::published() }
    }

    /// Returns the duration of a cycle in picoseconds, rounded up.
    pub fn cycle_ps(&self) -> u64 {
        1_000_000_000_000_u64.div_ceil(self.clock_hertz)
    }

    /// Where the time from the giver of data to its switch is from.
    fn entry(&self) -> &'static str {
        if self.host_ps == Profile::on_cards().host_ps {
            "a clock crossing of two registers, in the place of PCIe"
        } else {
            "not published; PCIe 3.0"
        }
    }

    /// Returns every component with its source.
    pub fn components(&self) -> Vec<Component> {
        use Basis::{Assumed, Source};
        let line = |name, value, unit, basis| Component { name, value, unit, basis };
        vec![
            line("clock", self.clock_hertz, "Hz", Source("MPI-FPGA 6: 250 MHz")),
            line("phit", 256, "bits", Source("MPI-FPGA 2.5: 256 bits")),
            line("route computation", self.route_cycles, "cycles", Source(PIPELINE)),
            line("virtual channel allocation", self.channel_cycles, "cycles", Source(PIPELINE)),
            line("switch allocation", self.allocation_cycles, "cycles", Source(PIPELINE)),
            line("switch traversal", self.traversal_cycles, "cycles", Source(PIPELINE)),
            line(
                "virtual channels",
                self.virtual_channels as u64,
                "",
                Assumed("number not published; a dateline needs two"),
            ),
            line("input FIFO", self.input_phits as u64, "phits", Source("MPI-FPGA 4.1: 48 KB")),
            line("output FIFO", self.output_phits as u64, "phits", Assumed("no size published")),
            line("link", self.link_ps, "ps", Source("MPI-FPGA table 2: 440 ns")),
            line("link rate", self.link_bps, "bit/s", Source("MPI-FPGA table 2: 95.9 Gb/s")),
            line("processor to card", self.host_ps, "ps", Assumed(self.entry())),
            line("DMA engine", self.dma_phits, "phits a cycle", Source("MPI-FPGA 2.5: two phits on each cycle")),
            line("overhead of a processor", self.overhead_ps, "ps", Assumed("not published")),
            line("collective control", self.control_cycles, "cycles", Assumed("not published")),
            line("aggregation unit, floats", self.float_cycles, "cycles", Assumed("not published; a pipelined adder")),
        ]
    }
}

impl Profile {
    /// Cycles through a router.
    pub(crate) fn router_cycles(&self) -> u64 {
        self.route_cycles + self.channel_cycles + self.allocation_cycles + self.traversal_cycles
    }

    /// Returns the times of the parts of a network of `shape`.
    pub fn parameters(&self, shape: Shape) -> Parameters {
        let cycle_ps = self.cycle_ps();
        let row = PHIT_BYTES as u64 * 8 * 1_000_000 / (self.link_bps / 1_000_000).max(1);
        let router_ps = self.router_cycles() * cycle_ps;
        let by_bus = self.host_ps + cycle_ps / self.dma_phits.max(1);
        Parameters {
            cycle_ps,
            router_ps,
            // A phit waits for an edge of the clock.
            hop_ps: router_ps + (self.link_ps + row).next_multiple_of(cycle_ps),
            entry_ps: if shape.is_direct() { by_bus } else { self.link_ps + row },
            // In an indirect network, a link is between processor and switch.
            phit_ps: if shape.is_direct() { cycle_ps / self.dma_phits.max(1) } else { row },
            input_phits: self.input_phits as u64,
            control_cycles: self.control_cycles,
            float_cycles: self.float_cycles,
        }
    }
}
