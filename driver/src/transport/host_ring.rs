//! Rings in host memory: the card fetches instructions and writes completions by DMA.

use std::sync::Arc;

use cmdseq::{completion, instruction};
use fpga_hal::{DmaBuffer, Domain};

use crate::error::Result;
use crate::sequencer::block::Block;
use crate::transport::Transport;
use crate::transport::queue_registers::QueueRegisters;
use crate::transport::ring::{self, CompletionMemory};

/// Rings are pages of their own, so that an IOMMU can map nothing else with them.
const ALIGNMENT: usize = 4096;

/// A submission and a completion ring in host memory.
pub(crate) struct HostRing {
    registers: QueueRegisters,
    depth: u32,
    submission: Arc<DmaBuffer>,
    completion: Arc<DmaBuffer>,
}

impl HostRing {
    /// Allocates empty rings of `depth` entries, a power of two.
    pub(crate) fn allocate(block: &Block, domain: &Domain, depth: u32) -> Result<Self> {
        let allocate = |entry: usize| domain.allocate(depth as usize * entry, ALIGNMENT);
        let submission = allocate(instruction::BYTES).map_err(|error| block.bus(error))?;
        let completion = allocate(completion::BYTES).map_err(|error| block.bus(error))?;
        Ok(HostRing { registers: QueueRegisters::new(block), depth, submission, completion })
    }

    fn bus(&self, error: fpga_hal::Error) -> crate::error::Error {
        self.registers.block().bus(error)
    }
}

impl Transport for HostRing {
    #[inline]
    fn registers(&self) -> &QueueRegisters {
        &self.registers
    }

    #[inline(always)]
    fn store(&self, count: u32, word: [u8; instruction::BYTES]) -> Result<()> {
        let offset = ring::instruction_offset(count, self.depth);
        self.submission.write_word64(offset, &word).map_err(|error| self.bus(error))
    }

    #[inline(always)]
    fn ring(&self, pushed: u32) -> Result<()> {
        self.registers.ring(pushed)
    }

    #[inline(always)]
    fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        ring::poll(&*self.completion, self.depth, count, word).map_err(|error| self.bus(error))
    }

    fn start(&self) -> Result<()> {
        self.registers.start(self.submission.iova().0, self.completion.iova().0, self.depth)
    }

    fn empty(&mut self, is_trusted: bool) -> Result<()> {
        if !is_trusted {
            *self = HostRing::allocate(self.registers.block(), self.submission.domain(), self.depth)?;
            return Ok(());
        }
        let zero = |buffer: &DmaBuffer| buffer.fill(0, buffer.len(), 0).map_err(|error| self.bus(error));
        zero(&self.submission)?;
        zero(&self.completion)
    }

    fn leak(&self) {
        std::mem::forget(Arc::clone(&self.submission));
        std::mem::forget(Arc::clone(&self.completion));
    }
}

impl CompletionMemory for DmaBuffer {
    type Error = fpga_hal::Error;

    #[inline]
    fn load_phase_word(&self, offset: usize) -> fpga_hal::Result<u64> {
        self.load_acquire(offset)
    }

    #[inline]
    fn read(&self, offset: usize, word: &mut [u8; completion::BYTES]) -> fpga_hal::Result<()> {
        DmaBuffer::read(self, offset, word)
    }
}

#[cfg(test)]
mod tests {
    use fpga_fake::Fake;
    use fpga_hal::BarIndex;

    use super::*;

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
