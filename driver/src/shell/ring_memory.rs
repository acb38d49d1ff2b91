//! The block that describes the memory for rings on the card.

use fpga_hal::{BarIndex, Window};
use fpga_regs::card_ring as registers;
use fpga_regs::feature_list::CARD_RING_GUID;
use fpga_regs::xdma::USER_INTERRUPTS;

use crate::board::block::RING_ALIGN;
use crate::board::{Block, Rings};
use crate::error::{Error, Result};
use crate::feature_list;
use crate::sequencer::block::bus_error;
use crate::transport::card_ring::RingWindow;

/// Memory for rings on the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingMemory {
    /// Where the host sees it.
    pub(super) window: RingWindow,
    /// Its bytes.
    pub(super) bytes: u64,
    /// Its address on the engine's bus; `None` if no engine reaches it.
    pub(super) engine: Option<u64>,
    /// The interrupt of user logic that the sequencer raises, if any.
    pub(super) interrupt: Option<u32>,
}

impl RingMemory {
    /// Returns the memory as a board file places it; `None` of other blocks.
    pub(super) fn placed(block: &Block) -> Option<Self> {
        let Rings { sequencer, engine, interrupt } = block.rings?;
        let window = RingWindow { bar: block.bar, offset: block.offset, address: sequencer };
        Some(RingMemory { window, bytes: block.bytes, engine, interrupt })
    }

    /// Finds the description in the feature list that begins at `start` of `bar`, and checks it. `Ok(None)`: there is none.
    pub(super) fn find(list: &Window, (bar, start): (BarIndex, u64), name: &str) -> Result<Option<Self>> {
        let offset = match feature_list::find_block(list, CARD_RING_GUID, registers::BLOCK_BYTES) {
            Ok(offset) => offset,
            Err(feature_list::Error::List(looked)) => {
                log::debug!("{name}: no description of rings on the card: {looked}");
                return Ok(None);
            }
            Err(feature_list::Error::Bus(error)) => return Err(bus_error(name, error)),
        };
        let read = |register: u32| list.read_u32(offset + u64::from(register)).map_err(|error| bus_error(name, error));
        let bad =
            |register, value, expected| Err(Error::BadCapability { name: name.to_owned(), register, value, expected });
        let pair = |low, high| Ok::<_, Error>(u64::from(read(low)?) | u64::from(read(high)?) << 32);
        let magic = read(registers::MAGIC)?;
        if magic != registers::MAGIC_VALUE {
            return bad("MAGIC of the ring memory", magic, "the letters RING");
        }
        let (version, known) = (read(registers::VERSION)?, registers::VERSION_VALUE);
        if version >> 16 != known >> 16 {
            let what = "version of the description of rings on the card";
            return Err(Error::Version { name: name.to_owned(), what, found: version, known });
        }
        let (offset, bytes) = (read(registers::OFFSET)?, read(registers::BYTES)?);
        if u64::from(offset) % RING_ALIGN != 0 {
            return bad("OFFSET of the ring memory", offset, "a multiple of 64");
        }
        if bytes == 0 || u64::from(offset) + u64::from(bytes) > list.len() {
            return bad("BYTES of the ring memory", bytes, "memory inside of the BAR");
        }
        let address = pair(registers::SEQUENCER_LO, registers::SEQUENCER_HI)?;
        let engine = pair(registers::ENGINE_LO, registers::ENGINE_HI)?;
        for (register, at) in [("SEQUENCER of the ring memory", address), ("ENGINE of the ring memory", engine)] {
            if at % RING_ALIGN != 0 || at.checked_add(bytes.into()).is_none() {
                return bad(register, at as u32, "a multiple of 64, with the memory behind it");
            }
        }
        let interrupt = match read(registers::INTERRUPT)? {
            registers::NO_INTERRUPT => None,
            line if line < USER_INTERRUPTS => Some(line),
            line => return bad("INTERRUPT of the ring memory", line, "an interrupt of user logic, or 0xff"),
        };
        let window = RingWindow { bar, offset: start + u64::from(offset), address };
        Ok(Some(RingMemory { window, bytes: bytes.into(), engine: Some(engine), interrupt }))
    }
}
