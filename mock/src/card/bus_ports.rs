//! The ports of the bus that a card sits on.

use std::sync::Arc;

use fpga_hal::endpoint::{DmaFault, DmaPort, InterruptPort};

use crate::card::config_space::ConfigSpace;
use crate::card::msix::Msix;

/// The ports of the bus that a card sits on.
pub(crate) struct BusPorts {
    dma: Arc<dyn DmaPort>,
    interrupts: Arc<dyn InterruptPort>,
    /// Last level of the INTx line.
    line: bool,
}

impl BusPorts {
    pub(crate) fn new(dma: Arc<dyn DmaPort>, interrupts: Arc<dyn InterruptPort>) -> Self {
        BusPorts { dma, interrupts, line: false }
    }

    /// Returns the port for DMA, if the card may use it.
    pub(crate) fn dma<'a>(bus: Option<&'a Self>, config: &ConfigSpace) -> Result<&'a dyn DmaPort, DmaFault> {
        if !config.is_bus_master() {
            return Err(DmaFault::NotMaster);
        }
        bus.map(|bus| &*bus.dma).ok_or(DmaFault::HostGone)
    }

    /// Raises all vectors that are pending and not masked, and updates the INTx line.
    pub(crate) fn deliver(bus: Option<&mut Self>, config: &mut ConfigSpace, msix: &mut Msix) {
        let is_pending = msix.pending() != 0;
        BusPorts::deliver_with_level(bus, config, msix, is_pending);
    }

    /// As [`deliver`](BusPorts::deliver), of a card whose INTx line has the level `level` and not that of its pending vectors.
    pub(crate) fn deliver_with_level(bus: Option<&mut Self>, config: &mut ConfigSpace, msix: &mut Msix, level: bool) {
        let asserted = config.asserts_intx(level);
        let Some(bus) = bus else { return };
        if bus.line != asserted {
            bus.line = asserted;
            bus.interrupts.set_intx(asserted);
        }
        if config.delivers_interrupts() && config.is_bus_master() {
            msix.take_deliverable().for_each(|vector| bus.interrupts.raise(vector));
        }
    }
}
