//! The machine-wide lock for binding, unbinding and resetting functions. The checked state of a function and its group must stay
//! valid until the change, and until a failed change is undone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::O_NOFOLLOW;

use crate::owner::Process;
use crate::root::Sysfs;

/// The lock file. `/run` belongs to root, so other users cannot block it.
const FILE: &str = "/run/fpgactl.lock";
/// Interval between attempts.
const TRY: Duration = Duration::from_millis(10);
/// Limit of the length of a process id.
const MOST_BYTES: u64 = 32;

/// The right to change functions, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Closing the file unlocks it, even if the process is killed.
    _file: Flock<File>,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(crate) enum NoTurn {
    /// Another process kept the lock.
    Held { path: PathBuf, by: Option<Process> },
    /// The wait was interrupted.
    Interrupted,
    /// The file cannot be created or locked.
    Failed { path: PathBuf, source: io::Error },
}

impl Turn {
    /// Waits for the lock, at most `timeout` and until `is_interrupted`.
    pub(crate) fn take(sysfs: &Sysfs, timeout: Duration, is_interrupted: impl Fn() -> bool) -> Result<Self, NoTurn> {
        let path = sysfs.path(FILE);
        let failed = |source| NoTurn::Failed { path: path.clone(), source };
        if let Some(directory) = path.parent() {
            // Only this directory: without its parent, there is no machine to lock.
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => {}
            }
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
        let mut file = options.open(&path).map_err(failed)?;
        let begun = Instant::now();
        let mut file = loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => break locked,
                Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => file,
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            if is_interrupted() {
                return Err(NoTurn::Interrupted);
            }
            if begun.elapsed() >= timeout {
                return Err(NoTurn::Held { by: holder(sysfs, &mut file), path });
            }
            thread::sleep(TRY);
        };
        // For the errors of other processes. Without it, these name the file only.
        let note = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = note {
            log::debug!("Noting this process in {}: {error}", path.display());
        }
        Ok(Turn { _file: file })
    }
}

/// Returns the process whose id is in the file.
fn holder(sysfs: &Sysfs, file: &mut File) -> Option<Process> {
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let id = text.trim().parse().ok()?;
    Some(sysfs.process(id))
}
