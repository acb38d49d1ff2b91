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
            descriptors.cut_off();
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
    lost: Option<Lost>,
}

/// Why descriptors of a message are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The message carried more than [`DESCRIPTORS`].
    TooMany,
    /// This process had no free descriptor for them.
    NoneFree,
}

impl Lost {
    /// Returns the errno for a message that needs its descriptors.
    pub(crate) fn errno(self) -> Errno {
        match self {
            Lost::TooMany => Errno::EINVAL,
            Lost::NoneFree => Errno::EMFILE,
        }
    }

    /// Returns the error for a server's reply.
    pub(crate) fn error(self) -> crate::Error {
        match self {
            Lost::TooMany => crate::Error::Nonsense { what: "number of descriptors" },
            Lost::NoneFree => {
                let action = "receive a descriptor beyond the limit of open files (`ulimit -n`) for";
                crate::Error::Kernel { action, source: self.errno().into() }
            }
        }
    }
}

impl Descriptors {
    fn push(&mut self, descriptor: Received) {
        if self.list.len() < DESCRIPTORS {
            self.list.push(descriptor);
        } else {
            // Wrong whatever else happened.
            self.lost = Some(Lost::TooMany);
        }
    }

    /// Notes that the kernel has dropped some. There was room for all that a message can carry, so it could not install them.
    fn cut_off(&mut self) {
        self.lost.get_or_insert(Lost::NoneFree);
    }

    /// Whether the message carried none, not even some that are lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.lost.is_none()
    }

    /// Returns all descriptors, or why some are lost.
    pub(crate) fn all(self) -> Result<Vec<Received>, Lost> {
        self.lost.map_or(Ok(self.list), Err)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sys::eventfd::EventFd;

    /// Two ends of a connection.
    pub(crate) fn pair() -> (Socket, Socket) {
        let (left, right) = UnixStream::pair().unwrap();
        let closer = Closer::new();
        (Socket::new(left, &closer), Socket::new(right, &closer))
    }

    /// Descriptors of which the kernel has installed `installed`, and, with `is_cut_off`, dropped others.
    pub(crate) fn received(installed: usize, is_cut_off: bool) -> Descriptors {
        let (closer, mut descriptors) = (Closer::new(), Descriptors::default());
        for _ in 0..installed {
            descriptors.push(Received::new(EventFd::new().unwrap().into(), &closer));
        }
        if is_cut_off {
            descriptors.cut_off();
        }
        descriptors
    }

    #[test]
    fn lost_descriptors_are_the_senders_fault_only_if_it_sent_too_many() {
        for (installed, is_cut_off, expected) in [
            (0, false, Ok(0)),
            (16, false, Ok(16)),
            (17, false, Err(Lost::TooMany)),
            (0, true, Err(Lost::NoneFree)),
            (16, true, Err(Lost::NoneFree)),
            (17, true, Err(Lost::TooMany)),
        ] {
            let descriptors = received(installed, is_cut_off);
            assert_eq!(descriptors.is_empty(), expected == Ok(0), "{installed} {is_cut_off}");
            assert_eq!(descriptors.all().map(|list| list.len()), expected, "{installed} {is_cut_off}");
        }
        // The rest of a message may carry more than its beginning, of which some are lost.
        let mut descriptors = received(1, true);
        for (more, expected) in [(15, Lost::NoneFree), (1, Lost::TooMany)] {
            received(more, false).list.into_iter().for_each(|one| descriptors.push(one));
            assert_eq!(descriptors.lost, Some(expected));
        }
    }

    #[test]
    fn the_error_of_a_lost_descriptor_names_the_cause() {
        assert_eq!([Lost::TooMany, Lost::NoneFree].map(Lost::errno), [Errno::EINVAL, Errno::EMFILE]);
        assert!(matches!(Lost::TooMany.error(), crate::Error::Nonsense { what: "number of descriptors" }));
        let error = Lost::NoneFree.error();
        assert!(error.to_string().contains("`ulimit -n`"), "{error}");
        assert!(matches!(error, crate::Error::Kernel { source, .. } if source.raw_os_error() == Some(24)));
    }
}
