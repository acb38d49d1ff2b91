//! The configuration port (AXI HWICAP): words to the FPGA's configuration logic, and its registers back.
//!
//! Source: AMD PG134, XAPP1338; UG570 for the registers.

use std::time::Duration;

use fpga_regs::hwicap::{
    ABORT, BLOCK_BYTES, CLEAR, CONTROL, DONE, END_OF_STARTUP, FIFO_WORDS, OCCUPANCY, READ, READ_FIFO, RESET, SIZE,
    STATUS, VACANCY, WRITE, WRITE_FIFO, words,
};

use crate::alveo::block::Block;
use crate::alveo::error::{Error, Result};
use crate::alveo::shell::Shell;
use crate::board::BlockKind;
use crate::sequencer::preserved::Preserved;

/// Time limit of one operation of the port: it takes a word in a cycle.
const OPERATION: Duration = Duration::from_secs(1);
/// The largest queue that AMD's block is built with.
const VACANCY_MAX: u32 = 4 * FIFO_WORDS;

/// The configuration port.
#[derive(Debug)]
pub(super) struct Icap(Block);

impl Icap {
    pub(super) fn of(shell: &Shell) -> Result<Self> {
        Ok(Icap(shell.block(BlockKind::Hwicap, 0, BLOCK_BYTES)?))
    }

    /// Returns the same port, which restores configuration space that the card loses.
    pub(super) fn preserving(&self, preserved: &Preserved) -> Self {
        Icap(self.0.preserving(preserved))
    }

    /// Ends whatever an earlier user has left under way.
    pub(super) fn reset(&self) -> Result<()> {
        for bits in [ABORT, CLEAR | RESET] {
            self.0.write(CONTROL, bits)?;
            self.0
                .poll((CONTROL, "CONTROL of HWICAP"), "reset its configuration port", OPERATION, |value| value == 0)?;
        }
        Ok(())
    }

    /// Writes as many words as the queue takes. Returns their number.
    pub(super) fn write(&self, words: impl ExactSizeIterator<Item = u32>) -> Result<usize> {
        let vacancy = self.0.read(VACANCY)?;
        if vacancy == 0 || vacancy > VACANCY_MAX {
            return Err(Error::BadVacancy { name: self.0.name(), vacancy });
        }
        let count = words.len().min(vacancy as usize);
        for word in words.take(count) {
            self.0.write(WRITE_FIFO, word)?;
        }
        self.operate(WRITE, "write to its configuration port")?;
        Ok(count)
    }

    /// Writes all words.
    ///
    /// # Errors
    /// As [`write`](Icap::write), which takes at least one word each time.
    fn write_all(&self, words: &[u32]) -> Result<()> {
        let mut rest = words;
        while !rest.is_empty() {
            rest = &rest[self.write(rest.iter().copied())?..];
        }
        Ok(())
    }

    fn operate(&self, operation: u32, to: &'static str) -> Result<()> {
        self.0.write(CONTROL, operation)?;
        self.0.poll((CONTROL, "CONTROL of HWICAP"), to, OPERATION, |value| value & (WRITE | READ) == 0)?;
        Ok(())
    }

    /// Waits until the FPGA has taken everything, and runs.
    pub(super) fn await_startup(&self) -> Result<()> {
        let is_up = |value: u32| value & (DONE | END_OF_STARTUP) == DONE | END_OF_STARTUP;
        self.0.poll((STATUS, "STATUS of HWICAP"), "start with its new logic", OPERATION, is_up).map(drop)
    }

    /// Reads a configuration register of the FPGA.
    pub(super) fn read_register(&self, register: u32) -> Result<u32> {
        self.write_all(&[words::SYNC, words::NOOP, words::read(register), words::NOOP, words::NOOP])?;
        self.0.write(SIZE, 1)?;
        self.operate(READ, "read from its configuration port")?;
        let words = self.0.read(OCCUPANCY)?;
        if words != 1 {
            return Err(Error::BadReadback { name: self.0.name(), words });
        }
        let value = self.0.read_any(READ_FIFO)?;
        self.write_all(&[words::write(words::COMMAND, 1), words::DESYNC, words::NOOP])?;
        Ok(value)
    }
}
