//! Cards whose only interrupt is their INTx line.

use std::sync::Arc;

use fpga_hal::endpoint::{Endpoint, Interposer};

/// Offset of a mock card's MSI-X capability.
const MSIX: u16 = 0x80;
/// Identifiers of capabilities (PCI Code and ID Assignment, section 2).
const MSIX_ID: u8 = 0x11;
const VENDOR_ID: u8 = 0x09;

/// A mock card whose MSI-X capability reads as a vendor-specific one.
pub struct WithoutMsix(pub Arc<dyn Endpoint>);

impl Interposer for WithoutMsix {
    fn behind(&self) -> &dyn Endpoint {
        &*self.0
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.behind().config_read(offset, data);
        if let Some(id) = MSIX.checked_sub(offset).and_then(|at| data.get_mut(usize::from(at))) {
            assert_eq!(std::mem::replace(id, VENDOR_ID), MSIX_ID, "the capability is here");
        }
    }
}
