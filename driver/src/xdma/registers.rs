//! The DMA BAR of one engine.

use std::sync::Arc;

use fpga_hal::{BarIndex, Function, Window};
use fpga_regs::xdma::{Block, config, interrupts};

use crate::error::{Error as CardError, Result as CardResult};
use crate::sequencer::block::{ALL_ONES, bus_error};
use crate::xdma::error::{Error, Result};

/// Fewest bytes of a DMA BAR: up to the MSI-X table, which the driver leaves alone.
const BAR_BYTES_MIN: u64 = 0x8000;
/// Upper half of the first register of AMD's other engine, QDMA. Common knowledge, not read in a document: it only adds to an error.
const QDMA: u32 = 0x1fd3;
/// Identifiers without channel and version.
const IDENTIFIER_MASK: u32 = 0xffff_0000;
/// Bits of the version in an identifier, the lowest.
pub(super) const VERSION_BITS: u32 = 8;

/// The DMA BAR of one engine.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    window: Window,
    function: Function,
    name: Arc<str>,
}

impl Registers {
    /// Finds the DMA BAR by its identifiers, because neither its place nor the function's ids tell.
    pub(super) fn find(function: &Function) -> Result<Self> {
        let name: Arc<str> = function.identity().name.as_str().into();
        let mut looked = Vec::new();
        for index in (0..BarIndex::COUNT as u8).filter_map(BarIndex::new) {
            let Some(layout) = function.bar(index) else { continue };
            if layout.bytes < BAR_BYTES_MIN {
                looked.push(format!("BAR{} has {} bytes", index.index(), layout.bytes));
                continue;
            }
            let window = function.window(index).map_err(|error| bus_error(&name, error))?;
            let registers = Registers { window, function: function.clone(), name: Arc::clone(&name) };
            let found = [
                registers.read_any(Block::Interrupts, 0, interrupts::IDENTIFIER)?,
                registers.read_any(Block::Config, 0, config::IDENTIFIER)?,
            ];
            let expected = [Block::Interrupts, Block::Config].map(|block| block.identifier(0) & IDENTIFIER_MASK);
            if found.map(|identifier| identifier & IDENTIFIER_MASK) == expected {
                return Ok(registers);
            }
            let first = registers.window.read_u32(0).map_err(|error| registers.bus(error))?;
            looked.push(match first >> 16 {
                QDMA => format!(
                    "BAR{} is that of AMD's QDMA, which this driver does not drive (use AMD's, qdma-pf)",
                    index.index()
                ),
                _ => {
                    format!("BAR{} reads {:#010x} at 0x2000 and {:#010x} at 0x3000", index.index(), found[0], found[1])
                }
            });
        }
        if function.is_removed() {
            return Err(CardError::removed(function).into());
        }
        let looked = if looked.is_empty() { "it has no BAR".to_owned() } else { looked.join(", ") };
        Err(Error::NoEngine { name: name.to_string(), looked })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn bus(&self, error: fpga_hal::Error) -> CardError {
        bus_error(&self.name, error)
    }

    fn read_any(&self, block: Block, channel: u32, register: u32) -> CardResult<u32> {
        self.window.read_u32((block.base(channel) + register).into()).map_err(|error| self.bus(error))
    }

    /// Reads a register. None of the engine's holds all-ones.
    pub(super) fn read(&self, block: Block, channel: u32, register: u32) -> CardResult<u32> {
        let value = self.read_any(block, channel, register)?;
        if value == ALL_ONES {
            self.function.check_alive(value).map_err(|error| self.bus(error))?;
            let register = (block.base(channel) + register).into();
            return Err(CardError::AllOnes { name: self.name.to_string(), register });
        }
        Ok(value)
    }

    pub(super) fn write(&self, block: Block, channel: u32, register: u32, value: u32) -> CardResult<()> {
        self.window.write_u32((block.base(channel) + register).into(), value).map_err(|error| self.bus(error))
    }
}
