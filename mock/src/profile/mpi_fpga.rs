//! MPI-FPGA's components (Haghi et al., 2021), each with the source of its value.

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

    /// Returns the duration of a cycle in picoseconds, rounded up.
    pub fn cycle_ps(&self) -> u64 {
        1_000_000_000_000_u64.div_ceil(self.clock_hertz)
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
            line("processor to card", self.host_ps, "ps", Assumed("not published; PCIe 3.0")),
            line("DMA engine", self.dma_phits, "phits a cycle", Source("MPI-FPGA 2.5: two phits on each cycle")),
            line("overhead of a processor", self.overhead_ps, "ps", Assumed("not published")),
            line("collective control", self.control_cycles, "cycles", Assumed("not published")),
            line("aggregation unit, floats", self.float_cycles, "cycles", Assumed("not published; a pipelined adder")),
        ]
    }
}
