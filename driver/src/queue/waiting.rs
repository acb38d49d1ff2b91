//! Waiting for completions: spin, then sleep on the interrupt, and check at intervals that the card is still there.
//!
//! The register map has no interrupt for errors: a sequencer that halts, a card that vanishes, or one that another program resets,
//! raises nothing. So a sleep is cut into slices of at most [`SLEEP_MAX`], and the card is looked at after each slice that brought no
//! completion.

use std::time::{Duration, Instant};

use cmdseq::Completion;
use crossbeam::utils::Backoff;
use fpga_hal::InterruptKind;

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::state::Poison;
use crate::ledger::submission::Submission;
use crate::ledger::token::Token;
use crate::queue::QueuePair;
use crate::sequencer::state::SequencerState;

/// How long a wait spins before it sleeps: longer than a short collective takes, shorter than it takes to wake up.
const SPIN: Duration = Duration::from_micros(20);
/// First and longest sleep between checks that the card is still there.
const SLEEP_FIRST: Duration = Duration::from_millis(10);
const SLEEP_MAX: Duration = Duration::from_millis(200);

impl QueuePair {
    /// The completion of `token` if it has come. Takes the completions that are there, never waits, and rings nothing.
    /// The token stays: it may be tested and waited for again, and keeps its completion until it is dropped.
    ///
    /// # Errors
    /// [`Error::Stale`] if the token is another queue's; those of [`poll`](QueuePair::poll).
    pub fn test(&mut self, token: &Token) -> Result<Option<Completion>> {
        if let Some(completion) = self.ledger.result(token)? {
            return Ok(Some(completion));
        }
        self.poll()?;
        self.ledger.result(token)
    }

    /// Waits for the completion of `token` for at most `timeout`: spins, then sleeps on the interrupt. Rings first if
    /// that was not done. It does not check the status of the completion: see [`check`](crate::check).
    ///
    /// The token stays valid: a timeout consumes and aborts nothing, and the caller may wait
    /// again. A token keeps its completion until it is dropped.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Removed`], [`Error::Halted`], [`Error::Uncorrected`], [`Error::NotRunning`] if another program
    /// has reset the card, [`Error::BadCompletion`], [`Error::Stale`].
    pub fn wait(&mut self, token: &Token, timeout: Duration) -> Result<Completion> {
        match self.wait_until(token, Deadline::after(timeout))? {
            Some(completion) => Ok(completion),
            None => Err(self.timeout(format!("the completion with tag {}", token.tag()), timeout)),
        }
    }

    /// Waits for the completion of `token`; `None` if the deadline has passed.
    pub(crate) fn wait_until(&mut self, token: &Token, deadline: Deadline) -> Result<Option<Completion>> {
        if let Some(completion) = self.ledger.result(token)? {
            return Ok(Some(completion));
        }
        self.ring()?;
        loop {
            if let Some(completion) = self.test(token)? {
                return Ok(Some(completion));
            }
            if deadline.left().is_zero() {
                return Ok(None);
            }
            self.progress_until(deadline)?;
        }
    }

    /// Waits until completions were taken, for at most `time`, and returns their number. While none comes, it checks at
    /// least every 200 ms that the card is there, still has the queue, and its sequencer has not halted.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::Halted`], [`Error::Uncorrected`], [`Error::NotRunning`] if another program has reset the card,
    /// [`Error::BadCompletion`].
    pub fn wait_progress(&mut self, time: Duration) -> Result<u32> {
        self.progress_until(Deadline::after(time))
    }

    fn progress_until(&mut self, deadline: Deadline) -> Result<u32> {
        let start = Instant::now();
        let backoff = Backoff::new();
        let spin = SPIN.min(deadline.left());
        while start.elapsed() < spin {
            let count = self.poll()?;
            if count != 0 {
                return Ok(count);
            }
            backoff.spin();
        }
        self.sleep_until(deadline).map_err(|error| self.note(error))
    }

    /// Sleeps on the interrupt in slices, and checks the card after each slice that brought no completion.
    fn sleep_until(&mut self, deadline: Deadline) -> Result<u32> {
        let mut slice = SLEEP_FIRST;
        let mut is_armed = false;
        loop {
            if !is_armed {
                self.announce()?;
                self.arm()?;
                let count = self.poll()?;
                if count != 0 {
                    return Ok(count);
                }
            }
            let time = deadline.left().min(slice);
            let is_raised = self.await_interrupt(time)?;
            let count = self.poll()?;
            if count != 0 {
                return Ok(count);
            }
            self.block.check_health()?;
            self.check_enabled()?;
            self.transport.check()?;
            if deadline.left().is_zero() {
                return Ok(0);
            }
            is_armed = !is_raised;
            slice = (slice * 2).min(SLEEP_MAX);
        }
    }

    /// Makes sure that the card still has the queue: a reset of the card, or a partial reconfiguration of it, by another program
    /// disables it, and then nothing completes.
    fn check_enabled(&mut self) -> Result<()> {
        if self.transport.registers().is_enabled()? {
            return Ok(());
        }
        self.ledger.set_poison(Poison::Reset("another program has reset or reconfigured the card".to_owned()));
        Err(self.refusal())
    }

    /// Waits until the interrupt is raised, for at most `time`. Returns whether it was, and makes it ready for the next time.
    fn await_interrupt(&self, time: Duration) -> Result<bool> {
        let is_raised = self.interrupt.wait(time).map_err(|error| self.block.bus(error))?;
        if is_raised && self.interrupt.kind() == InterruptKind::Intx {
            // A level stays until the card is told.
            self.transport.registers().acknowledge()?;
            self.function.unmask_intx().map_err(|error| self.block.bus(error))?;
        }
        Ok(is_raised)
    }

    /// Takes the interrupt if it was raised: the queue's descriptor is no longer readable. Never waits, and arms nothing.
    ///
    /// # Errors
    /// [`Error::Removed`]; the bus's.
    pub fn take_interrupt(&mut self) -> Result<()> {
        self.await_interrupt(Duration::ZERO).map(drop).map_err(|error| self.note(error))
    }

    /// Has the card raise the queue's interrupt, once, when there are more completions than were taken: for a caller
    /// that sleeps on the queue's descriptor itself. Poll once more after arming and before sleeping.
    ///
    /// # Errors
    /// The bus's.
    pub fn arm(&mut self) -> Result<()> {
        self.transport.arm(self.ledger.taken()).map_err(|error| self.note(error))
    }

    /// Returns the error of a wait that timed out, with the state of the sequencer.
    pub(crate) fn timeout(&mut self, what: String, waited: Duration) -> Error {
        let last_seen = match SequencerState::read(&self.block) {
            Ok(state) => self.last_seen(&state),
            Err(error) => return self.note(error),
        };
        Error::Timeout { what, node: Some(self.node), rank: None, instruction: None, waited, last_seen }
    }

    /// Formats `state`, with the number of completions that arrived if some did not.
    pub(crate) fn last_seen(&self, state: &SequencerState) -> String {
        match self.ledger.taken() {
            taken if state.completed != taken => format!("{state}, of which {taken} arrived here"),
            _ => state.to_string(),
        }
    }

    /// Waits until `deadline` for all that is in flight.
    pub(crate) fn drain(&mut self, deadline: Deadline) -> Result<()> {
        self.ring()?;
        loop {
            self.poll()?;
            if self.in_flight() == 0 {
                return Ok(());
            }
            if deadline.left().is_zero() {
                return Err(self.timeout("what was submitted before".into(), deadline.waited()));
            }
            self.progress_until(deadline)?;
        }
    }

    /// Stores an instruction, waiting until `deadline` for room. Rings before it waits.
    pub(crate) fn push_when_room(&mut self, instruction: impl Submission, deadline: Deadline) -> Result<Token> {
        // If only kept tokens fill the queue, no completion makes room.
        while !self.has_room() && self.in_flight() != 0 {
            self.ring()?;
            if self.poll()? != 0 {
                continue;
            }
            if deadline.left().is_zero() {
                return Err(self.timeout("room in the ring".into(), deadline.waited()));
            }
            self.progress_until(deadline)?;
        }
        self.push(instruction)
    }
}
