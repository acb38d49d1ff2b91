//! Finding one feature by its GUID.

use fpga_hal::Window;
use fpga_regs::feature_list::START;

use crate::feature_list::error::Error;
use crate::feature_list::walk::{Feature, Walk};

/// Returns the offset of the block of `bytes` bytes with this GUID in the register BAR.
///
/// # Errors
/// [`Error::List`], which says where the walk of the list ended, and why; the bus's.
pub(crate) fn find(window: &Window, guid: u128, bytes: u32) -> Result<u64, Error> {
    let mut walk = Walk::new(window, START.into());
    for feature in walk.by_ref() {
        let Feature { offset, guid: found, .. } = feature?;
        if found != Some(guid) {
            continue;
        }
        return match offset + u64::from(bytes) <= window.len() {
            true => Ok(offset),
            false => Err(Error::List(format!("its block at {offset:#x} does not fit into the BAR"))),
        };
    }
    let headers = match walk.headers() {
        1 => "its first header".to_owned(),
        count => format!("{count} headers"),
    };
    Err(Error::List(format!("the feature list ends after {headers}")))
}
