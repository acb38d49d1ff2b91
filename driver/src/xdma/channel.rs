//! One channel: a list, and the wait for its end.

use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{DmaBuffer, Domain, Interrupt};
use fpga_regs::xdma::{Control, DESCRIPTOR_BYTES, Status, channel, descriptors, writeback};

use crate::deadline::Deadline;
use crate::xdma::direction::Direction;
use crate::xdma::error::{ChannelName, Error, Result};
use crate::xdma::list::{self, Move};
use crate::xdma::registers::Registers;

/// Time limit for a channel to stop after RUN was cleared: it ends the present descriptor first.
const QUIET: Duration = Duration::from_secs(1);
/// Polls of the word in host memory between two looks at the clock, and at STATUS.
const POLLS: u32 = 256;
/// Longest sleep on an interrupt before STATUS is looked at.
const SLEEP: Duration = Duration::from_millis(100);
/// Alignment of lists: blocks that are fetched together begin on pages.
const LIST_ALIGN: usize = 4096;
/// Bytes of the buffer for the word of poll mode.
const WRITEBACK_BYTES: usize = 64;
/// Most descriptors of a list: what the word for poll mode can count.
pub(super) const DESCRIPTORS_MAX: usize = writeback::COUNT as usize;

/// The rules of a channel for addresses and lengths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) address_align: u64,
    pub(super) length_align: u64,
    pub(super) address_bits: u32,
}

/// A transfer on its way, or one that never ended.
#[derive(Debug)]
struct Flight {
    moves: Vec<Move>,
    /// What the channel reads or writes.
    _buffers: Vec<Arc<DmaBuffer>>,
}

/// A channel of an engine.
#[derive(Debug)]
pub(super) struct Channel {
    direction: Direction,
    number: u32,
    /// Number of its interrupt: H2C channels first.
    line: usize,
    rules: Rules,
    list: Option<Arc<DmaBuffer>>,
    writeback: Arc<DmaBuffer>,
    flight: Option<Flight>,
    is_stuck: bool,
}

/// Events of STATUS that end a transfer.
const ENDS: Status = Status::FAILURES.union(Status::DESCRIPTOR_STOPPED).union(Status::IDLE_STOPPED);

impl Channel {
    /// Stops the channel and learns its rules.
    pub(super) fn open(registers: &Registers, domain: &Domain, direction: Direction, number: u32) -> Result<Self> {
        let block = direction.block();
        let writeback = domain.allocate(WRITEBACK_BYTES, WRITEBACK_BYTES).map_err(|error| registers.bus(error))?;
        let value = registers.read(block, number, channel::ALIGNMENTS)?;
        let rules = match value {
            0 => Rules { address_align: 1, length_align: 1, address_bits: 64 },
            _ => Rules {
                address_align: u64::from(value >> 16 & 0xff),
                length_align: u64::from(value >> 8 & 0xff),
                address_bits: value & 0xff,
            },
        };
        let is_valid = rules.address_align.is_power_of_two()
            && rules.length_align.is_power_of_two()
            && (12..=64).contains(&rules.address_bits);
        if !is_valid {
            let expected = "powers of two, and 12 to 64 address bits";
            let (name, register) = (format!("{direction} {number} of {}", registers.name()), "ALIGNMENTS");
            return Err(Error::BadRegister { name, register, value, expected });
        }
        let mut channel =
            Channel { direction, number, line: 0, rules, list: None, writeback, flight: None, is_stuck: false };
        channel.set_up(registers)?;
        Ok(channel)
    }

    /// Brings the registers into a known state. The engine must not master the bus unless the channel is idle.
    fn set_up(&mut self, registers: &Registers) -> Result<()> {
        let block = self.direction.block();
        registers.write(block, self.number, channel::CONTROL, 0)?;
        registers.read(block, self.number, channel::STATUS_CLEAR)?;
        registers.write(block, self.number, channel::INTERRUPT_ENABLE, 0)?;
        match self.quiet(registers)? {
            (_, true) => Ok(()),
            (_, false) => Err(Error::Stuck { channel: self.name(registers), completed: 0, descriptors: 0 }),
        }
    }

    pub(super) fn rules(&self) -> Rules {
        self.rules
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn set_line(&mut self, line: usize) {
        self.line = line;
    }

    pub(super) fn name(&self, registers: &Registers) -> ChannelName {
        ChannelName { function: registers.name().to_owned(), direction: self.direction, number: self.number }
    }

    /// Refuses a channel that did not stop.
    pub(super) fn check_free(&self, registers: &Registers) -> Result<()> {
        if !self.is_stuck {
            return Ok(());
        }
        let descriptors = self.flight.as_ref().map_or(0, |flight| flight.moves.len() as u32);
        Err(Error::Stuck { channel: self.name(registers), completed: 0, descriptors })
    }

    /// Starts a list. The buffers are held until it ends.
    pub(super) fn start(
        &mut self,
        registers: &Registers,
        domain: &Domain,
        moves: Vec<Move>,
        buffers: Vec<Arc<DmaBuffer>>,
        interrupts: bool,
    ) -> Result<()> {
        let bus = |error| registers.bus(error);
        let list = self.list(registers, domain, moves.len())?;
        let base = list.iova().0;
        for (place, descriptor) in list::descriptors(self.direction, &moves, base).enumerate() {
            list.write(place * DESCRIPTOR_BYTES, &descriptor.encode()).map_err(bus)?;
        }
        self.writeback.write(0, &[0; WRITEBACK_BYTES]).map_err(bus)?;
        let (block, number) = (self.direction.block(), self.number);
        let place = self.direction.descriptors();
        let address = |iova: u64| [iova as u32, (iova >> 32) as u32];
        let [low, high] = address(base);
        registers.write(place, number, descriptors::FIRST_LO, low)?;
        registers.write(place, number, descriptors::FIRST_HI, high)?;
        registers.write(place, number, descriptors::FIRST_ADJACENT, list::adjacent(base, moves.len()))?;
        let [low, high] = address(self.writeback.iova().0);
        registers.write(block, number, channel::WRITEBACK_LO, low)?;
        registers.write(block, number, channel::WRITEBACK_HI, high)?;
        let events = self.direction.events();
        let enabled = if interrupts { ENDS.bits() & events.bits() } else { 0 };
        registers.write(block, number, channel::INTERRUPT_ENABLE, enabled)?;
        // Held from here on, even if the next access fails: the write may have arrived.
        self.flight = Some(Flight { moves, _buffers: buffers });
        let poll = if interrupts { Control::empty() } else { Control::WRITEBACK };
        Ok(registers.write(block, number, channel::CONTROL, (events | Control::RUN | poll).bits())?)
    }

    /// Returns a buffer for `count` descriptors.
    fn list(&mut self, registers: &Registers, domain: &Domain, count: usize) -> Result<Arc<DmaBuffer>> {
        let bytes = (count * DESCRIPTOR_BYTES).next_power_of_two().max(LIST_ALIGN);
        match &self.list {
            Some(list) if list.len() >= bytes => Ok(Arc::clone(list)),
            _ => {
                let list = domain.allocate(bytes, LIST_ALIGN).map_err(|error| registers.bus(error))?;
                Ok(Arc::clone(self.list.insert(list)))
            }
        }
    }

    /// Waits for the end of the list, stops the channel, and says how it went. No flight is left unless the channel is stuck.
    pub(super) fn finish(
        &mut self,
        registers: &Registers,
        interrupt: Option<&Interrupt>,
        deadline: Deadline,
    ) -> Result<()> {
        let Some(flight) = &self.flight else { return Ok(()) };
        let descriptors = flight.moves.len() as u32;
        let ended = match interrupt {
            Some(interrupt) => self.sleep(registers, interrupt, deadline),
            None => self.poll(registers, descriptors, deadline),
        };
        // Whatever happened, the channel is stopped before its buffers go.
        let block = self.direction.block();
        let run = Control::RUN.bits();
        registers.write(block, self.number, channel::CONTROL_CLEAR, run).inspect_err(|_| self.is_stuck = true)?;
        let (status, is_quiet) = self.quiet(registers).inspect_err(|_| self.is_stuck = true)?;
        self.is_stuck |= !is_quiet;
        let completed = registers.read(block, self.number, channel::COMPLETED)?;
        let channel = self.name(registers);
        if !is_quiet {
            return Err(Error::Stuck { channel, completed, descriptors });
        }
        let flight = self.flight.take();
        let (has_ended, seen) = ended?;
        let status = (status | seen) & Status::FAILURES;
        if !status.is_empty() || has_ended && completed != descriptors {
            let moves = flight.map_or(Vec::new(), |flight| flight.moves);
            let address = moves.get(completed as usize).or(moves.last()).map(|one| one.card);
            return Err(Error::Failed { channel, completed, descriptors, address, status });
        }
        match completed == descriptors {
            true => Ok(()),
            false => Err(Error::TimedOut { channel, completed, descriptors, waited: deadline.waited() }),
        }
    }

    /// Polls the word in host memory. Returns whether the list ended, and what STATUS held.
    fn poll(&self, registers: &Registers, descriptors: u32, deadline: Deadline) -> Result<(bool, Status)> {
        loop {
            for _ in 0..POLLS {
                let word = self.writeback.load_acquire(0).map_err(|error| registers.bus(error))? as u32;
                if word & writeback::ERROR != 0 || word & writeback::COUNT >= descriptors {
                    return Ok((true, Status::empty()));
                }
                std::hint::spin_loop();
            }
            // Not every end writes the word.
            let status = self.status(registers, channel::STATUS)?;
            if !status.contains(Status::BUSY) {
                return Ok((true, status));
            }
            if deadline.left().is_zero() {
                return Ok((false, status));
            }
        }
    }

    /// Sleeps until the channel interrupts.
    fn sleep(&self, registers: &Registers, interrupt: &Interrupt, deadline: Deadline) -> Result<(bool, Status)> {
        let mut seen = Status::empty();
        loop {
            interrupt.wait(deadline.left().min(SLEEP)).map_err(|error| registers.bus(error))?;
            // Reading clears the level, so the next event raises a new edge.
            seen |= self.status(registers, channel::STATUS_CLEAR)?;
            if seen.intersects(ENDS) {
                return Ok((true, seen));
            }
            if deadline.left().is_zero() {
                return Ok((false, seen));
            }
        }
    }

    /// Waits until the channel is not busy. Returns STATUS, and whether it is quiet.
    pub(super) fn quiet(&self, registers: &Registers) -> Result<(Status, bool)> {
        let deadline = Deadline::after(QUIET);
        loop {
            let is_last = deadline.left().is_zero();
            let status = self.status(registers, channel::STATUS)?;
            let is_quiet = !status.contains(Status::BUSY);
            if is_quiet || is_last {
                return Ok((status, is_quiet));
            }
            std::thread::yield_now();
        }
    }

    /// Returns the error of a channel without a list, which has stopped for what `status` notes.
    pub(super) fn failed(&self, registers: &Registers, completed: u32, status: Status) -> Error {
        let (channel, descriptors) = (self.name(registers), completed.wrapping_add(1));
        Error::Failed { channel, completed, descriptors, address: None, status: status & Status::FAILURES }
    }

    pub(super) fn status(&self, registers: &Registers, register: u32) -> Result<Status> {
        Ok(Status::from_bits_retain(registers.read(self.direction.block(), self.number, register)?))
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Frees what a stuck channel held, after a reset of the function.
    pub(super) fn after_reset(&mut self, registers: &Registers) -> Result<()> {
        self.set_up(registers)?;
        self.flight = None;
        self.is_stuck = false;
        Ok(())
    }

    /// Keeps what a stuck channel may still use until the process ends.
    pub(super) fn leak(&mut self) {
        std::mem::forget(self.flight.take());
        std::mem::forget(self.list.take());
        std::mem::forget(Arc::clone(&self.writeback));
    }
}
