//! A level-triggered interrupt as an eventfd.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;

/// The line of one function, signalled as the kernel's VFIO driver does it: when it becomes asserted the descriptor is
/// raised once and the line masked, until [`unmask`](Self::unmask) says that it was served.
///
/// How a descriptor is raised is for who calls to say. It is done under the line's lock, so one that is no longer
/// connected is not raised any more; it must not wait.
#[derive(Debug, Default)]
pub(crate) struct Intx {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_asserted: bool,
    is_masked: bool,
    counter: Option<Arc<EventFd>>,
}

impl Intx {
    /// Where the line goes from now on, unmasked; `None`: nowhere.
    pub(crate) fn connect(&self, counter: Option<Arc<EventFd>>, raise: impl FnOnce(&Arc<EventFd>)) {
        let mut state = self.state();
        state.counter = counter;
        state.is_masked = false;
        state.deliver(raise);
    }

    /// Whether it goes anywhere.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn is_connected(&self) -> bool {
        self.state().counter.is_some()
    }

    /// What the function does with its line.
    pub(crate) fn set_asserted(&self, asserted: bool, raise: impl FnOnce(&Arc<EventFd>)) {
        let mut state = self.state();
        state.is_asserted = asserted;
        state.deliver(raise);
    }

    /// Holds it back.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn mask(&self) {
        self.state().is_masked = true;
    }

    /// Lets it through again; at once if it is asserted.
    pub(crate) fn unmask(&self, raise: impl FnOnce(&Arc<EventFd>)) {
        let mut state = self.state();
        state.is_masked = false;
        state.deliver(raise);
    }

    /// Signals as if it had become asserted.
    pub(crate) fn trigger(&self, raise: impl FnOnce(&Arc<EventFd>)) {
        self.state().signal(raise);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn deliver(&mut self, raise: impl FnOnce(&Arc<EventFd>)) {
        if self.is_asserted && !self.is_masked {
            self.signal(raise);
        }
    }

    fn signal(&mut self, raise: impl FnOnce(&Arc<EventFd>)) {
        if let Some(counter) = &self.counter {
            self.is_masked = true;
            raise(counter);
        }
    }
}

/// Raises a descriptor. A count that is full stays full: it is not lost that it was raised.
pub(crate) fn raise(counter: &EventFd) {
    while counter.write(1) == Err(Errno::EINTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::EfdFlags;

    #[test]
    fn it_is_raised_once_until_unmasked() {
        let counter = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
        let count = || counter.read().unwrap_or(0);
        let line = Intx::default();
        let raise = |counter: &Arc<EventFd>| raise(counter);
        line.set_asserted(true, raise);
        line.connect(Some(Arc::clone(&counter)), raise);
        assert_eq!(count(), 1, "it was asserted before anybody listened");
        line.set_asserted(true, raise);
        assert_eq!(count(), 0, "masked until served");
        line.unmask(raise);
        assert_eq!(count(), 1, "still asserted");
        line.set_asserted(false, raise);
        line.unmask(raise);
        assert_eq!(count(), 0);
        line.mask();
        line.set_asserted(true, raise);
        assert_eq!(count(), 0);
        line.unmask(raise);
        assert_eq!(count(), 1);
        line.connect(None, raise);
        line.unmask(raise);
        assert_eq!(count(), 0);
    }
}
