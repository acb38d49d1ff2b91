//! Traces: what the host did and when, and what the cards said of each instruction. A [`Trace`] is data; `fpga-trace` writes it
//! for viewers.
//!
//! [`Cluster::start_trace`](crate::Cluster::start_trace) begins to record, into memory that is allocated then;
//! [`Cluster::take_trace`](crate::Cluster::take_trace) ends it. [`correlate`] places the cards' cycles on the host's clock.

mod clock;
pub(crate) mod recording;
pub(crate) mod spans;

pub use clock::{Counter, Interval, Piece, TOLERANCE_PPM, correlate};
pub use recording::{DoorbellRecord, Dropped, InFlightRecord, InstructionRecord};
pub use spans::{Moment, Span};

use std::time::SystemTime;

/// Instructions recorded of each card, unless the caller says otherwise; 13 MiB of memory.
pub const RECORDS: usize = 1 << 16;

/// What was recorded of one card.
#[derive(Debug, Clone, PartialEq)]
pub struct CardTrace {
    /// Node of the card.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Clock of its counter, kHz.
    pub clock_khz: u32,
    /// Whether it says that it is a mock.
    pub is_mock: bool,
    /// Entries of the queue's rings.
    pub depth: u32,
    /// Communicators that the card has at the end: id, and nodes by rank.
    pub communicators: Vec<(u16, Vec<u32>)>,
    /// In the order of their completions.
    pub instructions: Vec<InstructionRecord>,
    /// What had not completed at the end.
    pub in_flight: Vec<InFlightRecord>,
    /// In order.
    pub doorbells: Vec<DoorbellRecord>,
    /// Older records that had no room.
    pub dropped: Dropped,
}

/// What was recorded of a cluster. Times are nanoseconds since it began.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// When it began.
    pub began: SystemTime,
    /// What the host did, by the time at which it began; spans may contain others.
    pub spans: Vec<Span>,
    /// Spans that had no room.
    pub dropped_spans: u64,
    /// The cards that this process holds, by node.
    pub cards: Vec<CardTrace>,
}

impl Trace {
    /// Records that had no room.
    pub fn dropped(&self) -> u64 {
        let of = |card: &CardTrace| card.dropped.instructions + card.dropped.doorbells;
        self.dropped_spans + self.cards.iter().map(of).sum::<u64>()
    }
}
