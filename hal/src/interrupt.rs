//! Interrupts as descriptors.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::removal::Removal;
use crate::{Error, Result};

/// How a function interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InterruptKind {
    /// Message-signalled, each vector with an entry in a table.
    Msix,
    /// Message-signalled, vectors in a row.
    Msi,
    /// A level on a line: one vector, masked by the bus each time until
    /// [`Function::unmask_intx`](crate::Function::unmask_intx).
    Intx,
}

impl InterruptKind {
    /// From the best to the last resort.
    pub const ALL: [InterruptKind; 3] = [InterruptKind::Msix, InterruptKind::Msi, InterruptKind::Intx];
}

impl fmt::Display for InterruptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InterruptKind::Msix => "MSI-X",
            InterruptKind::Msi => "MSI",
            InterruptKind::Intx => "INTx",
        })
    }
}

/// The longest that [`Interrupt::wait`] sleeps, whatever it is given.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// One interrupt vector: an eventfd that counts.
///
/// The descriptor ([`AsFd`]) is for `epoll` and the like: readable means raised; [`drain`](Self::drain) then takes the
/// count. It is non-blocking and closes on exec.
#[derive(Debug)]
pub struct Interrupt {
    kind: InterruptKind,
    counter: Arc<EventFd>,
    removal: Arc<Removal>,
}

impl Interrupt {
    /// A vector that was not raised yet, of a function whose end `removal` tells.
    pub(crate) fn new(kind: InterruptKind, removal: &Arc<Removal>) -> Result<Self> {
        let counter = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let counter = Arc::new(counter.map_err(|errno| failed("create", errno))?);
        Ok(Interrupt { kind, counter, removal: Arc::clone(removal) })
    }

    /// How it comes. After an [`Intx`](InterruptKind::Intx) one was served, call
    /// [`Function::unmask_intx`](crate::Function::unmask_intx).
    pub fn kind(&self) -> InterruptKind {
        self.kind
    }

    /// The counter, for whoever raises it.
    pub(crate) fn counter(&self) -> Arc<EventFd> {
        Arc::clone(&self.counter)
    }

    /// Sleeps until the vector was raised or `timeout` is over; says whether it was, and takes the count.
    ///
    /// It takes a count that is there even if `timeout` is zero. It may sleep up to a millisecond too long, and signals
    /// do not cut it short. [`Error::Removed`] ends it at once where the bus tells that the function is gone.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout.min(LONGEST_WAIT);
        loop {
            if self.drain()? > 0 {
                return Ok(true);
            }
            if self.removal.check() {
                return Err(Error::Removed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let milliseconds = left.as_nanos().div_ceil(1_000_000);
            let sleep = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
            let own = PollFd::new(self.counter.as_fd(), PollFlags::POLLIN);
            let slept = match self.removal.descriptor() {
                Some((descriptor, events)) => poll(&mut [own, PollFd::new(descriptor, events)], sleep),
                None => poll(&mut [own], sleep),
            };
            match slept {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed("wait for", errno)),
            }
        }
    }

    /// Takes how often the vector was raised since the last time, without sleeping.
    pub fn drain(&self) -> Result<u64> {
        loop {
            match self.counter.read() {
                Ok(count) => return Ok(count),
                Err(Errno::EAGAIN) => return Ok(0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed("read", errno)),
            }
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

fn failed(action: &'static str, errno: Errno) -> Error {
    Error::InterruptDescriptor { action, source: io::Error::from(errno) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::thread;

    fn interrupt() -> Interrupt {
        Interrupt::new(InterruptKind::Msix, &Arc::default()).unwrap()
    }

    #[test]
    fn it_times_out_when_nothing_is_raised() {
        let interrupt = interrupt();
        let begin = Instant::now();
        assert!(!interrupt.wait(Duration::from_millis(20)).unwrap());
        let slept = begin.elapsed();
        assert!(slept >= Duration::from_millis(20) && slept < Duration::from_secs(2), "{slept:?}");
        assert!(!interrupt.wait(Duration::ZERO).unwrap());
    }

    #[test]
    fn it_takes_the_count_once() {
        let interrupt = interrupt();
        interrupt.counter().write(1).unwrap();
        interrupt.counter().write(2).unwrap();
        assert!(interrupt.wait(Duration::ZERO).unwrap());
        assert!(!interrupt.wait(Duration::ZERO).unwrap());
        interrupt.counter().write(5).unwrap();
        assert_eq!(interrupt.drain().unwrap(), 5);
        assert_eq!(interrupt.drain().unwrap(), 0);
    }

    #[test]
    fn a_sleeper_wakes() {
        let interrupt = interrupt();
        let counter = interrupt.counter();
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(10));
                counter.write(1).unwrap();
            });
            assert!(interrupt.wait(Duration::MAX).unwrap());
        });
        assert!(begin.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_sleeper_hears_that_the_function_is_gone() {
        let signal = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        let raise = std::fs::File::from(signal.as_fd().try_clone_to_owned().unwrap());
        let removal = Arc::new(Removal::signalled_by(signal.into(), PollFlags::POLLIN));
        let interrupt = Interrupt::new(InterruptKind::Msix, &removal).unwrap();
        assert!(!interrupt.wait(Duration::from_millis(1)).unwrap());
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(10));
                (&raise).write_all(&1u64.to_ne_bytes()).unwrap();
            });
            assert!(matches!(interrupt.wait(Duration::MAX), Err(Error::Removed)));
        });
        assert!(begin.elapsed() < Duration::from_secs(5) && removal.is_marked());
        // What was raised before is still taken.
        interrupt.counter().write(1).unwrap();
        assert!(interrupt.wait(Duration::ZERO).unwrap());
    }
}
