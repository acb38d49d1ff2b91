//! Removal of functions: its state and its signals.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::Error;
use crate::ending::Ending;

/// Mapped memory of a function that must become all-ones when the function is removed.
pub(crate) trait Vanish: fmt::Debug + Send + Sync {
    /// Makes all further reads return all-ones.
    fn vanish(&self);
}

/// A descriptor that signals removal.
pub(crate) trait Signal: AsFd + fmt::Debug + Send + Sync {}

impl<T: AsFd + fmt::Debug + Send + Sync> Signal for T {}

/// Whether a function is gone, or its bus requested its release. Permanent once set.
///
/// Threads that wait for the function poll [`descriptor`](Self::descriptor) too, so that removal wakes them.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    gone: AtomicBool,
    /// A descriptor, the events on it that signal removal, and what they mean.
    signal: Option<(Arc<dyn Signal>, PollFlags, Ending)>,
    /// Whether the signal has come.
    is_signalled: AtomicBool,
    /// Why the state was set, if the bus knows more than the signal means: it may find out after the signal has come.
    ending: OnceLock<Ending>,
    /// Memory that becomes all-ones before `gone` is set.
    memory: Mutex<Vec<Weak<dyn Vanish>>>,
}

impl Removal {
    /// Creates a state that `events` (or a hang-up) on `descriptor` set too, because of `ending`. The descriptor is never read.
    pub(crate) fn signalled_by(descriptor: Arc<dyn Signal>, events: PollFlags, ending: Ending) -> Self {
        Removal { signal: Some((descriptor, events, ending)), ..Removal::default() }
    }

    /// Sets the state, because of `ending` unless it has a reason already. Returns whether `ending` is the reason.
    pub(crate) fn mark_because(&self, ending: Ending) -> bool {
        // Who closes after the signal has come is not the reason.
        let is_reason = (ending != Ending::Closed || !self.check()) && self.ending.set(ending).is_ok();
        self.mark();
        is_reason
    }

    /// Returns why the state is set, if it is, and the bus knows.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let signal = self.signal.as_ref().filter(|_| self.is_signalled.load(Ordering::Acquire));
        self.ending.get().or(signal.map(|(_, _, ending)| ending)).cloned()
    }

    /// Returns the error of a function that is gone.
    pub(crate) fn error(&self) -> Error {
        Error::Removed { source: self.ending() }
    }

    /// Sets the state. All memory is all-ones before any thread can see the state.
    fn mark(&self) {
        let mut memory = self.memory();
        memory.drain(..).filter_map(|memory| memory.upgrade()).for_each(|memory| memory.vanish());
        self.gone.store(true, Ordering::Release);
    }

    /// Makes `memory` all-ones on removal, or at once if the function is gone.
    pub(crate) fn takes_along(&self, memory: &Arc<impl Vanish + 'static>) {
        let mut all = self.memory();
        if self.is_marked() {
            memory.vanish();
        } else {
            let memory = Arc::downgrade(memory);
            all.push(memory);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Vec<Weak<dyn Vanish>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the flag that [`mark`](Self::mark) sets, for a signal handler.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.gone
    }

    /// Returns whether the state is set, without a system call.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns whether the state is set or signalled. At most one system call.
    pub(crate) fn check(&self) -> bool {
        if !self.is_marked()
            && let Some((descriptor, events)) = self.descriptor()
        {
            let mut descriptors = [PollFd::new(descriptor, events)];
            if matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1..)) {
                self.is_signalled.store(true, Ordering::Release);
                self.mark();
            }
        }
        self.is_marked()
    }

    /// Returns the descriptor and events to poll for, if a descriptor signals removal.
    pub(crate) fn descriptor(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.signal.as_ref().map(|(descriptor, events, _)| (descriptor.as_fd(), *events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often it vanished, and whether anybody was told before.
    #[derive(Debug, Default)]
    struct Memory {
        removal: Weak<Removal>,
        seen: Mutex<Vec<bool>>,
    }

    impl Vanish for Memory {
        fn vanish(&self) {
            let told = self.removal.upgrade().unwrap().is_marked();
            self.seen.lock().unwrap().push(told);
        }
    }

    /// An access to memory that has no pages any more sets the state alone: see [`flag`](Removal::flag).
    #[test]
    fn only_a_signal_that_came_is_a_reason() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let removal = Removal::signalled_by(Arc::new(ours), PollFlags::POLLIN, Ending::ReleaseRequested);
        removal.flag().store(true, Ordering::Release);
        assert!(removal.check() && removal.ending().is_none());
        drop(theirs);
    }

    #[test]
    fn memory_vanishes_before_anybody_is_told() {
        // A hang-up that is polled for tells as well as a mark.
        for is_polled in [false, true] {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let removal = Removal::signalled_by(Arc::new(ours), PollFlags::POLLIN, Ending::ReleaseRequested);
            let removal = Arc::new(removal);
            let memory = || Arc::new(Memory { removal: Arc::downgrade(&removal), ..Memory::default() });
            let (before, dropped, after) = (memory(), memory(), memory());
            removal.takes_along(&before);
            removal.takes_along(&dropped);
            drop(dropped);
            assert!(!removal.check() && removal.ending().is_none());
            drop(theirs);
            if !is_polled {
                assert!(removal.mark_because(Ending::ServerClosed));
            }
            let ending = if is_polled { Ending::ReleaseRequested } else { Ending::ServerClosed };
            assert!(removal.check() && !removal.mark_because(Ending::Closed));
            assert_eq!(removal.ending(), Some(ending));
            assert!(removal.check() && removal.check());
            removal.takes_along(&after);
            assert_eq!(
                (&before.seen.lock().unwrap()[..], &after.seen.lock().unwrap()[..]),
                (&[false][..], &[true][..])
            );
        }
    }
}
