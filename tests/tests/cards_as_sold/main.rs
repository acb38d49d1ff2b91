//! Mock cards with the identities of real cards: shells, engines, images, readings.
#![forbid(unsafe_code)]

mod boards;
mod dfl;
mod msgdma;
mod readings;
mod shells;
mod xdma;
