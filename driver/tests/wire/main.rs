//! The driver against an endpoint that does on the wire what it is told to: every status, wrong words, silence.
//!
//! Offsets and codes are typed by hand here, so that a mistake in the register table or the codec shows.
#![forbid(unsafe_code)]

mod calibration;
mod card;
mod cluster;
mod communicators;
mod discovery;
mod errors;
mod fake;
mod hostile;
mod launches;
mod lifetime;
mod malformed;
mod memory;
mod queue;
