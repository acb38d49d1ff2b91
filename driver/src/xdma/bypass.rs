//! Two channels that user logic gives descriptors: through them it masters the bus.
//!
//! The host gives such a channel no list. It sets RUN, and clears it to end what user logic asks for. A read that fails stops the
//! channel, because the control register says so; without that, user logic could not tell lost data from data.

use fpga_regs::xdma::{Control, Status, channel};

use crate::xdma::channel::Channel;
use crate::xdma::error::{Error, Result};
use crate::xdma::registers::Registers;

/// A channel from the host and one to the host, for descriptors of user logic.
#[derive(Debug)]
pub(crate) struct Bypass {
    registers: Registers,
    channels: [Channel; 2],
}

impl Bypass {
    pub(super) fn new(registers: &Registers, channels: [Channel; 2]) -> Self {
        Bypass { registers: registers.clone(), channels }
    }

    fn write(&self, channel: &Channel, register: u32, value: u32) -> Result<()> {
        Ok(self.registers.write(channel.direction().block(), channel.number(), register, value)?)
    }

    /// Starts both channels, or starts them over: errors that they have noted are forgotten.
    pub(crate) fn start(&self) -> Result<()> {
        self.channels.iter().try_for_each(|channel| self.start_one(channel))
    }

    fn start_one(&self, channel: &Channel) -> Result<()> {
        self.write(channel, channel::CONTROL_CLEAR, Control::RUN.bits())?;
        channel.status(&self.registers, channel::STATUS_CLEAR)?;
        self.write(channel, channel::CONTROL, (channel.direction().events() | Control::RUN).bits())
    }

    /// Starts over the channels that have stopped with an error. User logic has reported that one of its requests failed.
    pub(crate) fn restart_stopped(&self) -> Result<()> {
        for channel in &self.channels {
            if let Some(error) = self.failure(channel)? {
                log::warn!("{error}; it is started again");
                self.start_one(channel)?;
            }
        }
        Ok(())
    }

    /// Checks that no channel has stopped.
    ///
    /// # Errors
    /// [`Error::Failed`] for one that has.
    pub(crate) fn check(&self) -> Result<()> {
        self.channels.iter().try_for_each(|channel| self.failure(channel)?.map_or(Ok(()), Err))
    }

    fn failure(&self, channel: &Channel) -> Result<Option<Error>> {
        let status = channel.status(&self.registers, channel::STATUS)? & Status::FAILURES;
        if status.is_empty() {
            return Ok(None);
        }
        let (direction, number) = (channel.direction(), channel.number());
        let completed = self.registers.read(direction.block(), number, channel::COMPLETED)?;
        Ok(Some(channel.failed(&self.registers, completed, status)))
    }

    /// Takes the channels into use again after the function was reset. They stand still.
    pub(crate) fn after_reset(&mut self) -> Result<()> {
        self.channels.iter_mut().try_for_each(|channel| channel.after_reset(&self.registers))
    }
}

impl Drop for Bypass {
    /// User logic has stopped, or its memory is kept.
    fn drop(&mut self) {
        for channel in &self.channels {
            let cleared = self.write(channel, channel::CONTROL_CLEAR, Control::RUN.bits());
            if let Err(error) = cleared {
                log::debug!("{}: at close: {error}", channel.name(&self.registers));
            }
        }
    }
}
