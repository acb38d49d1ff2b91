//! A connected socket: whole messages in, whole messages out, and descriptors with both.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, recv, sendmsg, shutdown};

use super::closing::{Closer, Received};
use super::messages::{DESCRIPTORS, HEADER_BYTES, Header};
use crate::endpoint::intx::raise;

/// Bytes that wait to be sent at most; a peer that lets more pile up does not read.
const MOST_QUEUED: usize = 8 << 20;

/// Descriptors that the kernel lets one message carry at most (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;

/// A connected stream socket. All calls on it return at once, and so does dropping it.
#[derive(Debug)]
pub(crate) struct Socket(Received);

impl Socket {
    /// Takes over a stream, to be closed by `closer` together with what the peer has sent and nobody has read.
    pub(crate) fn new(stream: UnixStream, closer: &Arc<Closer>) -> Self {
        Socket(Received::new(stream.into(), closer))
    }

    fn number(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// What closes the descriptors that come by this socket.
    pub(crate) fn closer(&self) -> &Arc<Closer> {
        self.0.closer()
    }

    /// Ends the connection for both sides.
    pub(crate) fn shut_down(&self) {
        // It fails if the other side was first.
        let _ = shutdown(self.number(), Shutdown::Both);
    }

    /// The header of the first message, which stays unread with all that came with it. `Ok(None)`: it is not whole yet.
    pub(crate) fn peek(&self) -> nix::Result<Option<Header>> {
        let mut head = [0; HEADER_BYTES];
        match recv(self.number(), &mut head, MsgFlags::MSG_PEEK.union(MsgFlags::MSG_DONTWAIT)) {
            Ok(0) => Err(Errno::EPIPE),
            Ok(HEADER_BYTES) => Ok(Some(Header::decode(&head))),
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Receives some bytes, zero at the end, and whatever descriptors came with them.
    fn receive(&self, buffer: &mut [u8], descriptors: &mut Descriptors) -> nix::Result<usize> {
        // The control buffer holds all that can come, though no message may carry as many: the kernel would close the
        // rest here and now. `u64` for the alignment of a control header.
        const NUMBERS_BYTES: usize = mem::size_of::<[RawFd; MOST_DESCRIPTORS]>();
        // SAFETY: it calculates, nothing else.
        const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(NUMBERS_BYTES as u32) } as usize;
        let mut control = [0u64; CONTROL_BYTES.div_ceil(8)];
        let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zeroes are a valid `msghdr`: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut parts;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control) as _;
        let flags = MsgFlags::MSG_CMSG_CLOEXEC.union(MsgFlags::MSG_DONTWAIT).bits();
        // SAFETY: `message` names the two buffers above with their lengths, and both outlive the call.
        let received = unsafe { libc::recvmsg(self.number(), &raw mut message, flags) };
        let received = Errno::result(received)? as usize;
        // SAFETY: the kernel has filled `message` and the control buffer it names.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers that lie inside of the control buffer, or null.
            let control = unsafe { header.read_unaligned() };
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                // SAFETY: `header` is a control header, as above.
                let data = unsafe { libc::CMSG_DATA(header) }.cast_const().cast::<libc::c_int>();
                #[allow(clippy::unnecessary_cast, reason = "it is of another type in other C libraries")]
                let bytes = (control.cmsg_len as usize).saturating_sub(data.addr() - header.addr());
                for index in 0..bytes / mem::size_of::<libc::c_int>() {
                    // SAFETY: `index` counts whole descriptors of those that the kernel has written here.
                    let at = unsafe { data.add(index) };
                    // SAFETY: as above; the data may be unaligned.
                    let number = unsafe { at.read_unaligned() };
                    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
                    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
                    descriptors.push(Received::new(descriptor, self.closer()));
                }
            }
            // SAFETY: `header` came from the same message.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            descriptors.lost = true;
        }
        Ok(received)
    }

    /// Sends some bytes of `parts`, and all `descriptors` with the first of them.
    fn send(&self, parts: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> nix::Result<usize> {
        let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[] } else { &rights[..] };
        let flags = MsgFlags::MSG_DONTWAIT.union(MsgFlags::MSG_NOSIGNAL);
        sendmsg::<()>(self.number(), parts, control, flags, None)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Descriptors that came with a message. Dropping them has them closed.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    list: Vec<Received>,
    lost: bool,
}

impl Descriptors {
    fn push(&mut self, descriptor: Received) {
        if self.list.len() < DESCRIPTORS {
            self.list.push(descriptor);
        } else {
            self.lost = true;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// All of them, unless some were lost: there were more than one message may carry, or than this process may open.
    pub(crate) fn all(self) -> Option<Vec<Received>> {
        (!self.lost).then_some(self.list)
    }

    pub(crate) fn are_lost(&self) -> bool {
        self.lost
    }
}

/// Why nothing more can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer has closed the connection.
    Closed,
    /// A header names a size that no message has: where the next begins is unknown.
    Size(u32),
    /// The socket failed.
    Failed(Errno),
}

/// Puts messages together from what arrives, in however small parts.
///
/// It never asks the kernel for more than what is missing of the message at hand, so descriptors that arrive belong to
/// that one: a stream does not say where in it they were sent.
#[derive(Debug)]
pub(crate) struct Reader {
    head: [u8; HEADER_BYTES],
    body: Vec<u8>,
    /// Bytes there are of the head, then of the body.
    filled: usize,
    in_body: bool,
    descriptors: Descriptors,
    /// Bytes a body may have.
    limit: usize,
}

impl Reader {
    pub(crate) fn new(limit: usize) -> Self {
        Reader {
            head: [0; HEADER_BYTES],
            body: Vec::new(),
            filled: 0,
            in_body: false,
            descriptors: Descriptors::default(),
            limit,
        }
    }

    /// Takes what has arrived; the header once a message is whole. [`body`](Self::body) and
    /// [`take_descriptors`](Self::take_descriptors) are then that message's, until the next call.
    pub(crate) fn advance(&mut self, socket: &Socket) -> Result<Option<Header>, Ended> {
        loop {
            let target = if self.in_body { &mut self.body[..] } else { &mut self.head[..] };
            if self.filled < target.len() {
                if self.filled == 0 && !self.in_body {
                    self.descriptors = Descriptors::default();
                }
                match socket.receive(&mut target[self.filled..], &mut self.descriptors) {
                    Ok(0) => return Err(Ended::Closed),
                    Ok(bytes) => self.filled += bytes,
                    Err(Errno::EAGAIN) => return Ok(None),
                    Err(Errno::EINTR) => {}
                    Err(Errno::ECONNRESET | Errno::EPIPE) => return Err(Ended::Closed),
                    Err(errno) => return Err(Ended::Failed(errno)),
                }
                continue;
            }
            let header = Header::decode(&self.head);
            self.filled = 0;
            if !self.in_body {
                let bytes = (header.size as usize).checked_sub(HEADER_BYTES).filter(|bytes| *bytes <= self.limit);
                self.body.resize(bytes.ok_or(Ended::Size(header.size))?, 0);
                self.in_body = true;
                continue;
            }
            self.in_body = false;
            return Ok(Some(header));
        }
    }

    /// Whether a message has begun and is not whole yet.
    pub(crate) fn is_amid(&self) -> bool {
        self.in_body || self.filled > 0
    }

    /// Body of the message that [`advance`](Self::advance) has just told of.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Its descriptors.
    pub(crate) fn take_descriptors(&mut self) -> Descriptors {
        mem::take(&mut self.descriptors)
    }
}

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

/// Wakes a thread that polls.
#[derive(Debug)]
pub(crate) struct Wake(EventFd);

impl Wake {
    pub(crate) fn new() -> nix::Result<Self> {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map(Wake)
    }

    pub(crate) fn wake(&self) {
        // A count that is full wakes as well.
        raise(&self.0);
    }

    pub(crate) fn clear(&self) {
        while self.0.read() == Err(Errno::EINTR) {}
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What is left until `deadline`, as `poll` takes it: rounded up, so that a wait does not end too early.
pub(crate) fn poll_timeout(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX)
}

/// Polls until `deadline`; a signal counts as nothing having happened.
pub(crate) fn poll_until(descriptors: &mut [PollFd<'_>], deadline: Option<Instant>) -> nix::Result<()> {
    match poll(descriptors, poll_timeout(deadline)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What happened to a descriptor that was polled.
pub(crate) fn events(descriptor: &PollFd<'_>) -> PollFlags {
    descriptor.revents().unwrap_or(PollFlags::all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::wire::messages::Command;
    use nix::sys::socket::{setsockopt, sockopt};

    fn pair() -> (Socket, Socket) {
        let (left, right) = UnixStream::pair().unwrap();
        let closer = Closer::new();
        (Socket::new(left, &closer), Socket::new(right, &closer))
    }

    fn take(reader: &mut Reader, socket: &Socket) -> (Header, Vec<u8>, Descriptors) {
        let header = reader.advance(socket).unwrap().expect("a whole message");
        (header, reader.body().to_vec(), reader.take_descriptors())
    }

    #[test]
    fn messages_and_their_descriptors_stay_apart() {
        let (left, right) = pair();
        let (sender, mut reader) = (Sender::new(), Reader::new(64));
        let wake = Wake::new().unwrap();
        for (id, count) in [(1, 0), (2, 2), (3, 0), (4, 16), (5, 1)] {
            let header = Header::command(id, Command::Reset, 6);
            let descriptors = vec![wake.as_fd(); count];
            assert!(!sender.send(&left, header, [&[id as u8; 4], &[7, 7]], &descriptors).unwrap());
        }
        for (id, count) in [(1, 0), (2, 2), (3, 0), (4, 16), (5, 1)] {
            let (header, body, descriptors) = take(&mut reader, &right);
            assert_eq!((header.id, body), (id, [&[id as u8; 4][..], &[7, 7]].concat()));
            assert_eq!(descriptors.all().unwrap().len(), count);
        }
        assert_eq!(reader.advance(&right), Ok(None));
        left.shut_down();
        assert_eq!(reader.advance(&right), Err(Ended::Closed));
    }

    #[test]
    fn too_many_descriptors_are_told_and_closed() {
        let (left, right) = pair();
        let (sender, mut reader) = (Sender::new(), Reader::new(64));
        let wake = Wake::new().unwrap();
        let header = Header::command(1, Command::Reset, 0);
        sender.send(&left, header, [&[], &[]], &[wake.as_fd(); DESCRIPTORS + 1]).unwrap();
        let (_, _, descriptors) = take(&mut reader, &right);
        assert!(descriptors.are_lost());
        assert!(descriptors.all().is_none());
        // The next message is none the worse for it.
        sender.send(&left, header, [&[], &[]], &[wake.as_fd()]).unwrap();
        assert_eq!(take(&mut reader, &right).2.all().unwrap().len(), 1);
    }

    #[test]
    fn a_message_comes_in_any_pieces_and_keeps_its_descriptors() {
        let (left, right) = pair();
        let (mut reader, wake) = (Reader::new(64), Wake::new().unwrap());
        let bytes = [&Header::command(9, Command::Reset, 6).encode()[..], &[1, 2, 3, 4, 5, 6]].concat();
        for with in 0..bytes.len() {
            for (at, byte) in bytes.iter().enumerate() {
                assert_eq!(reader.advance(&right), Ok(None));
                assert_eq!(reader.is_amid(), at > 0, "{at}");
                let descriptors = [wake.as_fd()];
                assert_eq!(left.send(&[IoSlice::new(&[*byte])], &descriptors[..usize::from(at == with)]), Ok(1));
            }
            let (header, body, descriptors) = take(&mut reader, &right);
            assert_eq!((header.id, body), (9, vec![1, 2, 3, 4, 5, 6]));
            assert_eq!(descriptors.all().unwrap().len(), 1, "it came with byte {with}");
            assert!(!reader.is_amid());
        }
        // What a message has left behind is not the next one's.
        assert_eq!(left.send(&[IoSlice::new(&bytes)], &[wake.as_fd()]), Ok(bytes.len()));
        assert!(reader.advance(&right).unwrap().is_some());
        assert_eq!(left.send(&[IoSlice::new(&bytes)], &[]), Ok(bytes.len()));
        assert_eq!(take(&mut reader, &right).2.len(), 0);
    }

    #[test]
    fn a_body_may_have_all_that_is_allowed() {
        let (left, right) = pair();
        for bytes in [0, 1, 64] {
            let header = Header::command(1, Command::Reset, bytes);
            assert_eq!(Sender::new().send(&left, header, [&vec![5; bytes], &[]], &[]), Ok(false));
            assert_eq!(take(&mut Reader::new(64), &right).1, vec![5; bytes]);
        }
    }

    #[test]
    fn a_first_header_is_seen_and_stays() {
        let (left, right) = pair();
        let header = Header::command(7, Command::Version, 0);
        assert_eq!(right.peek(), Ok(None));
        assert_eq!(left.send(&[IoSlice::new(&header.encode()[..15])], &[]), Ok(15));
        assert_eq!(right.peek(), Ok(None));
        assert_eq!(left.send(&[IoSlice::new(&header.encode()[15..])], &[]), Ok(1));
        for _ in 0..2 {
            assert_eq!(right.peek(), Ok(Some(header)));
        }
        assert_eq!(take(&mut Reader::new(0), &right).0, header);
        left.shut_down();
        assert_eq!(right.peek(), Err(Errno::EPIPE));
    }

    #[test]
    fn what_is_told_beside_descriptors_is_no_descriptor() {
        let (left, right) = pair();
        setsockopt(&right.0, sockopt::PassCred, &true).unwrap();
        let (mut reader, wake) = (Reader::new(64), Wake::new().unwrap());
        let header = Header::command(1, Command::Reset, 0);
        for count in [0, 1] {
            let descriptors = vec![wake.as_fd(); count];
            assert_eq!(Sender::new().send(&left, header, [&[], &[]], &descriptors), Ok(false));
            assert_eq!(take(&mut reader, &right).2.all().unwrap().len(), count);
        }
    }

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
    fn sizes_that_no_message_has_end_it() {
        for size in [0u32, 15, 16 + 65, u32::MAX] {
            let (left, right) = pair();
            let header = Header { size, ..Header::command(1, Command::Reset, 0) };
            assert_eq!(left.send(&[IoSlice::new(&header.encode())], &[]), Ok(HEADER_BYTES));
            assert_eq!(Reader::new(64).advance(&right), Err(Ended::Size(size)));
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
