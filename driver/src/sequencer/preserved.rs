//! The configuration space of a function whose card takes other logic: saved before, compared and restored after. Interrupts are
//! not: no driver that loads logic enables them.

use std::sync::Arc;

use fpga_hal::{Function, SavedConfig};

use crate::error::Result;
use crate::sequencer::block::bus_error;

/// Configuration space that was saved. Clones are the same copy.
#[derive(Debug, Clone)]
pub(crate) struct Preserved {
    function: Function,
    saved: Arc<SavedConfig>,
}

impl Preserved {
    /// Saves the configuration space of a function.
    pub(crate) fn save(function: &Function) -> Result<Self> {
        let saved = function.save_config().map_err(|error| bus_error(&function.identity().name, error))?;
        Ok(Preserved { function: function.clone(), saved: Arc::new(saved) })
    }

    /// Restores what differs. Returns whether anything did.
    pub(crate) fn restore(&self) -> Result<bool> {
        let name = &self.function.identity().name;
        let restored = self.function.restore_config(&self.saved).map_err(|error| bus_error(name, error))?;
        for one in &restored {
            log::warn!(
                "{name}: the card lost its configuration space: {} read {:#x}, restored to {:#x}",
                one.name,
                one.found,
                one.value
            );
        }
        Ok(!restored.is_empty())
    }
}
