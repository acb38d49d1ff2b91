//! The device side of a function: the trait that a model of a card implements, and its ports to the host.
//!
//! An [`Endpoint`] receives configuration and BAR accesses, and has a port for DMA and a port for interrupts. It works on
//! every bus: in this process, or behind a vfio-user socket. Accesses return no errors, as on PCIe: a read that no register
//! answers returns all-ones, and such a write is dropped.

mod interposer;
pub(crate) mod intx;
pub(crate) mod msix;

pub use fpga_pci::BarLayout;
pub use interposer::Interposer;

use std::sync::Arc;

use crate::{BarIndex, Iova, SharedMemory, config};

/// BARs and DMA reach of an endpoint. They never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Layouts of the implemented BARs.
    pub bars: [Option<BarLayout>; BarIndex::COUNT],
    /// Address bits of its DMA: all addresses are below 2^`dma_bits`.
    pub dma_bits: u8,
}

/// Cause of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetKind {
    /// The host opened or closed the function (VFIO does this), or asked for a function-level reset.
    Function,
    /// The owner disappeared without closing the function.
    OwnerLost,
}

/// Identifies a request on a [`DmaPort`] until it completes. The endpoint chooses it.
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

/// State of a DMA request when the port returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum DmaProgress {
    /// The request completed. For a read, the buffer is filled.
    Done(Result<(), DmaFault>),
    /// The request is in flight: [`Endpoint::dma_complete`] will be called with its tag. The buffer is unchanged.
    Pending,
}

/// Access of an endpoint to host memory. Requests complete at once, or later by an event.
///
/// The host sees writes of one endpoint in program order, and the bytes of one write in ascending order. The last aligned
/// eight bytes of a write become visible last, with release order, so a word there can announce the rest.
pub trait DmaPort: Send + Sync {
    /// Reads host memory at `iova` into `data`, or starts the read.
    fn read(&self, tag: DmaTag, iova: Iova, data: &mut [u8]) -> DmaProgress;
    /// Writes `data` to host memory at `iova`, or starts the write. The port copies the data before it returns.
    fn write(&self, tag: DmaTag, iova: Iova, data: &[u8]) -> DmaProgress;
}

/// Interrupts of an endpoint. The port never blocks. If a vector is raised again before the host receives it, the host may
/// receive it once.
pub trait InterruptPort: Send + Sync {
    /// Raises MSI-X vector `vector`. The endpoint checks enable and mask bits first.
    fn raise(&self, vector: u16);
    /// Asserts or releases the INTx line of the function. The endpoint checks Interrupt Disable first, and updates Interrupt
    /// Status in its status register, by which a host finds the function that interrupts.
    fn set_intx(&self, asserted: bool);
}

/// The device side of one PCI function.
///
/// Several threads may call methods at a time. Methods must return promptly and never wait, not even for the endpoint's own
/// DMA.
pub trait Endpoint: Send + Sync + 'static {
    /// Returns BARs and DMA reach.
    fn layout(&self) -> Layout;

    /// Connects the ports, before any access. A second call replaces them.
    fn attach(&self, dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>);

    /// Reads configuration space at `offset` (0 to 4095). Unimplemented registers read as zero.
    fn config_read(&self, offset: u16, data: &mut [u8]);

    /// Writes configuration space at `offset`.
    fn config_write(&self, offset: u16, data: &[u8]);

    /// Reads `data.len()` bytes (1, 2, 4 or 8) at `offset` of `bar`.
    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]);

    /// Writes `data` (1, 2, 4 or 8 bytes) at `offset` of `bar`.
    fn bar_write(&self, bar: BarIndex, offset: u64, data: &[u8]);

    /// Restores the state after power-up. The layout stays.
    fn reset(&self, kind: ResetKind);

    /// Completes a request that was [`DmaProgress::Pending`], with the data of a read.
    fn dma_complete(&self, tag: DmaTag, result: Result<&[u8], DmaFault>);

    /// Returns the memory of `bar`, if all of the BAR is plain memory that the host may map. Its length is that of the BAR.
    fn bar_memory(&self, bar: BarIndex) -> Option<Arc<SharedMemory>> {
        let _ = bar;
        None
    }
}

/// Returns whether a function has an INTx line.
pub(crate) fn has_intx(endpoint: &dyn Endpoint) -> bool {
    let mut pin = [0];
    endpoint.config_read(config::INTERRUPT_PIN, &mut pin);
    (1..=4).contains(&pin[0])
}

/// Returns whether a function is bus master: the endpoint decides which bits of its command register it accepts.
pub(crate) fn is_bus_master(endpoint: &dyn Endpoint) -> bool {
    let mut command = [0; 2];
    endpoint.config_read(config::COMMAND, &mut command);
    // All-ones are the answer of a removed function, which is not bus master.
    let command = u16::from_le_bytes(command);
    command != u16::MAX && command & config::COMMAND_MASTER != 0
}
