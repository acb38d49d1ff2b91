//! A block of registers in a BAR.

use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{Function, Window};

use crate::alveo::error::{Error, Result};
use crate::deadline::Deadline;
use crate::error::Error as CardError;
use crate::sequencer::block::{ALL_ONES, bus_error};
use crate::sequencer::preserved::Preserved;

/// Between two polls.
const POLL: Duration = Duration::from_micros(500);

/// A block of registers of 32 bits.
#[derive(Debug, Clone)]
pub(super) struct Block {
    window: Window,
    function: Function,
    name: Arc<str>,
    /// What is restored if a register reads all-ones.
    preserved: Option<Preserved>,
}

impl Block {
    /// Returns the block of `bytes` bytes at `start` of a BAR.
    pub(super) fn new(bar: &Window, function: &Function, start: u64, bytes: u32) -> Result<Self> {
        let name: Arc<str> = function.identity().name.as_str().into();
        let window = bar.slice(start, bytes.into()).map_err(|error| bus_error(&name, error))?;
        Ok(Block { window, function: function.clone(), name, preserved: None })
    }

    /// Returns the same block, which restores configuration space if a register reads all-ones, and then reads it again.
    pub(super) fn preserving(&self, preserved: &Preserved) -> Self {
        Block { preserved: Some(preserved.clone()), ..self.clone() }
    }

    pub(super) fn name(&self) -> String {
        self.name.to_string()
    }

    /// Reads a register that may hold anything.
    pub(super) fn read_any(&self, register: u32) -> Result<u32> {
        Ok(self.window.read_u32(register.into()).map_err(|error| bus_error(&self.name, error))?)
    }

    /// Reads a register. None that is read here holds all-ones.
    pub(super) fn read(&self, register: u32) -> Result<u32> {
        let mut value = self.read_any(register)?;
        if value == ALL_ONES
            && let Some(preserved) = &self.preserved
            && preserved.restore()?
        {
            value = self.read_any(register)?;
        }
        if value == ALL_ONES {
            self.function.check_alive(value).map_err(|error| bus_error(&self.name, error))?;
            let register = self.window.offset() + u64::from(register);
            return Err(CardError::AllOnes { name: self.name(), register }.into());
        }
        Ok(value)
    }

    pub(super) fn write(&self, register: u32, value: u32) -> Result<()> {
        Ok(self.window.write_u32(register.into(), value).map_err(|error| bus_error(&self.name, error))?)
    }

    /// Polls a register until it is as the card is to make it.
    pub(super) fn poll(
        &self,
        (register, its_name): (u32, &str),
        to: &'static str,
        limit: Duration,
        is_so: impl Fn(u32) -> bool,
    ) -> Result<u32> {
        let deadline = Deadline::after(limit);
        let mut last = 0;
        let found = deadline.poll(Some(POLL), || {
            last = self.read(register)?;
            Ok::<_, Error>(is_so(last).then_some(last))
        })?;
        found.ok_or_else(|| {
            let last_seen = format!("{its_name} {last:#x}");
            Error::TimedOut { name: self.name(), to, waited: deadline.waited(), last_seen }
        })
    }
}
