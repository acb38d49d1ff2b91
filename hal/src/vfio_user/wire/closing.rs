//! Descriptors that a peer has sent, and the thread that closes them.
//!
//! Closing the last descriptor of a file may block: a lingering socket waits for its peer, and a file of a file system that
//! the peer runs waits for the peer. Closing a socket closes the descriptors in its unread messages. So only a thread that
//! nobody waits for closes what a peer has sent.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::owner::Owner;

/// No more descriptors are received while this many wait to be closed, beside those of one more message.
const MOST_WAITING: usize = 64;
/// How long this many may wait until their sender is disconnected.
const PATIENCE: Duration = Duration::from_secs(1);

/// Closes the descriptors that one card's clients, or one server, have sent.
#[derive(Debug)]
pub(crate) struct Closer {
    queue: Mutex<Queue>,
    /// Descriptors that wait to be closed, or are being closed.
    waiting: AtomicUsize,
    owner: Owner,
}

#[derive(Debug, Default)]
struct Queue {
    descriptors: VecDeque<OwnedFd>,
    /// Whether a thread closes them.
    is_served: bool,
}

impl Closer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Closer { queue: Mutex::default(), waiting: AtomicUsize::new(0), owner: Owner::current() })
    }

    /// Leaves a descriptor to the thread that closes it. Does not wait.
    pub(crate) fn close(self: &Arc<Self>, descriptor: OwnedFd) {
        // A forked child closes only a copy, which does not block. It must not lock: the thread that held the lock at the
        // fork does not exist here.
        if !self.owner.is_here() {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.queue();
        queue.descriptors.push_back(descriptor);
        if queue.is_served {
            return;
        }
        queue.is_served = true;
        drop(queue);
        let closer = Arc::clone(self);
        let thread = thread::Builder::new().name("vfio-user closing".to_owned()).spawn(move || closer.serve());
        if let Err(error) = thread {
            // The next descriptor tries again to start a thread.
            log::warn!("Starting a thread to close descriptors: {error}");
            self.queue().is_served = false;
        }
    }

    /// Whether so many descriptors wait that no more may be received.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= MOST_WAITING
    }

    /// Waits until more descriptors may be received. False: closing takes too long.
    pub(crate) fn wait_for_room(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.is_full() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Makes it full.
    #[cfg(test)]
    pub(crate) fn fill(&self) {
        self.waiting.store(MOST_WAITING, Ordering::Relaxed);
    }

    fn serve(&self) {
        loop {
            let mut queue = self.queue();
            let Some(descriptor) = queue.descriptors.pop_front() else {
                queue.is_served = false;
                return;
            };
            drop(queue);
            drop(descriptor);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A descriptor that a peer has sent, or the socket of a peer. When it is dropped, its [`Closer`] closes it.
#[derive(Debug)]
pub(crate) struct Received {
    /// `None` only once it is taken out.
    descriptor: Option<OwnedFd>,
    closer: Arc<Closer>,
}

impl Received {
    pub(crate) fn new(descriptor: OwnedFd, closer: &Arc<Closer>) -> Self {
        Received { descriptor: Some(descriptor), closer: Arc::clone(closer) }
    }

    pub(crate) fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    /// Returns the descriptor, for a file that is known to close at once: a file in memory, or an eventfd.
    pub(crate) fn into_owned(mut self) -> OwnedFd {
        self.descriptor.take().expect("it is taken once")
    }
}

impl AsFd for Received {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_ref().expect("it was not taken").as_fd()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            self.closer.close(descriptor);
        }
    }
}
