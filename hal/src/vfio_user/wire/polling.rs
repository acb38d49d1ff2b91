//! Waiting for descriptors, and waking a thread that waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::endpoint::intx::raise;

/// Wakes a thread that polls.
#[derive(Debug)]
pub(crate) struct Wake(EventFd);

impl Wake {
    pub(crate) fn new() -> nix::Result<Self> {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map(Wake)
    }

    pub(crate) fn wake(&self) {
        // A full count wakes, too.
        raise(&self.0);
    }

    pub(crate) fn clear(&self) {
        while self.0.read() == Err(Errno::EINTR) {}
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the time until `deadline` for `poll`, rounded up so that the wait does not end too early.
pub(crate) fn poll_timeout(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX)
}

/// Polls until `deadline`. A signal ends the wait without an event.
pub(crate) fn poll_until(descriptors: &mut [PollFd<'_>], deadline: Option<Instant>) -> nix::Result<()> {
    match poll(descriptors, poll_timeout(deadline)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Returns the events of a polled descriptor.
pub(crate) fn events(descriptor: &PollFd<'_>) -> PollFlags {
    descriptor.revents().unwrap_or(PollFlags::all())
}
