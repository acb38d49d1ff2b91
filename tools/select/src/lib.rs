//! Turns a card selector into functions on a bus.
//!
//! - `mock:PROFILE:SHAPE` selects a fabric of in-process mock cards. `PROFILE` is `optweb`; `SHAPE` is a number of cards
//!   (fully connected) or `GROUPSxSIZE` (a Dragonfly). `/NODE` after the shape selects one card of the fabric. Each fault
//!   begins with `+`:
//!   - `+stop=NODE@US` stops the clock of a card after this fabric time in microseconds;
//!   - `+cut=A-B@US` cuts the link between two cards after this time (`@0` or no `@`: at once);
//!   - `+slow=GBPS` sets the actual rate of all links; the cards still report the nominal rate;
//!   - `+late=US` delays replies of host memory by up to this time.
//!
//!   Times are at most [`TIME_MAX_US`].
//! - `vfio:0000:3b:00.0`, or the bare address, selects a function bound to the kernel's VFIO driver. `+vf-token=UUID` sets
//!   the token that a virtual function shares with its physical function. `+no-iommu` accepts that no IOMMU protects host
//!   memory from the card. `+without-reset` opens a card without a reset method (see [`vfio::Options`]).
//! - `vfio-user:/run/fpga/0.sock` selects the function on a vfio-user socket. A directory, such as `vfio-user:/run/fpga`,
//!   selects all its sockets, ordered by the number in the name.
//!
//! Commas separate several cards of one bus; mock cards must belong to one fabric.
//!
//! ```
//! let selection = fpga_select::select("mock:optweb:4")?;
//! assert_eq!(selection.functions.len(), 4);
//! assert_eq!(selection.kind, fpga_select::Kind::Mock);
//! # Ok::<(), fpga_select::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;
mod mock_cards;
mod selector;
mod sockets;
#[cfg(test)]
mod tests;
mod vfio_card;

use fpga_hal::Function;
pub use fpga_mock::{Basis, Clock, Component, Fabric, Profile};

pub use crate::error::Error;
pub use crate::selector::{NodeEndpoint, Selector};

/// Default selector, if no card is bound to VFIO.
pub const DEFAULT: &str = "mock:optweb:4";

/// Longest time of a fault: one day, in microseconds.
pub const TIME_MAX_US: u64 = 86_400_000_000;

/// Kind of the selected cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// In-process mock cards.
    Mock,
    /// Functions on the kernel's VFIO.
    Vfio,
    /// Functions on vfio-user sockets.
    VfioUser,
}

impl Kind {
    /// Returns the name in output and `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mock => "mock",
            Kind::Vfio => "vfio",
            Kind::VfioUser => "vfio-user",
        }
    }
}

/// Opened cards of one fabric, in one domain.
pub struct Selection {
    /// The selector, as given.
    pub selector: String,
    /// Kind of the cards.
    pub kind: Kind,
    /// One function for each card, in the given order; all cards of a mock fabric are ordered by node.
    pub functions: Vec<Function>,
    /// The fabric of mock cards; `None` for other cards.
    pub fabric: Option<Fabric>,
}

/// Opens the cards of `selector`.
///
/// # Errors
/// As [`Selector::parse`] and [`Selector::open`].
pub fn select(selector: &str) -> Result<Selection, Error> {
    Selector::parse(selector)?.open()
}
