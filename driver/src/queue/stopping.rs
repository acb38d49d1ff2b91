//! Stopping a queue, starting it over, and closing it.

use std::time::Duration;

use fpga_hal::Interrupt;
use fpga_regs::bits::Status;
use fpga_regs::sequencer;

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::state::Poison;
use crate::ledger::state::State;
use crate::queue::QueuePair;
use crate::sequencer::block::STOP;
use crate::sequencer::health::Health;

impl QueuePair {
    /// Whether only a reset can start the queue again.
    pub(crate) fn needs_reset(&self) -> bool {
        matches!(self.ledger.poison(), Some(Poison::Reset(_)))
    }

    /// Stops the sequencer, within [`STOP`].
    pub(crate) fn stop(&mut self) -> State {
        let told = self.request_stop();
        self.await_stop(told, Deadline::after(STOP))
    }

    /// Tells the sequencer to end what it runs and to fetch no more. [`await_stop`](QueuePair::await_stop) returns
    /// the outcome.
    pub(crate) fn request_stop(&self) -> Result<()> {
        self.block.write(sequencer::CONTROL, 0)?;
        self.block.write(sequencer::ABORT, sequencer::ABORT_VALUE)
    }

    /// Waits for a sequencer that was `told` to stop. Returns [`Stopped`](State::Stopped) if it has certainly stopped,
    /// [`Gone`](State::Gone) if the card does not answer, else [`Poisoned`](State::Poisoned).
    pub(crate) fn await_stop(&mut self, told: Result<()>, deadline: Deadline) -> State {
        match told.and_then(|()| self.wait_idle(deadline)) {
            // What the card wrote before it answered is in host memory: on PCIe a read's completion passes no write.
            Ok(true) => self.ledger.set_state(State::Stopped),
            Ok(false) => match self.timeout(String::new(), deadline.waited()) {
                Error::Timeout { last_seen, .. } => {
                    let why = format!("its sequencer did not stop; last seen: {last_seen}");
                    self.ledger.set_poison(Poison::Failed(why));
                }
                other => self.stop_failed(&other),
            },
            Err(error) => self.stop_failed(&error),
        }
        self.state()
    }

    fn stop_failed(&mut self, error: &Error) {
        match error {
            Error::Removed { .. } => self.ledger.set_state(State::Gone),
            error => self.ledger.set_poison(Poison::Failed(format!("its sequencer could not be stopped: {error}"))),
        }
    }

    /// Waits until the sequencer runs nothing, and disables the queue then.
    fn wait_idle(&self, deadline: Deadline) -> Result<bool> {
        let mut pause = Duration::from_micros(10);
        loop {
            let left = deadline.left();
            if !self.is_busy()? {
                self.transport.registers().stop()?;
                // The read follows the write on the bus: the card answers it with the queue disabled.
                if !self.is_busy()? {
                    return Ok(true);
                }
            }
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }

    fn is_busy(&self) -> Result<bool> {
        let status = self.block.read_present(sequencer::STATUS)?;
        Ok(Status::from_bits_retain(status).contains(Status::BUSY))
    }

    /// Notes that the function was reset: whatever has not completed before is aborted, and what the card had is gone.
    pub(crate) fn was_reset(&mut self) {
        self.end_all();
        self.ledger.forget_card();
        self.ledger.set_state(State::Stopped);
    }

    /// Notes that a reset failed. Afterwards the state of the card is unknown, even if it was gone and answers again.
    pub(crate) fn reset_failed(&mut self, error: &Error) {
        self.ledger.set_poison(Poison::Reset(format!("its reset failed: {error}")));
        if matches!(error, Error::Removed { .. }) {
            self.ledger.set_state(State::Gone);
        }
    }

    /// Starts over after the sequencer was stopped or reset: takes what completions there are, gives everything else in
    /// flight the status aborted, and begins with empty rings, others if the queue was poisoned. `interrupt` replaces the
    /// old interrupt.
    pub(crate) fn restart(&mut self, interrupt: Option<Interrupt>) -> Result<()> {
        debug_assert_eq!(self.state(), State::Stopped);
        self.end_all();
        let started = self.start(interrupt);
        match &started {
            Ok(()) => self.ledger.restart(),
            Err(Error::Removed { .. }) => self.ledger.set_state(State::Gone),
            Err(error) => self.ledger.set_poison(Poison::Failed(format!("its queue could not be started: {error}"))),
        }
        started
    }

    fn start(&mut self, interrupt: Option<Interrupt>) -> Result<()> {
        if let Some(interrupt) = interrupt {
            self.interrupt = interrupt;
        }
        self.transport.empty(self.ledger.poison().is_none())?;
        self.transport.start()
    }

    /// Takes the valid completions, and aborts everything else in flight. The card has stopped.
    fn end_all(&mut self) {
        let state = self.state();
        if self.ledger.poison().is_none()
            && let Err(error) = self.collect()
        {
            log::warn!("{}: {error}", self.block.name());
        }
        self.ledger.set_state(state);
        self.ledger.abort_all();
    }

    /// Logs the errors that the card reports: its next user clears them.
    fn log_health(&self) {
        match self.block.health() {
            Ok(health) if !health.is_good() => log::warn!("{}: at close: {health}", self.block.name()),
            Ok(Health { pcie: Some(pcie), .. }) if !pcie.is_empty() => {
                log::info!("{}: at close: {pcie}", self.block.name());
            }
            Ok(_) => {}
            Err(error) => log::debug!("{}: at close: {error}", self.block.name()),
        }
    }

    /// Stops the card, and returns whether it has certainly stopped.
    fn close(&mut self) -> bool {
        if self.state() == State::Running {
            let _ = self.collect();
        }
        if self.state() == State::Stopped || (self.state() == State::Running && self.ledger.is_idle()) {
            let _ = self.transport.registers().stop();
            return true;
        }
        self.stop() == State::Stopped || matches!(self.function.reset(), Ok(_) | Err(fpga_hal::Error::Removed { .. }))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.log_health();
        if !self.close() {
            log::error!("{} could not be stopped: the memory it may still use is kept for good", self.block.name());
            self.transport.leak();
            self.ledger.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use fpga_fake::{Fake, Reply};

    use super::*;
    use crate::queue::tests::queue;

    #[test]
    fn a_card_that_vanishes_while_it_does_not_stop_is_gone() {
        let fake = Fake::new(4);
        let mut queue = queue(&fake);
        fake.run_what_was_left(Reply::Deaf);
        // Busy at the first look, and gone at the second, for the error.
        fake.vanish_after(1);
        assert_eq!(queue.await_stop(Ok(()), Deadline::after(Duration::ZERO)), State::Gone);
    }
}
