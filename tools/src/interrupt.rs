//! Ctrl-C and SIGTERM. They end the command at once, unless it asks for [`Interrupt`]: then the first ends it at the next safe
//! point, the second at once. Commands that restore state ignore the second.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::{Exit, Failure, Result};
use crate::left_over;

/// Interval at which loops check for a signal.
const PAUSE: Duration = Duration::from_millis(50);
/// What a signal does to a command that may have begun to write destinations.
const UNDEFINED: &str = "interrupted; destinations are undefined";

/// What the next signal does.
#[derive(Debug)]
enum Next {
    /// Ends the command at once, with this message.
    Ends(&'static str),
    /// Asks the command to end at the next safe point.
    Asks(Arc<AtomicBool>),
    /// Nothing: the command has handlers of its own.
    Nothing,
}

static NEXT: Mutex<Next> = Mutex::new(Next::Ends("interrupted"));

fn next() -> MutexGuard<'static, Next> {
    NEXT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves signals to handlers of the command.
pub(crate) fn leave_to_command() {
    *next() = Next::Nothing;
}

/// Handles signals from now on, on a thread: a handler could neither remove files nor say why the command ends.
pub(crate) fn start(as_json: bool) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(handler_error)?;
    let handle = move || {
        for _ in signals.forever() {
            handle(&mut next(), as_json);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(handle).map_err(Failure::no_thread)?;
    Ok(())
}

/// Does what a signal does. The command waits for `next` meanwhile, wherever it would change it.
fn handle(next: &mut Next, as_json: bool) {
    match next {
        Next::Ends(message) => {
            let _removed = left_over::remove();
            print(&Failure::new(Exit::Interrupted, *message).printed(as_json));
            signal_hook::low_level::exit(i32::from(Exit::Interrupted.code()));
        }
        Next::Asks(flag) => {
            flag.store(true, Ordering::SeqCst);
            *next = Next::Ends(UNDEFINED);
        }
        Next::Nothing => {}
    }
}

/// Prints on stderr, unless that would wait: for a reader, or for a thread that prints.
fn print(text: &str) {
    let stderr = std::io::stderr();
    let mut waited = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut waited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
        // If stderr is closed, the exit code still tells.
        let _ = nix::unistd::write(&stderr, text.as_bytes());
    }
}

/// Tells whether a signal asked the command to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    is_requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on the first signal only asks.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Interrupt::default();
        *next() = Next::Asks(interrupt.flag());
        // The thread sets the flag too, but perhaps after a system call that the signal interrupts.
        interrupt.register(&[SIGINT, SIGTERM])?;
        Ok(interrupt)
    }

    /// Installs handlers for a command that changes the terminal: no signal ends the command at once, and a hangup of the
    /// terminal ends it like Ctrl-C.
    pub(crate) fn listen_on_terminal() -> Result<Self> {
        let interrupt = Interrupt::default();
        interrupt.register(&[SIGINT, SIGTERM, SIGHUP])?;
        leave_to_command();
        Ok(interrupt)
    }

    /// Installs handlers for a command that restores state on interruption, in bounded time: no signal ends the command at
    /// once, and a hangup of the terminal is ignored.
    pub(crate) fn listen_until_restored() -> Result<Self> {
        let interrupt = Interrupt::default();
        interrupt.register(&[SIGINT, SIGTERM])?;
        flag::register(SIGHUP, Arc::default()).map_err(handler_error)?;
        leave_to_command();
        Ok(interrupt)
    }

    /// Returns the flag that a signal sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_requested)
    }

    fn register(&self, signals: &[i32]) -> Result<()> {
        let one = |signal: &i32| flag::register(*signal, self.flag()).map(drop).map_err(handler_error);
        signals.iter().try_for_each(one)
    }

    /// Fails after a signal.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_requested.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, UNDEFINED));
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
        thread::sleep(PAUSE);
    }

    /// Runs `wait`, which only waits for cards and leaves nothing on the host but what [`left_over`] removes. A signal ends
    /// the process at once; closing a card resets the card.
    pub(crate) fn end_at_once_during<T>(&self, wait: impl FnOnce() -> T) -> Result<T> {
        {
            let mut next = next();
            self.check()?;
            *next = Next::Ends(UNDEFINED);
        }
        let result = wait();
        let mut next = next();
        // Asked already while another thread waited, the command ends with the next signal.
        if self.check().is_ok() {
            *next = Next::Asks(self.flag());
        }
        Ok(result)
    }
}

pub(crate) fn handler_error(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot install signal handlers: {error}"))
}
