//! Descriptors that came from a peer, and the thread that closes them.
//!
//! To close the last descriptor of a file may wait: a socket that lingers waits for its peer, a file of the peer's own
//! file system for its server. And a socket's unread messages close the descriptors that came with them. So nobody
//! closes what a peer has sent but a thread that nobody waits for.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::owner::Owner;

/// Descriptors that wait to be closed from which on no more are received. One more message may follow.
const MOST_WAITING: usize = 64;
/// How long they may take from then on, before who sent them is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// Closes the descriptors of one card's clients, or of one server.
#[derive(Debug)]
pub(crate) struct Closer {
    queue: Mutex<Queue>,
    /// Descriptors that wait, or are being closed.
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

    /// Has a descriptor be closed, without waiting.
    pub(crate) fn close(self: &Arc<Self>, descriptor: OwnedFd) {
        // A forked child closes a copy, which waits for nothing, and has none of the threads that may hold the lock.
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
            // They wait for the next descriptor, which tries again.
            log::warn!("No thread to close descriptors: {error}");
            self.queue().is_served = false;
        }
    }

    /// Whether so many descriptors wait that no more may be received.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= MOST_WAITING
    }

    /// Waits until more descriptors may be received. False: they do not close.
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

    /// As if as many descriptors waited as may.
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

/// A descriptor that came from a peer, or by which a peer's messages come. Its [`Closer`] closes it when it is dropped.
#[derive(Debug)]
pub(crate) struct Received {
    descriptor: ManuallyDrop<OwnedFd>,
    closer: Arc<Closer>,
}

impl Received {
    pub(crate) fn new(descriptor: OwnedFd, closer: &Arc<Closer>) -> Self {
        Received { descriptor: ManuallyDrop::new(descriptor), closer: Arc::clone(closer) }
    }

    pub(crate) fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    /// The descriptor of a file that is known to close at once: one in memory, or a counter.
    pub(crate) fn into_owned(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so nobody else uses or drops its fields after they are taken here.
        let closer = unsafe { std::ptr::read(&raw const this.closer) };
        drop(closer);
        // SAFETY: as above.
        unsafe { ManuallyDrop::take(&mut this.descriptor) }
    }
}

impl AsFd for Received {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // SAFETY: it is taken here only, and not used afterwards.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        self.closer.close(descriptor);
    }
}
