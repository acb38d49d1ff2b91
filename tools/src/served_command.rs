//! A command with mock cards of its own: runs it, forwards signals to it, and returns how it ended.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::exit::{Exit, Failure, Result};
use crate::interrupt;

/// Signals that the command gets when fpgactl gets them.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// Interval at which the command and the fabric are checked.
const PAUSE: Duration = Duration::from_millis(10);

/// Signals for a command, from before it starts.
pub(crate) struct Forwarded(SignalsInfo<WithOrigin>);

impl Forwarded {
    /// Takes the signals from now on.
    pub(crate) fn listen() -> Result<Self> {
        let signals = SignalsInfo::<WithOrigin>::new(FORWARDED).map_err(interrupt::handler_error)?;
        interrupt::leave_to_command();
        Ok(Forwarded(signals))
    }

    /// Fails after a signal, before the command starts: there is nobody to get it.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.0.pending().next() {
            Some(_) => Err(Failure::new(Exit::Interrupted, "interrupted before the command started")),
            None => Ok(()),
        }
    }
}

/// Runs `command` with the cards that `selector` selects in `FPGACTL_CARDS`, and returns its exit code: 128 plus the number of
/// the signal that ended it. Waits for the command, whatever `health` says.
///
/// # Errors
/// If the command does not start, or is not to after a signal; that of `health`, once the command has ended.
pub(crate) fn run(
    command: &[OsString],
    selector: &str,
    signals: &mut Forwarded,
    health: &dyn Fn() -> Result<()>,
) -> Result<i32> {
    signals.check()?;
    let [program, arguments @ ..] = command else { unreachable!("clap requires a command") };
    let mut child = Command::new(program)
        .args(arguments)
        .env("FPGACTL_CARDS", selector)
        .spawn()
        .map_err(|error| Failure::file(Path::new(program), &error))?;
    let mut outcome = Ok(());
    let status = loop {
        for origin in signals.0.pending() {
            forward(&origin, &child);
        }
        let ended = child.try_wait().map_err(|error| Failure::new(Exit::Failed, format!("cannot wait: {error}")))?;
        if let Some(status) = ended {
            break status;
        }
        outcome = outcome.and_then(|()| health());
        thread::sleep(PAUSE);
    };
    outcome.map(|()| code(status))
}

/// Sends a signal on to `child`, which has not been waited for. Signals of the terminal reach the command without us.
fn forward(origin: &Origin, child: &Child) {
    if origin.cause == Cause::Kernel {
        return;
    }
    let (Ok(signal), Ok(process)) = (Signal::try_from(origin.signal), i32::try_from(child.id())) else { return };
    // The command may have ended on its own.
    let _ = kill(Pid::from_raw(process), signal);
}

fn code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(Exit::Failed.code()))
}
