//! What tells that a card has this project's shell.

use fpga_hal::{BarIndex, Function, Window};
use fpga_regs::feature_list::CARD_GUID;
use fpga_regs::xdma::{USER_BAR, USER_BAR_BYTES};

use crate::alveo::error::{Error, Result};
use crate::feature_list::{self, Walk};
use crate::sequencer::block::bus_error;
use crate::xdma;

/// Returns the user BAR of a function with this project's shell: AMD's engine is there, and the user BAR begins with the feature list
/// of an accelerator with this project's GUID. The function's ids do not count.
///
/// # Errors
/// [`Error::NoShell`]; the bus's.
pub(super) fn user_bar(function: &Function) -> Result<Window> {
    let name = function.identity().name.clone();
    let none = |looked| Error::NoShell { name: name.clone(), looked };
    if !xdma::has_engine(function)? {
        return Err(none("it has no XDMA engine".to_owned()));
    }
    let bar = BarIndex::new(USER_BAR).filter(|bar| function.bar(*bar).is_some_and(|bar| bar.bytes >= USER_BAR_BYTES));
    let Some(bar) = bar else { return Err(none(format!("BAR{USER_BAR} has fewer than {USER_BAR_BYTES:#x} bytes"))) };
    let window = function.window(bar).map_err(|error| bus_error(&name, error))?;
    match Walk::new(&window, 0).next() {
        Some(Ok(feature)) if feature.guid == Some(CARD_GUID) => Ok(window),
        Some(Ok(feature)) => Err(none(format!("its user BAR begins with a feature of type {}", feature.kind))),
        Some(Err(feature_list::Error::List(looked))) => Err(none(looked)),
        Some(Err(feature_list::Error::Bus(error))) => Err(bus_error(&name, error).into()),
        None => Err(none("its user BAR has no feature list".to_owned())),
    }
}
