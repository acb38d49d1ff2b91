//! The block that says through which channels of AMD's engine a sequencer masters the bus.

use fpga_hal::{Function, Window};
use fpga_regs::descriptor_bypass as registers;
use fpga_regs::feature_list::DESCRIPTOR_BYPASS_GUID;
use fpga_regs::xdma::CHANNELS_MAX;

use crate::error::{Error, Result};
use crate::sequencer::discover::{Found, find_sequencer};
use crate::sequencer::listed::{Kind, ListedBlock};

const KIND: Kind = Kind {
    guid: DESCRIPTOR_BYPASS_GUID,
    bytes: registers::BLOCK_BYTES,
    magic: (registers::MAGIC, registers::MAGIC_VALUE),
    version: (registers::VERSION, registers::VERSION_VALUE, "version of the description of the descriptor bypass"),
};

/// The channels of a sequencer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BypassChannels {
    /// The channel from the host.
    pub(crate) h2c: u32,
    /// The channel to the host.
    pub(crate) c2h: u32,
    /// The interrupt of user logic that the sequencer raises, if any.
    pub(crate) interrupt: Option<u32>,
}

impl BypassChannels {
    /// Returns the channels of the sequencer of `function`; `None` if it has none, or masters the bus in another way.
    pub(crate) fn of(function: &Function) -> Result<Option<Self>> {
        match find_sequencer(function) {
            Ok(Found { list, .. }) => BypassChannels::find(&list, function),
            Err(Error::NoSequencer { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds the description in `list`, a feature list of `function`, and checks it. `Ok(None)`: there is none.
    pub(crate) fn find(list: &Window, function: &Function) -> Result<Option<Self>> {
        let identity = ("MAGIC of the descriptor bypass", "the letters BYPS");
        let Some(found) = ListedBlock::find_optional((list, function), &KIND, identity)? else { return Ok(None) };
        let channel = |register, label| match found.read(register)? {
            number if number < CHANNELS_MAX => Ok(number),
            number => Err(found.bad(label, number, "a number of a channel, 0 to 3")),
        };
        let h2c = channel(registers::H2C_CHANNEL, "H2C_CHANNEL of the descriptor bypass")?;
        let c2h = channel(registers::C2H_CHANNEL, "C2H_CHANNEL of the descriptor bypass")?;
        let label = "INTERRUPT of the descriptor bypass";
        let interrupt = found.user_interrupt(label, registers::INTERRUPT, registers::NO_INTERRUPT)?;
        Ok(Some(BypassChannels { h2c, c2h, interrupt }))
    }
}
