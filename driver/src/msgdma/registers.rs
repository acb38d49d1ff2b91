//! The registers of one engine.

use std::sync::Arc;

use fpga_hal::memory::barrier;
use fpga_hal::{Function, Window};
use fpga_regs::msgdma::{CSR, Control, DESCRIPTOR, Status, csr};

use crate::error::{Error as CardError, Result as CardResult};
use crate::sequencer::block::{ALL_ONES, bus_error};

/// Words of a descriptor.
const WORDS: usize = 8;

/// The registers of one engine.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    window: Window,
    function: Function,
    name: Arc<str>,
}

impl Registers {
    /// The registers in `window`, which begins with the header.
    pub(super) fn new(window: Window, function: &Function) -> Self {
        let name = function.identity().name.as_str().into();
        Registers { window, function: function.clone(), name }
    }

    pub(super) fn name(&self) -> String {
        self.name.to_string()
    }

    pub(super) fn bus(&self, error: fpga_hal::Error) -> CardError {
        bus_error(&self.name, error)
    }

    /// Reads a register of the dispatcher. None that the driver reads holds all-ones.
    fn read(&self, register: u32) -> CardResult<u32> {
        let at = u64::from(CSR + register);
        let value = self.window.read_u32(at).map_err(|error| self.bus(error))?;
        if value == ALL_ONES {
            self.function.check_alive(value).map_err(|error| self.bus(error))?;
            return Err(CardError::AllOnes { name: self.name.to_string(), register: self.window.offset() + at });
        }
        Ok(value)
    }

    pub(super) fn status(&self) -> CardResult<Status> {
        Ok(Status::from_bits_retain(self.read(csr::STATUS)?))
    }

    /// Clears what STATUS notes.
    pub(super) fn clear_status(&self) -> CardResult<()> {
        self.write_word(CSR + csr::STATUS, Status::all().bits())
    }

    pub(super) fn set_control(&self, control: Control) -> CardResult<()> {
        self.write_word(CSR + csr::CONTROL, control.bits())
    }

    /// Returns the number of the descriptor that the write master has begun last.
    pub(super) fn sequence(&self) -> CardResult<u16> {
        Ok((self.read(csr::SEQUENCE)? >> 16) as u16)
    }

    /// Writes a descriptor to its port. The last word commits it, so host memory must be written before.
    pub(super) fn push(&self, words: &[u32; WORDS]) -> CardResult<()> {
        for (number, word) in words.iter().enumerate() {
            if number == WORDS - 1 {
                barrier::memory_before_mmio();
            }
            self.write_word(DESCRIPTOR + 4 * number as u32, *word)?;
        }
        Ok(())
    }

    /// Reads 32 bits at an offset from the header, whatever they are.
    pub(super) fn read_word(&self, offset: u32) -> CardResult<u32> {
        self.window.read_u32(offset.into()).map_err(|error| self.bus(error))
    }

    pub(super) fn write_word(&self, offset: u32, value: u32) -> CardResult<()> {
        self.window.write_u32(offset.into(), value).map_err(|error| self.bus(error))
    }

    /// Returns an error if the function is gone: what was read of it is garbage.
    pub(super) fn check_alive(&self) -> CardResult<()> {
        self.status().map(drop)
    }
}
