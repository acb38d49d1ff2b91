//! Rings in host memory: the card fetches instructions and writes completions by DMA.

use std::sync::Arc;

use cmdseq::{completion, instruction};
use fpga_hal::{DmaBuffer, Domain, Ring};

use crate::board::Feed;
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
    submission: Ring<{ instruction::BYTES }>,
    completion: Ring<{ completion::BYTES }>,
}

impl HostRing {
    /// Allocates empty rings of `depth` entries, a power of two.
    pub(crate) fn allocate(block: &Block, domain: &Domain, depth: u32) -> Result<Self> {
        let submission = ring(domain, depth).map_err(|error| block.bus(error))?;
        let completion = ring(domain, depth).map_err(|error| block.bus(error))?;
        Ok(HostRing { registers: QueueRegisters::new(block), submission, completion })
    }

    fn depth(&self) -> u32 {
        self.submission.entries()
    }

    fn buffers(&self) -> [&Arc<DmaBuffer>; 2] {
        [self.submission.buffer(), self.completion.buffer()]
    }

    fn bus(&self, error: fpga_hal::Error) -> crate::error::Error {
        self.registers.block().bus(error)
    }
}

/// A ring of `depth` zeroed entries of `BYTES` bytes.
pub(crate) fn ring<const BYTES: usize>(domain: &Domain, depth: u32) -> fpga_hal::Result<Ring<BYTES>> {
    Ring::new(domain.allocate(depth as usize * BYTES, ALIGNMENT)?)
}

impl Transport for HostRing {
    fn feed(&self) -> Feed {
        Feed::HostRing
    }

    #[inline]
    fn registers(&self) -> &QueueRegisters {
        &self.registers
    }

    #[inline(always)]
    fn store(&self, count: u32, word: &[u8; instruction::BYTES]) -> Result<()> {
        self.submission.store(count, word).map_err(|error| self.bus(error))
    }

    #[inline(always)]
    fn ring(&self, pushed: u32) -> Result<()> {
        self.registers.ring(pushed)
    }

    #[inline(always)]
    fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        ring::poll(&self.completion, self.depth(), count, word).map_err(|error| self.bus(error))
    }

    fn start(&self) -> Result<()> {
        let [submission, completion] = self.buffers().map(|buffer| buffer.iova().0);
        self.registers.start(submission, completion, self.depth())
    }

    fn empty(&mut self, is_trusted: bool) -> Result<()> {
        if !is_trusted {
            *self = HostRing::allocate(self.registers.block(), self.submission.buffer().domain(), self.depth())?;
            return Ok(());
        }
        let zero = |buffer: &Arc<DmaBuffer>| buffer.fill(0, buffer.len(), 0).map_err(|error| self.bus(error));
        self.buffers().into_iter().try_for_each(zero)
    }

    fn leak(&self) {
        self.buffers().into_iter().for_each(|buffer| std::mem::forget(Arc::clone(buffer)));
    }
}

impl CompletionMemory for Ring<{ completion::BYTES }> {
    type Error = fpga_hal::Error;

    #[inline(always)]
    fn load_phase_word(&self, count: u32) -> fpga_hal::Result<u64> {
        self.load_acquire::<{ completion::PHASE_WORD }>(count)
    }

    #[inline(always)]
    fn read(&self, count: u32, word: &mut [u8; completion::BYTES]) -> fpga_hal::Result<()> {
        self.load(count, word)
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
        let seen = ring.buffers().map(Arc::downgrade);
        ring.leak();
        drop(ring);
        assert!(seen.iter().all(|one| one.upgrade().is_some()));
    }
}
