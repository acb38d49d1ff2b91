//! Cards that answer some accesses otherwise than the card behind them.

use std::sync::Arc;

use fpga_hal::endpoint::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use fpga_hal::{BarIndex, SharedMemory};

/// What is different on an [`Altered`] card. Each method passes the access on unless it is overridden.
pub trait Alteration: Send + Sync + 'static {
    /// Returns the card behind.
    fn card(&self) -> &dyn Endpoint;

    /// The card is attached to a bus.
    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.card().attach(dma, interrupts);
    }

    /// A host reads configuration space.
    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.card().config_read(offset, data);
    }

    /// A host reads a BAR.
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.card().bar_read(bar, offset, data);
    }
}

/// A card with an alteration.
pub struct Altered<A>(pub A);

impl<A: Alteration> Endpoint for Altered<A> {
    fn layout(&self) -> Layout {
        self.0.card().layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.0.attach(dma, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.0.config_read(offset, data);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        self.0.card().config_write(offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.0.bar_read(bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.0.card().bar_write(bar, offset, data);
    }

    fn reset(&self, kind: ResetKind) {
        self.0.card().reset(kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.0.card().dma_complete(tag, result);
    }

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        self.0.card().bar_memory(bar)
    }
}
