//! A channel to the host that copies a few bytes again and again, and reads no register while all goes well.
//!
//! The channel runs one list without end, in credit mode: it fetches the next descriptor when it is given a credit, so a copy is one
//! write of a register. Its word in host memory counts what it has completed since it was started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fpga_hal::memory::barrier;
use fpga_hal::{DmaBuffer, Domain};
use fpga_regs::xdma::{Block, Control, DESCRIPTOR_BYTES, Descriptor, Status, channel, common, descriptors, writeback};

use crate::error::Error as CardError;
use crate::xdma::channel::Channel;
use crate::xdma::direction::Direction;
use crate::xdma::error::{Error, Result};
use crate::xdma::registers::Registers;

/// Bytes of the buffer for list and word, a page of its own.
const PAGE: usize = 4096;
/// Where the channel's word for poll mode is in that buffer.
const WORD: usize = 2048;
/// Descriptors of the list, a power of two.
const DESCRIPTORS: u32 = 16;
/// Copies after which the channel is started anew, before its word has no room for their number.
const COPIES_MAX: u32 = writeback::COUNT / 2;
/// What the channel notes, and what makes it write its word.
const RUN: Control = Direction::C2h.events().union(Control::RUN).union(Control::WRITEBACK);

const _: () = assert!(DESCRIPTORS as usize * DESCRIPTOR_BYTES <= WORD && DESCRIPTORS.is_power_of_two());

/// A channel to the host, for copies of a few bytes, one at a time.
#[derive(Debug)]
pub(crate) struct Reader {
    registers: Registers,
    channel: Channel,
    /// The list, and the word for poll mode.
    page: Arc<DmaBuffer>,
    /// What copies go to.
    target: Option<Arc<DmaBuffer>>,
    /// Copies begun since the channel was started.
    begun: AtomicU32,
    /// Copies of which the end was seen.
    ended: AtomicU32,
}

impl Reader {
    pub(super) fn new(registers: &Registers, domain: &Domain, channel: Channel) -> Result<Self> {
        let page = domain.allocate(PAGE, PAGE).map_err(|error| registers.bus(error))?;
        let (begun, ended) = Default::default();
        let reader = Reader { registers: registers.clone(), channel, page, target: None, begun, ended };
        reader.start()?;
        Ok(reader)
    }

    /// Keeps `target`, which copies go to, for as long as the channel may run.
    pub(crate) fn keep(&mut self, target: &Arc<DmaBuffer>) {
        self.target = Some(Arc::clone(target));
    }

    fn write(&self, block: Block, register: u32, value: u32) -> Result<()> {
        Ok(self.registers.write(block, self.channel.number(), register, value)?)
    }

    /// Bit of the channel in registers that channels share.
    fn common_bit(&self) -> u32 {
        1 << (16 + self.channel.number())
    }

    /// Starts the channel, which is idle. It waits for a credit.
    fn start(&self) -> Result<()> {
        self.page.write(WORD, &[0; 8]).map_err(|error| self.registers.bus(error))?;
        self.begun.store(0, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
        let halves = |iova: u64| [iova as u32, (iova >> 32) as u32];
        let [first_lo, first_hi] = halves(self.page.iova().0);
        let [word_lo, word_hi] = halves(self.page.iova().0 + WORD as u64);
        self.registers.write(Block::Common, 0, common::CREDIT_MODE_SET, self.common_bit())?;
        self.write(Block::C2hDescriptors, descriptors::FIRST_LO, first_lo)?;
        self.write(Block::C2hDescriptors, descriptors::FIRST_HI, first_hi)?;
        self.write(Block::C2hDescriptors, descriptors::FIRST_ADJACENT, 0)?;
        self.write(Block::C2h, channel::WRITEBACK_LO, word_lo)?;
        self.write(Block::C2h, channel::WRITEBACK_HI, word_hi)?;
        self.write(Block::C2h, channel::CONTROL, RUN.bits())
    }

    /// Begins to copy `bytes` bytes at `source`, on the engine's bus, to host memory at `target`, an address of the
    /// buffer that the reader [keeps](Reader::keep). No copy may be on its way.
    pub(crate) fn begin(&self, source: u64, target: u64, bytes: u32) -> Result<()> {
        if self.begun.load(Ordering::Relaxed) == COPIES_MAX {
            self.stop()?;
            self.start()?;
        }
        let begun = self.begun.load(Ordering::Relaxed);
        let at = |number: u32| (number % DESCRIPTORS) as usize * DESCRIPTOR_BYTES;
        let descriptor = Descriptor {
            stop: false,
            completed: true,
            end_of_packet: false,
            adjacent: 0,
            bytes,
            source,
            destination: target,
            next: self.page.iova().0 + at(begun + 1) as u64,
        };
        self.page.write(at(begun), &descriptor.encode()).map_err(|error| self.registers.bus(error))?;
        barrier::memory_before_mmio();
        self.begun.store(begun + 1, Ordering::Relaxed);
        // The credit may have arrived all the same.
        self.write(Block::C2hDescriptors, descriptors::CREDITS, 1).inspect_err(|refused| {
            let is_gone = matches!(refused, Error::Card(CardError::Removed { .. }));
            if !is_gone && let Err(error) = self.restart() {
                log::warn!("{}: after a copy that was not begun: {error}", self.registers.name());
            }
        })
    }

    /// Returns whether no copy is on its way.
    ///
    /// # Errors
    /// [`Error::Failed`] if the channel has stopped with an error; it needs a reset.
    pub(crate) fn is_done(&self) -> Result<bool> {
        let begun = self.begun.load(Ordering::Relaxed);
        if begun == self.ended.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let word = self.page.load_acquire(WORD).map_err(|error| self.registers.bus(error))? as u32;
        if word & writeback::ERROR != 0 {
            return Err(self.failure()?);
        }
        if word & writeback::COUNT != begun {
            return Ok(false);
        }
        self.ended.store(begun, Ordering::Relaxed);
        Ok(true)
    }

    /// Makes sure that a copy that is on its way can end: not every end writes the word.
    ///
    /// # Errors
    /// [`Error::Failed`] if the channel has stopped; it needs a reset.
    pub(crate) fn check(&self) -> Result<()> {
        let status = self.channel.status(&self.registers, channel::STATUS)?;
        // What the channel wrote before it answered is in host memory.
        let has_stopped = !status.contains(Status::BUSY) && !self.is_done()?;
        if has_stopped || status.intersects(Status::FAILURES | Status::IDLE_STOPPED) {
            return Err(self.failure()?);
        }
        Ok(())
    }

    fn failure(&self) -> Result<Error> {
        let status = self.channel.status(&self.registers, channel::STATUS)?;
        Ok(self.channel.failed(&self.registers, self.ended.load(Ordering::Relaxed), status))
    }

    /// Stops the channel: what is on its way ends first.
    ///
    /// # Errors
    /// [`Error::Stuck`] if it does not stop.
    fn stop(&self) -> Result<()> {
        self.write(Block::C2h, channel::CONTROL_CLEAR, Control::RUN.bits())?;
        let (_, is_quiet) = self.channel.quiet(&self.registers)?;
        self.registers.write(Block::Common, 0, common::CREDIT_MODE_CLEAR, self.common_bit())?;
        if is_quiet {
            return Ok(());
        }
        let (completed, descriptors) = (self.ended.load(Ordering::Relaxed), self.begun.load(Ordering::Relaxed));
        Err(Error::Stuck { channel: self.channel.name(&self.registers), completed, descriptors })
    }

    /// Stops the channel, so that nothing is on its way, and starts it again.
    ///
    /// # Errors
    /// [`Error::Stuck`] if it does not stop.
    pub(crate) fn restart(&self) -> Result<()> {
        self.stop()?;
        self.start()
    }

    /// Takes the channel into use again after the function was reset.
    pub(crate) fn after_reset(&mut self) -> Result<()> {
        self.channel.after_reset(&self.registers)?;
        self.start()
    }

    /// Stops the channel for good. Returns whether it has certainly stopped.
    fn close(&self) -> bool {
        match self.stop() {
            Ok(()) | Err(Error::Card(CardError::Removed { .. })) => true,
            Err(error) => {
                log::warn!("{}: at close: {error}", self.registers.name());
                false
            }
        }
    }

    /// Keeps the memory that the channel may still use until the process ends.
    pub(crate) fn leak(&self) {
        std::mem::forget((Arc::clone(&self.page), self.target.clone()));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.close() {
            self.leak();
        }
    }
}
