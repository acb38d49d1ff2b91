//! Ctrl-C and SIGTERM: the first ends the command at the next safe point, the second at once. Commands that restore state
//! ignore the second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure, Result};

/// Interval at which loops check for a signal.
const PAUSE: Duration = Duration::from_millis(50);

/// Tells whether a signal asked the command to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    is_requested: Arc<AtomicBool>,
    may_end_at_once: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Interrupt::default();
        [SIGINT, SIGTERM].into_iter().try_for_each(|signal| interrupt.register(signal)).map_err(handler_error)?;
        Ok(interrupt)
    }

    /// Installs handlers for a command that changes the terminal: no signal ends the command at once, and a hangup of the
    /// terminal ends it like Ctrl-C.
    pub(crate) fn listen_on_terminal() -> Result<Self> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&interrupt.is_requested)).map_err(handler_error)?;
        }
        Ok(interrupt)
    }

    /// Installs handlers for a command that restores state on interruption, in bounded time: no signal ends the command at
    /// once, and a hangup of the terminal is ignored.
    pub(crate) fn listen_until_restored() -> Result<Self> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&interrupt.is_requested)).map_err(handler_error)?;
        }
        flag::register(SIGHUP, Arc::default()).map_err(handler_error)?;
        Ok(interrupt)
    }

    /// Returns the flag that a signal sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_requested)
    }

    fn register(&self, signal: i32) -> std::io::Result<()> {
        let code = i32::from(Exit::Interrupted.code());
        flag::register_conditional_shutdown(signal, code, Arc::clone(&self.may_end_at_once))?;
        // Handlers run in this order: the first signal sets the flag, and only the second finds the flag set.
        flag::register_conditional_shutdown(signal, code, Arc::clone(&self.is_requested))?;
        flag::register(signal, Arc::clone(&self.is_requested))?;
        Ok(())
    }

    /// Fails after a signal.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_requested.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "interrupted; destinations are undefined"));
        }
        Ok(())
    }

    /// Returns that the command was interrupted, if it was, instead of the failure that this has led to.
    pub(crate) fn of<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(failure) => Err(self.check().err().unwrap_or(failure)),
            done => done,
        }
    }

    /// Sleeps for [`PAUSE`] between two checks of a loop.
    pub(crate) fn sleep(&self) {
        std::thread::sleep(PAUSE);
    }

    /// Runs `wait`, which only waits for cards and leaves nothing on the host. A signal ends the process at once; closing
    /// a card resets the card.
    pub(crate) fn end_at_once_during<T>(&self, wait: impl FnOnce() -> T) -> Result<T> {
        self.may_end_at_once.store(true, Ordering::SeqCst);
        let result = self.check().map(|()| wait());
        self.may_end_at_once.store(false, Ordering::SeqCst);
        result
    }
}

fn handler_error(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot install signal handlers: {error}"))
}
