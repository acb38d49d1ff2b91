//! The port: the accelerator's reset.

use std::time::Duration;

use fpga_regs::dfl::port::{CONTROL, POWER_OFF, POWER_SHIFT, SOFT_RESET, SOFT_RESET_ACK, STATUS};

use crate::dfl::block::Block;
use crate::dfl::error::{Error, Result};

/// Time limit for the port to acknowledge. It does so within microseconds; a busy machine may look seldom.
const ACKNOWLEDGE: Duration = Duration::from_secs(2);

/// The port.
#[derive(Debug)]
pub(super) struct Port(pub(super) Block);

impl Port {
    /// Returns whether the accelerator is held in reset.
    pub(super) fn is_held(&self) -> Result<bool> {
        Ok(self.0.read(CONTROL)? & SOFT_RESET != 0)
    }

    /// Holds the accelerator in reset.
    pub(super) fn hold(&self) -> Result<()> {
        self.set(SOFT_RESET, "hold the accelerator in reset")
    }

    /// Releases the accelerator from reset.
    pub(super) fn release(&self) -> Result<()> {
        self.set(0, "release the accelerator from reset")
    }

    fn set(&self, reset: u64, to: &'static str) -> Result<()> {
        let before = self.0.read(CONTROL)?;
        self.0.write(CONTROL, before & !SOFT_RESET | reset)?;
        let is_done = |value| (value & SOFT_RESET_ACK != 0) == (reset != 0);
        self.0.poll((CONTROL, "port CONTROL"), to, ACKNOWLEDGE, is_done).map(drop)
    }

    /// Makes sure that the accelerator has power.
    pub(super) fn check_power(&self) -> Result<()> {
        match self.0.read(STATUS)? >> POWER_SHIFT & 0xf {
            POWER_OFF => {
                let what = "the accelerator is switched off, because the board is too hot or draws too much".to_owned();
                Err(Error::Refused { name: self.0.name(), what })
            }
            _ => Ok(()),
        }
    }
}
