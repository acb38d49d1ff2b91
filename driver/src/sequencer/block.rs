//! The sequencer's register block, reached through the bus.

use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{Function, Window};
use fpga_regs::bits::{Errors, Status};
use fpga_regs::sequencer;

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::sequencer::health::{Health, PcieErrors};

/// What a register of a function that is gone reads.
pub(crate) const ALL_ONES: u32 = u32::MAX;

/// Time limit for a sequencer to accept commands after a reset: ten times what a function has to answer.
const READY: Duration = Duration::from_secs(1);

/// Time limit for a sequencer to stop: its requests to host memory are answered first, which takes a busy host long.
pub(crate) const STOP: Duration = Duration::from_secs(1);

/// The block of one card. Clones reach the same registers.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    window: Window,
    name: Arc<str>,
    function: Function,
    /// Offset of the AER capability in configuration space.
    aer: Option<u16>,
}

impl Block {
    pub(crate) fn new(window: Window, name: Arc<str>, function: &Function) -> Self {
        Block { window, name, function: function.clone(), aer: PcieErrors::find(function) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Converts an error of the bus to one of the driver.
    #[cold]
    pub(crate) fn bus(&self, error: fpga_hal::Error) -> Error {
        bus_error(&self.name, error)
    }

    /// Returns the refusal of what a register says.
    pub(crate) fn bad(&self, register: &'static str, value: u32, expected: &'static str) -> Error {
        Error::BadCapability { name: self.name.to_string(), register, value, expected }
    }

    pub(crate) fn removed(&self) -> Error {
        Error::removed(&self.function)
    }

    #[inline]
    pub(crate) fn read(&self, offset: u32) -> Result<u32> {
        self.window.read_u32(u64::from(offset)).map_err(|error| self.bus(error))
    }

    #[inline]
    pub(crate) fn write(&self, offset: u32, value: u32) -> Result<()> {
        self.window.write_u32(u64::from(offset), value).map_err(|error| self.bus(error))
    }

    /// Reads a register that never holds all-ones.
    pub(crate) fn read_present(&self, offset: u32) -> Result<u32> {
        match self.read(offset)? {
            ALL_ONES => {
                self.check_alive()?;
                Err(Error::AllOnes { name: self.name.to_string(), register: offset.into() })
            }
            value => Ok(value),
        }
    }

    /// Reads a pair of registers of which the lower latches the upper.
    pub(crate) fn read_pair(&self, low: u32, high: u32) -> Result<u64> {
        let low = self.read(low)?;
        let high = self.read(high)?;
        if high == ALL_ONES {
            self.check_alive()?;
        }
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    /// Makes sure that the card answers: its vendor id, and a register that cannot read all-ones.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.function.is_removed() {
            return Err(self.removed());
        }
        match self.read(sequencer::MAGIC)? {
            sequencer::MAGIC_VALUE => Ok(()),
            ALL_ONES => Err(Error::AllOnes { name: self.name.to_string(), register: sequencer::MAGIC.into() }),
            found => Err(Error::NoSequencer {
                name: self.name.to_string(),
                looked: format!("MAGIC reads {found:#010x}; it read FSEQ when the card was opened"),
            }),
        }
    }

    /// Waits until the sequencer accepts commands, and stops it if it still runs for its last user, because its function was opened
    /// without a reset. As soon as the function masters the bus, it would use addresses of that user.
    pub(crate) fn quiesce(&self) -> Result<()> {
        let status = self.await_status("be ready", READY, |status| status.contains(Status::READY))?;
        if self.read(sequencer::CONTROL)? & 1 == 0 && !status.contains(Status::BUSY) {
            return Ok(());
        }
        log::warn!("{} still runs what its last user started: stopping it", self.name);
        self.write(sequencer::CONTROL, 0)?;
        self.write(sequencer::ABORT, sequencer::ABORT_VALUE)?;
        for number in 0..self.read_present(sequencer::QUEUES)?.min(sequencer::queue::MAX) {
            self.write(sequencer::queue::base(number) + sequencer::queue::ENABLE, 0)?;
        }
        self.await_status("stop what its last user started", STOP, |status| !status.contains(Status::BUSY)).map(drop)
    }

    /// Polls STATUS, once a millisecond, until it is as the sequencer is to be.
    fn await_status(&self, to: &str, limit: Duration, is_so: impl Fn(Status) -> bool) -> Result<Status> {
        let deadline = Deadline::after(limit);
        let mut last_seen = 0;
        let found = deadline.poll(Some(Duration::from_millis(1)), || {
            last_seen = self.read_present(sequencer::STATUS)?;
            Ok::<_, Error>(Some(Status::from_bits_retain(last_seen)).filter(|status| is_so(*status)))
        })?;
        found.ok_or_else(|| {
            let what = format!("the sequencer of {} to {to}", self.name);
            let (waited, last_seen) = (deadline.waited(), format!("STATUS {last_seen:#x}"));
            Error::Timeout { what, node: None, rank: None, instruction: None, waited, last_seen }
        })
    }

    /// Makes sure that the card answers, its sequencer has not stopped by itself, and its function has not reported an
    /// error.
    pub(crate) fn check_health(&self) -> Result<()> {
        let status = self.read_present(sequencer::STATUS)?;
        let is_halted = Status::from_bits_retain(status).contains(Status::HALTED);
        if is_halted || self.function.take_error() {
            let (name, health) = (self.name.to_string(), self.health()?);
            return Err(if is_halted { Error::Halted { name, health } } else { Error::Uncorrected { name, health } });
        }
        Ok(())
    }

    /// Reads the errors that the card reports. Clears nothing.
    pub(crate) fn health(&self) -> Result<Health> {
        let errors = Errors::from_bits_retain(self.read_present(sequencer::ERROR)?);
        let link_errors = self.read(sequencer::LINK_ERRORS)?;
        Ok(Health { errors, link_errors, pcie: self.aer.and_then(|offset| PcieErrors::read(&self.function, offset)) })
    }
}

/// Converts an error of the bus to one of the driver: a vanished function is [`Error::Removed`].
pub(crate) fn bus_error(name: &str, error: fpga_hal::Error) -> Error {
    match error {
        fpga_hal::Error::Removed { source } => Error::Removed { name: name.to_owned(), source },
        other => Error::Bus(other),
    }
}

/// Returns the removal of a function that is gone, and else `error`: what was read of a card that vanished is garbage.
pub(crate) fn removed_or(function: &Function, error: Error) -> Error {
    if function.is_removed() { Error::removed(function) } else { error }
}
