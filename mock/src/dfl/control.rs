//! The control function of a card with an OFS shell.

use fpga_regs::dfl::CONTROL;

use crate::dfl::attached::{Attached, Logic};
use crate::dfl::static_region::{ERROR_VECTOR, StaticRegion};

/// A control function: the static region, on a bus.
pub(super) struct Control {
    pub(super) attached: Attached,
    region: StaticRegion,
}

impl Control {
    pub(super) fn new(region: StaticRegion) -> Self {
        Control { attached: Attached::new(&CONTROL), region }
    }

    /// Runs `access` on the static region, and sends its interrupt.
    pub(super) fn with_region<R>(&mut self, access: impl FnOnce(&mut StaticRegion) -> R) -> R {
        let result = access(&mut self.region);
        if self.region.take_interrupt() {
            self.attached.interrupt(ERROR_VECTOR);
        }
        if self.region.take_loss() {
            self.attached.lose_configuration();
        }
        result
    }
}

impl Logic for Control {
    fn attached(&mut self) -> &mut Attached {
        &mut self.attached
    }

    fn read(&mut self, offset: u32) -> u64 {
        self.with_region(|region| region.read(offset))
    }

    fn write(&mut self, offset: u32, value: u64, mask: u64) {
        self.with_region(|region| region.write(offset, value, mask));
    }

    fn reset(&mut self) {
        self.with_region(StaticRegion::reset);
    }
}
