//! Addresses of a host and a port, within a time limit.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use cmdseq::text::printable;

use crate::meeting::ending::SLICE;

/// Returns the addresses of `place`, a host and a port.
///
/// # Errors
/// [`ErrorKind::TimedOut`] if the name is not resolved within `most`; [`ErrorKind::Interrupted`] once `stop` is set; the resolver's.
pub(super) fn resolve(place: &str, most: Duration, stop: &AtomicBool) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = place.parse() {
        return Ok(vec![address]);
    }
    let looked_up = place.to_owned();
    within(place, most, stop, move || Ok(looked_up.to_socket_addrs()?.collect()))
}

/// Calls `look_up` on a thread: a resolver whose server is dead takes longer than ranks may wait, and cannot be interrupted. Then
/// nobody waits for the thread, which ends by itself, or with the process.
fn within(
    place: &str,
    most: Duration,
    stop: &AtomicBool,
    look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let began = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        // Nobody takes what comes too late.
        let _ = sender.send(look_up());
    };
    thread::Builder::new().name("resolver".to_owned()).spawn(run)?;
    loop {
        let left = most.saturating_sub(began.elapsed());
        match receiver.recv_timeout(SLICE.min(left)) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the resolver has failed")),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Err(ErrorKind::Interrupted.into()),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                let name = place.rsplit_once(':').map_or(place, |(name, _)| name);
                let why = format!("the name {} was not resolved in time", printable(name));
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A resolver that answers when the test is over, and what ends it.
    fn dead() -> (mpsc::Sender<()>, impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static) {
        let (over, is_over) = mpsc::channel::<()>();
        let look_up = move || {
            let _ = is_over.recv();
            Ok(Vec::new())
        };
        (over, look_up)
    }

    #[test]
    fn nobody_waits_for_a_resolver_that_is_dead() {
        let (over, look_up) = dead();
        let began = Instant::now();
        let late = within("host\u{1b}:7000", Duration::from_millis(120), &AtomicBool::new(false), look_up).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert_eq!(late.to_string(), "the name host\u{fffd} was not resolved in time");
        let (over_too, look_up) = dead();
        let stopped = within("host:7000", Duration::MAX, &AtomicBool::new(true), look_up).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Interrupted);
        assert!(began.elapsed() < PATIENCE);
        drop((over, over_too));
    }

    #[test]
    fn what_a_resolver_says_is_returned() {
        let address: SocketAddr = "[::1]:7000".parse().unwrap();
        let stop = AtomicBool::new(false);
        assert_eq!(resolve("[::1]:7000", Duration::ZERO, &stop).unwrap(), [address]);
        assert_eq!(within("host:7000", PATIENCE, &stop, move || Ok(vec![address])).unwrap(), [address]);
        let no_host = within("host:7000", PATIENCE, &stop, || Err(io::Error::other("no such host"))).unwrap_err();
        assert_eq!(no_host.to_string(), "no such host");
    }
}
