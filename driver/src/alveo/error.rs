//! What can go wrong with the parts of this project's shell for Alveo cards.

use std::time::Duration;

use fpga_regs::hwicap::words::ERRORS;

use crate::meanings::meanings;

/// Error of a part of this project's shell for Alveo cards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function has another shell, or none that is known.
    #[error("{name} has another shell than this project's for Alveo cards: {looked}")]
    NoShell {
        /// The function.
        name: String,
        /// What was looked at, and found.
        looked: String,
    },
    /// Nothing answers as card management where the shell has it.
    #[error("{name} has no card management: its map begins with {found:#010x}; expected {expected:#010x}")]
    NoManagement {
        /// The function.
        name: String,
        /// What the map begins with.
        found: u32,
        /// What it must begin with.
        expected: u32,
    },
    /// Card management refused a message.
    #[error("{name}: card management refused a message with error {code}: {}", reason(*.code))]
    Message {
        /// The function.
        name: String,
        /// The error in its register.
        code: u32,
    },
    /// Card management answered something that is no answer to the message.
    #[error("{name}: wrong answer of card management: {what}")]
    Answer {
        /// The function.
        name: String,
        /// What was wrong.
        what: String,
    },
    /// The configuration port takes no words, or more than it can.
    #[error("{name}: the queue of the configuration port takes {vacancy} words")]
    BadVacancy {
        /// The function.
        name: String,
        /// What it says that it takes.
        vacancy: u32,
    },
    /// The configuration port gave other than one word for a register of the FPGA, as after an image that ends too early.
    #[error("{name}: the configuration port answered with {words} words; expected 1: the image may end too early")]
    BadReadback {
        /// The function.
        name: String,
        /// How many words it gave.
        words: u32,
    },
    /// What was asked for cannot be done. Nothing was started.
    #[error("{name}: {what}")]
    Refused {
        /// The function.
        name: String,
        /// What, and why.
        what: String,
    },
    /// The FPGA refused the image. The region holds nothing; the port takes another image.
    #[error("{name} refused the image: {}", meanings((*.errors).into(), &ERRORS))]
    Failed {
        /// The function.
        name: String,
        /// Bits of the FPGA's status.
        errors: u32,
    },
    /// The caller broke off. The region holds nothing; the port takes another image.
    #[error("{name}: interrupted after {pushed} of {total} bytes of the image; nothing is loaded")]
    Interrupted {
        /// The function.
        name: String,
        /// Bytes pushed before.
        pushed: u64,
        /// Bytes of the image.
        total: u64,
    },
    /// The card did not answer in time.
    #[error("Waited {waited:.1?} for {name} to {to}; last seen: {last_seen}")]
    TimedOut {
        /// The function.
        name: String,
        /// What it was to do.
        to: &'static str,
        /// How long.
        waited: Duration,
        /// The register that was polled.
        last_seen: String,
    },
    /// The engine's.
    #[error(transparent)]
    Engine(#[from] crate::xdma::Error),
    /// The card's or the bus's.
    #[error(transparent)]
    Card(#[from] crate::error::Error),
}

/// Result with an [`enum@Error`] of this project's shell.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns what an error of a message means.
fn reason(code: u32) -> &'static str {
    match code {
        1 => "unknown opcode",
        2 => "the board's information is missing",
        3 => "wrong length",
        4..=7 => "the satellite controller failed",
        _ => "reason unknown",
    }
}
