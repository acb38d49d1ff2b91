//! The registers of one feature.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{Function, Window};

use crate::deadline::Deadline;
use crate::dfl::error::{Error, Result};
use crate::error::Error as CardError;
use crate::feature_list::Feature;
use crate::sequencer::block::bus_error;
use crate::sequencer::preserved::Preserved;

/// Between two polls of a register that changes within microseconds.
const POLL: Duration = Duration::from_micros(10);

/// The registers of one feature.
#[derive(Debug, Clone)]
pub(super) struct Block {
    window: Window,
    function: Function,
    name: Arc<str>,
    /// What is restored if a register reads all-ones.
    preserved: Option<Preserved>,
}

impl Block {
    /// Returns the block of a feature in `window`. `None` if the list does not say where its registers are, or if it has fewer than
    /// `bytes` bytes.
    pub(super) fn new(window: &Window, function: &Function, feature: &Feature, bytes: u32) -> Option<Self> {
        let Range { start, end } = feature.registers.clone()?;
        let window = window.slice(start, end - start).ok().filter(|window| window.len() >= u64::from(bytes))?;
        let name = function.identity().name.as_str().into();
        Some(Block { window, function: function.clone(), name, preserved: None })
    }

    /// Returns the same block, which restores configuration space if a register reads all-ones, and then reads it again.
    pub(super) fn preserving(&self, preserved: &Preserved) -> Self {
        Block { preserved: Some(preserved.clone()), ..self.clone() }
    }

    pub(super) fn name(&self) -> String {
        self.name.to_string()
    }

    fn bus(&self, error: fpga_hal::Error) -> CardError {
        bus_error(&self.name, error)
    }

    /// Reads a register. None that is read here holds all-ones.
    pub(super) fn read(&self, register: u32) -> Result<u64> {
        let read = || self.window.read_u64(register.into()).map_err(|error| self.bus(error));
        let mut value = read()?;
        if value == u64::MAX
            && let Some(preserved) = &self.preserved
            && preserved.restore()?
        {
            value = read()?;
        }
        if value == u64::MAX {
            self.function.check_alive(u32::MAX).map_err(|error| self.bus(error))?;
            let register = self.window.offset() + u64::from(register);
            return Err(CardError::AllOnes { name: self.name.to_string(), register }.into());
        }
        Ok(value)
    }

    pub(super) fn write(&self, register: u32, value: u64) -> Result<()> {
        Ok(self.window.write_u64(register.into(), value).map_err(|error| self.bus(error))?)
    }

    /// Writes the lower half of a register.
    pub(super) fn write_low(&self, register: u32, value: u32) -> Result<()> {
        Ok(self.window.write_u32(register.into(), value).map_err(|error| self.bus(error))?)
    }

    /// Calls `act` while the register `mask` is all-ones.
    pub(super) fn masked(&self, mask: u32, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = self.read(mask)?;
        self.write(mask, u64::MAX)?;
        let outcome = act();
        outcome.and(self.write(mask, before))
    }

    /// Polls a register, with pauses, until it is as the card is to make it.
    pub(super) fn poll(
        &self,
        register: (u32, &str),
        to: &'static str,
        limit: Duration,
        is_so: impl Fn(u64) -> bool,
    ) -> Result<u64> {
        self.poll_at(Some(POLL), register, to, limit, |value| Ok(is_so(value)))
    }

    /// As [`poll`](Self::poll), without pauses, until `is_so` says true or fails.
    pub(super) fn spin(
        &self,
        register: (u32, &str),
        to: &'static str,
        limit: Duration,
        is_so: impl Fn(u64) -> Result<bool>,
    ) -> Result<u64> {
        self.poll_at(None, register, to, limit, is_so)
    }

    fn poll_at(
        &self,
        pause: Option<Duration>,
        (register, its_name): (u32, &str),
        to: &'static str,
        limit: Duration,
        is_so: impl Fn(u64) -> Result<bool>,
    ) -> Result<u64> {
        let deadline = Deadline::after(limit);
        let mut last = 0;
        let found = deadline.poll(pause, || {
            last = self.read(register)?;
            Ok::<_, Error>(is_so(last)?.then_some(last))
        })?;
        found.ok_or_else(|| {
            let last_seen = format!("{its_name} {last:#x}");
            Error::TimedOut { name: self.name(), to, waited: deadline.waited(), last_seen }
        })
    }
}
