//! The block that says through which channels of AMD's engine a sequencer masters the bus.

use fpga_hal::Window;
use fpga_regs::descriptor_bypass as registers;
use fpga_regs::feature_list::DESCRIPTOR_BYPASS_GUID;
use fpga_regs::xdma::CHANNELS_MAX;

use crate::error::Result;
use crate::shell::described::{Described, Kind};

const KIND: Kind = Kind {
    guid: DESCRIPTOR_BYPASS_GUID,
    bytes: registers::BLOCK_BYTES,
    magic: (registers::MAGIC, registers::MAGIC_VALUE, "MAGIC of the descriptor bypass", "the letters BYPS"),
    version: (registers::VERSION, registers::VERSION_VALUE, "version of the description of the descriptor bypass"),
    interrupt: (registers::INTERRUPT, registers::NO_INTERRUPT, "INTERRUPT of the descriptor bypass"),
};

/// The channels of a sequencer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BypassChannels {
    /// The channel from the host.
    pub(super) h2c: u32,
    /// The channel to the host.
    pub(super) c2h: u32,
    /// The interrupt of user logic that the sequencer raises, if any.
    pub(super) interrupt: Option<u32>,
}

impl BypassChannels {
    /// Finds the description in the feature list `list`, and checks it. `Ok(None)`: there is none.
    pub(super) fn find(list: &Window, name: &str) -> Result<Option<Self>> {
        let Some(found) = Described::find(list, name, &KIND)? else { return Ok(None) };
        let channel = |register, label| match found.read(register)? {
            number if number < CHANNELS_MAX => Ok(number),
            number => Err(found.bad(label, number, "a number of a channel, 0 to 3")),
        };
        let h2c = channel(registers::H2C_CHANNEL, "H2C_CHANNEL of the descriptor bypass")?;
        let c2h = channel(registers::C2H_CHANNEL, "C2H_CHANNEL of the descriptor bypass")?;
        Ok(Some(BypassChannels { h2c, c2h, interrupt: found.interrupt()? }))
    }
}
