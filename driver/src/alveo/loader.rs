//! Loads other logic into the region behind the decoupler.

use std::ops::ControlFlow;
use std::time::Duration;

use fpga_hal::{Claim, Function};
use fpga_regs::decoupler::{BLOCK_BYTES, CONTROL, CUT_OFF, DEVICE, INTERFACE_0, LOGIC_0, MAGIC, MAGIC_VALUE, STATUS};
use fpga_regs::hwicap::words;

use crate::alveo::block::Block;
use crate::alveo::error::{Error, Result};
use crate::alveo::icap::Icap;
use crate::alveo::shell::Shell;
use crate::board::BlockKind;
use crate::progress::Progress;
use crate::sequencer::block::bus_error;
use crate::sequencer::preserved::Preserved;

/// Time limit for the decoupler: it acts within cycles.
const DECOUPLE: Duration = Duration::from_secs(1);
/// Bytes at the beginning of a stream within which packets begin.
const SYNC_WITHIN: usize = 1024;
/// Most words before the device is named, from where packets begin.
const IDCODE_WITHIN: usize = 1024;

/// The region of a card with this project's shell, held by this process.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use fpga_driver::alveo::Loader;
/// # use fpga_hal::{Domain, in_process};
/// # use fpga_mock::xdma::{IDCODE, Shape, XdmaCards, stream};
/// # let cards = XdmaCards::new(1, Shape::default());
/// # let function = in_process::attach(cards.endpoint(0), &Domain::in_process(), "card 0")?;
/// # let stream = stream(7, IDCODE, 4096);
///
/// let mut loader = Loader::open(function)?;
/// loader.load(&stream, |_| ControlFlow::Continue(()))?;
/// assert_eq!(loader.logic()?, Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Loader {
    parts: Parts,
    has_begun: bool,
    function: Function,
    _claim: Claim,
}

/// The parts of a card that load a stream.
#[derive(Debug)]
struct Parts {
    icap: Icap,
    decoupler: Block,
}

impl Loader {
    /// Takes the region of a card into use.
    ///
    /// # Errors
    /// [`Error::NoShell`], also without a decoupler; the bus's, with [`fpga_hal::Error::InUse`] if the function has another driver.
    pub fn open(function: Function) -> Result<Self> {
        let name = function.identity().name.clone();
        let claim = function.claim().map_err(|error| bus_error(&name, error))?;
        let shell = Shell::find(&function)?;
        let decoupler = shell.block(BlockKind::Decoupler, 0, BLOCK_BYTES)?;
        let magic = decoupler.read(MAGIC)?;
        if magic != MAGIC_VALUE {
            let looked = format!("{magic:#010x} where the decoupler is; expected the letters DCPL");
            return Err(Error::NoShell { name, looked });
        }
        Ok(Loader { parts: Parts { icap: Icap::of(&shell)?, decoupler }, has_begun: false, function, _claim: claim })
    }

    /// Returns the id of the interface that images must be made for.
    pub fn interface(&self) -> Result<u128> {
        wide(&self.parts.decoupler, INTERFACE_0)
    }

    /// Returns the GUID of what the region holds; `None` if it holds nothing.
    pub fn logic(&self) -> Result<Option<u128>> {
        self.parts.logic()
    }

    /// Returns whether the region is cut off, as it is after a load that has failed once it had begun.
    pub fn is_cut_off(&self) -> Result<bool> {
        self.parts.is_cut_off()
    }

    /// Returns whether the last load has begun to write its stream. If not, the region holds what it held.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Loads a configuration stream: cuts the region off, writes the stream, checks what the FPGA says of it and that the region
    /// holds something, and connects it again. Configuration space that the card loses meanwhile is restored. `on_progress` is called
    /// for every queue full of words, and may break off.
    ///
    /// # Errors
    /// [`Error::Refused`] for a stream that is none, or for another device, and then nothing was started; [`Error::Failed`];
    /// [`Error::Interrupted`]; [`Error::TimedOut`]. After an error the region holds nothing and is cut off, if the load had
    /// [begun](Self::has_begun) to write; otherwise the region is as it was. The port takes the next stream.
    pub fn load(&mut self, stream: &[u8], mut on_progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<()> {
        self.has_begun = false;
        self.check(stream)?;
        let preserved = Preserved::save(&self.function)?;
        let parts = self.parts.preserving(&preserved);
        let loaded = parts.prepare().and_then(|()| {
            self.has_begun = true;
            parts.run(stream, &mut on_progress)
        });
        // Also what no read has told.
        preserved.restore()?;
        loaded
    }

    /// Makes sure that a stream is one, and for this device.
    fn check(&self, stream: &[u8]) -> Result<()> {
        let refused = |what: String| Err(Error::Refused { name: self.parts.decoupler.name(), what });
        let (words, rest) = stream.as_chunks::<4>();
        if !rest.is_empty() {
            return refused(format!("a stream of {} bytes, which are no whole words", stream.len()));
        }
        let words = || words.iter().map(|word| u32::from_be_bytes(*word));
        let Some(start) = words().take(SYNC_WITHIN / 4).position(|word| word == words::SYNC) else {
            return refused(format!("no sync word {:#010x} in the first {SYNC_WITHIN} bytes", words::SYNC));
        };
        let mut packets = words().skip(start).take(IDCODE_WITHIN);
        let named = packets.find(|word| *word == words::write(words::IDCODE, 1)).and_then(|_| packets.next());
        let device = self.parts.decoupler.read(DEVICE)?;
        match named {
            Some(named) if (named ^ device) & words::IDCODE_DEVICE == 0 => Ok(()),
            Some(named) => refused(format!("the image is for device {named:#010x}; the card has {device:#010x}")),
            None => refused("the image does not name the device that it is for".to_owned()),
        }
    }
}

/// Reads 128 bits.
fn wide(decoupler: &Block, first: u32) -> Result<u128> {
    (0..4).try_fold(0, |all, part| Ok(all | u128::from(decoupler.read_any(first + 4 * part)?) << (32 * part)))
}

impl Parts {
    /// Returns the same parts, which restore configuration space that the card loses.
    fn preserving(&self, preserved: &Preserved) -> Self {
        Parts { icap: self.icap.preserving(preserved), decoupler: self.decoupler.preserving(preserved) }
    }

    fn is_cut_off(&self) -> Result<bool> {
        Ok(self.decoupler.read(STATUS)? & CUT_OFF != 0)
    }

    /// Returns the GUID of what the region holds; `None` if it holds nothing.
    fn logic(&self) -> Result<Option<u128>> {
        Ok(Some(wide(&self.decoupler, LOGIC_0)?).filter(|guid| *guid != 0))
    }

    /// Resets the port and cuts the region off. If that fails, connects the region again, unless it was cut off before.
    fn prepare(&self) -> Result<()> {
        self.icap.reset()?;
        let was_cut_off = self.is_cut_off()?;
        let result = self.cut_off(CUT_OFF);
        if result.is_err()
            && !was_cut_off
            && let Err(also) = self.cut_off(0)
        {
            log::warn!("{}: after a failed load: {also}", self.decoupler.name());
        }
        result
    }

    /// Writes the stream, checks what came of it, and connects the region again.
    fn run(&self, stream: &[u8], on_progress: &mut impl FnMut(Progress) -> ControlFlow<()>) -> Result<()> {
        let result = self.push(stream, on_progress);
        if result.is_err()
            && let Err(also) = self.icap.reset()
        {
            log::warn!("{}: after a failed load: {also}", self.decoupler.name());
        }
        result?;
        self.cut_off(0)
    }

    fn cut_off(&self, bits: u32) -> Result<()> {
        let to = if bits == 0 { "connect its region" } else { "cut its region off" };
        self.decoupler.write(CONTROL, bits)?;
        let is_so = |value| value & CUT_OFF == bits;
        self.decoupler.poll((STATUS, "STATUS of the decoupler"), to, DECOUPLE, is_so).map(drop)
    }

    fn push(&self, stream: &[u8], on_progress: &mut impl FnMut(Progress) -> ControlFlow<()>) -> Result<()> {
        let (name, total) = (self.decoupler.name(), stream.len() as u64);
        let (words, _) = stream.as_chunks();
        let mut done = 0;
        while done < words.len() {
            done += self.icap.write(words[done..].iter().map(|word| u32::from_be_bytes(*word)))?;
            let pushed = 4 * done as u64;
            if on_progress(Progress { pushed, total }).is_break() {
                return Err(Error::Interrupted { name, pushed, total });
            }
        }
        self.icap.await_startup()?;
        let known = words::ERRORS.iter().fold(0, |all, (bit, _)| all | 1 << bit);
        let errors = self.icap.read_register(words::STATUS)? & known;
        if errors != 0 || self.logic()?.is_none() {
            return Err(Error::Failed { name, errors });
        }
        Ok(())
    }
}
