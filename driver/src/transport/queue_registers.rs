//! The registers of queue 0, which rings in host memory and rings in card memory share.

use fpga_hal::memory::barrier;
use fpga_regs::bits::Errors;
use fpga_regs::sequencer::{self, queue as registers};

use crate::error::Result;
use crate::sequencer::block::Block;

/// MSI-X vector of queue 0.
const VECTOR: u32 = 0;
/// Its bit in PENDING.
const VECTOR_BIT: u32 = 1;

/// Offset of the registers in the block.
const BASE: u32 = registers::base(0);

/// The registers of queue 0.
pub(crate) struct QueueRegisters {
    block: Block,
}

impl QueueRegisters {
    pub(crate) fn new(block: &Block) -> Self {
        QueueRegisters { block: block.clone() }
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    #[inline]
    fn write(&self, register: u32, value: u32) -> Result<()> {
        self.block.write(BASE + register, value)
    }

    /// Tells the card that `pushed` instructions are stored, after whatever was stored in memory before.
    #[inline]
    pub(crate) fn ring(&self, pushed: u32) -> Result<()> {
        barrier::memory_before_mmio();
        self.write(registers::SUBMISSION_TAIL, pushed)
    }

    /// Tells the card that `taken` completions are taken, so that it may write over them.
    pub(crate) fn announce(&self, taken: u32) -> Result<()> {
        self.write(registers::COMPLETION_HEAD, taken)
    }

    pub(crate) fn arm(&self, taken: u32) -> Result<()> {
        self.write(registers::INTERRUPT_ARM, taken)
    }

    /// Tells the card that the interrupt was seen. Only an interrupt that is a level needs it.
    pub(crate) fn acknowledge(&self) -> Result<()> {
        self.block.write(sequencer::PENDING, VECTOR_BIT)
    }

    /// Sets up the queue with rings of `depth` entries at these addresses, and starts the sequencer. The rings must be zeroed
    /// and the counts zero.
    pub(crate) fn start(&self, submission: u64, completion: u64, depth: u32) -> Result<()> {
        self.write(registers::ENABLE, 0)?;
        self.write(registers::SUBMISSION_BASE_LO, submission as u32)?;
        self.write(registers::SUBMISSION_BASE_HI, (submission >> 32) as u32)?;
        self.write(registers::COMPLETION_BASE_LO, completion as u32)?;
        self.write(registers::COMPLETION_BASE_HI, (completion >> 32) as u32)?;
        self.write(registers::DEPTH, depth)?;
        self.write(registers::VECTOR, VECTOR)?;
        barrier::memory_before_mmio();
        self.write(registers::ENABLE, 1)?;
        let enabled = self.enabled()?;
        if enabled != 1 {
            return Err(self.block.bad("ENABLE", enabled, "1 once base and depth are set"));
        }
        // A halted sequencer runs again only after ERROR is cleared.
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

    fn enabled(&self) -> Result<u32> {
        self.block.read_present(BASE + registers::ENABLE)
    }

    /// Whether the card fetches from the queue, and completes to it.
    pub(crate) fn is_enabled(&self) -> Result<bool> {
        Ok(self.enabled()? & 1 == 1)
    }

    /// Stops fetching and completing, once the sequencer runs nothing.
    pub(crate) fn stop(&self) -> Result<()> {
        self.write(registers::ENABLE, 0)
    }
}
