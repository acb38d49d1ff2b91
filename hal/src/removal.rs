//! How one learns that a function is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether a function is gone, or its bus has asked for it back; once it is, it stays so.
///
/// Sleepers poll [`descriptor`](Self::descriptor) beside their own, so that they wake.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    gone: AtomicBool,
    /// A descriptor and the events on it that mean removal.
    signal: Option<(OwnedFd, PollFlags)>,
}

impl Removal {
    /// Removal that is also told by `events` (or a hang-up) on `descriptor`, which is never read.
    pub(crate) fn signalled_by(descriptor: OwnedFd, events: PollFlags) -> Self {
        Removal { gone: AtomicBool::new(false), signal: Some((descriptor, events)) }
    }

    /// Notes that the function is gone.
    pub(crate) fn mark(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// What [`mark`](Self::mark) sets, for a signal handler.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.gone
    }

    /// Whether it was noted, without a system call.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether it was noted or is signalled now. At most one system call.
    pub(crate) fn check(&self) -> bool {
        if !self.is_marked()
            && let Some((descriptor, events)) = self.descriptor()
        {
            let mut descriptors = [PollFd::new(descriptor, events)];
            if matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1..)) {
                self.mark();
            }
        }
        self.is_marked()
    }

    /// What to poll for, if anything signals removal.
    pub(crate) fn descriptor(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.signal.as_ref().map(|(descriptor, events)| (descriptor.as_fd(), *events))
    }
}
