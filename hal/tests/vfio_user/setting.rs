//! Fixtures: a private directory, served cards, memory and interrupts.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;
use std::{fs, panic, thread};

use fpga_hal::vfio_user::{Server, Serving};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::uio::{pread, pwrite};
use nix::unistd::ftruncate;

use crate::card::Card;

/// Makes a panic in one of the library's threads end this process. A client would only see a disconnection, which many tests
/// expect.
fn abort_if_a_library_thread_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            let thread = thread::current();
            if thread.name().is_some_and(|name| name.starts_with("vfio-user")) {
                // To the descriptor, since the test runner captures output.
                let _ = writeln!(io::stderr(), "a thread of the library has panicked: {info}");
                std::process::abort();
            }
        }));
    });
}

/// A directory for this user only, which is removed when dropped.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        abort_if_a_library_thread_panics();
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        Directory(tempfile::Builder::new().prefix("fpga-hal-").permissions(owner_only).tempdir().unwrap().keep())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// How long a test waits for something that must not happen.
pub const QUICK: Duration = Duration::from_millis(100);

/// A card being served.
pub struct Served {
    pub card: Arc<Card>,
    pub serving: Option<Serving>,
    path: PathBuf,
    _directory: Directory,
}

impl Served {
    pub fn new() -> Self {
        // Long, so that a busy machine does not fail tests of something else.
        Self::with(|server| server.with_dma_patience(Duration::from_secs(10)))
    }

    pub fn with(change: impl FnOnce(Server) -> Server) -> Self {
        let (card, directory) = (Card::new(), Directory::new());
        let path = directory.0.join("card");
        let server = Server::bind(&path, card.clone()).unwrap();
        let serving = Some(change(server).spawn().unwrap());
        Served { card, serving, path, _directory: directory }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the server has cleaned up after so many clients.
    pub fn wait_for_end(&self, clients: u64) {
        self.card.wait("cleaning up after a client", |card| card.owners_lost.load(Ordering::Relaxed) >= clients);
    }
}

pub fn memory(bytes: u64, sealed: bool) -> OwnedFd {
    let file = memfd_create("test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes as i64).unwrap();
    if sealed {
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)).unwrap();
    }
    file
}

pub fn peek(file: &OwnedFd, offset: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    assert_eq!(pread(file, &mut data, offset as i64).unwrap(), bytes);
    data
}

pub fn poke(file: &OwnedFd, offset: u64, data: &[u8]) {
    assert_eq!(pwrite(file, data, offset as i64).unwrap(), data.len());
}

pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

pub fn counter() -> EventFd {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).unwrap()
}

/// Waits until a counter is raised, and takes the count. Zero: it was not.
pub fn raised_within(counter: &EventFd, timeout: Duration) -> u64 {
    let milliseconds = u16::try_from(timeout.as_millis()).unwrap();
    let mut descriptors = [PollFd::new(counter.as_fd(), PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::from(milliseconds)).unwrap();
    counter.read().unwrap_or(0)
}

pub fn raised(counter: &EventFd) -> u64 {
    raised_within(counter, Duration::from_secs(20))
}
