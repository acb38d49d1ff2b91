//! What can go wrong with an XDMA engine.

use std::time::Duration;

use fpga_regs::xdma::Status;

use crate::xdma::direction::Direction;

/// A channel of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelName {
    /// The function.
    pub function: String,
    /// Which way its data goes.
    pub direction: Direction,
    /// Its number.
    pub number: u32,
}

impl std::fmt::Display for ChannelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} of {}", self.direction, self.number, self.function)
    }
}

/// Error of an XDMA engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No BAR of the function has the identifiers of the engine.
    #[error("{name} has no XDMA engine: {looked}")]
    NoEngine {
        /// The function.
        name: String,
        /// What was looked at, and found.
        looked: String,
    },
    /// A register holds an invalid value.
    #[error("{name}: register {register} reads {value:#x}, but must be {expected}")]
    BadRegister {
        /// The function, or the channel.
        name: String,
        /// The register.
        register: &'static str,
        /// What it reads.
        value: u32,
        /// What is allowed.
        expected: &'static str,
    },
    /// The engine cannot make the transfer. Nothing was started.
    #[error("{name}: {what}")]
    Refused {
        /// The function.
        name: String,
        /// Which piece, and why.
        what: String,
    },
    /// A channel stopped with an error. What it moved before is moved; the destination of the rest is undefined.
    #[error("{channel} stopped at descriptor {completed} of {descriptors}{}: {}", at(*.address), events(channel.direction, *.status))]
    Failed {
        /// The channel.
        channel: ChannelName,
        /// Descriptors completed before.
        completed: u32,
        /// Descriptors of the list.
        descriptors: u32,
        /// Where the next descriptor is in card memory; `None` of a channel that moves what user logic asks for.
        address: Option<u64>,
        /// Bits of STATUS.
        status: Status,
    },
    /// A channel did not end in time, but was stopped. The destination is undefined.
    #[error("Waited {waited:.1?} for {channel}: {completed} of {descriptors} descriptors completed; it was stopped")]
    TimedOut {
        /// The channel.
        channel: ChannelName,
        /// Descriptors completed.
        completed: u32,
        /// Descriptors of the list.
        descriptors: u32,
        /// How long.
        waited: Duration,
    },
    /// A channel neither ends nor stops: memory of the card does not answer. Its buffers stay mapped until
    /// [`reset`](super::Engine::reset).
    #[error("{channel} does not stop; {completed} of {descriptors} descriptors completed. Reset the function")]
    Stuck {
        /// The channel.
        channel: ChannelName,
        /// Descriptors completed.
        completed: u32,
        /// Descriptors of the list.
        descriptors: u32,
    },
    /// The card's or the bus's.
    #[error(transparent)]
    Card(#[from] crate::error::Error),
}

impl From<Error> for crate::error::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Card(error) => error,
            Error::TimedOut { channel, completed, descriptors, waited } => crate::error::Error::Timeout {
                what: channel.to_string(),
                node: None,
                rank: None,
                instruction: None,
                waited,
                last_seen: format!("{completed} of {descriptors} descriptors completed"),
            },
            error => crate::error::Error::Engine(Box::new(error)),
        }
    }
}

/// Result with an [`enum@Error`] of an engine.
pub type Result<T> = std::result::Result<T, Error>;

/// Events whose meaning depends on the direction: bit, H2C, C2H (PG195, channel status).
const EVENTS: [(Status, &str, &str); 15] = [
    (Status::ALIGN_MISMATCH, "an address or length is not aligned", "an address or length is not aligned"),
    (Status::MAGIC_STOPPED, "a descriptor is invalid", "a descriptor is invalid"),
    (Status::INVALID_LENGTH, "a length is invalid", "a length is invalid"),
    (Status::READ_ERROR_0, "the bus refused a read of host memory", "no card memory at this address"),
    (Status::READ_ERROR_1, "the host aborted a read of its memory", "card memory answered with an error"),
    (Status::READ_ERROR_2, "parity error in host data", "reserved error 2 of reads"),
    (Status::READ_ERROR_3, "host data was poisoned", "reserved error 3 of reads"),
    (Status::READ_ERROR_4, "unexpected completion of a read of host memory", "reserved error 4 of reads"),
    (Status::WRITE_ERROR_0, "no card memory at this address", "reserved error 0 of writes"),
    (Status::WRITE_ERROR_1, "card memory answered with an error", "reserved error 1 of writes"),
    (Status::DESCRIPTOR_ERROR_0, "the bus refused a fetch of descriptors", "the bus refused a fetch of descriptors"),
    (Status::DESCRIPTOR_ERROR_1, "the host aborted a fetch of descriptors", "the host aborted a fetch of descriptors"),
    (Status::DESCRIPTOR_ERROR_2, "parity error in descriptors", "parity error in descriptors"),
    (Status::DESCRIPTOR_ERROR_3, "descriptors were poisoned", "descriptors were poisoned"),
    (Status::DESCRIPTOR_ERROR_4, "unexpected completion of a fetch", "unexpected completion of a fetch"),
];

fn at(address: Option<u64>) -> String {
    address.map_or(String::new(), |address| format!(" (card address {address:#x})"))
}

fn events(direction: Direction, status: Status) -> String {
    let named = EVENTS.iter().filter(|(event, ..)| status.contains(*event)).map(|(_, h2c, c2h)| match direction {
        Direction::H2c => *h2c,
        Direction::C2h => *c2h,
    });
    let named: Vec<&str> = named.collect();
    match named.is_empty() {
        true => format!("no reason given (STATUS {:#x})", status.bits()),
        false => named.join(", "),
    }
}
