//! A connected socket, and the descriptors that come by it.

use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, recv, sendmsg, shutdown};

use super::closing::{Closer, Received};
use super::header::{HEADER_BYTES, Header};
use super::version::DESCRIPTORS;

/// The most descriptors that the kernel allows in one message (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;

/// A connected stream socket. No call on it waits, and neither does dropping it.
#[derive(Debug)]
pub(crate) struct Socket(Received);

impl Socket {
    /// Takes over a stream. `closer` closes it, and the descriptors in its unread messages.
    pub(crate) fn new(stream: UnixStream, closer: &Arc<Closer>) -> Self {
        Socket(Received::new(stream.into(), closer))
    }

    fn number(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// Returns what closes the descriptors that arrive on this socket.
    pub(crate) fn closer(&self) -> &Arc<Closer> {
        self.0.closer()
    }

    /// Shuts the connection down in both directions.
    pub(crate) fn shut_down(&self) {
        // Fails if the peer was first.
        let _ = shutdown(self.number(), Shutdown::Both);
    }

    /// Returns the header of the next message, which stays unread. `Ok(None)`: it has not arrived as a whole.
    pub(crate) fn peek(&self) -> nix::Result<Option<Header>> {
        let mut head = [0; HEADER_BYTES];
        match recv(self.number(), &mut head, MsgFlags::MSG_PEEK.union(MsgFlags::MSG_DONTWAIT)) {
            Ok(0) => Err(Errno::EPIPE),
            Ok(HEADER_BYTES) => Ok(Some(Header::decode(&head))),
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Receives some bytes, and the descriptors that came with them. Zero bytes: the stream has ended.
    pub(super) fn receive(&self, buffer: &mut [u8], descriptors: &mut Descriptors) -> nix::Result<usize> {
        // The control buffer has room for all descriptors that can arrive, though no message may carry as many: the kernel
        // would close the rest here, which may block. `u64` for the alignment of a control header.
        const NUMBERS_BYTES: usize = mem::size_of::<[RawFd; MOST_DESCRIPTORS]>();
        // SAFETY: `CMSG_SPACE` only calculates.
        const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(NUMBERS_BYTES as u32) } as usize;
        let mut control = [0u64; CONTROL_BYTES.div_ceil(8)];
        let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: a `msghdr` of zeroes is valid: null pointers with zero lengths.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut parts;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control) as _;
        let flags = MsgFlags::MSG_CMSG_CLOEXEC.union(MsgFlags::MSG_DONTWAIT).bits();
        // SAFETY: `message` points to `buffer` and `control` with their lengths, and both outlive the call.
        let received = unsafe { libc::recvmsg(self.number(), &raw mut message, flags) };
        let received = Errno::result(received)? as usize;
        // SAFETY: `message` points to `control`, and the kernel has set its length to what it wrote.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return a header inside of `control`, or null, which was checked.
            let control = unsafe { header.read_unaligned() };
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                // SAFETY: `header` is a control header inside of `control`.
                let data = unsafe { libc::CMSG_DATA(header) }.cast_const().cast::<libc::c_int>();
                #[allow(clippy::unnecessary_cast, reason = "other C libraries have another type")]
                let bytes = (control.cmsg_len as usize).saturating_sub(data.addr() - header.addr());
                for index in 0..bytes / mem::size_of::<libc::c_int>() {
                    // SAFETY: `cmsg_len` covers `index` and the descriptor there, all inside of `control`.
                    let at = unsafe { data.add(index) };
                    // SAFETY: `at` points to a descriptor that the kernel has written; it may be unaligned.
                    let number = unsafe { at.read_unaligned() };
                    // SAFETY: the kernel has just installed this descriptor in this process, and nothing else uses it.
                    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
                    descriptors.push(Received::new(descriptor, self.closer()));
                }
            }
            // SAFETY: `header` is a control header of `message`.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            descriptors.lost = true;
        }
        Ok(received)
    }

    /// Sends some bytes of `parts`, and all `descriptors` with the first byte.
    pub(super) fn send(&self, parts: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> nix::Result<usize> {
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

/// Descriptors that came with a message. Dropping them leaves them to the [`Closer`].
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

    /// Returns all descriptors. `None`: some are lost, because the message carried too many or this process has too many.
    pub(crate) fn all(self) -> Option<Vec<Received>> {
        (!self.lost).then_some(self.list)
    }

    pub(crate) fn are_lost(&self) -> bool {
        self.lost
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two ends of a connection.
    pub(crate) fn pair() -> (Socket, Socket) {
        let (left, right) = UnixStream::pair().unwrap();
        let closer = Closer::new();
        (Socket::new(left, &closer), Socket::new(right, &closer))
    }
}
