//! The driver against an endpoint that does on the wire what it is told to: every status, wrong words, silence.
//!
//! The rings are in host memory here; `wire_card_ring` runs the same tests with rings in card memory.
//!
//! Offsets and codes are typed by hand here, so that a mistake in the register table or the codec shows.
#![forbid(unsafe_code)]

mod calibration;
mod card;
mod cards;
mod cluster;
mod communicators;
mod discovery;
mod errors;
mod host_ring;
mod hostile;
mod launches;
mod lifetime;
mod logged;
mod malformed;
mod memory;
mod programs;
mod queue;
mod stats;
mod windows;

use fpga_driver::{Card, Result};
use fpga_hal::Function;

pub(crate) fn open_card(function: Function) -> Result<Card> {
    Card::open(function)
}
