//! The dispatcher: a list pushed to its queue, the wait for its end, and its reset.

use std::sync::Arc;
use std::time::Duration;

use fpga_hal::{DmaBuffer, Domain, Interrupt};
use fpga_regs::msgdma::{ALIGN, Control, MAGIC, Status};

use crate::deadline::Deadline;
use crate::msgdma::direction::Direction;
use crate::msgdma::error::{Error, Result};
use crate::msgdma::list::{self, Move};
use crate::msgdma::registers::Registers;

/// Time limit for a dispatcher to stop, and to end a reset. Linux gives it 10 ms.
const QUIET: Duration = Duration::from_secs(1);
/// Polls of the word in host memory between two looks at the clock, and at STATUS.
const POLLS: u32 = 256;
/// Longest sleep on an interrupt before STATUS is looked at.
const SLEEP: Duration = Duration::from_millis(100);
/// Most descriptors of a list: what their numbers can count, with the one that ends it.
pub(super) const DESCRIPTORS_MAX: usize = u16::MAX as usize - 1;
/// Bits of STATUS that end a transfer.
const ENDS: Status = Status::STOPPED_ON_ERROR.union(Status::STOPPED_EARLY);

/// A list on its way, or one that never ended.
#[derive(Debug)]
struct Flight {
    moves: Vec<Move>,
    /// What the engine reads or writes.
    _buffers: Vec<Arc<DmaBuffer>>,
    /// Descriptors that the queue took, and whether that was all of them.
    pushed: Pushed,
}

/// How far a list was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pushed {
    All,
    /// The engine has stopped, or there was no room in time.
    Some,
}

/// The dispatcher of an engine.
#[derive(Debug)]
pub(super) struct Dispatcher {
    registers: Registers,
    /// The line to which the last descriptor of a list copies the magic number.
    word: Arc<DmaBuffer>,
    interrupts: bool,
    flight: Option<Flight>,
    is_stuck: bool,
}

impl Dispatcher {
    /// Resets the dispatcher. The engine must not master the bus unless it is idle.
    pub(super) fn open(registers: Registers, domain: &Domain, interrupts: bool) -> Result<Self> {
        let word = domain.allocate(ALIGN as usize, ALIGN as usize).map_err(|error| registers.bus(error))?;
        let mut dispatcher = Dispatcher { registers, word, interrupts, flight: None, is_stuck: false };
        dispatcher.set_up()?;
        Ok(dispatcher)
    }

    fn set_up(&mut self) -> Result<()> {
        let status = self.restart()?;
        if !is_quiet(status) {
            return Err(Error::Stuck { name: self.registers.name(), status });
        }
        if !status.contains(Status::EMPTY) || status.intersects(Status::FULL | ENDS) {
            let (register, expected) = ("STATUS of the mSGDMA", "that of an empty queue after a reset");
            let (name, value) = (self.registers.name(), status.bits().into());
            return Err(Error::BadRegister { name, register, value, expected });
        }
        let mut control = Control::STOP_ON_ERROR | Control::STOP_EARLY;
        control.set(Control::INTERRUPTS, self.interrupts);
        Ok(self.registers.set_control(control)?)
    }

    /// Resets the dispatcher, and returns STATUS once it is quiet, or after its time.
    fn restart(&self) -> Result<Status> {
        self.registers.clear_status()?;
        self.registers.set_control(Control::RESET)?;
        let status = self.quiet()?;
        self.registers.clear_status()?;
        Ok(status)
    }

    /// Waits until the dispatcher is neither busy nor being reset. Returns the last STATUS.
    fn quiet(&self) -> Result<Status> {
        let deadline = Deadline::after(QUIET);
        loop {
            let is_last = deadline.left().is_zero();
            let status = self.registers.status()?;
            if is_quiet(status) || is_last {
                return Ok(status);
            }
            std::thread::yield_now();
        }
    }

    /// Refuses a dispatcher that did not stop.
    pub(super) fn check_free(&self) -> Result<()> {
        match self.is_stuck {
            false => Ok(()),
            true => Err(Error::Stuck { name: self.registers.name(), status: self.registers.status()? }),
        }
    }

    /// Starts a list. The buffers are held until it ends.
    pub(super) fn start(
        &mut self,
        direction: Direction,
        moves: Vec<Move>,
        buffers: Vec<Arc<DmaBuffer>>,
        deadline: Deadline,
    ) -> Result<()> {
        self.word.write(0, &[0; ALIGN as usize]).map_err(|error| self.registers.bus(error))?;
        // Held from here on, even if an access fails: a descriptor may have arrived.
        let flight = self.flight.insert(Flight { moves, _buffers: buffers, pushed: Pushed::Some });
        for (place, one) in flight.moves.iter().enumerate() {
            let words = list::descriptor(direction, one, number(place));
            if !push(&self.registers, &words, deadline).inspect_err(|_| self.is_stuck = true)? {
                return Ok(());
            }
        }
        let words = list::last(self.word.iova().0, number(flight.moves.len()));
        if push(&self.registers, &words, deadline).inspect_err(|_| self.is_stuck = true)? {
            flight.pushed = Pushed::All;
        }
        Ok(())
    }

    /// Waits for the end of the list, and says how it went. No flight is left unless the dispatcher is stuck.
    pub(super) fn finish(&mut self, interrupt: Option<&Interrupt>, deadline: Deadline) -> Result<()> {
        self.check_free()?;
        let Some(flight) = &self.flight else { return Ok(()) };
        let waited = match (flight.pushed, interrupt) {
            (Pushed::Some, _) => self.registers.status().map_err(Error::from),
            (Pushed::All, Some(interrupt)) => self.sleep(interrupt, deadline),
            (Pushed::All, None) => self.poll(deadline),
        };
        let settled = waited.and_then(|seen| match self.has_arrived()? && !seen.intersects(ENDS) {
            true => Ok((seen, is_quiet(seen) || is_quiet(self.quiet()?))),
            false => Ok((seen, false)),
        });
        if let Ok((_, true)) = settled {
            self.flight = None;
            return Ok(());
        }
        // What has not ended by itself is ended, before its buffers go.
        let sequence = self.registers.sequence().map_err(Error::from);
        let stopped = self.restart().inspect_err(|_| self.is_stuck = true)?;
        if !is_quiet(stopped) {
            self.is_stuck = true;
            return Err(Error::Stuck { name: self.registers.name(), status: stopped });
        }
        let flight = self.flight.take();
        self.set_up()?;
        let (seen, _) = settled?;
        let moves = flight.map_or(Vec::new(), |flight| flight.moves);
        Err(self.failure(&moves, seen, sequence?, deadline))
    }

    /// Returns the error of a list that ended with `status` at the descriptor with this number.
    fn failure(&self, moves: &[Move], status: Status, sequence: u16, deadline: Deadline) -> Error {
        let (name, descriptor) = (self.registers.name(), u32::from(sequence));
        // With the one that ends the list.
        let descriptors = moves.len() as u32 + 1;
        if !status.intersects(ENDS) {
            return Error::TimedOut { name, descriptor, descriptors, waited: deadline.waited() };
        }
        let place = usize::from(sequence).saturating_sub(1);
        let address = moves.get(place).or(moves.last()).map_or(0, |one| one.card);
        Error::Failed { name, descriptor, descriptors, address, status: status & ENDS }
    }

    fn has_arrived(&self) -> Result<bool> {
        Ok(self.word.load_acquire(0).map_err(|error| self.registers.bus(error))? == MAGIC)
    }

    /// Polls the word in host memory. Returns what STATUS held.
    fn poll(&self, deadline: Deadline) -> Result<Status> {
        loop {
            for _ in 0..POLLS {
                if self.has_arrived()? {
                    return Ok(self.registers.status()?);
                }
                std::hint::spin_loop();
            }
            let status = self.registers.status()?;
            if status.intersects(ENDS) || deadline.left().is_zero() {
                return Ok(status);
            }
        }
    }

    /// Sleeps until the engine interrupts.
    fn sleep(&self, interrupt: &Interrupt, deadline: Deadline) -> Result<Status> {
        loop {
            interrupt.wait(deadline.left().min(SLEEP)).map_err(|error| self.registers.bus(error))?;
            // Once it is cleared, the next event raises a new edge.
            self.registers.clear_status()?;
            let status = self.registers.status()?;
            if self.has_arrived()? || status.intersects(ENDS) || deadline.left().is_zero() {
                return Ok(status);
            }
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Frees what a stuck dispatcher held, after a reset of the function.
    pub(super) fn after_reset(&mut self) -> Result<()> {
        self.set_up()?;
        self.flight = None;
        self.is_stuck = false;
        Ok(())
    }

    /// Disables the interrupt.
    pub(super) fn close(&self) -> Result<()> {
        Ok(self.registers.set_control(Control::STOP_ON_ERROR | Control::STOP_EARLY)?)
    }

    /// Keeps what a stuck dispatcher may still use until the process ends.
    pub(super) fn leak(&mut self) {
        std::mem::forget(self.flight.take());
        std::mem::forget(Arc::clone(&self.word));
    }
}

/// Pushes a descriptor when the queue has room. Returns false if the engine has stopped, or there is no room in time.
fn push(registers: &Registers, words: &[u32; 8], deadline: Deadline) -> Result<bool> {
    loop {
        let status = registers.status()?;
        if status.intersects(ENDS) {
            return Ok(false);
        }
        if !status.contains(Status::FULL) {
            registers.push(words)?;
            return Ok(true);
        }
        if deadline.left().is_zero() {
            return Ok(false);
        }
        std::hint::spin_loop();
    }
}

fn is_quiet(status: Status) -> bool {
    !status.intersects(Status::BUSY | Status::RESETTING)
}

/// Returns the number of the descriptor at this place of a list, from 1.
fn number(place: usize) -> u16 {
    place as u16 + 1
}
