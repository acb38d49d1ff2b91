//! Sends whole messages to a socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::header::Header;
use super::socket::Socket;

/// Bytes that wait to be sent at most: a peer that lets more pile up does not read.
const MOST_QUEUED: usize = 8 << 20;

/// Sends messages whole and in order, from any thread, without waiting: what the socket does not take waits here.
///
/// `C` counts a message that waits: see [`send`](Self::send).
#[derive(Debug)]
pub(crate) struct Sender<C> {
    queue: Mutex<Queue<C>>,
}

#[derive(Debug)]
struct Queue<C> {
    waiting: VecDeque<Waiting<C>>,
    /// Bytes of the first message that are sent already. Its descriptors went with the first of them.
    sent: usize,
    bytes: usize,
    broken: bool,
}

#[derive(Debug)]
struct Waiting<C> {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    _charge: C,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Queue { waiting: VecDeque::new(), sent: 0, bytes: 0, broken: false }
    }
}

impl<C> Sender<C> {
    pub(crate) fn new() -> Self {
        Sender { queue: Mutex::default() }
    }

    /// Sends a message, or the part of it that the socket takes. Returns whether something is left for
    /// [`flush`](Self::flush) to send. Fails if the peer is gone, or does not read.
    ///
    /// If the message must wait, `charge` is called with its bytes and descriptors. The result is kept as long as the message
    /// waits; an error ends the connection.
    pub(crate) fn send(
        &self,
        socket: &Socket,
        header: Header,
        parts: [&[u8]; 2],
        descriptors: &[BorrowedFd<'_>],
        charge: impl FnOnce(usize, usize) -> nix::Result<C>,
    ) -> nix::Result<bool> {
        let head = header.encode();
        let all = [&head[..], parts[0], parts[1]];
        let bytes: usize = all.iter().map(|part| part.len()).sum();
        let mut queue = self.queue();
        if queue.broken {
            return Err(Errno::EPIPE);
        }
        let mut sent = 0;
        if queue.waiting.is_empty() {
            sent = match retried(|| socket.send(&all.map(IoSlice::new), descriptors)) {
                Ok(sent) => sent,
                Err(Errno::EAGAIN) => 0,
                Err(errno) => return Err(queue.broke(errno)),
            };
            if sent == bytes {
                return Ok(false);
            }
        }
        if queue.bytes + bytes > MOST_QUEUED {
            return Err(queue.broke(Errno::ENOBUFS));
        }
        let descriptors = if sent == 0 { descriptors } else { &[] };
        let charge = charge(bytes, descriptors.len()).map_err(|errno| queue.broke(errno))?;
        let kept = descriptors.iter().map(BorrowedFd::try_clone_to_owned).collect::<Result<_, _>>();
        let kept = kept.map_err(|_| queue.broke(Errno::EMFILE))?;
        if queue.waiting.is_empty() {
            queue.sent = sent;
        }
        queue.bytes += bytes;
        queue.waiting.push_back(Waiting { bytes: all.concat(), descriptors: kept, _charge: charge });
        Ok(true)
    }

    /// Sends what waits, as far as the socket takes it. Returns whether something is left.
    pub(crate) fn flush(&self, socket: &Socket) -> nix::Result<bool> {
        let mut queue = self.queue();
        if queue.broken {
            return Err(Errno::EPIPE);
        }
        while let Some(Waiting { bytes, descriptors, .. }) = queue.waiting.front() {
            let rest = IoSlice::new(&bytes[queue.sent..]);
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            let descriptors = if queue.sent == 0 { &borrowed[..] } else { &[] };
            match retried(|| socket.send(&[rest], descriptors)) {
                Ok(sent) => {
                    let bytes = bytes.len();
                    queue.sent += sent;
                    if queue.sent == bytes {
                        queue.sent = 0;
                        queue.bytes -= bytes;
                        queue.waiting.pop_front();
                    }
                }
                Err(Errno::EAGAIN) => return Ok(true),
                Err(errno) => return Err(queue.broke(errno)),
            }
        }
        Ok(false)
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().bytes
    }

    fn queue(&self) -> MutexGuard<'_, Queue<C>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Queue<C> {
    /// Drops everything. Half a message may be out, so nothing can follow it.
    fn broke(&mut self, errno: Errno) -> Errno {
        *self = Queue { broken: true, ..Queue::default() };
        errno
    }
}

/// Counts nothing that waits.
pub(crate) fn uncounted(_bytes: usize, _descriptors: usize) -> nix::Result<()> {
    Ok(())
}

fn retried(call: impl Fn() -> nix::Result<usize>) -> nix::Result<usize> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::wire::header::{Command, HEADER_BYTES};
    use crate::vfio_user::wire::polling::Wake;
    use crate::vfio_user::wire::reader::Reader;
    use crate::vfio_user::wire::socket::tests::pair;
    use std::sync::Arc;

    #[test]
    fn messages_that_wait_have_a_limit() {
        let header = |bytes| Header::command(1, Command::RegionWrite, bytes);
        for (more, expected) in [(0, Ok(true)), (1, Err(Errno::ENOBUFS))] {
            let ((left, _right), sender) = (pair(), Sender::new());
            // More than the socket takes.
            let data = vec![0; 1 << 20];
            assert_eq!(sender.send(&left, header(data.len()), [&data, &[]], &[], uncounted), Ok(true));
            let first = HEADER_BYTES + data.len();
            assert_eq!(sender.waiting(), first);
            let rest = MOST_QUEUED - first - HEADER_BYTES + more;
            assert_eq!(sender.send(&left, header(rest), [&vec![0; rest], &[]], &[], uncounted), expected);
            assert_eq!(sender.waiting(), if more == 0 { MOST_QUEUED } else { 0 });
            if more == 0 {
                assert_eq!(sender.send(&left, header(0), [&[], &[]], &[], uncounted), Err(Errno::ENOBUFS));
            }
            assert_eq!(sender.flush(&left), Err(Errno::EPIPE));
        }
    }

    #[test]
    fn flushing_sends_what_the_socket_did_not_take() {
        let (left, right) = pair();
        let (sender, mut reader) = (Sender::new(), Reader::new(1 << 20));
        let wake = Wake::new().unwrap();
        let data: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
        for id in 0..7 {
            let header = Header::command(id, Command::RegionWrite, data.len());
            assert!(sender.send(&left, header, [&data, &[]], &[wake.as_fd()], uncounted).unwrap());
        }
        let mut next = 0;
        while next < 7 {
            match reader.advance(&right).unwrap() {
                Some(header) => {
                    assert_eq!(header.id, next);
                    assert!(reader.body() == data);
                    assert_eq!(reader.take_descriptors().all().unwrap().len(), 1);
                    next += 1;
                }
                None => {
                    sender.flush(&left).unwrap();
                    assert_eq!(sender.waiting() % (HEADER_BYTES + data.len()), 0, "only whole messages wait");
                }
            }
        }
        assert_eq!(sender.waiting(), 0);
        // A peer that never reads is an error.
        let failed = (0..20).find_map(|id| {
            sender
                .send(&left, Header::command(id, Command::RegionWrite, data.len()), [&data, &[]], &[], uncounted)
                .err()
        });
        assert_eq!(failed, Some(Errno::ENOBUFS));
        let header = Header::command(0, Command::Reset, 0);
        assert_eq!(sender.send(&left, header, [&[], &[]], &[], uncounted), Err(Errno::EPIPE));
    }

    #[test]
    fn a_message_that_waits_is_counted_until_it_is_sent_or_dropped() {
        let (held, data) = (Arc::new(()), vec![0; 1 << 20]);
        let header = Header::command(1, Command::RegionWrite, data.len());
        let ((left, right), sender) = (pair(), Sender::new());
        let small = Header::command(1, Command::Reset, 0);
        let refused = |_, _| Err(Errno::EMFILE);
        assert_eq!(sender.send(&left, small, [&[], &[]], &[], refused), Ok(false), "it does not wait");
        let wake = Wake::new().unwrap();
        // Of the first message, the socket takes the descriptor.
        for descriptors in [0, 1] {
            let charge = |bytes, count| {
                assert_eq!((bytes, count), (HEADER_BYTES + data.len(), descriptors));
                Ok(Arc::clone(&held))
            };
            assert_eq!(sender.send(&left, header, [&data, &[]], &[wake.as_fd()], charge), Ok(true));
        }
        assert_eq!(Arc::strong_count(&held), 3);
        let mut reader = Reader::new(1 << 20);
        while Arc::strong_count(&held) > 2 {
            let _ = reader.advance(&right).unwrap();
            sender.flush(&left).unwrap();
        }
        assert_eq!(sender.send(&left, header, [&data, &[]], &[], refused), Err(Errno::EMFILE));
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(sender.flush(&left), Err(Errno::EPIPE));
    }
}
