//! Pseudo channels of blocks in stripes: how many blocks share one, and which ones no block touches.
//!
//! On up to 16 published cards, each half of a stripe has pseudo channels of its own. With more, stripes share them. The blocks of
//! one instruction go at equal shares, so it takes as long as those of the fullest channel: one stream more, in a channel that is
//! as full as the others, costs as much as one more in each.

use crate::Capabilities;

/// Blocks of one length, in consecutive stripes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spread {
    /// Address of the first block.
    pub(super) begin: u64,
    pub(super) count: u32,
    /// Bytes of each block.
    pub(super) bytes: u64,
    /// Blocks in the fullest channel.
    pub(super) in_a_channel: u32,
    /// Addresses of the channels that no block touches.
    pub(super) free: Vec<u64>,
}

impl Spread {
    /// Cuts `total` bytes into at most `most` blocks, multiples of `unit`, so that they move fastest and `kept` channels are free:
    /// a function of the blocks in the fullest channel. `room`: each block has room for so many of its length. `None` if the stripes
    /// do not hold them.
    pub(super) fn of_vector(
        total: u64,
        unit: u64,
        most: u32,
        room: u64,
        capabilities: &Capabilities,
        kept: impl Fn(u32) -> u32,
    ) -> Option<Self> {
        let from = |first: u64| {
            (1..=most).rev().find_map(|count| {
                let bytes = total.div_ceil(count.into()).checked_next_multiple_of(unit)?;
                let spread = Spread::new(first, count, bytes, room, capabilities)?;
                (spread.free.len() as u64 >= u64::from(kept(spread.in_a_channel))).then_some(spread)
            })
        };
        // Where stripes are a little shorter than their share of a channel, the first channel has one more.
        let rate = |spread: &Spread| u64::from(spread.count) * spread.block_mbps(capabilities);
        [0, 1].into_iter().filter_map(from).reduce(|one, other| if rate(&other) > rate(&one) { other } else { one })
    }

    /// Blocks from stripe `first` on.
    pub(super) fn new(first: u64, count: u32, bytes: u64, room: u64, capabilities: &Capabilities) -> Option<Self> {
        let (stripe, held) = (capabilities.stripe_bytes(), bytes.checked_mul(room)?);
        let channel = capabilities.channel_bytes();
        let fit = stripe.checked_mul(first + u64::from(count)).is_some_and(|end| end <= capabilities.memory_bytes);
        if channel == 0 || held > capabilities.stripe_half_bytes || !fit {
            return None;
        }
        let mut blocks = vec![0; capabilities.memory_channels.max(1) as usize];
        for block in first..first + u64::from(count) {
            let touched = stripe * block / channel..=(stripe * block + held.max(1) - 1) / channel;
            touched.for_each(|channel| blocks[channel as usize] += 1);
        }
        let free = (0..).zip(&blocks).filter(|(_, blocks)| **blocks == 0).map(|(number, _)| channel * number).collect();
        let in_a_channel = blocks.iter().copied().max().unwrap_or(0);
        Some(Spread { begin: stripe * first, count, bytes, in_a_channel, free })
    }

    /// Rate of each block, if one instruction reads or writes all.
    pub(super) fn block_mbps(&self, capabilities: &Capabilities) -> u64 {
        let timing = &capabilities.timing;
        u64::from(timing.link_mbps.min(timing.channel_mbps / self.in_a_channel.max(1)))
    }
}

/// Whether each half of a stripe has pseudo channels of its own.
pub(super) fn are_apart(capabilities: &Capabilities) -> bool {
    capabilities.stripe_half_bytes >= capabilities.channel_bytes()
}

/// Whether card memory has `count` stripes of which each half has pseudo channels of its own.
pub(super) fn has_stripes_apart(count: u32, capabilities: &Capabilities) -> bool {
    let held = capabilities.memory_bytes.checked_div(capabilities.stripe_bytes()).unwrap_or(0);
    are_apart(capabilities) && u64::from(count) <= held
}
