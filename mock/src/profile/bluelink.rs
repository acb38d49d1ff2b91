//! BlueLink's components.

use crate::net::line::{Coding, LineConfig};
use crate::profile::{Basis, Component};

/// What a BlueLink fabric is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Clock of a board's logic, in hertz.
    pub clock_hz: u64,
    /// Cables with their transceivers.
    pub line: LineConfig,
    /// Cycles to compute the CRC of a flit, and to check it.
    pub crc_cycles: u64,
    /// Cycles into the clock of a transceiver, and out of it.
    pub crossing_cycles: u64,
    /// Cycles without an acknowledgement after which a flit is replayed.
    pub timeout_cycles: u64,
    /// Flits of the FIFO before each link.
    pub input_flits: usize,
    /// Flits of the receive buffer of each link.
    pub receive_flits: usize,
    /// Flits of the receive FIFO of each channel of a board.
    pub channel_flits: usize,
    /// From plugging a cable until its transceivers have locked, in picoseconds.
    pub lock_ps: u64,
    /// Seed of all errors of lines.
    pub seed: u64,
}

impl Parameters {
    /// The published system with one lane of 10 Gb/s ("10G BlueLink").
    pub fn published() -> Self {
        let line = LineConfig {
            lanes: 1,
            lane_bps: 10_000_000_000,
            coding: Coding::B8B10,
            latency_ps: 20_000,
            bit_error_rate: 0.0,
            loss_rate: 0.0,
        };
        Parameters {
            clock_hz: 250_000_000,
            line,
            crc_cycles: 1,
            crossing_cycles: 2,
            timeout_cycles: 64,
            input_flits: 4,
            receive_flits: 16,
            channel_flits: 16,
            lock_ps: 1_000_000,
            seed: 1,
        }
    }

    /// Returns every component with its source.
    pub fn components(&self) -> Vec<Component> {
        use Basis::{Assumed, Fitted, Source};
        let line = |name, value, unit, basis| Component { name, value, unit, basis };
        let (data, coded) = self.line.coding.ratio();
        let flits = |flits: usize| flits as u64;
        vec![
            line(
                "clock",
                self.clock_hz / 1_000_000,
                "MHz",
                Assumed("not published; that of the words of the transceivers"),
            ),
            line("lanes", self.line.lanes.into(), "", Source("BlueLink VIII: 10G BlueLink")),
            line("lane rate", self.line.lane_bps / 1_000_000, "Mb/s", Source("BlueLink VIII: 10 Gb/s a lane")),
            line("line coding", coded * 1_000 / data, "bits on the line for 1000", Source("BlueLink VI: 8b10b")),
            line("transceivers and cable", self.line.latency_ps, "ps", Fitted("10 to 20 cycles over an on-chip FIFO")),
            line("CRC", self.crc_cycles, "cycles", Assumed("one stage at each end")),
            line("clock crossing", self.crossing_cycles, "cycles", Assumed("a synchronizer of two stages at each end")),
            line("timeout", self.timeout_cycles, "cycles", Assumed("two round trips; in no published row")),
            line("input FIFO", flits(self.input_flits), "flits", Assumed("in no published row")),
            line("receive buffer", flits(self.receive_flits), "flits", Assumed("two windows; in no published row")),
            line("channel FIFO", flits(self.channel_flits), "flits", Assumed("in no published row")),
            line("lock time", self.lock_ps, "ps", Assumed("in no published row")),
        ]
    }
}
