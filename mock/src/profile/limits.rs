//! Limits of the numbers of a profile, so that sums of times fit the registers that tell them, and every rate moves data.

use super::{Profile, ProfileError};

/// Longest period of a clock: 10 MHz.
const CYCLE_PS_MAX: u64 = 100_000;
/// Longest part of an instruction. Four of them, the most that a register sums up, take 4 ms at the slowest clock.
const CYCLES_MAX: u64 = 10_000;
/// Longest latency: 20 km of fibre.
const LATENCY_PS_MAX: u64 = 100_000_000;
/// Slowest link, memory channel or reduction unit, 1 Gb/s: streams that share it still have whole megabits a second each.
const MBPS_MIN: u64 = 1_000;
/// Fastest link or memory channel: 100 Tb/s.
const MBPS_MAX: u64 = 100_000_000;
/// Widest data path, in bytes.
const BEAT_BYTES_MAX: u64 = 4096;
/// Longest time between beats of a fold.
const BEAT_CYCLES_MAX: u64 = 64;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

impl Profile {
    /// Name, value, least and most of each number.
    fn limits(&self) -> [(&'static str, u64, u64, u64); 19] {
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
        match self.limits().into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            None => Ok(()),
            Some((what, value, least, most)) => Err(ProfileError::Number { what, value, least, most }),
        }
    }
}
