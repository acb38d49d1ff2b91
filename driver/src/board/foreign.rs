//! Shells of makers that only their own software programs.

use fpga_hal::Function;

/// AMD.
const AMD: u16 = 0x10ee;

/// Appends to what was looked at that the shell is its maker's, if the ids say so. Nothing is chosen by this, it only adds to an error.
///
/// Sources: XRT `devices.h`; pci.ids. XRT's cards have 5000 and on, and d000 and on with their factory image.
pub(crate) fn with_foreign_shell(function: &Function, looked: String) -> String {
    let identity = function.identity();
    match (identity.vendor, identity.device) {
        (AMD, 0x5000..=0x50ff | 0xd000..=0xd0ff) => {
            format!("{looked}; by its ids it has AMD's shell for XRT: use and program it with XRT (xocl, xbmgmt)")
        }
        _ => looked,
    }
}
