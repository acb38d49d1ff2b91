//! A log of what links carried, for traces.

use crate::engine::Time;

/// Data that a card sent to another: from its first beat on the link until its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkTransfer {
    /// Node that sent the data.
    pub from: u32,
    /// Node that received it.
    pub to: u32,
    /// Bytes of data.
    pub bytes: u64,
    /// First beat, in picoseconds of the fabric's time.
    pub begin_ps: u64,
    /// After the last beat.
    pub end_ps: u64,
    /// Rate of the link, in megabits a second. Streams that share a link, or a memory channel, are slower.
    pub link_mbps: u64,
    /// Node whose instruction the transfer belongs to: of a read of remote memory, the one that received.
    pub node: u32,
    /// Tag of that instruction.
    pub tag: u16,
    /// When that instruction was issued, in picoseconds of the fabric's time.
    pub issued_ps: u64,
}

/// What tells the streams of a fabric apart: card, lane, and number there.
pub(crate) type StreamKey = (usize, usize, usize);

/// The transfers of a fabric, up to a number; more are counted.
#[derive(Debug)]
pub(crate) struct TransferLog {
    begun: Vec<(StreamKey, Time)>,
    transfers: Vec<LinkTransfer>,
    limit: usize,
    dropped: u64,
}

impl TransferLog {
    pub(crate) fn new(limit: usize) -> Self {
        TransferLog { begun: Vec::new(), transfers: Vec::new(), limit, dropped: 0 }
    }

    /// A stream begins. One of the same key that has not ended was stopped.
    pub(crate) fn begin(&mut self, key: StreamKey, now: Time) {
        self.begun.retain(|(other, _)| *other != key);
        self.begun.push((key, now));
    }

    /// Returns when a stream began that has ended.
    pub(crate) fn end(&mut self, key: StreamKey) -> Option<Time> {
        let place = self.begun.iter().position(|(other, _)| *other == key)?;
        Some(self.begun.swap_remove(place).1)
    }

    pub(crate) fn add(&mut self, transfer: LinkTransfer) {
        if self.transfers.len() < self.limit {
            self.transfers.push(transfer);
        } else {
            self.dropped += 1;
        }
    }

    /// Returns the transfers by their end, and how many had no room.
    pub(crate) fn into_transfers(self) -> (Vec<LinkTransfer>, u64) {
        (self.transfers, self.dropped)
    }
}
