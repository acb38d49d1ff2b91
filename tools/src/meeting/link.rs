//! A connection between two ranks: frames in and out, without blocking.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::meeting::frame::{EndKind, Frame};
use crate::meeting::stream::Stream;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    received: Vec<u8>,
    queued: Vec<u8>,
    /// Longest frame that the other side may send.
    limit: usize,
    /// Why nothing more comes.
    closed: Option<(EndKind, String)>,
}

impl Link {
    pub(super) fn new(stream: Stream, limit: usize) -> Self {
        Link { stream, received: Vec::new(), queued: Vec::new(), limit, closed: None }
    }

    /// Sets the longest frame: a stranger may send only a greeting, a rank more.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Queues a frame, and sends what the connection takes.
    pub(super) fn send(&mut self, frame: &Frame) {
        self.send_encoded(&frame.encode());
    }

    /// As [`send`](Self::send), of a frame that is sent to several ranks.
    pub(super) fn send_encoded(&mut self, frame: &[u8]) {
        self.queued.extend(frame);
        self.write();
    }

    /// Returns the next frame.
    ///
    /// # Errors
    /// Why there is none any more: the end of the connection, or invalid bytes.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, (EndKind, String)> {
        match Frame::decode(&self.received, self.limit) {
            Ok(Some((frame, length))) => {
                self.received.drain(..length);
                Ok(Some(frame))
            }
            Ok(None) => self.closed.clone().map_or(Ok(None), Err),
            Err(what) => Err((EndKind::Malformed, what)),
        }
    }

    /// Reads until nothing is there, or a frame is.
    fn read(&mut self) {
        let mut chunk = vec![0; CHUNK];
        while self.closed.is_none() {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.close("its connection has ended".to_owned()),
                Ok(count) => self.received.extend(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.close(error.to_string()),
            }
            if Frame::is_complete(&self.received, self.limit) {
                return;
            }
        }
    }

    fn write(&mut self) {
        while !self.queued.is_empty() {
            match self.stream.write(&self.queued) {
                Ok(count) => drop(self.queued.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    // What the other side has sent before is still read, and says why.
                    self.queued.clear();
                }
            }
        }
    }

    fn close(&mut self, why: String) {
        self.closed.get_or_insert((EndKind::Gone, why));
    }

    /// Whether something is left to send.
    pub(super) fn is_sending(&self) -> bool {
        !self.queued.is_empty()
    }

    fn polled(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.closed.is_none());
        flags.set(PollFlags::POLLOUT, !self.queued.is_empty());
        use std::os::fd::AsFd as _;
        (!flags.is_empty()).then(|| PollFd::new(self.stream.as_fd(), flags))
    }
}

/// Moves what there is on all `links`, and waits for at most `timeout` until there is something, there or at `other`.
pub(super) fn pump<'l>(
    links: impl Iterator<Item = &'l mut Link>,
    other: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> std::io::Result<()> {
    let links: Vec<&mut Link> = links.collect();
    let mut polled: Vec<PollFd<'_>> = links.iter().filter_map(|link| link.polled()).collect();
    polled.extend(other.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    // A signal ends the wait; the caller looks for one.
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(nix::Error::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    for link in links {
        link.read();
        link.write();
    }
    Ok(())
}
