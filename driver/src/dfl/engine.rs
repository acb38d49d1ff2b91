//! The engine for partial reconfiguration.
//!
//! Source: Linux `drivers/fpga/dfl-fme-mgr.c`; OFS `pr_ctrl.sv` for what errors leave behind.

use std::ops::ControlFlow;
use std::time::Duration;

use fpga_regs::dfl::reconfiguration::{
    COMPLETE, CONTROL, CREDITS, DATA, ERROR, FAILED, INTERFACE_HI, INTERFACE_LO, RESET, RESET_ACK, START, STATUS,
};

use crate::dfl::block::Block;
use crate::dfl::error::{Error, Result};
use crate::progress::Progress;

/// Bytes of a word of an image.
const WORD_BYTES: usize = 4;

/// The engine.
#[derive(Debug)]
pub(super) struct Engine(pub(super) Block);

impl Engine {
    /// Returns the id of the interface that images must be made for.
    pub(super) fn interface(&self) -> Result<u128> {
        Ok(u128::from(self.0.read(INTERFACE_LO)?) | u128::from(self.0.read(INTERFACE_HI)?) << 64)
    }

    /// Resets the engine, and clears the errors of whatever came before.
    pub(super) fn reset(&self, limit: Duration) -> Result<()> {
        self.0.write(CONTROL, RESET)?;
        let is_reset = |value| value & RESET_ACK != 0;
        let ack = self.0.poll((CONTROL, "engine CONTROL"), "reset its reconfiguration engine", limit, is_reset);
        // Also without an answer: an engine that is held in reset takes no image.
        self.0.write(CONTROL, 0)?;
        ack?;
        self.0.write(ERROR, self.0.read(ERROR)?)?;
        let is_clear = |value| value & FAILED == 0;
        self.0.poll((STATUS, "engine STATUS"), "clear the errors of its engine", limit, is_clear).map(drop)
    }

    /// Pushes an image, and waits for the engine to have taken it. The engine was reset, and the accelerator is held in reset.
    pub(super) fn push(
        &self,
        image: &[u8],
        limit: Duration,
        mut on_progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        let total = image.len() as u64;
        self.0.write(CONTROL, START)?;
        let mut words = image.chunks(WORD_BYTES);
        let mut pushed = 0;
        while words.len() > 0 {
            for word in words.by_ref().take(self.credits(pushed, total, limit)?) {
                let mut padded = [0; WORD_BYTES];
                padded[..word.len()].copy_from_slice(word);
                self.0.write_low(DATA, u32::from_le_bytes(padded))?;
                pushed += word.len() as u64;
            }
            if on_progress(Progress { pushed, total }).is_break() {
                return Err(Error::Interrupted { name: self.0.name(), pushed, total });
            }
        }
        self.0.write(CONTROL, COMPLETE)?;
        self.await_end(pushed, total, limit)
    }

    /// Waits until the queue takes words, and returns how many: one read for a queue full of them. One word is left free, as Linux
    /// leaves it.
    fn credits(&self, pushed: u64, total: u64, limit: Duration) -> Result<usize> {
        let status = self.0.spin((STATUS, "engine STATUS"), "take more of the image", limit, |status| {
            self.check(status, pushed, total)?;
            Ok(status & CREDITS > 1)
        })?;
        Ok((status & CREDITS) as usize - 1)
    }

    /// An image that the engine refuses leaves START set: only STATUS tells.
    fn await_end(&self, pushed: u64, total: u64, limit: Duration) -> Result<()> {
        let check = || self.check(self.0.read(STATUS)?, pushed, total);
        self.0.spin((CONTROL, "engine CONTROL"), "configure the image", limit, |control| {
            check()?;
            Ok(control & START == 0)
        })?;
        check()
    }

    fn check(&self, status: u64, pushed: u64, total: u64) -> Result<()> {
        match status & FAILED {
            0 => Ok(()),
            _ => Err(Error::Failed { name: self.0.name(), pushed, total, errors: self.0.read(ERROR)? }),
        }
    }
}
