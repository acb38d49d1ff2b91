//! Turns a card selector into functions on a bus.
//!
//! - `mock:optweb:4` selects a fabric of four in-process mock cards.
//! - `vfio:0000:3b:00.0`, or the bare address, selects a function bound to the kernel's VFIO driver.
//! - `vfio-user:/run/fpga/0.sock` selects the function on a vfio-user socket.
//!
//! Commas separate several cards of one bus; mock cards must belong to one fabric. All profiles, options and faults are in
//! `docs/cli.md`.
//!
//! ```
//! let selection = fpga_select::select("mock:optweb:4")?;
//! assert_eq!(selection.functions.len(), 4);
//! assert_eq!(selection.kind, fpga_select::Kind::Mock);
//! # Ok::<(), fpga_select::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod channel_cards;
mod error;
mod list;
mod mock_cards;
mod part;
mod selection;
mod selector;
mod sockets;
#[cfg(test)]
mod tests;
mod vfio_card;
mod xdma_cards;

pub use fpga_mock::{
    Accesses, Basis, CardMemory, Component, Fabric, Profile, Recorder, bluelink, circus, dfl, mpi_fpga, novog, xdma,
};

pub use crate::error::Error;
pub use crate::part::Part;
pub use crate::selection::{Kind, Selection};
pub use crate::selector::{DEFAULT, MockFunction, NodeEndpoint, Selector, select};
