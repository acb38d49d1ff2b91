//! Ctrl-C, SIGTERM, and the SIGHUP of a terminal that closes. They end the command at once, unless it asks for [`Interrupt`]:
//! then the first ends it at the next safe point, the second at once. Commands that restore state or remove
//! sockets ignore the second.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::{Exit, Failure, Result};
use crate::left_over;

/// Interval at which loops check for a signal.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// What a signal does to a command that may have begun to write destinations.
const UNDEFINED: &str = "interrupted; destinations are undefined";
/// What it does to one that writes none.
pub(crate) const PLAIN: &str = "interrupted";

/// What the next signal does.
#[derive(Debug)]
enum Next {
    /// Ends the command at once, with this message.
    Ends(&'static str),
    /// Asks the command to end at the next safe point; the one after ends it, with this message.
    Asks(Arc<AtomicBool>, &'static str),
    /// Nothing: the command has handlers of its own.
    Nothing,
}

static NEXT: Mutex<Next> = Mutex::new(Next::Ends(PLAIN));

fn next() -> MutexGuard<'static, Next> {
    NEXT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what may wait for another process. Meanwhile a signal ends the command at once: there is nothing to undo.
pub(crate) fn ending_at_once<T>(act: impl FnOnce() -> T) -> T {
    ending_at_once_with(PLAIN, act)
}

/// As [`ending_at_once`]. `message` says what the command has changed, which a signal does not undo.
pub(crate) fn ending_at_once_with<T>(message: &'static str, act: impl FnOnce() -> T) -> T {
    let before = std::mem::replace(&mut *next(), Next::Ends(message));
    let outcome = act();
    *next() = before;
    outcome
}

/// Leaves signals to handlers of the command.
pub(crate) fn leave_to_command() {
    *next() = Next::Nothing;
}

/// Handles signals from now on, on a thread: a handler could neither remove files nor say why the command ends.
pub(crate) fn start(as_json: bool) -> Result<()> {
    let mut signals = Signals::new(&*ENDING).map_err(handler_error)?;
    // A write beyond the limit of a file's size then fails, instead of ending the process.
    flag::register(SIGXFSZ, Arc::default()).map_err(handler_error)?;
    let handle = move || {
        let mut has_hung_up = false;
        for signal in signals.forever() {
            // Of a terminal that closes, both the kernel and the shell may tell: the second is no wish to end at once.
            if signal != SIGHUP || !std::mem::replace(&mut has_hung_up, true) {
                handle(&mut next(), as_json);
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(handle).map_err(Failure::no_thread)?;
    Ok(())
}

/// The signals that end a command: a hangup too, unless whoever started the command ignores it, as `nohup` does.
static ENDING: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    hangup.into_iter().chain([SIGINT, SIGTERM]).collect()
});

/// Whether this process ignores `signal`, by the kernel's mask of ignored signals.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Does what a signal does. The command waits for `next` meanwhile, wherever it would change it.
fn handle(next: &mut Next, as_json: bool) {
    match next {
        Next::Ends(message) => {
            let _removed = left_over::remove();
            print(&Failure::new(Exit::Interrupted, *message).printed(as_json));
            signal_hook::low_level::exit(i32::from(Exit::Interrupted.code()));
        }
        Next::Asks(flag, message) => {
            flag.store(true, Ordering::SeqCst);
            *next = Next::Ends(message);
        }
        Next::Nothing => {}
    }
}

/// Prints on stderr, unless that would wait: for a reader, or for a thread that prints.
fn print(text: &str) {
    let stderr = std::io::stderr();
    if is_ready(&stderr, PollFlags::POLLOUT, Duration::ZERO).unwrap_or(false) {
        // If stderr is closed, the exit code still tells.
        let _ = nix::unistd::write(&stderr, text.as_bytes());
    }
}

/// Reports what ends the command, which has nothing left to put in order: nobody may read stderr, and a signal ends it at once.
pub(crate) fn report(failure: &Failure, as_json: bool) -> ExitCode {
    if failure.exit() == Exit::Interrupted {
        // The thread may not have handled the signal yet: it would print as well.
        *next() = Next::Nothing;
        print(&failure.printed(as_json));
        return ExitCode::from(failure.exit().code());
    }
    *next() = Next::Ends(PLAIN);
    failure.report(as_json)
}

/// Waits for at most `time` until `descriptor` is ready for one of `events`, or fails, and returns whether it is. A signal ends
/// the wait.
pub(crate) fn is_ready(descriptor: impl AsFd, events: PollFlags, time: Duration) -> std::io::Result<bool> {
    let mut waited = [PollFd::new(descriptor.as_fd(), events)];
    match poll(&mut waited, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Tells whether a signal asked the command to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    is_requested: Arc<AtomicBool>,
    /// Whether the command writes no destination.
    is_watching: bool,
}

impl Interrupt {
    /// From now on the first signal only asks.
    pub(crate) fn listen() -> Result<Self> {
        Interrupt::default().asked_first()
    }

    /// As [`listen`](Self::listen), for a command that writes no destination.
    pub(crate) fn listen_watching() -> Result<Self> {
        Interrupt { is_watching: true, ..Interrupt::default() }.asked_first()
    }

    fn asked_first(self) -> Result<Self> {
        *next() = self.asks();
        // The thread sets the flag too, but perhaps after a system call that the signal interrupts.
        self.register()?;
        Ok(self)
    }

    /// Installs handlers for a command that writes no destination, and that removes or restores what it has changed, in bounded
    /// time, or changes the terminal: no signal ends the command at once.
    pub(crate) fn listen_until_ended() -> Result<Self> {
        let interrupt = Interrupt { is_watching: true, ..Interrupt::default() };
        interrupt.register()?;
        leave_to_command();
        Ok(interrupt)
    }

    /// Installs handlers for a command that restores drivers or images on interruption, in bounded time. Until everything is
    /// done, no signal ends the command at once, and a hangup of the terminal is ignored. The result is printed with
    /// [`ending_at_once_with`].
    pub(crate) fn listen_until_restored() -> Result<Self> {
        let interrupt = Interrupt::default();
        // The thread takes a hangup, and does nothing.
        interrupt.register_signals(&[SIGINT, SIGTERM])?;
        leave_to_command();
        Ok(interrupt)
    }

    /// Returns the flag that a signal sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_requested)
    }

    /// What the next signal does, as long as none has come.
    fn asks(&self) -> Next {
        Next::Asks(self.flag(), self.message())
    }

    fn message(&self) -> &'static str {
        if self.is_watching { PLAIN } else { UNDEFINED }
    }

    fn register(&self) -> Result<()> {
        self.register_signals(&ENDING)
    }

    fn register_signals(&self, signals: &[i32]) -> Result<()> {
        let one = |signal: &i32| flag::register(*signal, self.flag()).map(drop).map_err(handler_error);
        signals.iter().try_for_each(one)
    }

    /// Fails after a signal.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_requested.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, self.message()));
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

    /// Sleeps until `end`, or fails after a signal.
    pub(crate) fn wait_until(&self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            self.check()?;
            thread::sleep(end.saturating_duration_since(Instant::now()).min(PAUSE));
        }
        Ok(())
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
            *next = Next::Ends(self.message());
        }
        let result = wait();
        let mut next = next();
        // Asked already while another thread waited, the command ends with the next signal.
        if self.check().is_ok() {
            *next = self.asks();
        }
        Ok(result)
    }
}

pub(crate) fn handler_error(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot install signal handlers: {error}"))
}
