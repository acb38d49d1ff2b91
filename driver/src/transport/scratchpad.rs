//! Memory on the card where the host lays down what the sequencer reads besides instructions: tables, programs, members of
//! communicators.

use std::sync::atomic::{AtomicU64, Ordering};

use fpga_hal::Window;

use crate::error::Result;
use crate::sequencer::block::Block;

/// Pieces begin at multiples of this many bytes, as instructions do.
const ALIGN: u64 = 64;

/// Memory on the card for the sequencer to read. It fills up from the beginning, until all of it is free again.
pub(crate) struct Scratchpad {
    block: Block,
    window: Window,
    /// Address of its first byte for the sequencer.
    address: u64,
    used: AtomicU64,
}

impl Scratchpad {
    /// The memory that `window` shows.
    pub(crate) fn new(block: &Block, window: Window, address: u64) -> Self {
        Scratchpad { block: block.clone(), window, address, used: AtomicU64::new(0) }
    }

    /// Most bytes of one piece.
    pub(crate) fn bytes(&self) -> u64 {
        self.window.len() / ALIGN * ALIGN
    }

    /// Stores a piece, and returns its address for the sequencer; `None` if what is left has no room for it.
    pub(crate) fn put(&self, data: &[u8]) -> Result<Option<u64>> {
        let at = self.used.load(Ordering::Relaxed);
        let end = at.saturating_add((data.len() as u64).next_multiple_of(ALIGN));
        if end > self.bytes() {
            return Ok(None);
        }
        for (offset, part) in (at..).step_by(4).zip(data.chunks(4)) {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            self.window.write_u32(offset, u32::from_le_bytes(word)).map_err(|error| self.block.bus(error))?;
        }
        self.used.store(end, Ordering::Relaxed);
        Ok(Some(self.address + at))
    }

    /// Frees everything: no instruction that reads it is in flight.
    pub(crate) fn clear(&self) {
        self.used.store(0, Ordering::Relaxed);
    }
}
