//! How a client's descriptors are raised: by the session's own thread, so that a hostile one stops nobody else.
//!
//! To write to an eventfd may wait: for as long as its count is full, if it is a blocking one, and whether it is one its
//! client can change at any time. So the threads of an endpoint, which may serve others too and hold locks, only note what
//! is to be raised, and never wait. The session's thread raises it. It passes over a descriptor that is full, which is
//! raised already. One that its client fills between that look and the write holds up this client's session alone, until
//! who watches over it ([`STUCK`]) takes the count away, and hangs up. A client that goes on filling it can draw that out, to
//! its own disadvantage.

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

/// How long the session's thread may wait at a descriptor, and how often it is to be looked whether it does.
pub(crate) const STUCK: Duration = Duration::from_millis(250);

/// What is to be raised, and what is being raised.
#[derive(Debug)]
pub(crate) struct Signals {
    link: Arc<Link>,
    /// Each once: several raises of one are one, as with pending bits. So it is bounded by what is connected.
    due: Mutex<Vec<Arc<EventFd>>>,
    /// The thread that raises.
    thread: OnceLock<ThreadId>,
    /// What that thread writes to, and since when.
    writing: Mutex<Option<(Arc<EventFd>, Instant)>>,
}

impl Signals {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Signals { link, due: Mutex::default(), thread: OnceLock::new(), writing: Mutex::default() }
    }

    /// Makes this thread the one that is to [`deliver`](Self::deliver), before it waits for anything.
    pub(crate) fn adopt(&self) {
        let _ = self.thread.set(thread::current().id());
    }

    /// Has a descriptor be raised soon. From any thread, without waiting.
    pub(crate) fn raise(&self, counter: &Arc<EventFd>) {
        let mut due = self.due();
        if due.iter().any(|other| Arc::ptr_eq(other, counter)) {
            return;
        }
        due.push(Arc::clone(counter));
        drop(due);
        // The thread itself looks before it waits.
        if self.thread.get() != Some(&thread::current().id()) {
            self.link.wake().wake();
        }
    }

    /// Raises what is due. Only for the session's thread.
    pub(crate) fn deliver(&self) {
        let due = std::mem::take(&mut *self.due());
        for counter in due {
            // Full is raised.
            if is_writable(&counter) {
                self.while_watched(&counter, raise);
            }
        }
    }

    /// Drops what is due.
    pub(crate) fn forget(&self) {
        self.due().clear();
    }

    /// A descriptor as what it must be. Nothing is asked of it before that is known: another might not answer.
    pub(crate) fn counter(descriptor: Received) -> Result<Arc<EventFd>, Errno> {
        if described(descriptor.as_fd()).is_none_or(|kind| kind.as_os_str() != "anon_inode:[eventfd]") {
            return Err(Errno::EINVAL);
        }
        // SAFETY: an eventfd is but a descriptor that is read and written; of another kind, that would merely fail.
        let counter = Arc::new(unsafe { EventFd::from_owned_fd(descriptor.into_owned()) });
        // A count that has overflowed, which the kernel tells as an error, can only be read.
        if state(&counter).contains(PollFlags::POLLERR) { Err(Errno::EINVAL) } else { Ok(counter) }
    }

    /// Frees the session's thread if it has been stuck at a descriptor for [`STUCK`]; whether it was.
    pub(crate) fn free(&self) -> bool {
        let writing = self.writing().clone();
        let Some((counter, _)) = writing.filter(|(_, since)| since.elapsed() >= STUCK) else { return false };
        // Not full, it is about to go on: this machine is busy.
        if is_writable(&counter) {
            return false;
        }
        // A client that does this has forfeited to have its descriptors left as they are.
        let flags = fcntl(&counter, FcntlArg::F_GETFL).map_or(OFlag::empty(), OFlag::from_bits_retain);
        if fcntl(&counter, FcntlArg::F_SETFL(flags.union(OFlag::O_NONBLOCK))).is_ok() {
            let _ = counter.read();
        }
        true
    }

    fn while_watched(&self, counter: &Arc<EventFd>, write: impl FnOnce(&EventFd)) {
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

/// What can be done with a descriptor at once.
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

    /// A descriptor at which a write waits while it is full.
    fn blocking(count: u64) -> Arc<EventFd> {
        let counter = Arc::new(EventFd::new().unwrap());
        counter.write(count).unwrap();
        counter
    }

    #[test]
    fn what_is_due_is_raised_once() {
        let signals = signals();
        let [one, other] = [blocking(1), blocking(1)];
        for _ in 0..1000 {
            signals.raise(&one);
            signals.raise(&other);
        }
        let mut woken = [PollFd::new(signals.link.wake().as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut woken, PollTimeout::ZERO), Ok(1), "its thread is woken");
        signals.deliver();
        assert_eq!((one.read(), other.read()), (Ok(2), Ok(2)));
        signals.raise(&one);
        signals.forget();
        signals.deliver();
        assert!(!state(&one).contains(PollFlags::POLLIN));
        // The thread that raises looks by itself.
        signals.link.wake().clear();
        signals.adopt();
        signals.raise(&one);
        assert_eq!(poll(&mut woken, PollTimeout::ZERO), Ok(0));
        thread::scope(|scope| scope.spawn(|| signals.raise(&other)).join().unwrap());
        assert_eq!(poll(&mut woken, PollTimeout::ZERO), Ok(1));
    }

    #[test]
    fn a_full_descriptor_is_passed_over() {
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
            // Were it stuck, the test must end all the same.
            assert_eq!(full.read(), Ok(FULL));
            assert_eq!(delivered, Ok(()));
        });
        assert_eq!(other.read(), Ok(2));
    }

    #[test]
    fn a_thread_that_is_stuck_is_freed_and_nobody_else_waits() {
        let signals = signals();
        let counter = blocking(FULL);
        thread::scope(|scope| {
            let begin = Instant::now();
            // Filled after it was found to have room.
            let stuck = scope.spawn(|| signals.while_watched(&counter, raise));
            let deadline = begin + LONG;
            let mut others = 0;
            while !signals.free() {
                assert!(Instant::now() < deadline && !stuck.is_finished());
                // Neither of those who raise the same descriptor or another waits.
                signals.raise(&counter);
                signals.raise(&blocking(1));
                signals.forget();
                others += 1;
                thread::sleep(Duration::from_millis(1));
            }
            assert!(others > 0 && begin.elapsed() >= STUCK);
            stuck.join().unwrap();
        });
        assert!(!signals.free(), "it is at nothing now");
        assert_eq!(counter.read(), Ok(1));
        let flags = fcntl(&counter, FcntlArg::F_GETFL).map(OFlag::from_bits_retain).unwrap();
        assert!(flags.contains(OFlag::O_NONBLOCK));
    }
}
