//! One at a time: who binds, unbinds or resets functions holds a lock of the whole machine meanwhile. What was checked of a
//! function and its group must hold until it is changed, and what failed is put back to what was read before.

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

/// The lock's file. `/run` is root's, so nobody else can hold it up.
const FILE: &str = "/run/fpgactl.lock";
/// How often it is tried.
const TRY: Duration = Duration::from_millis(10);
/// More than the number of a process has.
const MOST_BYTES: u64 = 32;

/// The right to change functions, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Locked; closing it unlocks, even where the process is killed.
    _file: Flock<File>,
}

/// Why it is not one's turn.
#[derive(Debug)]
pub(crate) enum NoTurn {
    /// Another had it all the time.
    Held { path: PathBuf, by: Option<Process> },
    /// The wait was to end.
    Interrupted,
    /// The file cannot be made or locked.
    Failed { path: PathBuf, source: io::Error },
}

impl Turn {
    /// Waits for it at most `timeout`, and while not `is_interrupted`.
    pub(crate) fn take(sysfs: &Sysfs, timeout: Duration, is_interrupted: impl Fn() -> bool) -> Result<Self, NoTurn> {
        let path = sysfs.path(FILE);
        let failed = |source| NoTurn::Failed { path: path.clone(), source };
        if let Some(directory) = path.parent() {
            // Only the directory itself: where its parent is missing, there is no machine to lock.
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
        // Only for the error of others: without it, they name the file.
        let note = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = note {
            log::debug!("Noting this process in {}: {error}", path.display());
        }
        Ok(Turn { _file: file })
    }
}

/// Whoever has noted itself in the file.
fn holder(sysfs: &Sysfs, file: &mut File) -> Option<Process> {
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let id = text.trim().parse().ok()?;
    Some(sysfs.process(id))
}
