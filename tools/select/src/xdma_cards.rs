//! The mock card with an XDMA engine that no network connects to others, `mock:alveo-xdma:1`: it has no sequencer, as no Alveo card
//! has that is sold.

use std::sync::Arc;

use fpga_hal::{Domain, Endpoint, Function, in_process};
use fpga_mock::xdma::{Shape, XdmaCards};

use crate::error::Error;

/// Selector of the card, and of it as one of all.
const NAMES: [&str; 2] = ["mock:alveo-xdma:1", "mock:alveo-xdma:1/0"];

/// Returns whether `text` selects the card.
pub(crate) fn is_lone_card(text: &str) -> bool {
    NAMES.contains(&text)
}

/// Returns whether `text` selects the card, with options.
pub(crate) fn has_options(text: &str) -> bool {
    text.split_once('+').is_some_and(|(card, _)| is_lone_card(card))
}

/// Returns the selector of the card.
pub(crate) fn selector() -> String {
    NAMES[1].to_owned()
}

/// Creates the card, not attached to a bus.
pub(crate) fn endpoint() -> Arc<dyn Endpoint> {
    XdmaCards::new(1, Shape::default()).endpoint(0)
}

/// Opens the card.
pub(crate) fn open() -> Result<Function, Error> {
    let opened = in_process::attach(endpoint(), &Domain::in_process(), &selector());
    opened.map_err(|source| Error::Open { selector: selector(), source })
}
