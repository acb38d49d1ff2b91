//! Limits of the numbers of a profile, so that sums of times fit the registers that tell them, and every rate moves data.

use cmdseq::switch::{PACKET_BYTES, PHIT_BYTES};

use super::{Profile, ProfileError, mpi_fpga, novog};

/// Longest period of a clock: 10 MHz.
const CYCLE_PS_MAX: u64 = 100_000;
/// Longest part of an instruction. Four of them, the most that a register sums up, take 4 ms at the slowest clock.
const CYCLES_MAX: u64 = 10_000;
/// Longest latency: 20 km of fibre.
const LATENCY_PS_MAX: u64 = 100_000_000;
/// Slowest link, memory channel or reduction unit: 1 Gb/s.
const MBPS_MIN: u64 = 1_000;
/// Fastest link or memory channel: 100 Tb/s.
const MBPS_MAX: u64 = 100_000_000;
/// Widest data path, in bytes.
const BEAT_BYTES_MAX: u64 = 4096;
/// Longest time between beats of a fold.
const BEAT_CYCLES_MAX: u64 = 64;
/// Largest FIFO, in phits or packets.
const FIFO_MAX: u64 = 1 << 20;
/// Smallest input FIFO of a switch: data of a packet can lie in so many phits.
const SWITCH_INPUT_MIN: u64 = (PACKET_BYTES / PHIT_BYTES) as u64 + 1;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Name, value, least and most of a number.
type Limit = (&'static str, u64, u64, u64);

/// Slowest and fastest clock, in hertz.
const HERTZ: (u64, u64) = (1_000_000_000_000 / CYCLE_PS_MAX, 1_000_000_000_000);

fn of_switch(switch: &mpi_fpga::Profile) -> [Limit; 15] {
    [
        ("clock of the switches in Hz", switch.clock_hertz, HERTZ.0, HERTZ.1),
        ("route computation cycles", switch.route_cycles, 0, CYCLES_MAX),
        ("virtual channel allocation cycles", switch.channel_cycles, 0, CYCLES_MAX),
        ("switch allocation cycles", switch.allocation_cycles, 0, CYCLES_MAX),
        ("switch traversal cycles", switch.traversal_cycles, 0, CYCLES_MAX),
        ("number of virtual channels", switch.virtual_channels as u64, 2, 2),
        ("phits of an input FIFO", switch.input_phits as u64, SWITCH_INPUT_MIN, FIFO_MAX),
        ("phits of an output FIFO", switch.output_phits as u64, 1, FIFO_MAX),
        ("latency of a switch's link in ps", switch.link_ps, 0, LATENCY_PS_MAX),
        ("rate of a switch's link in b/s", switch.link_bps, 1_000_000 * MBPS_MIN, 1_000_000 * MBPS_MAX),
        ("latency from processor to switch in ps", switch.host_ps, 0, LATENCY_PS_MAX),
        ("phits of DMA in a cycle", switch.dma_phits, 1, BEAT_BYTES_MAX),
        ("overhead of a message in ps", switch.overhead_ps, 0, LATENCY_PS_MAX),
        ("collective control cycles", switch.control_cycles, 0, CYCLES_MAX),
        ("aggregation cycles", switch.float_cycles, 0, CYCLES_MAX),
    ]
}

fn of_router(router: &novog::Profile) -> [Limit; 9] {
    [
        ("clock of the routers in Hz", router.router_hertz, HERTZ.0, HERTZ.1),
        ("mean latency of a router's link in ps", router.link_ps, 0, LATENCY_PS_MAX),
        ("deviation of a link's latency in ps", router.link_sd_ps, 0, LATENCY_PS_MAX),
        ("least latency of a router's link in ps", router.link_min_ps, 0, router.link_max_ps),
        ("largest latency of a router's link in ps", router.link_max_ps, 0, LATENCY_PS_MAX),
        ("deviation of a lane's latency in ps", router.lane_sd_ps, 0, LATENCY_PS_MAX),
        ("deviation of a router's clock in ppm", router.clock_ppm, 0, 100_000),
        ("packets of a router's input", router.input_packets as u64, 1, FIFO_MAX),
        ("packets of a router's queue", router.queue_packets as u64, 1, FIFO_MAX),
    ]
}

impl Profile {
    fn limits(&self) -> [Limit; 19] {
        [
            ("clock period in ps", self.cycle_ps, 1, CYCLE_PS_MAX),
            ("dispatch cycles", self.dispatch_cycles, 0, CYCLES_MAX),
            ("memory read cycles", self.memory_read_cycles, 0, CYCLES_MAX),
            ("switch cycles", self.switch_cycles, 0, CYCLES_MAX),
            ("link management cycles", self.link_management_cycles, 0, CYCLES_MAX),
            ("size check cycles", self.size_check_cycles, 0, CYCLES_MAX),
            ("hand-over cycles", self.handover_cycles, 0, CYCLES_MAX),
            ("reduction unit cycles", self.reduce_unit_cycles, 0, CYCLES_MAX),
            ("reduction beat cycles", self.reduce_beat_cycles, 1, BEAT_CYCLES_MAX),
            ("link latency in ps", self.link_ps, 0, LATENCY_PS_MAX),
            ("hop latency in ps", self.hop_ps, 0, LATENCY_PS_MAX),
            ("link rate in Mb/s", self.link_mbps.into(), MBPS_MIN, MBPS_MAX),
            ("pseudo channel rate in Mb/s", self.channel_mbps.into(), MBPS_MIN, MBPS_MAX),
            ("host link rate in Mb/s", self.host_mbps.into(), MBPS_MIN, MBPS_MAX),
            ("bytes of a beat", self.beat_bytes, 1, BEAT_BYTES_MAX),
            ("bytes of a receive buffer", self.receive_buffer_bytes, 0, 1024 * MIB),
            ("bytes of card memory", self.memory_bytes, MIB, 16 * TIB),
            ("number of pseudo channels", self.memory_channels.into(), 1, 1024),
            // The loop-back is as fast, or faster.
            ("reduction rate in Mb/s", self.reduce_mbps(), MBPS_MIN, u64::MAX),
        ]
    }

    /// Checks every number by itself.
    pub(super) fn check_numbers(&self) -> Result<(), ProfileError> {
        let switch = self.switch.iter().flat_map(of_switch);
        let router = self.router.iter().flat_map(of_router);
        match self
            .limits()
            .into_iter()
            .chain(switch)
            .chain(router)
            .find(|(_, value, least, most)| !(least..=most).contains(&value))
        {
            None => Ok(()),
            Some((what, value, least, most)) => Err(ProfileError::Number { what, value, least, most }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Core;

    #[test]
    fn switches_that_pass_the_check_are_built() {
        let numbers = [(1, 1536), (2, 1536), (3, 1536), (2, 8), (2, 9), (2, 1 << 20), (2, (1 << 20) + 1)];
        let built = numbers.map(|(virtual_channels, input_phits)| {
            let profile = Profile::mpi_fpga_of("2x2x2").unwrap();
            let switch = profile.switch.map(|switch| mpi_fpga::Profile { virtual_channels, input_phits, ..switch });
            let profile = Profile { switch, ..profile };
            profile.check().is_ok().then(|| Core::new(profile).env.switches.is_some())
        });
        assert_eq!(built, [None, Some(true), None, None, Some(true), Some(true), None]);
    }
}
