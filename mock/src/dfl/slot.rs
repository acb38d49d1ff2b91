//! What control function and accelerator share: the region behind the port.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fpga_regs::feature_list::CARD_GUID;

/// The region behind the port.
#[derive(Debug)]
pub(super) struct Slot(Mutex<Region>);

/// State of the region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    /// GUID of the accelerator; `None` while nothing is configured.
    pub(super) accelerator: Option<u128>,
    /// The port holds the accelerator in reset.
    pub(super) is_in_reset: bool,
    /// Partial reconfiguration has cut the accelerator off.
    pub(super) is_frozen: bool,
    /// An access of the accelerator was not answered since the control function looked.
    pub(super) is_unanswered: bool,
}

impl Slot {
    /// The region after power-up: it holds the card with a command sequencer.
    pub(super) fn new() -> Self {
        let accelerator = Some(CARD_GUID);
        Slot(Mutex::new(Region { accelerator, is_in_reset: true, is_frozen: false, is_unanswered: false }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Region> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the accelerator that answers accesses; notes an access that nothing answers.
    pub(super) fn answering(&self) -> Option<u128> {
        let mut region = self.lock();
        let answering = region.accelerator.filter(|_| !region.is_in_reset && !region.is_frozen);
        region.is_unanswered |= answering.is_none();
        answering
    }
}
