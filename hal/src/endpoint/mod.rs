//! The device side of a function: what a model of a card implements, and the ports through which it reaches the host.
//!
//! An [`Endpoint`] is given configuration and BAR accesses, and has a port for DMA and one for interrupts. It does not
//! know which bus it sits on: in this process, or behind a vfio-user socket. Nothing here returns an error to
//! the host, because PCIe does not: a read that no register answers gives all-ones, a write is dropped.

pub(crate) mod intx;
pub(crate) mod msix;

pub use fpga_pci::BarLayout;

use std::sync::Arc;

use crate::{BarIndex, Iova, SharedMemory};

/// What an endpoint is, fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The base address registers it implements.
    pub bars: [Option<BarLayout>; BarIndex::COUNT],
    /// Address bits it can master: addresses of DMA lie below 2^`dma_bits`.
    pub dma_bits: u8,
}

/// What kind of reset reached the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetKind {
    /// The host opened or closed the function (VFIO does this), or asked for a function-level reset.
    Function,
    /// The owner went away without a word.
    OwnerLost,
}

/// Names one request on a [`DmaPort`] until it completes. The endpoint chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DmaTag(pub u64);

/// Why the bus refused a DMA request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DmaFault {
    /// The IOMMU has no mapping that covers the address and allows the access (an unsupported request on the wire).
    #[error("IOVA {iova} is not mapped")]
    Unmapped {
        /// First address without such a mapping.
        iova: Iova,
    },
    /// Bus mastering is off in the command register.
    #[error("Bus mastering is off")]
    NotMaster,
    /// The host is gone.
    #[error("The host is gone")]
    HostGone,
}

/// What became of a DMA request by the time the port returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum DmaProgress {
    /// It is over. For a read, the buffer given is filled.
    Done(Result<(), DmaFault>),
    /// It is on its way: [`Endpoint::dma_complete`] will be called with its tag. The buffer given was not touched.
    Pending,
}

/// The endpoint's way to host memory: requests, completed at once or later by an event.
///
/// Writes of one endpoint are seen by the host in the order they were made, and the bytes of one write in ascending
/// order: the last aligned eight bytes of a write become visible last (with release order), so a word there may tell
/// that the rest has arrived.
pub trait DmaPort: Send + Sync {
    /// Reads host memory at `iova` into `data`, or starts to.
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress;
    /// Writes `data` to host memory at `iova`, or starts to. The port has taken the data when it returns.
    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress;
}

/// The endpoint's way to raise interrupts. It never waits, whatever the host does; a vector that is raised again before the
/// host was told may be told once.
pub trait InterruptPort: Send + Sync {
    /// Raises MSI-X vector `vector`. The endpoint has checked enable and mask bits.
    fn raise(&self, vector: u16);
    /// Asserts or releases the function's INTx line, a level. The endpoint has checked Interrupt Disable, and keeps
    /// Interrupt Status of its status register in step: a host finds out by it whose line it is.
    fn set_intx(&self, asserted: bool);
}

/// The device side of one PCI function.
///
/// Methods take `&self`, may be called from several threads, and return promptly: an endpoint never waits in them,
/// least of all for its own DMA.
pub trait Endpoint: Send + Sync + 'static {
    /// Base address registers and DMA reach.
    fn layout(&self) -> Layout;

    /// Connects the ports. Called once, before any access; a second call replaces them.
    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>);

    /// Reads configuration space at `offset` (0 to 4095). What is not implemented reads as zero.
    fn config_read(&self, offset: u16, data: &mut [u8]);

    /// Writes configuration space at `offset`.
    fn config_write(&self, offset: u16, data: &[u8]);

    /// Reads `data.len()` bytes (1, 2, 4 or 8) at `offset` of `bar`.
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]);

    /// Writes `data` (1, 2, 4 or 8 bytes) at `offset` of `bar`.
    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]);

    /// Puts the function into its state after power-up, but for what its layout says.
    fn reset(&self, kind: ResetKind);

    /// Completes a request that was [`DmaProgress::Pending`]: data read, or nothing for a write.
    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>);

    /// The memory behind `bar` if all of it is plain memory that the host may map; its length is the BAR's.
    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        let _ = bar;
        None
    }
}
