//! The engine: transfers of pieces, and of bytes at any address.

use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{Claim, DmaBuffer, Function, Interrupt, InterruptKind, Window};
use fpga_regs::msgdma::{ADDRESS_BITS, ALIGN};

use crate::completion::Completion;
use crate::deadline::Deadline;
use crate::msgdma::direction::Direction;
use crate::msgdma::dispatcher::{DESCRIPTORS_MAX, Dispatcher};
use crate::msgdma::error::{Error, Result};
use crate::msgdma::found::{self, Found};
use crate::msgdma::list::{self, Move};
use crate::msgdma::registers::Registers;
use crate::msgdma::span;
use crate::sequencer::block::bus_error;
use crate::sequencer::health::{master_bus, stop_mastering_and_reset};

/// Default time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of one half of the staging buffer: long enough that the transfer outweighs its registers.
const HALF: usize = 1 << 20;
/// Staging buffers begin on a page.
const PAGE: usize = 4096;
/// Addresses are below this.
const LIMIT: u64 = 1 << ADDRESS_BITS;

/// A range of host memory and of card memory, of which one is copied to the other: in lines of 64 bytes.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Host memory.
    pub buffer: Arc<DmaBuffer>,
    /// Where in the buffer, a multiple of 64.
    pub offset: usize,
    /// Where in card memory, a multiple of 64.
    pub address: u64,
    /// Bytes, a multiple of 64, at least one line.
    pub bytes: usize,
}

/// An mSGDMA engine, held by this process.
///
/// A call that fails leaves the engine usable, except for [`Error::Stuck`]: then [`reset`](Engine::reset) it.
#[derive(Debug)]
pub struct Engine {
    dispatcher: Dispatcher,
    interrupt: Option<Interrupt>,
    /// Its vector of MSI-X, if its header says which.
    vector: Option<u16>,
    staging: Option<Arc<DmaBuffer>>,
    completion: Completion,
    timeout: Duration,
    registers: Registers,
    function: Function,
    /// Dropped last: until then the function takes no other driver. `None` if a card that holds the claim has the engine.
    _claim: Option<Claim>,
}

impl Engine {
    /// Takes the engine of `function` into use. It is found by its GUID in the feature lists. If the function has a port that
    /// holds the accelerator in reset, releases it.
    ///
    /// # Errors
    /// [`Error::NoEngine`]; [`Error::BadRegister`]; [`Error::Refused`] for interrupts of an engine whose header names no vector;
    /// [`Error::Stuck`] for one that a former user left running and that does not stop; the bus's, with
    /// [`fpga_hal::Error::InUse`] if the function has another driver.
    pub fn open(function: Function, completion: Completion) -> Result<Self> {
        let claim = function.claim().map_err(|error| bus_error(&function.identity().name, error))?;
        let found = found::in_lists(&function)?;
        Engine::under(Some(claim), function, found, completion)
    }

    /// Takes the engine that a card's feature list leads to into use, under the claim of the card. `None`: it leads to none.
    pub(crate) fn of_card(function: &Function, list: &Window) -> Result<Option<Self>> {
        match found::in_list(&function.identity().name, list) {
            Ok(found) => Engine::under(None, function.clone(), found, Completion::Poll).map(Some),
            Err(Error::NoEngine { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn under(claim: Option<Claim>, function: Function, found: Found, completion: Completion) -> Result<Self> {
        let Found { window, vector } = found;
        let registers = Registers::new(window, &function);
        let interrupts = completion == Completion::Interrupt;
        if interrupts && vector.is_none() {
            let what = "its feature header names no vector, so it can only be polled".to_owned();
            return Err(Error::Refused { name: registers.name(), what });
        }
        let dispatcher = Dispatcher::open(registers.clone(), &function.private_domain(), interrupts)?;
        let (interrupt, staging) = (None, None);
        let mut engine = Engine {
            dispatcher,
            interrupt,
            vector,
            staging,
            completion,
            timeout: TIMEOUT,
            registers,
            function,
            _claim: claim,
        };
        engine.set_up()?;
        Ok(engine)
    }

    /// Enables the interrupt and bus mastering. The engine is idle.
    fn set_up(&mut self) -> Result<()> {
        let bus = |error| self.registers.bus(error);
        master_bus(&self.function).map_err(bus)?;
        if let (Completion::Interrupt, Some(vector)) = (self.completion, self.vector) {
            let interrupts = self.function.enable_interrupts_of(InterruptKind::Msix, vector + 1).map_err(bus)?;
            self.interrupt = interrupts.into_iter().last();
        }
        Ok(())
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

    /// Writes `data` to card memory at `address`: whole lines of 64 bytes through a buffer of the engine, the bytes before and behind
    /// them through its window on card memory.
    ///
    /// # Errors
    /// As [`transfer`](Engine::transfer).
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        self.check_range(address, data.len() as u64)?;
        self.dispatcher.check_free()?;
        let (deadline, staging) = (Deadline::after(self.timeout), self.staging()?);
        let to_line = (address.next_multiple_of(ALIGN) - address) as usize;
        let (head, rest) = data.split_at(to_line.min(data.len()));
        let (lines, tail) = rest.split_at(rest.len() - rest.len() % ALIGN as usize);
        span::write(&self.registers, address, head)?;
        let mut at = address + head.len() as u64;
        // One half is filled while the other is on its way.
        for (number, chunk) in lines.chunks(HALF).enumerate() {
            let offset = number % 2 * HALF;
            staging.write(offset, chunk).map_err(|error| self.registers.bus(error))?;
            self.finish(deadline)?;
            let piece = Piece { buffer: Arc::clone(&staging), offset, address: at, bytes: chunk.len() };
            self.start(Direction::ToCard, &[piece], deadline)?;
            at += chunk.len() as u64;
        }
        self.finish(deadline)?;
        Ok(span::write(&self.registers, at, tail)?)
    }

    /// Reads card memory at `address`, through a buffer of the engine: the lines of 64 bytes that have the bytes.
    ///
    /// # Errors
    /// As [`transfer`](Engine::transfer).
    pub fn read(&mut self, address: u64, data: &mut [u8]) -> Result<()> {
        self.check_range(address, data.len() as u64)?;
        let (deadline, staging) = (Deadline::after(self.timeout), self.staging()?);
        let mut skip = (address % ALIGN) as usize;
        let mut at = address - skip as u64;
        let mut arrived: Option<(usize, &mut [u8])> = None;
        let (mut rest, mut number) = (data, 0);
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at_mut(rest.len().min(HALF - skip));
            let offset = number % 2 * HALF;
            let bytes = (skip + chunk.len()).next_multiple_of(ALIGN as usize);
            self.finish(deadline)?;
            let piece = Piece { buffer: Arc::clone(&staging), offset, address: at, bytes };
            self.start(Direction::ToHost, &[piece], deadline)?;
            at += bytes as u64;
            // One half is emptied while the other is on its way.
            if let Some((offset, chunk)) = arrived.replace((offset + skip, chunk)) {
                staging.read(offset, chunk).map_err(|error| self.registers.bus(error))?;
            }
            (rest, number, skip) = (later, number + 1, 0);
        }
        self.finish(deadline)?;
        match arrived {
            Some((offset, chunk)) => Ok(staging.read(offset, chunk).map_err(|error| self.registers.bus(error))?),
            None => Ok(()),
        }
    }

    fn check_range(&self, address: u64, bytes: u64) -> Result<()> {
        if address.checked_add(bytes).is_some_and(|end| end <= LIMIT) {
            return Ok(());
        }
        let what = format!("{bytes} bytes at card address {address:#x}: the engine has {ADDRESS_BITS} address bits");
        Err(self.refused(what))
    }

    fn refused(&self, what: String) -> Error {
        Error::Refused { name: self.registers.name(), what }
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

    /// Copies all pieces, in order, and waits.
    ///
    /// # Errors
    /// [`Error::Refused`] for pieces that the engine cannot move, and then nothing was started; [`Error::Failed`],
    /// [`Error::TimedOut`]; [`Error::Stuck`], after which only a [`reset`](Engine::reset) helps; the bus's.
    pub fn transfer(&mut self, direction: Direction, pieces: &[Piece]) -> Result<()> {
        let deadline = Deadline::after(self.timeout);
        self.start(direction, pieces, deadline)?;
        self.finish(deadline)
    }

    fn start(&mut self, direction: Direction, pieces: &[Piece], deadline: Deadline) -> Result<()> {
        let moves = pieces.iter().map(|piece| self.checked(piece)).collect::<Result<Vec<Move>>>()?;
        self.dispatcher.check_free()?;
        let moves = list::cut(&moves);
        if moves.is_empty() {
            return Ok(());
        }
        if moves.len() > DESCRIPTORS_MAX {
            let what = format!("a list of {} descriptors: at most {DESCRIPTORS_MAX} can be numbered", moves.len());
            return Err(self.refused(what));
        }
        let buffers = pieces.iter().map(|piece| Arc::clone(&piece.buffer)).collect();
        self.dispatcher.start(direction, moves, buffers, deadline)
    }

    /// Ends what is on its way.
    fn finish(&mut self, deadline: Deadline) -> Result<()> {
        self.dispatcher.finish(self.interrupt.as_ref(), deadline)
    }

    /// Checks a piece against the rules of the engine.
    fn checked(&self, piece: &Piece) -> Result<Move> {
        let Piece { buffer, offset, address, bytes } = piece;
        if !self.function.reaches(buffer) {
            return Err(self.refused("a buffer is mapped for other functions".to_owned()));
        }
        if *bytes == 0 || offset.checked_add(*bytes).is_none_or(|end| end > buffer.len()) {
            let len = buffer.len();
            let what = format!("{bytes} bytes at {offset} of a buffer of {len}: expected 1 or more, inside of it");
            return Err(self.refused(what));
        }
        let (host, length) = (buffer.iova().0 + *offset as u64, *bytes as u64);
        let range = || format!("{bytes} bytes between host address {host:#x} and card address {address:#x}");
        if !(host | address | length).is_multiple_of(ALIGN) {
            return Err(self.refused(format!("{}: expected multiples of {ALIGN}", range())));
        }
        if [host, *address].iter().any(|begin| begin.checked_add(length).is_none_or(|end| end > LIMIT)) {
            return Err(self.refused(format!("{}: the engine has {ADDRESS_BITS} address bits", range())));
        }
        Ok(Move { host, card: *address, bytes: length })
    }

    /// Resets the function, which frees an engine that is stuck, and takes it into use again.
    ///
    /// # Errors
    /// The bus's; [`Error::Stuck`] if the engine is busy even after the reset.
    pub fn reset(&mut self) -> Result<()> {
        stop_mastering_and_reset(&self.function).map_err(|error| self.registers.bus(error))?;
        self.after_reset()
    }

    /// Takes the engine into use again after the function was reset.
    pub(crate) fn after_reset(&mut self) -> Result<()> {
        self.dispatcher.after_reset()?;
        self.interrupt = None;
        self.set_up()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.function.is_removed() {
            return;
        }
        // What the engine may still use must not be given to others.
        let closed = match self.dispatcher.is_stuck() {
            true => stop_mastering_and_reset(&self.function).map_err(|error| self.registers.bus(error).into()),
            false => self.dispatcher.close(),
        };
        let Err(error) = closed else { return };
        log::warn!("{}: at close: {error}", self.registers.name());
        if self.dispatcher.is_stuck() {
            self.dispatcher.leak();
            std::mem::forget(self.staging.take());
        }
    }
}
