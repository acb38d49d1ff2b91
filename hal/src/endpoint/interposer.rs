//! Endpoints in front of other endpoints.

use std::sync::Arc;

use super::{DmaFault, DmaPort, DmaTag, Endpoint, InterruptPort, Layout, ResetKind};
use crate::{BarIndex, SharedMemory};

/// An [`Endpoint`] between a bus and another endpoint, to count, delay or change what passes. Each method passes its call on unless
/// it is overridden.
///
/// ```
/// use fpga_hal::BarIndex;
/// use fpga_hal::endpoint::{Endpoint, Interposer};
///
/// /// A card that answers no read.
/// struct Silent<E>(E);
///
/// impl<E: Endpoint> Interposer for Silent<E> {
///     fn behind(&self) -> &dyn Endpoint {
///         &self.0
///     }
///
///     fn bar_read(&self, _: BarIndex, _: u64, data: &mut [u8]) {
///         data.fill(0xff);
///     }
/// }
/// ```
pub trait Interposer: Send + Sync + 'static {
    /// Returns the endpoint behind.
    fn behind(&self) -> &dyn Endpoint;

    /// As [`Endpoint::attach`].
    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        self.behind().attach(dma, interrupts);
    }

    /// As [`Endpoint::config_read`].
    fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.behind().config_read(offset, data);
    }

    /// As [`Endpoint::config_write`].
    fn config_write(&self, offset: u16, data: &[u8]) {
        self.behind().config_write(offset, data);
    }

    /// As [`Endpoint::bar_read`].
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        self.behind().bar_read(bar, offset, data);
    }

    /// As [`Endpoint::bar_write`].
    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        self.behind().bar_write(bar, offset, data);
    }

    /// As [`Endpoint::reset`].
    fn reset(&self, kind: ResetKind) {
        self.behind().reset(kind);
    }

    /// As [`Endpoint::dma_complete`].
    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        self.behind().dma_complete(tag, result);
    }

    /// As [`Endpoint::bar_memory`].
    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        self.behind().bar_memory(bar)
    }
}

impl<I: Interposer> Endpoint for I {
    fn layout(&self) -> Layout {
        self.behind().layout()
    }

    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) {
        Interposer::attach(self, dma, interrupts);
    }

    fn config_read(&self, offset: u16, data: &mut [u8]) {
        Interposer::config_read(self, offset, data);
    }

    fn config_write(&self, offset: u16, data: &[u8]) {
        Interposer::config_write(self, offset, data);
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        Interposer::bar_read(self, bar, offset, data);
    }

    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]) {
        Interposer::bar_write(self, bar, offset, data);
    }

    fn reset(&self, kind: ResetKind) {
        Interposer::reset(self, kind);
    }

    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>) {
        Interposer::dma_complete(self, tag, result);
    }

    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        Interposer::bar_memory(self, bar)
    }
}
