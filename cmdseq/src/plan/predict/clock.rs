//! How long the parts of a card take, from the parameters of the cost model.

use std::ops::Range;

use crate::Capabilities;
use crate::cost::{CostModel, Moment};

/// Times of the parts of a card, in picoseconds.
pub(super) struct Clock<'a> {
    pub(super) capabilities: &'a Capabilities,
    pub(super) model: &'a CostModel,
}

impl Clock<'_> {
    pub(super) fn cycle_ps(&self) -> u64 {
        (1_000_000_000 / u64::from(self.capabilities.clock_khz.max(1))).max(1)
    }

    pub(super) fn cycles(&self, cycles: u64) -> u64 {
        cycles.saturating_mul(self.cycle_ps())
    }

    /// The issue of the next instruction after one that is complete at `end`: at a clock edge.
    pub(super) fn issued_after(&self, end: Moment) -> Moment {
        let ready = end.later(self.cycles(self.model.timing.handover_cycles.into()));
        let at = ready.ps.checked_next_multiple_of(self.cycle_ps()).unwrap_or(u64::MAX);
        ready.later(at - ready.ps)
    }

    pub(super) fn dispatched(&self, issue: Moment, more_cycles: u32) -> Moment {
        issue.later(self.cycles(u64::from(self.model.timing.dispatch_cycles) + u64::from(more_cycles)))
    }

    /// When the control signals of an instruction are out.
    pub(super) fn controls_out(&self, issue: Moment) -> Moment {
        self.dispatched(issue, 1)
    }

    pub(super) fn switch_ps(&self) -> u64 {
        self.cycles(self.model.timing.switch_cycles.into())
    }

    pub(super) fn size_check_ps(&self) -> u64 {
        u64::from(self.model.timing.data_ps).saturating_sub(self.model.timing.control_ps.into())
    }

    /// From the sending switch to the receive buffer, which is before the receiving switch.
    pub(super) fn to_buffer_ps(&self) -> u64 {
        u64::from(self.model.timing.control_ps).saturating_sub(self.switch_ps())
    }

    /// From the receive buffer to being counted.
    pub(super) fn past_buffer_ps(&self) -> u64 {
        self.switch_ps().saturating_add(self.size_check_ps())
    }

    /// From the last beat of a card's own block, out and in through its switch, to being counted.
    pub(super) fn own_ps(&self) -> u64 {
        self.switch_ps().saturating_mul(2).saturating_add(self.size_check_ps())
    }

    /// From the last beats of this many contributions to the last beat of their fold.
    pub(super) fn fold_ps(&self, contributions: usize) -> u64 {
        let units = contributions.saturating_sub(1) as u64;
        self.cycles(u64::from(self.model.timing.reduce_unit_cycles).saturating_mul(units))
    }

    /// Rate of the loop-back through a card's switch, Mb/s: a beat a cycle.
    pub(super) fn loop_back_mbps(&self) -> u64 {
        u64::from(self.model.timing.beat_bytes) * 8_000_000 / self.cycle_ps()
    }

    /// Rate at which a fold reads each contribution, Mb/s.
    pub(super) fn reduce_mbps(&self) -> u64 {
        let timing = &self.model.timing;
        let beat_ps = self.cycles(u64::from(timing.reduce_beat_cycles.max(1))).max(1);
        u64::from(timing.beat_bytes) * 8_000_000 / beat_ps
    }

    pub(super) fn whole_beats(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(u64::from(self.model.timing.beat_bytes.max(1))).unwrap_or(u64::MAX)
    }

    /// The pseudo channel of `address`. A block in two channels counts for the first.
    pub(super) fn channel(&self, address: u64) -> usize {
        let channel = address.checked_div(self.capabilities.channel_bytes()).unwrap_or(0);
        usize::try_from(channel).unwrap_or(usize::MAX).min(self.channels() - 1)
    }

    /// The addresses for which [`channel`](Self::channel) returns this.
    pub(super) fn addresses_of(&self, channel: usize) -> Range<u64> {
        let begin = |channel: usize| self.capabilities.channel_bytes().saturating_mul(channel as u64);
        let is_last = channel + 1 == self.channels() || self.capabilities.channel_bytes() == 0;
        begin(channel)..if is_last { u64::MAX } else { begin(channel + 1) }
    }

    pub(super) fn channels(&self) -> usize {
        self.capabilities.memory_channels.max(1) as usize
    }
}

/// Picoseconds of `bytes` at `mbps`.
pub(super) fn wire(bytes: u64, mbps: u32) -> u64 {
    u64::try_from(u128::from(bytes) * 8_000_000 / u128::from(mbps.max(1))).unwrap_or(u64::MAX)
}
