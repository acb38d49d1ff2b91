//! Interrupts as file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

pub use fpga_pci::InterruptKind;

use crate::removal::Removal;
use crate::{Error, Result};

/// The longest sleep of [`Interrupt::wait`]: longer timeouts are shortened.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// One interrupt vector: an eventfd.
///
/// The descriptor ([`AsFd`]) works with `epoll`: readable means raised. [`drain`](Self::drain) resets the count. The
/// descriptor is non-blocking and closes on exec.
#[derive(Debug)]
pub struct Interrupt {
    kind: InterruptKind,
    counter: Arc<EventFd>,
    removal: Arc<Removal>,
}

impl Interrupt {
    /// Creates a vector of the function whose removal `removal` reports.
    pub(crate) fn new(kind: InterruptKind, removal: &Arc<Removal>) -> Result<Self> {
        let counter = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let counter = Arc::new(counter.map_err(|errno| failed("create", errno))?);
        Ok(Interrupt { kind, counter, removal: Arc::clone(removal) })
    }

    /// Returns the kind of interrupt. After handling an [`Intx`](InterruptKind::Intx) interrupt, call
    /// [`Function::unmask_intx`](crate::Function::unmask_intx).
    pub fn kind(&self) -> InterruptKind {
        self.kind
    }

    /// Returns the counter, for the side that raises it.
    pub(crate) fn counter(&self) -> Arc<EventFd> {
        Arc::clone(&self.counter)
    }

    /// Sleeps until the vector is raised or `timeout` expires. Returns whether it was raised, and resets the count.
    ///
    /// A zero `timeout` checks without sleeping. A sleep may take a millisecond too long, and signals do not shorten it.
    ///
    /// # Errors
    /// [`Error::Removed`] as soon as the bus reports that the function is gone.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout.min(LONGEST_WAIT);
        loop {
            if self.drain()? > 0 {
                return Ok(true);
            }
            if self.removal.check() {
                return Err(self.removal.error());
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

    /// Returns how often the vector was raised since the last call, and resets the count. Never sleeps.
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
    use crate::ending::Ending;
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
        let removal = Removal::signalled_by(Arc::new(signal), PollFlags::POLLIN, Ending::ReleaseRequested);
        let removal = Arc::new(removal);
        let interrupt = Interrupt::new(InterruptKind::Msix, &removal).unwrap();
        assert!(!interrupt.wait(Duration::from_millis(1)).unwrap());
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(10));
                (&raise).write_all(&1u64.to_ne_bytes()).unwrap();
            });
            assert!(matches!(
                interrupt.wait(Duration::MAX),
                Err(Error::Removed { source: Some(Ending::ReleaseRequested) })
            ));
        });
        assert!(begin.elapsed() < Duration::from_secs(5) && removal.is_marked());
        // What was raised before is still taken.
        interrupt.counter().write(1).unwrap();
        assert!(interrupt.wait(Duration::ZERO).unwrap());
    }
}
