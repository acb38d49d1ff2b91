//! The descriptor that becomes readable when a launch may be done.

use std::os::fd::{AsFd, BorrowedFd};

use fpga_driver::Card;
use nix::Result;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Readable when any of the queues raised its interrupt, or when somebody has taken one.
pub(crate) struct Event {
    queues: Epoll,
    taken: EventFd,
}

impl Event {
    pub(crate) fn new(cards: &[Card]) -> Result<Self> {
        let queues = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let taken = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let readable = || EpollEvent::new(EpollFlags::EPOLLIN, 0);
        queues.add(&taken, readable())?;
        cards.iter().try_for_each(|card| queues.add(card.queue(), readable()))?;
        Ok(Event { queues, taken })
    }

    /// Makes the descriptor readable: a wait for something else may have taken the interrupt of a launch.
    pub(crate) fn raise(&self) {
        // It fails only if the count is full, and then it is readable.
        let _ = self.taken.write(1);
    }

    /// Takes back what was [raised](Event::raise). The interrupts are the queues'.
    pub(crate) fn clear(&self) {
        // It fails if nothing was raised.
        let _ = self.taken.read();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.queues.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO) != Ok(0)
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queues.0.as_fd()
    }
}
