//! PCI addresses on the command line.

use fpga_hal::PciAddress;

/// Returns the address in `vfio:0000:3b:00.0` or `0000:3b:00.0`; `None` for other selectors.
pub(crate) fn in_selector(selector: &str) -> Option<PciAddress> {
    selector.strip_prefix("vfio:").unwrap_or(selector).parse().ok()
}

/// Parses an address on the command line.
pub(crate) fn parse(text: &str) -> std::result::Result<PciAddress, String> {
    in_selector(text)
        .ok_or_else(|| format!("invalid PCI address {text:?}: expected a form like 0000:3b:00.0 or 3b:00.0"))
}
