//! A completion ring on the card, of which a channel of the shell's engine keeps a copy in host memory.
//!
//! The host looks at what was copied whole, so no completion is seen torn: the sequencer writes one in one beat, and the channel
//! writes its word behind the data.

use cmdseq::completion;
use fpga_hal::{Domain, Ring};

use crate::error::Result;
use crate::sequencer::block::Block;
use crate::transport::host_ring;
use crate::transport::ring;
use crate::xdma::Reader;

/// Most completions of one copy.
const ENTRIES: u32 = 16;

/// A completion ring on the card, and its copy.
pub(crate) struct FetchedRing {
    block: Block,
    reader: Reader,
    copy: Ring<{ completion::BYTES }>,
    /// Address of the ring on the engine's bus.
    address: u64,
}

impl FetchedRing {
    /// Allocates the copy of the ring of `depth` entries at `address` of the engine's bus.
    pub(crate) fn new(block: &Block, domain: &Domain, mut reader: Reader, address: u64, depth: u32) -> Result<Self> {
        let copy = host_ring::ring(domain, depth).map_err(|error| block.bus(error))?;
        reader.keep(copy.buffer());
        Ok(FetchedRing { block: block.clone(), reader, copy, address })
    }

    /// Looks at the copy only.
    pub(crate) fn peek(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        if !self.reader.is_done()? {
            return Ok(false);
        }
        ring::poll(&self.copy, self.copy.entries(), count, word).map_err(|error| self.block.bus(error))
    }

    /// Looks at the copy and, if it has not arrived there, has the ring copied: one write of a register.
    pub(crate) fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        if self.peek(count, word)? {
            return Ok(true);
        }
        if !self.reader.is_done()? {
            return Ok(false);
        }
        let depth = self.copy.entries();
        let entries = ENTRIES.min(depth - (count & (depth - 1)));
        let at = ring::completion_offset(count, depth) as u64;
        self.reader.begin(self.address + at, self.copy.buffer().iova().0 + at, entries * completion::BYTES as u32)?;
        self.peek(count, word)
    }

    /// Empties the copy. Nothing is on its way afterwards.
    pub(crate) fn empty(&self) -> Result<()> {
        self.reader.restart()?;
        let buffer = self.copy.buffer();
        buffer.fill(0, buffer.len(), 0).map_err(|error| self.block.bus(error))
    }

    /// Makes sure that the channel works.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.reader.check()?)
    }

    pub(crate) fn after_reset(&mut self) -> Result<()> {
        Ok(self.reader.after_reset()?)
    }

    /// Keeps the memory that the channel may still use until the process ends.
    pub(crate) fn leak(&self) {
        self.reader.leak();
    }
}
