//! Cards whose only interrupt is their INTx line.

use std::sync::Arc;

use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, SharedMemory};

/// Offset of a mock card's MSI-X capability.
const MSIX: u16 = 0x80;
/// Identifiers of capabilities (PCI Code and ID Assignment, section 2).
const MSIX_ID: u8 = 0x11;
const VENDOR_ID: u8 = 0x09;

/// A mock card whose MSI-X capability reads as a vendor-specific one.
pub struct WithoutMsix(pub Arc<dyn Endpoint>);

impl Endpoint for WithoutMsix {
    fn layout(&self) -> Layout {
        self.0.layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.0.attach(dma, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.0.config_read(offset, data);
        if let Some(id) = MSIX.checked_sub(offset).and_then(|at| data.get_mut(usize::from(at))) {
            assert_eq!(std::mem::replace(id, VENDOR_ID), MSIX_ID, "the capability is here");
        }
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.0.config_write(offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.0.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.0.bar_write(bar, offset, data);
    }

    fn reset(&self, kind: ResetKind) {
        self.0.reset(kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.0.dma_complete(tag, result);
    }

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        self.0.bar_memory(bar)
    }
}
