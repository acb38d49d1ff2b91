//! Ctrl-C: it ends the command where it can be ended well, and the second one at once, unless something would be left half
//! done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure, Result};

/// How long a signal may go unnoticed.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether the command is to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    is_asked: Arc<AtomicBool>,
    may_end_at_once: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Interrupt::default();
        [SIGINT, SIGTERM].into_iter().try_for_each(|signal| interrupt.register(signal)).map_err(deaf)?;
        Ok(interrupt)
    }

    /// Begins to listen for what is put back when it is interrupted, which takes a bounded time: no signal ends the command
    /// at once, and that its terminal goes away does not end it at all.
    pub(crate) fn listen_only() -> Result<Self> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&interrupt.is_asked)).map_err(deaf)?;
        }
        flag::register(SIGHUP, Arc::default()).map_err(deaf)?;
        Ok(interrupt)
    }

    /// What is set when the command is to end.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_asked)
    }

    fn register(&self, signal: i32) -> std::io::Result<()> {
        let code = i32::from(Exit::Interrupted.code());
        flag::register_conditional_shutdown(signal, code, Arc::clone(&self.may_end_at_once))?;
        // Handlers run in this order, so that the first signal sets the flag and only the second finds it set.
        flag::register_conditional_shutdown(signal, code, Arc::clone(&self.is_asked))?;
        flag::register(signal, Arc::clone(&self.is_asked))?;
        Ok(())
    }

    /// Fails if the command is to end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "interrupted; destinations are undefined"));
        }
        Ok(())
    }

    /// Sleeps a little, so that a loop around it notices within that time.
    pub(crate) fn sleep(&self) {
        std::thread::sleep(PAUSE);
    }

    /// Runs what only waits for cards and leaves nothing behind on the host: a signal ends the process then and there,
    /// and closing a card resets it.
    pub(crate) fn at_once<T>(&self, wait: impl FnOnce() -> T) -> Result<T> {
        self.may_end_at_once.store(true, Ordering::SeqCst);
        let result = self.check().map(|()| wait());
        self.may_end_at_once.store(false, Ordering::SeqCst);
        result
    }
}

fn deaf(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot install signal handlers: {error}"))
}
