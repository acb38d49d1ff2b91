//! The engine: its channels, and transfers over all of them.

use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{Claim, DmaBuffer, Function, Interrupt, InterruptKind};
use fpga_regs::xdma::{Block, CHANNELS_MAX, Status, USER_INTERRUPTS, channel, interrupts};

use crate::completion::Completion;
use crate::deadline::Deadline;
use crate::sequencer::block::bus_error;
use crate::sequencer::bypass::BypassChannels;
use crate::sequencer::health::{master_bus, stop_mastering_and_reset};
use crate::xdma::bypass::Bypass;
use crate::xdma::channel::{Channel, DESCRIPTORS_MAX};
use crate::xdma::direction::Direction;
use crate::xdma::error::{Error, Result};
use crate::xdma::list::{self, Move};
use crate::xdma::reader::Reader;
use crate::xdma::registers::{Registers, VERSION_BITS};

/// Default time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of one half of the staging buffer: long enough that the transfer outweighs its registers.
const HALF: usize = 1 << 20;
/// Staging buffers begin on a page.
const PAGE: usize = 4096;
/// Cuts between channels are at multiples of this many bytes.
const CUT: u64 = 4096;
/// Bits of a vector number, and from one vector to the next in a register.
const VECTOR_BITS: u32 = 8;

/// A range of host memory and of card memory, of which one is copied to the other.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Host memory.
    pub buffer: Arc<DmaBuffer>,
    /// Where in the buffer.
    pub offset: usize,
    /// Where in card memory: an AXI address.
    pub address: u64,
    /// Bytes, at least one.
    pub bytes: usize,
}

/// An XDMA engine, held by this process.
///
/// A call that fails leaves the engine usable, except for [`Error::Stuck`]: then [`reset`](Engine::reset) it.
#[derive(Debug)]
pub struct Engine {
    /// H2C channels, then C2H channels.
    channels: [Vec<Channel>; 2],
    /// Interrupts of channels, those of channels that were given away included.
    lines: usize,
    interrupts: Vec<Interrupt>,
    staging: Option<Arc<DmaBuffer>>,
    completion: Completion,
    timeout: Duration,
    registers: Registers,
    function: Function,
    /// Dropped last: until then the function takes no other driver. `None` if a card that holds the claim has the engine.
    _claim: Option<Claim>,
}

/// Returns whether a function has an engine, by the identifiers in its registers.
pub(crate) fn has_engine(function: &Function) -> Result<bool> {
    match Registers::find(function) {
        Ok(_) => Ok(true),
        Err(Error::NoEngine { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads what the channels of a function's engine have noted, and clears nothing. `None` of a function without an engine.
pub(crate) fn noted_errors(function: &Function) -> Result<Option<Vec<(Direction, u32, Status)>>> {
    let registers = match Registers::find(function) {
        Ok(registers) => registers,
        Err(Error::NoEngine { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut noted = Vec::new();
    for (direction, number) in Direction::ALL.into_iter().flat_map(|one| (0..CHANNELS_MAX).map(move |n| (one, n))) {
        let block = direction.block();
        // A channel that is not there reads 0, or as another.
        let identifier = registers.read(block, number, channel::IDENTIFIER)?;
        if identifier >> 16 == block.identifier(number) >> 16 && identifier >> 8 & 0xf == number {
            let status = Status::from_bits_retain(registers.read(block, number, channel::STATUS)?);
            noted.push((direction, number, status & Status::FAILURES));
        }
    }
    Ok(Some(noted))
}

impl Engine {
    /// Takes the engine of `function` into use. It is found by the identifiers in its registers, in any BAR.
    ///
    /// # Errors
    /// [`Error::NoEngine`]; [`Error::BadRegister`]; [`Error::Stuck`] for a channel that a former user left running and that does
    /// not stop; the bus's, with [`fpga_hal::Error::InUse`] if the function has another driver.
    pub fn open(function: Function, completion: Completion) -> Result<Self> {
        let name = function.identity().name.clone();
        let bus = |error| bus_error(&name, error);
        let claim = function.claim().map_err(bus)?;
        let mut engine = Engine::under(Some(claim), function, completion)?;
        // Channels that a sequencer gives descriptors run no lists.
        if let Some(BypassChannels { h2c, c2h, .. }) = BypassChannels::of(&engine.function)? {
            drop(engine.take_bypass(h2c, c2h)?);
        }
        Ok(engine)
    }

    /// As [`open`](Engine::open), under the claim of a card.
    pub(crate) fn of_card(function: Function) -> Result<Self> {
        Engine::under(None, function, Completion::Poll)
    }

    fn under(claim: Option<Claim>, function: Function, completion: Completion) -> Result<Self> {
        let name = function.identity().name.clone();
        let registers = Registers::find(&function)?;
        let open = |direction| open_channels(&registers, &function, direction);
        let mut channels = [open(Direction::H2c)?, open(Direction::C2h)?];
        if channels.iter().all(Vec::is_empty) {
            let looked = "its engine has no channel for memory-mapped data".to_owned();
            return Err(Error::NoEngine { name, looked });
        }
        let mut lines = 0;
        for channel in channels.iter_mut().flatten() {
            channel.set_line(lines);
            lines += 1;
        }
        let mut engine = Engine {
            channels,
            lines,
            interrupts: Vec::new(),
            staging: None,
            completion,
            timeout: TIMEOUT,
            registers,
            function,
            _claim: claim,
        };
        engine.set_up()?;
        Ok(engine)
    }

    /// Enables interrupts and bus mastering. All channels are idle.
    fn set_up(&mut self) -> Result<()> {
        for disable in [interrupts::USER_ENABLE_CLEAR, interrupts::CHANNEL_ENABLE_CLEAR] {
            self.registers.write(Block::Interrupts, 0, disable, !0)?;
        }
        let bus = |error| self.registers.bus(error);
        master_bus(&self.function).map_err(bus)?;
        if self.completion == Completion::Poll {
            return Ok(());
        }
        let count = self.lines;
        self.interrupts = self.function.enable_interrupts_of(InterruptKind::Msix, count as u16).map_err(bus)?;
        // Vector n is channel n's, H2C channels first.
        let vectors = |first: usize| (0..4).fold(0, |word, n| word | (first as u32 + n) << (VECTOR_BITS * n));
        self.registers.write(Block::Interrupts, 0, interrupts::CHANNEL_VECTORS_0, vectors(0))?;
        self.registers.write(Block::Interrupts, 0, interrupts::CHANNEL_VECTORS_1, vectors(4))?;
        Ok(self.registers.write(Block::Interrupts, 0, interrupts::CHANNEL_ENABLE_SET, (1 << count) - 1)?)
    }

    /// Has interrupt `line` of user logic go out on vector 0, if `line` is one of the core's. Messages must be enabled.
    pub(crate) fn route_user_interrupt(&self, line: u32) -> Result<()> {
        let Some(register) = interrupts::USER_VECTORS.get(line as usize / 4) else {
            let what = format!("interrupt {line} of user logic: the core has {USER_INTERRUPTS}");
            return Err(Error::Refused { name: self.registers.name().to_owned(), what });
        };
        self.registers.write(Block::Interrupts, 0, *register, 0)?;
        Ok(self.registers.write(Block::Interrupts, 0, interrupts::USER_ENABLE_SET, 1 << line)?)
    }

    /// Takes the last channel to the host for a [`Reader`], if another is left.
    pub(crate) fn take_reader(&mut self) -> Result<Option<Reader>> {
        let channels = &mut self.channels[Direction::C2h as usize];
        if channels.len() < 2 {
            return Ok(None);
        }
        let reader =
            channels.pop().map(|channel| Reader::new(&self.registers, &self.function.private_domain(), channel));
        reader.transpose()
    }

    /// Takes the channels with these numbers, which user logic gives descriptors. The engine goes on without them.
    ///
    /// # Errors
    /// [`Error::Refused`] if the engine has no such channel.
    pub(crate) fn take_bypass(&mut self, h2c: u32, c2h: u32) -> Result<Bypass> {
        let mut take = |direction: Direction, number| {
            let channels = &mut self.channels[direction as usize];
            let place = channels.iter().position(|channel| channel.number() == number);
            place.map(|place| channels.remove(place)).ok_or_else(|| {
                let what =
                    format!("the sequencer is to master the bus through {direction} {number}, which the engine lacks");
                Error::Refused { name: self.registers.name().to_owned(), what }
            })
        };
        let channels = [take(Direction::H2c, h2c)?, take(Direction::C2h, c2h)?];
        Ok(Bypass::new(&self.registers, channels))
    }

    /// Returns the number of channels in a direction.
    pub fn channels(&self, direction: Direction) -> usize {
        self.channels[direction as usize].len()
    }

    /// Returns the function.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Sets the time limit of later calls, which is 10 s at first.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Allocates host memory for the engine alone, on pages of its own.
    ///
    /// # Errors
    /// The bus's.
    pub fn allocate(&self, bytes: usize) -> Result<Arc<DmaBuffer>> {
        Ok(self.function.private_domain().allocate(bytes, PAGE).map_err(|error| self.registers.bus(error))?)
    }

    /// Writes `data` to card memory at `address`, through a buffer of the engine.
    ///
    /// # Errors
    /// As [`transfer`](Engine::transfer).
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        let deadline = Deadline::after(self.timeout);
        let staged = self.staged(Direction::H2c, address, data.len())?;
        // One half is filled while the other is on its way.
        for (piece, chunk) in staged.into_iter().zip(data.chunks(HALF)) {
            piece.buffer.write(piece.offset, chunk).map_err(|error| self.registers.bus(error))?;
            self.finish(Direction::H2c, deadline)?;
            self.start(Direction::H2c, &[piece])?;
        }
        self.finish(Direction::H2c, deadline)
    }

    /// Reads card memory at `address`, through a buffer of the engine.
    ///
    /// # Errors
    /// As [`transfer`](Engine::transfer).
    pub fn read(&mut self, address: u64, data: &mut [u8]) -> Result<()> {
        let deadline = Deadline::after(self.timeout);
        let staged = self.staged(Direction::C2h, address, data.len())?;
        let mut arrived: Option<(Piece, &mut [u8])> = None;
        for (piece, chunk) in staged.into_iter().zip(data.chunks_mut(HALF)) {
            self.finish(Direction::C2h, deadline)?;
            self.start(Direction::C2h, std::slice::from_ref(&piece))?;
            // One half is emptied while the other is on its way.
            if let Some((piece, chunk)) = arrived.replace((piece, chunk)) {
                piece.buffer.read(piece.offset, chunk).map_err(|error| self.registers.bus(error))?;
            }
        }
        self.finish(Direction::C2h, deadline)?;
        match arrived {
            Some((Piece { buffer, offset, .. }, chunk)) => {
                Ok(buffer.read(offset, chunk).map_err(|error| self.registers.bus(error))?)
            }
            None => Ok(()),
        }
    }

    /// Divides a range of card memory among the halves of the staging buffer, in turn, and checks all pieces.
    fn staged(&mut self, direction: Direction, address: u64, bytes: usize) -> Result<Vec<Piece>> {
        let staging = self.staging()?;
        let piece = |begin: usize| {
            let address = address.checked_add(begin as u64).ok_or_else(|| {
                let what = format!("{bytes} bytes at card address {address:#x}: the engine has 64 address bits");
                Error::Refused { name: self.registers.name().to_owned(), what }
            })?;
            let (offset, bytes) = (begin % (2 * HALF), HALF.min(bytes - begin));
            let piece = Piece { buffer: Arc::clone(&staging), offset, address, bytes };
            self.checked(direction, &piece).map(|_| piece)
        };
        (0..bytes).step_by(HALF).map(piece).collect()
    }

    fn staging(&mut self) -> Result<Arc<DmaBuffer>> {
        match &self.staging {
            Some(staging) => Ok(Arc::clone(staging)),
            None => {
                let staging = self.allocate(2 * HALF)?;
                Ok(Arc::clone(self.staging.insert(staging)))
            }
        }
    }

    /// Copies all pieces, over as many channels as there are, and waits.
    ///
    /// # Errors
    /// [`Error::Refused`] for pieces that the engine cannot move, and then nothing was started; [`Error::Failed`],
    /// [`Error::TimedOut`]; [`Error::Stuck`], after which only a [`reset`](Engine::reset) helps; the bus's.
    pub fn transfer(&mut self, direction: Direction, pieces: &[Piece]) -> Result<()> {
        let deadline = Deadline::after(self.timeout);
        self.start(direction, pieces)?;
        self.finish(direction, deadline)
    }

    /// Copies pieces in both directions at once.
    ///
    /// # Errors
    /// As [`transfer`](Engine::transfer): the first of both.
    pub fn transfer_both(&mut self, to_card: &[Piece], to_host: &[Piece]) -> Result<()> {
        let deadline = Deadline::after(self.timeout);
        let [up, down] = [self.divided(Direction::H2c, to_card)?, self.divided(Direction::C2h, to_host)?];
        self.start_lists(Direction::H2c, to_card, up)?;
        let started = self.start_lists(Direction::C2h, to_host, down);
        let ended = [self.finish(Direction::H2c, deadline), self.finish(Direction::C2h, deadline)];
        ended.into_iter().fold(started, |first, one| first.and(one))
    }

    fn start(&mut self, direction: Direction, pieces: &[Piece]) -> Result<()> {
        let lists = self.divided(direction, pieces)?;
        self.start_lists(direction, pieces, lists)
    }

    /// Checks pieces, and divides them among the channels, which must be free. Starts nothing.
    fn divided(&self, direction: Direction, pieces: &[Piece]) -> Result<Vec<Vec<Move>>> {
        let moves = pieces.iter().map(|piece| self.checked(direction, piece)).collect::<Result<Vec<Move>>>()?;
        let channels = &self.channels[direction as usize];
        channels.iter().try_for_each(|channel| channel.check_free(&self.registers))?;
        let lists = list::divide(&moves, channels.len(), CUT);
        if let Some(long) = lists.iter().find(|list| list.len() > DESCRIPTORS_MAX) {
            let what = format!("a list of {} descriptors: at most {DESCRIPTORS_MAX} fit", long.len());
            return Err(Error::Refused { name: self.registers.name().to_owned(), what });
        }
        Ok(lists)
    }

    /// Starts the lists that `pieces` were divided into, one on each channel.
    fn start_lists(&mut self, direction: Direction, pieces: &[Piece], lists: Vec<Vec<Move>>) -> Result<()> {
        let is_interrupt = self.completion == Completion::Interrupt;
        for (channel, list) in self.channels[direction as usize].iter_mut().zip(lists) {
            let buffers = pieces.iter().map(|piece| Arc::clone(&piece.buffer)).collect();
            let domain = &self.function.private_domain();
            if let Err(error) = channel.start(&self.registers, domain, list, buffers, is_interrupt) {
                // Those that run already are ended, so that no buffer is in use behind the caller's back.
                let ended = self.finish(direction, Deadline::after(Duration::ZERO));
                log::debug!("{}: a transfer was not started whole: {ended:?}", self.registers.name());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends what is on its way in a direction, on all channels. Returns the first error.
    fn finish(&mut self, direction: Direction, deadline: Deadline) -> Result<()> {
        let mut result = Ok(());
        for channel in &mut self.channels[direction as usize] {
            let interrupt = self.interrupts.get(channel.line());
            result = result.and(channel.finish(&self.registers, interrupt, deadline));
        }
        result
    }

    /// Checks a piece against the rules of the channels.
    fn checked(&self, direction: Direction, piece: &Piece) -> Result<Move> {
        let refused = |what: String| Error::Refused { name: self.registers.name().to_owned(), what };
        let Piece { buffer, offset, address, bytes } = piece;
        let Some(rules) = self.channels[direction as usize].first().map(Channel::rules) else {
            return Err(refused(format!("the engine has no {direction}")));
        };
        if !self.function.reaches(buffer) {
            return Err(refused("a buffer is mapped for other functions".to_owned()));
        }
        if *bytes == 0 || offset.checked_add(*bytes).is_none_or(|end| end > buffer.len()) {
            let len = buffer.len();
            return Err(refused(format!(
                "{bytes} bytes at {offset} of a buffer of {len}: expected 1 or more, inside of it"
            )));
        }
        let (host, length) = (buffer.iova().0 + *offset as u64, *bytes as u64);
        if (host | address) % rules.address_align != 0 || length % rules.length_align != 0 {
            return Err(refused(format!(
                "{bytes} bytes between host address {host:#x} and card address {address:#x}: expected addresses aligned to {} and \
                 a length in multiples of {}",
                rules.address_align, rules.length_align
            )));
        }
        let limit = u64::MAX >> (64 - rules.address_bits);
        let ends = [host, *address].map(|begin| begin.checked_add(length - 1));
        if ends.into_iter().any(|end| end.is_none_or(|end| end > limit)) {
            return Err(refused(format!(
                "{bytes} bytes between host address {host:#x} and card address {address:#x}: the engine has {} address bits",
                rules.address_bits
            )));
        }
        Ok(Move { host, card: *address, bytes: length })
    }

    /// Resets the function, which frees channels that are stuck, and takes the engine into use again. Card memory keeps its
    /// contents.
    ///
    /// # Errors
    /// The bus's; [`Error::Stuck`] if a channel is busy even after the reset.
    pub fn reset(&mut self) -> Result<()> {
        stop_mastering_and_reset(&self.function).map_err(|error| self.registers.bus(error))?;
        self.after_reset()
    }

    /// Takes the engine into use again after the function was reset.
    pub(crate) fn after_reset(&mut self) -> Result<()> {
        for channel in self.channels.iter_mut().flatten() {
            channel.after_reset(&self.registers)?;
        }
        self.interrupts.clear();
        self.set_up()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // What a channel may still use must not be given to others.
        if self.channels.iter().flatten().any(Channel::is_stuck)
            && !self.function.is_removed()
            && let Err(error) = stop_mastering_and_reset(&self.function)
        {
            log::warn!("{}: a channel does not stop, and the function was not reset: {error}", self.registers.name());
            self.channels.iter_mut().flatten().filter(|channel| channel.is_stuck()).for_each(Channel::leak);
            std::mem::forget(self.staging.take());
        }
    }
}

/// Opens the channels for memory-mapped data in a direction. Numbers may have gaps.
fn open_channels(registers: &Registers, function: &Function, direction: Direction) -> Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for number in 0..CHANNELS_MAX {
        let found = registers.read(direction.block(), number, channel::IDENTIFIER)?;
        // All bits but those of the version, so a channel for streams is another one.
        let expected = direction.block().identifier(number);
        if (found ^ expected) >> VERSION_BITS == 0 {
            channels.push(Channel::open(registers, &function.private_domain(), direction, number)?);
        }
    }
    Ok(channels)
}
