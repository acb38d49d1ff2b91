//! Raises a client's descriptors on its session's thread, so that a hostile descriptor blocks no other thread.
//!
//! A write to an eventfd blocks while its count is full, if the eventfd is blocking, which its client can change at any
//! time. So an endpoint's threads, which may serve other clients and hold locks, only note which descriptors to raise. The
//! session's thread raises them, except full ones, which are raised already. If the client fills a descriptor between this
//! check and the write, only its own session blocks. After [`STUCK`], the thread that watches the session empties the
//! descriptor and disconnects the client. A client that keeps filling it only delays itself.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use super::client_memory::described;
use super::link::Link;
use crate::endpoint::intx::raise;
use crate::vfio_user::wire::closing::Received;

/// How long the session's thread may be blocked by a descriptor, and how often another thread checks this.
pub(crate) const STUCK: Duration = Duration::from_millis(250);

/// The descriptors to raise, and the one that is being raised.
#[derive(Debug)]
pub(crate) struct Signals {
    link: Arc<Link>,
    /// The descriptors to raise, each once, as with pending bits. So their number is bounded by what is connected.
    due: Mutex<Vec<Arc<EventFd>>>,
    /// The thread that raises.
    thread: OnceLock<ThreadId>,
    /// The descriptor that the thread writes to, and since when.
    writing: Mutex<Option<(Arc<EventFd>, Instant)>>,
}

impl Signals {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Signals { link, due: Mutex::default(), thread: OnceLock::new(), writing: Mutex::default() }
    }

    /// Makes this thread the one that [`deliver`](Self::deliver)s, before it waits for anything.
    pub(crate) fn adopt(&self) {
        let _ = self.thread.set(thread::current().id());
    }

    /// Notes that a descriptor is to be raised. From any thread, without waiting.
    pub(crate) fn raise(&self, counter: &Arc<EventFd>) {
        let mut due = self.due();
        if due.iter().any(|other| Arc::ptr_eq(other, counter)) {
            return;
        }
        due.push(Arc::clone(counter));
        drop(due);
        // The thread itself delivers before it waits.
        if self.thread.get() != Some(&thread::current().id()) {
            self.link.wake().wake();
        }
    }

    /// Raises the noted descriptors. Only for the session's thread.
    pub(crate) fn deliver(&self) {
        let due = std::mem::take(&mut *self.due());
        for counter in due {
            // A full one is raised already.
            if is_writable(&counter) {
                self.while_watched(&counter, raise);
            }
        }
    }

    /// Forgets the noted descriptors.
    pub(crate) fn forget(&self) {
        self.due().clear();
    }

    /// Returns a descriptor that is an eventfd. Its kind is read from `/proc`, since any call on another kind might block.
    pub(crate) fn counter(descriptor: Received) -> Result<Arc<EventFd>, Errno> {
        if described(descriptor.as_fd()).is_none_or(|kind| kind.as_os_str() != "anon_inode:[eventfd]") {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the descriptor is owned and open. `EventFd` only reads, writes and polls it, which is memory-safe for any
        // kind of descriptor; it is an eventfd, as checked above.
        let counter = Arc::new(unsafe { EventFd::from_owned_fd(descriptor.into_owned()) });
        // An overflowed count, which the kernel reports as an error, can only be read.
        if state(&counter).contains(PollFlags::POLLERR) { Err(Errno::EINVAL) } else { Ok(counter) }
    }

    /// Frees the session's thread if a descriptor has blocked it for [`STUCK`]. Returns whether it had.
    pub(crate) fn free(&self) -> bool {
        let writing = self.writing().clone();
        let Some((counter, _)) = writing.filter(|(_, since)| since.elapsed() >= STUCK) else { return false };
        // Not full: the thread is about to continue, on a busy machine.
        if is_writable(&counter) {
            return false;
        }
        // This changes the client's descriptor, too, and the client is about to be disconnected.
        let flags = fcntl(&counter, FcntlArg::F_GETFL).map_or(OFlag::empty(), OFlag::from_bits_retain);
        if fcntl(&counter, FcntlArg::F_SETFL(flags.union(OFlag::O_NONBLOCK))).is_ok() {
            let _ = counter.read();
        }
        true
    }

    pub(super) fn while_watched(&self, counter: &Arc<EventFd>, write: impl FnOnce(&EventFd)) {
        *self.writing() = Some((Arc::clone(counter), Instant::now()));
        write(counter);
        *self.writing() = None;
    }

    fn due(&self) -> MutexGuard<'_, Vec<Arc<EventFd>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, Option<(Arc<EventFd>, Instant)>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_writable(counter: &EventFd) -> bool {
    state(counter).contains(PollFlags::POLLOUT)
}

/// Returns what can be done with a descriptor without waiting.
fn state(counter: &EventFd) -> PollFlags {
    let mut polled = [PollFd::new(counter.as_fd(), PollFlags::POLLOUT)];
    while poll(&mut polled, PollTimeout::ZERO) == Err(Errno::EINTR) {}
    polled[0].revents().unwrap_or(PollFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::server::budget::{Limits, Share};
    use crate::vfio_user::wire::closing::Closer;
    use crate::vfio_user::wire::socket::Socket;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    const FULL: u64 = u64::MAX - 1;
    const LONG: Duration = Duration::from_secs(20);

    fn signals() -> Signals {
        let (socket, _) = UnixStream::pair().unwrap();
        Signals::new(Arc::new(
            Link::new(Socket::new(socket, &Closer::new()), Share::alone(Limits::of_process())).unwrap(),
        ))
    }

    /// A descriptor that blocks writers while it is full.
    fn blocking(count: u64) -> Arc<EventFd> {
        let counter = Arc::new(EventFd::new().unwrap());
        counter.write(count).unwrap();
        counter
    }

    #[test]
    fn a_descriptor_noted_many_times_is_raised_once() {
        let signals = signals();
        let [one, other] = [blocking(1), blocking(1)];
        for _ in 0..1000 {
            signals.raise(&one);
            signals.raise(&other);
        }
        let mut woken = [PollFd::new(signals.link.wake().as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut woken, PollTimeout::ZERO), Ok(1), "the thread is woken");
        signals.deliver();
        assert_eq!((one.read(), other.read()), (Ok(2), Ok(2)));
        signals.raise(&one);
        signals.forget();
        signals.deliver();
        assert!(!state(&one).contains(PollFlags::POLLIN));
        // The thread that raises is not woken for itself.
        signals.link.wake().clear();
        signals.adopt();
        signals.raise(&one);
        assert_eq!(poll(&mut woken, PollTimeout::ZERO), Ok(0));
        thread::scope(|scope| scope.spawn(|| signals.raise(&other)).join().unwrap());
        assert_eq!(poll(&mut woken, PollTimeout::ZERO), Ok(1));
    }

    #[test]
    fn a_full_descriptor_is_skipped() {
        let signals = signals();
        let (full, other) = (blocking(FULL), blocking(1));
        signals.raise(&full);
        signals.raise(&other);
        let (ended, done) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                signals.deliver();
                ended.send(()).unwrap();
            });
            let delivered = done.recv_timeout(LONG);
            // Unblocks the thread if it is blocked, so that the test ends.
            assert_eq!(full.read(), Ok(FULL));
            assert_eq!(delivered, Ok(()));
        });
        assert_eq!(other.read(), Ok(2));
    }

    #[test]
    fn a_blocked_thread_is_freed_and_no_other_waits() {
        let signals = signals();
        let counter = blocking(FULL);
        thread::scope(|scope| {
            let begin = Instant::now();
            // Full, as if filled after the check.
            let stuck = scope.spawn(|| signals.while_watched(&counter, raise));
            let deadline = begin + LONG;
            let mut others = 0;
            while !signals.free() {
                assert!(Instant::now() < deadline && !stuck.is_finished());
                // Raising the same descriptor or another does not wait.
                signals.raise(&counter);
                signals.raise(&blocking(1));
                signals.forget();
                others += 1;
                thread::sleep(Duration::from_millis(1));
            }
            assert!(others > 0 && begin.elapsed() >= STUCK);
            stuck.join().unwrap();
        });
        assert!(!signals.free(), "the thread writes to none now");
        assert_eq!(counter.read(), Ok(1));
        let flags = fcntl(&counter, FcntlArg::F_GETFL).map(OFlag::from_bits_retain).unwrap();
        assert!(flags.contains(OFlag::O_NONBLOCK));
    }
}
