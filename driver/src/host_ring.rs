//! A submission and a completion ring in host memory, and the registers they are driven by.

use std::sync::Arc;

use cmdseq::{Completion, completion, instruction};
use fpga_hal::{DmaBuffer, Domain, barrier};
use fpga_regs::bits::Errors;
use fpga_regs::sequencer::{self, queue as registers};

use crate::block::Block;
use crate::error::{Error, Result};

/// MSI-X vector of queue 0.
pub(crate) const VECTOR: u32 = 0;
/// Its bit in PENDING.
pub(crate) const VECTOR_BIT: u32 = 1;
/// Rings are pages of their own, so that an IOMMU can map nothing else with them.
const ALIGNMENT: usize = 4096;

/// The rings of queue 0. Entries are named by their count, modulo 2^32.
pub(crate) struct HostRing {
    block: Block,
    base: u32,
    depth: u32,
    submission: Arc<DmaBuffer>,
    completion: Arc<DmaBuffer>,
}

impl HostRing {
    /// Zeroed rings of `depth` entries, a power of two.
    pub(crate) fn allocate(block: &Block, domain: &Domain, depth: u32) -> Result<Self> {
        let allocate = |entry: usize| domain.allocate(depth as usize * entry, ALIGNMENT);
        let submission = allocate(instruction::BYTES).map_err(|error| block.bus(error))?;
        let completion = allocate(completion::BYTES).map_err(|error| block.bus(error))?;
        Ok(HostRing { block: block.clone(), base: registers::base(0), depth, submission, completion })
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Stores entry `count` of the submission ring.
    #[inline]
    pub(crate) fn store(&self, count: u32, word: &[u8; instruction::BYTES]) -> Result<()> {
        let slot = (count & (self.depth - 1)) as usize;
        self.submission.write_word64(slot * instruction::BYTES, word).map_err(|error| self.block.bus(error))
    }

    /// Whether the card has written completion `count`: the phase bit turns with every pass, and is true in the first.
    #[inline]
    pub(crate) fn is_written(&self, count: u32) -> Result<bool> {
        let slot = (count & (self.depth - 1)) as usize;
        let word = self
            .completion
            .load_acquire(slot * completion::BYTES + completion::PHASE_WORD)
            .map_err(|error| self.block.bus(error))?;
        Ok(completion::phase_of(word) == (count & self.depth == 0))
    }

    /// Entry `count` of the completion ring.
    #[inline]
    pub(crate) fn completion(&self, count: u32) -> Result<Completion> {
        let slot = (count & (self.depth - 1)) as usize;
        let mut word = [0; completion::BYTES];
        self.completion.read(slot * completion::BYTES, &mut word).map_err(|error| self.block.bus(error))?;
        Ok(Completion::decode(&word))
    }

    /// Tells the card that `pushed` instructions were stored.
    #[inline]
    pub(crate) fn doorbell(&self, pushed: u32) -> Result<()> {
        barrier::memory_before_mmio();
        self.block.write(self.base + registers::SUBMISSION_TAIL, pushed)
    }

    /// Tells the card that `taken` completions were taken.
    pub(crate) fn announce(&self, taken: u32) -> Result<()> {
        self.block.write(self.base + registers::COMPLETION_HEAD, taken)
    }

    /// Has the card raise its interrupt once it has written more than `taken` completions.
    pub(crate) fn arm(&self, taken: u32) -> Result<()> {
        self.block.write(self.base + registers::INTERRUPT_ARM, taken)
    }

    /// Programs the queue's registers and sets the sequencer going. The rings must be zeroed and the counts zero.
    pub(crate) fn enable(&self) -> Result<()> {
        let set = |register, value| self.block.write(self.base + register, value);
        let halves = |buffer: &DmaBuffer| (buffer.iova().0 as u32, (buffer.iova().0 >> 32) as u32);
        let (submission, completion) = (halves(&self.submission), halves(&self.completion));
        set(registers::ENABLE, 0)?;
        set(registers::SUBMISSION_BASE_LO, submission.0)?;
        set(registers::SUBMISSION_BASE_HI, submission.1)?;
        set(registers::COMPLETION_BASE_LO, completion.0)?;
        set(registers::COMPLETION_BASE_HI, completion.1)?;
        set(registers::DEPTH, self.depth)?;
        set(registers::VECTOR, VECTOR)?;
        barrier::memory_before_mmio();
        set(registers::ENABLE, 1)?;
        let enabled = self.block.read_present(self.base + registers::ENABLE)?;
        if enabled != 1 {
            return Err(Error::BadCapability {
                name: self.block.name().to_owned(),
                register: "ENABLE",
                value: enabled,
                expected: "1 once base and depth are set",
            });
        }
        // A sequencer that halted does not run again before what halted it is cleared.
        let errors = Errors::from_bits_retain(self.block.read_present(sequencer::ERROR)?);
        if !errors.is_empty() {
            log::warn!(
                "{}: clearing ERROR, which reads {errors:?}, before the sequencer is started",
                self.block.name()
            );
            self.block.write(sequencer::ERROR, errors.bits())?;
        }
        self.block.write(sequencer::CONTROL, 1)
    }

    /// Ends fetching and completing.
    pub(crate) fn disable(&self) -> Result<()> {
        self.block.write(self.base + registers::ENABLE, 0)
    }

    /// Zeroes both rings. The card must not use them.
    pub(crate) fn clear(&self) -> Result<()> {
        let zero = |buffer: &DmaBuffer| buffer.fill(0, buffer.len(), 0).map_err(|error| self.block.bus(error));
        zero(&self.submission)?;
        zero(&self.completion)
    }

    /// Keeps the rings mapped until the process ends.
    pub(crate) fn leak(&self) {
        std::mem::forget(Arc::clone(&self.submission));
        std::mem::forget(Arc::clone(&self.completion));
    }
}

#[cfg(test)]
mod tests {
    use fpga_hal::BarIndex;

    use super::*;
    use crate::fake::Fake;

    #[test]
    fn rings_that_a_card_may_still_use_stay_for_good() {
        let function = Fake::new(4).function();
        let window = function.window(BarIndex::new(0).unwrap()).unwrap();
        let ring = HostRing::allocate(&Block::new(window, "fake".into(), &function), function.domain(), 4).unwrap();
        let seen = [Arc::downgrade(&ring.submission), Arc::downgrade(&ring.completion)];
        ring.leak();
        drop(ring);
        assert!(seen.iter().all(|one| one.upgrade().is_some()));
    }
}
