//! The block that describes the memory for rings on the card.

use fpga_hal::{BarIndex, Function, Window};
use fpga_regs::card_ring as registers;
use fpga_regs::feature_list::CARD_RING_GUID;

use crate::board::block::RING_ALIGN;
use crate::board::{Block, Rings};
use crate::error::Result;
use crate::sequencer::listed::{Kind, ListedBlock};
use crate::transport::card_ring::RingWindow;

const KIND: Kind = Kind {
    guid: CARD_RING_GUID,
    bytes: registers::BLOCK_BYTES,
    magic: (registers::MAGIC, registers::MAGIC_VALUE),
    version: (registers::VERSION, registers::VERSION_VALUE, "version of the description of rings on the card"),
};

/// Memory for rings on the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingMemory {
    /// Where the host sees it.
    pub(super) window: RingWindow,
    /// Its address on the engine's bus; `None` if no engine reaches it.
    pub(super) engine: Option<u64>,
    /// The interrupt of user logic that the sequencer raises, if any.
    pub(super) interrupt: Option<u32>,
}

impl RingMemory {
    /// Returns the memory as a board file places it; `None` of other blocks.
    pub(super) fn placed(block: &Block) -> Option<Self> {
        let Rings { sequencer, engine, interrupt } = block.rings?;
        let window = RingWindow { bar: block.bar, offset: block.offset, bytes: block.bytes, address: sequencer };
        Some(RingMemory { window, engine, interrupt })
    }

    /// Finds the description in `list`, a feature list of `function`, and checks it. `Ok(None)`: there is none.
    pub(super) fn find(list: &Window, function: &Function) -> Result<Option<Self>> {
        let identity = ("MAGIC of the ring memory", "the letters RING");
        let Some(found) = ListedBlock::find_optional((list, function), &KIND, identity)? else { return Ok(None) };
        let (offset, bytes) = (found.read(registers::OFFSET)?, found.read(registers::BYTES)?);
        if u64::from(offset) % RING_ALIGN != 0 {
            return Err(found.bad("OFFSET of the ring memory", offset, "a multiple of 64"));
        }
        let bar = found.read(registers::BAR)?;
        let window = u8::try_from(bar).ok().and_then(BarIndex::new).map(|bar| (bar, function.window(bar)));
        let Some((bar, Ok(window))) = window else {
            return Err(found.bad("BAR of the ring memory", bar, "a BAR of the function"));
        };
        if bytes == 0 || u64::from(offset) + u64::from(bytes) > window.len() {
            return Err(found.bad("BYTES of the ring memory", bytes, "memory inside of the BAR"));
        }
        let address = found.read_pair(registers::SEQUENCER_LO, registers::SEQUENCER_HI)?;
        let engine = found.read_pair(registers::ENGINE_LO, registers::ENGINE_HI)?;
        for (register, at) in [("SEQUENCER of the ring memory", address), ("ENGINE of the ring memory", engine)] {
            if at % RING_ALIGN != 0 || at.checked_add(bytes.into()).is_none() {
                return Err(found.bad(register, at as u32, "a multiple of 64, with the memory behind it"));
            }
        }
        let label = "INTERRUPT of the ring memory";
        let interrupt = found.user_interrupt(label, registers::INTERRUPT, registers::NO_INTERRUPT)?;
        let window = RingWindow { bar, offset: offset.into(), bytes: bytes.into(), address };
        Ok(Some(RingMemory { window, engine: Some(engine), interrupt }))
    }
}
