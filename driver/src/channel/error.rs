//! What can go wrong with channels.

use std::time::Duration;

use cmdseq::routing::RouteError;

/// Error of a network of channels, or of an end of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The Device Feature List of the register BAR leads to no channel block.
    #[error("{name} has no channels: {looked}")]
    NoChannels {
        /// The function.
        name: String,
        /// Where the walk of the list ended, and why.
        looked: String,
    },
    /// The routing tables were refused. Nothing was loaded.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// A card read back another entry than was written.
    #[error("{name}: the routing table has {found:#x} for node {to}, but {written:#x} was written")]
    RouteLost {
        /// The card.
        name: String,
        /// The destination.
        to: u32,
        /// What was written.
        written: u32,
        /// What the card reads.
        found: u32,
    },
    /// The card has no routing table: [`Network::load`](super::Network::load) was not called.
    #[error("{name} has no routing table; load one first")]
    NotRouted {
        /// The card.
        name: String,
    },
    /// All ends of the card are open.
    #[error("{name}: all {ends} ends are open; close one first")]
    NoEnd {
        /// The card.
        name: String,
        /// Its ends.
        ends: u32,
    },
    /// The card did not open an end.
    #[error(
        "{name} refused to open channel {id}: it has a reader on this card, or the free ends still send what was written"
    )]
    Refused {
        /// The card.
        name: String,
        /// Id of the channel.
        id: u8,
    },
    /// A wait reached its time limit. The call may be repeated with the words that are left.
    #[error("Waited {waited:.1?} for {what}; {done} bytes are done")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// Bytes that were written or read.
        done: usize,
        /// How long.
        waited: Duration,
    },
    /// The card has stopped the end. Nothing moves any more: open a new one.
    #[error("{name} has stopped the end of channel {id}: {why}")]
    Stopped {
        /// The card.
        name: String,
        /// Id of the channel.
        id: u8,
        /// Why.
        why: String,
    },
    /// The card wrote an invalid value to host memory. The end takes no more calls: open a new one.
    #[error("{name} wrote an invalid {what} for channel {id}: {found:#x}, expected {expected}")]
    Invalid {
        /// The card.
        name: String,
        /// Id of the channel.
        id: u8,
        /// The value's name.
        what: &'static str,
        /// The value.
        found: u64,
        /// What is allowed.
        expected: String,
    },
    /// The card's or the bus's, or an invalid argument.
    #[error(transparent)]
    Card(#[from] crate::error::Error),
}

/// Result with an [`enum@Error`] of channels.
pub type Result<T> = std::result::Result<T, Error>;
