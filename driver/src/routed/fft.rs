//! The FFT block of one card.

use fpga_regs::feature_list::FFT_GUID;
use fpga_regs::fft as registers;

use crate::card::Card;
use crate::routed::error::{Error, Result};
use crate::sequencer::listed::{Kind, ListedBlock};

const KIND: Kind = Kind {
    guid: FFT_GUID,
    bytes: registers::BLOCK_BYTES,
    magic: (registers::MAGIC, registers::MAGIC_VALUE),
    version: (registers::VERSION, registers::VERSION_VALUE, "version of the registers"),
};

/// What a card is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) side: u32,
    pub(super) cores: u32,
    /// Addresses in card memory.
    pub(super) input: u64,
    pub(super) output: u64,
    /// Packets of each corner turn.
    pub(super) expected: [u32; 2],
}

/// The user logic of one card.
#[derive(Debug)]
pub(super) struct Unit {
    block: ListedBlock,
    /// Clocks in Hz.
    pub(super) core_hertz: u64,
    pub(super) router_hertz: u64,
}

impl Unit {
    pub(super) fn open(card: &Card) -> Result<Self> {
        let missing = |why| Error::no_block(card.name(), "user logic for FFTs", why);
        let block = ListedBlock::find(card.function(), &KIND).map_err(missing)?;
        let hertz =
            |name, register| Ok::<_, Error>(u64::from(block.checked(name, register, "a clock", |khz| khz > 0)?) * 1000);
        let (core_hertz, router_hertz) =
            (hertz("CORE_KHZ", registers::CORE_KHZ)?, hertz("ROUTER_KHZ", registers::ROUTER_KHZ)?);
        Ok(Unit { block, core_hertz, router_hertz })
    }

    /// Returns the cores for lines of `side` points that fit the card.
    pub(super) fn cores(&self, side: u32) -> Result<u32> {
        match registers::SIDES.iter().position(|known| *known == side) {
            Some(place) => Ok(self.block.read_present(registers::CORES_16 + 4 * place as u32)?),
            None => Ok(0),
        }
    }

    /// Has the card wait for the start of `run`. Ends a run that has not ended.
    pub(super) fn arm(&self, settings: &Settings, run: u32) -> Result<()> {
        let Settings { side, cores, input, output, expected: [xy, yz] } = *settings;
        self.disarm()?;
        let (low, high) = (|address: u64| address as u32, |address: u64| (address >> 32) as u32);
        for (register, value) in [
            (registers::SIDE, side),
            (registers::CORES, cores),
            (registers::INPUT_LO, low(input)),
            (registers::INPUT_HI, high(input)),
            (registers::OUTPUT_LO, low(output)),
            (registers::OUTPUT_HI, high(output)),
            (registers::EXPECTED_XY, xy),
            (registers::EXPECTED_YZ, yz),
            (registers::ARM, run),
        ] {
            self.block.write(register, value)?;
        }
        // The read also has posted writes arrive before another card is told to start all.
        match self.block.read_present(registers::STATE)? {
            registers::ARMED => Ok(()),
            state => Err(Error::NotStarted { why: format!("{} is not armed, STATE reads {state}", self.block.name()) }),
        }
    }

    pub(super) fn disarm(&self) -> Result<()> {
        Ok(self.block.write(registers::ARM, 0)?)
    }

    /// Starts all cards that are armed for `run`.
    pub(super) fn start(&self, run: u32) -> Result<()> {
        self.block.write(registers::START, run)?;
        let refused = self.block.read_present(registers::REFUSED)?;
        let (reason, card) = (refused & 0xffff, refused >> 16);
        let why = match reason {
            registers::STARTED => return Ok(()),
            registers::NOT_ARMED => format!("card {card} is not armed for this transform"),
            registers::NO_SOURCES => format!("the sources of card {card} are not those of this transform"),
            registers::NO_FIT => "it does not fit the cards".to_owned(),
            registers::MEMORY => format!("the memory of card {card} lacks the range, or has an error there"),
            _ => format!("unknown reason {reason}"),
        };
        Err(Error::NotStarted { why })
    }

    pub(super) fn is_done(&self) -> Result<bool> {
        Ok(self.block.read_present(registers::STATE)? == registers::DONE)
    }

    /// Returns the packets that the card got in a corner turn.
    pub(super) fn seen(&self, turn: usize) -> Result<u32> {
        Ok(self.block.read_present([registers::SEEN_XY, registers::SEEN_YZ][turn])?)
    }

    /// Returns how many points the card lacks after a corner turn, and the address of the first.
    pub(super) fn missing(&self, turn: usize) -> Result<(u32, u32)> {
        let points = self.block.read_present([registers::MISSING_XY, registers::MISSING_YZ][turn])?;
        Ok((points, self.block.read_present([registers::FIRST_XY, registers::FIRST_YZ][turn])?))
    }

    /// Returns the first and the last cycle of a phase (0 to 2) or of a corner turn (3 and 4); `None` if the card did nothing in it.
    pub(super) fn span(&self, number: u32) -> Result<Option<(u32, u32)>> {
        let begin = self.block.read_present(registers::X_BEGIN + 8 * number)?;
        let end = self.block.read_present(registers::X_END + 8 * number)?;
        Ok((begin <= end).then_some((begin, end)))
    }
}
