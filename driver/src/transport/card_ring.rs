//! Rings on the card, for a sequencer that does not master the bus: the host stores instructions through a BAR. Completions are copied
//! to host memory by the shell's engine, or polled through the BAR.
//!
//! All accesses are of 32 bits, which every shell carries. The rings and the registers may be behind different ports of the
//! shell, which keep no order among each other: then the doorbell reads back what was stored last before it rings. A doorbell that
//! overtakes a word in spite of this makes the sequencer fetch what was there before, which the word's checksum and tag tell.

use cmdseq::{completion, instruction};
use fpga_hal::{BarIndex, Function, Window};

use crate::board::Feed;
use crate::error::{Error, Result};
use crate::sequencer::block::{ALL_ONES, Block};
use crate::transport::Transport;
use crate::transport::fetched_ring::FetchedRing;
use crate::transport::queue_registers::QueueRegisters;
use crate::transport::ring::{self, CompletionMemory};
use crate::transport::scratchpad::Scratchpad;

/// Bytes of an entry in both rings.
const ENTRY_BYTES: u64 = (instruction::BYTES + completion::BYTES) as u64;
/// Fewest entries of a ring.
const DEPTH_MIN: u32 = 2;

/// Where a BAR shows the memory on the card that holds a queue's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingWindow {
    /// The BAR.
    pub(crate) bar: BarIndex,
    /// Offset of the memory in the BAR, in bytes: a multiple of 64.
    pub(crate) offset: u64,
    /// Bytes of the memory.
    pub(crate) bytes: u64,
    /// Address of the same memory for the sequencer: a multiple of 64.
    pub(crate) address: u64,
}

/// Returns the error of a place that is too small.
pub(crate) fn no_room(block: &Block, place: RingWindow) -> Error {
    let expected = "room for rings, and for an instruction beside them";
    block.bad("BYTES of the ring memory", place.bytes as u32, expected)
}

/// A submission ring and, after it, a completion ring on the card.
pub(crate) struct CardRing {
    registers: QueueRegisters,
    memory: CardMemory,
    /// Address of the submission ring for the sequencer.
    address: u64,
    /// Rings and registers are behind one port of the shell, which keeps the order of writes.
    is_ordered: bool,
    /// The interrupt is a level, which stays until the sequencer is told.
    has_level: bool,
    fetched: Option<FetchedRing>,
    scratchpad: Option<Scratchpad>,
}

impl CardRing {
    /// Maps empty rings of up to `depth` entries, a power of two; fewer if `place` has no room for more.
    pub(crate) fn map(block: &Block, function: &Function, place: RingWindow, mut depth: u32) -> Result<Self> {
        let bus = |error| block.bus(error);
        let window = function.window(place.bar).and_then(|bar| bar.slice(place.offset, place.bytes)).map_err(bus)?;
        while depth > DEPTH_MIN && u64::from(depth) * ENTRY_BYTES > place.bytes {
            depth /= 2;
        }
        if u64::from(depth) * ENTRY_BYTES > place.bytes {
            return Err(no_room(block, place));
        }
        let window = window.slice(0, u64::from(depth) * ENTRY_BYTES).map_err(bus)?;
        let completions = u64::from(depth) * instruction::BYTES as u64;
        let memory = CardMemory { block: block.clone(), window, completions, depth };
        let registers = QueueRegisters::new(block);
        let (is_ordered, has_level) = (false, false);
        let mut rings = CardRing {
            registers,
            memory,
            address: place.address,
            is_ordered,
            has_level,
            fetched: None,
            scratchpad: None,
        };
        rings.empty(true)?;
        Ok(rings)
    }

    /// Says whether writes to the rings and the registers keep their order, and that the interrupt is a level.
    pub(crate) fn in_shell(mut self, is_ordered: bool) -> Self {
        (self.is_ordered, self.has_level) = (is_ordered, true);
        self
    }

    /// Has completions copied to host memory.
    pub(crate) fn fetched_by(mut self, fetched: FetchedRing) -> Self {
        self.fetched = Some(fetched);
        self
    }

    /// Has the sequencer read what it needs besides instructions in `scratchpad`.
    pub(crate) fn beside(mut self, scratchpad: Scratchpad) -> Self {
        self.scratchpad = Some(scratchpad);
        self
    }

    /// Entries of each ring.
    pub(crate) fn depth(&self) -> u32 {
        self.memory.depth
    }

    /// Offset of the completion ring from the submission ring.
    pub(crate) fn completions(&self) -> u64 {
        self.memory.completions
    }

    /// Bytes of both rings.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.window.len()
    }
}

impl Transport for CardRing {
    fn feed(&self) -> Feed {
        // Without a channel that copies them, completions are read through the BAR.
        if self.fetched.is_some() { Feed::CardRing } else { Feed::Registers }
    }

    #[inline]
    fn registers(&self) -> &QueueRegisters {
        &self.registers
    }

    // Not inlined: the accesses to the bus take longer than any call, and rings in host memory are to stay undisturbed.
    #[inline(never)]
    fn store(&self, count: u32, word: &[u8; instruction::BYTES]) -> Result<()> {
        let offset = ring::instruction_offset(count, self.depth()) as u64;
        let (parts, _) = word.as_chunks::<4>();
        (0..).step_by(4).zip(parts).try_for_each(|(at, part)| self.memory.write(offset + at, u32::from_le_bytes(*part)))
    }

    #[inline(never)]
    fn ring(&self, pushed: u32) -> Result<()> {
        if !self.is_ordered {
            let last = ring::instruction_offset(pushed.wrapping_sub(1), self.depth()) + instruction::BYTES - 4;
            self.memory.load(last as u64)?;
        }
        self.registers.ring(pushed)
    }

    #[inline(never)]
    fn poll(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        match &self.fetched {
            Some(fetched) => fetched.poll(count, word),
            None => ring::poll(&self.memory, self.depth(), count, word),
        }
    }

    fn peek(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<bool> {
        match &self.fetched {
            Some(fetched) => fetched.peek(count, word),
            None => self.poll(count, word),
        }
    }

    /// A level that an earlier completion has raised would hide the edge of the next.
    fn arm(&self, taken: u32) -> Result<()> {
        if self.has_level {
            self.registers.acknowledge()?;
        }
        self.registers.arm(taken)
    }

    fn start(&self) -> Result<()> {
        self.registers.start(self.address, self.address.wrapping_add(self.memory.completions), self.depth())
    }

    /// There are no other rings to take: the card has stopped, and it wrote what it wrote to its own memory. The zeroes have
    /// arrived before the card looks, because the doorbell comes behind them, or reads what was stored after them.
    fn empty(&mut self, _is_trusted: bool) -> Result<()> {
        (0..self.memory.window.len()).step_by(4).try_for_each(|at| self.memory.write(at, 0))?;
        if let Some(scratchpad) = &self.scratchpad {
            scratchpad.clear();
        }
        self.fetched.as_ref().map_or(Ok(()), FetchedRing::empty)
    }

    fn check(&self) -> Result<()> {
        self.fetched.as_ref().map_or(Ok(()), FetchedRing::check)
    }

    fn after_reset(&mut self) -> Result<()> {
        self.fetched.as_mut().map_or(Ok(()), FetchedRing::after_reset)
    }

    fn scratchpad(&self) -> Option<&Scratchpad> {
        self.scratchpad.as_ref()
    }

    /// The rings are the card's own.
    fn leak(&self) {
        if let Some(fetched) = &self.fetched {
            fetched.leak();
        }
    }
}

/// Memory on the card behind a BAR: first the submission ring, then the completion ring.
struct CardMemory {
    block: Block,
    window: Window,
    /// Offset of the completion ring.
    completions: u64,
    /// Entries of each ring.
    depth: u32,
}

impl CardMemory {
    /// Offset of completion `count`.
    fn completion(&self, count: u32) -> u64 {
        self.completions + ring::completion_offset(count, self.depth) as u64
    }

    fn load(&self, at: u64) -> Result<u32> {
        self.window.read_u32(at).map_err(|error| self.block.bus(error))
    }

    fn write(&self, at: u64, value: u32) -> Result<()> {
        self.window.write_u32(at, value).map_err(|error| self.block.bus(error))
    }
}

impl CompletionMemory for CardMemory {
    type Error = Error;

    /// Loads the upper half only, which has the phase bit: reads of a BAR are answered in order, so the lower half is read
    /// with the completion.
    fn load_phase_word(&self, count: u32) -> Result<u64> {
        let upper = self.load(self.completion(count) + completion::PHASE_WORD as u64 + 4)?;
        if upper == ALL_ONES {
            // A card that is gone reads so, and so may a completion.
            self.block.check_alive()?;
        }
        Ok(u64::from(upper) << 32)
    }

    fn read(&self, count: u32, word: &mut [u8; completion::BYTES]) -> Result<()> {
        let (parts, _) = word.as_chunks_mut::<4>();
        let start = self.completion(count);
        (start..).step_by(4).zip(parts).try_for_each(|(at, part)| {
            *part = self.load(at)?.to_le_bytes();
            Ok(())
        })
    }
}
