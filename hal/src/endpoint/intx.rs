//! A level-triggered interrupt as an eventfd.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;

/// The INTx line of one function, signalled as by the kernel's VFIO driver. When the line becomes asserted, the descriptor
/// is raised once and the line is masked, until [`unmask`](Self::unmask).
///
/// The caller provides the closure that raises a descriptor. It runs under the lock of the line, so a disconnected
/// descriptor is never raised, and it must not block.
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
    /// Connects the line to a descriptor, or to nothing, and unmasks it.
    pub(crate) fn connect(&self, counter: Option<Arc<EventFd>>, raise: impl FnOnce(&Arc<EventFd>)) {
        let mut state = self.state();
        state.counter = counter;
        state.is_masked = false;
        state.deliver(raise);
    }

    /// Returns whether the line is connected.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn is_connected(&self) -> bool {
        self.state().counter.is_some()
    }

    /// Asserts or releases the line.
    pub(crate) fn set_asserted(&self, asserted: bool, raise: impl FnOnce(&Arc<EventFd>)) {
        let mut state = self.state();
        state.is_asserted = asserted;
        state.deliver(raise);
    }

    /// Masks the line.
    #[cfg_attr(not(feature = "vfio-user-server"), allow(dead_code, reason = "only the server uses it"))]
    pub(crate) fn mask(&self) {
        self.state().is_masked = true;
    }

    /// Unmasks the line. An asserted line is signalled at once.
    pub(crate) fn unmask(&self, raise: impl FnOnce(&Arc<EventFd>)) {
        let mut state = self.state();
        state.is_masked = false;
        state.deliver(raise);
    }

    /// Signals the line as if it had become asserted.
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

/// Raises a descriptor. A full counter stays full and readable.
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
