//! Whole messages into a socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::header::Header;
use super::socket::Socket;

/// Bytes that wait to be sent at most; a peer that lets more pile up does not read.
const MOST_QUEUED: usize = 8 << 20;

/// Sends messages whole and in order, from any thread, without waiting: what the socket does not take is kept.
#[derive(Debug)]
pub(crate) struct Sender {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Bytes of the first that are sent already; its descriptors are then, too.
    sent: usize,
    bytes: usize,
    broken: bool,
}

impl Sender {
    pub(crate) fn new() -> Self {
        Sender { queue: Mutex::default() }
    }

    /// Sends a message, or what the socket takes of it. Says whether something was left, which
    /// [`flush`](Self::flush) sends. Fails if the peer is gone, or does not read.
    pub(crate) fn send(
        &self,
        socket: &Socket,
        header: Header,
        parts: [&[u8]; 2],
        descriptors: &[BorrowedFd<'_>],
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
        let owned = |descriptor: &BorrowedFd<'_>| descriptor.try_clone_to_owned();
        let kept = if sent == 0 { descriptors.iter().map(owned).collect() } else { Ok(Vec::new()) };
        let kept = kept.map_err(|_| queue.broke(Errno::EMFILE))?;
        if queue.waiting.is_empty() {
            queue.sent = sent;
        }
        queue.bytes += bytes;
        queue.waiting.push_back((all.concat(), kept));
        Ok(true)
    }

    /// Sends what was left, as far as the socket takes it; says whether some is left still.
    pub(crate) fn flush(&self, socket: &Socket) -> nix::Result<bool> {
        let mut queue = self.queue();
        if queue.broken {
            return Err(Errno::EPIPE);
        }
        while let Some((bytes, descriptors)) = queue.waiting.front() {
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

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Half a message may be out: nothing can follow it.
    fn broke(&mut self, errno: Errno) -> Errno {
        *self = Queue { broken: true, ..Queue::default() };
        errno
    }
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

    #[test]
    fn what_waits_to_be_sent_has_a_limit() {
        let header = |bytes| Header::command(1, Command::RegionWrite, bytes);
        for (more, expected) in [(0, Ok(true)), (1, Err(Errno::ENOBUFS))] {
            let ((left, _right), sender) = (pair(), Sender::new());
            // Until the socket takes nothing any more.
            let data = vec![0; 1 << 20];
            assert_eq!(sender.send(&left, header(data.len()), [&data, &[]], &[]), Ok(true));
            let first = HEADER_BYTES + data.len();
            assert_eq!(sender.waiting(), first);
            let rest = MOST_QUEUED - first - HEADER_BYTES + more;
            assert_eq!(sender.send(&left, header(rest), [&vec![0; rest], &[]], &[]), expected);
            assert_eq!(sender.waiting(), if more == 0 { MOST_QUEUED } else { 0 });
            if more == 0 {
                assert_eq!(sender.send(&left, header(0), [&[], &[]], &[]), Err(Errno::ENOBUFS));
            }
            assert_eq!(sender.flush(&left), Err(Errno::EPIPE));
        }
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_later() {
        let (left, right) = pair();
        let (sender, mut reader) = (Sender::new(), Reader::new(1 << 20));
        let wake = Wake::new().unwrap();
        let data: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
        for id in 0..7 {
            let header = Header::command(id, Command::RegionWrite, data.len());
            assert!(sender.send(&left, header, [&data, &[]], &[wake.as_fd()]).unwrap());
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
                None => drop(sender.flush(&left).unwrap()),
            }
        }
        assert_eq!(sender.waiting(), 0);
        // And a peer that never reads is given up.
        let failed = (0..20).find_map(|id| {
            sender.send(&left, Header::command(id, Command::RegionWrite, data.len()), [&data, &[]], &[]).err()
        });
        assert_eq!(failed, Some(Errno::ENOBUFS));
        let header = Header::command(0, Command::Reset, 0);
        assert_eq!(sender.send(&left, header, [&[], &[]], &[]), Err(Errno::EPIPE));
    }
}
