//! Finding one feature by its GUID.

use fpga_hal::{BarIndex, Function, Window};
use fpga_regs::feature_list::START;
use fpga_regs::pci::REGISTERS_BAR;

use crate::feature_list::error::Error;
use crate::feature_list::walk::{Feature, Walk};

/// Maps the register BAR of a function.
///
/// # Errors
/// [`Error::List`] for a function without it; the bus's.
pub(crate) fn register_bar(function: &Function) -> Result<Window, Error> {
    let Some(bar) = BarIndex::new(REGISTERS_BAR) else { unreachable!("a constant below 6") };
    function.window(bar).map_err(|error| match error {
        fpga_hal::Error::NoBar { .. } => Error::List(error.to_string()),
        error => Error::Bus(error),
    })
}

/// Returns the feature with this GUID in the list of the register BAR.
///
/// # Errors
/// [`Error::List`], which says where the walk of the list ended, and why; the bus's.
pub(crate) fn find_feature(window: &Window, guid: u128) -> Result<Feature, Error> {
    let mut walk = Walk::new(window, START.into());
    for feature in walk.by_ref() {
        let feature = feature?;
        if feature.guid == Some(guid) {
            return Ok(feature);
        }
    }
    let headers = match walk.headers() {
        1 => "its first header".to_owned(),
        count => format!("{count} headers"),
    };
    Err(Error::List(format!("the feature list ends after {headers}")))
}

/// Returns the offset of the block of `bytes` bytes with this GUID, which begins with its header.
///
/// # Errors
/// As [`find_feature`]; [`Error::List`] for a block that does not fit into the BAR, whatever the list says of its bytes.
pub(crate) fn find_block(window: &Window, guid: u128, bytes: u32) -> Result<u64, Error> {
    let Feature { offset, .. } = find_feature(window, guid)?;
    match offset + u64::from(bytes) <= window.len() {
        true => Ok(offset),
        false => Err(Error::List(format!("its block at {offset:#x} does not fit into the BAR"))),
    }
}
