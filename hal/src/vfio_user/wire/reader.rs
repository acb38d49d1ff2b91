//! Receives whole messages from a socket.

use std::mem;

use nix::errno::Errno;

use super::header::{HEADER_BYTES, Header};
use super::socket::{Descriptors, Socket};

/// Why nothing more can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer has closed the connection.
    Closed,
    /// A header has a size that no message has, so the beginning of the next message is unknown.
    Size(u32),
    /// The socket failed.
    Failed(Errno),
}

/// Assembles messages from parts of any size.
///
/// It never reads past the end of the current message, so descriptors that arrive belong to this message: a stream does not
/// tell where in it they were sent.
#[derive(Debug)]
pub(crate) struct Reader {
    head: [u8; HEADER_BYTES],
    body: Vec<u8>,
    /// Bytes of the head that have arrived, then of the body.
    filled: usize,
    in_body: bool,
    descriptors: Descriptors,
    /// Bytes that a body may have.
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

    /// Takes what has arrived, and returns the header once a message is whole. Until the next call, [`body`](Self::body) and
    /// [`take_descriptors`](Self::take_descriptors) return the rest of this message.
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

    /// Whether part of a message has arrived.
    pub(crate) fn is_amid(&self) -> bool {
        self.in_body || self.filled > 0
    }

    /// Returns the body of the message that [`advance`](Self::advance) has returned.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Takes the descriptors of this message.
    pub(crate) fn take_descriptors(&mut self) -> Descriptors {
        mem::take(&mut self.descriptors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::wire::header::Command;
    use crate::vfio_user::wire::polling::Wake;
    use crate::vfio_user::wire::sender::{Sender, uncounted};
    use crate::vfio_user::wire::socket::Lost;
    use crate::vfio_user::wire::socket::tests::pair;
    use crate::vfio_user::wire::version::DESCRIPTORS;
    use nix::sys::socket::{setsockopt, sockopt};
    use std::io::IoSlice;
    use std::os::fd::AsFd;

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
            assert!(!sender.send(&left, header, [&[id as u8; 4], &[7, 7]], &descriptors, uncounted).unwrap());
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
    fn too_many_descriptors_are_reported_and_closed() {
        let (left, right) = pair();
        let (sender, mut reader) = (Sender::new(), Reader::new(64));
        let wake = Wake::new().unwrap();
        let header = Header::command(1, Command::Reset, 0);
        sender.send(&left, header, [&[], &[]], &[wake.as_fd(); DESCRIPTORS + 1], uncounted).unwrap();
        let (_, _, descriptors) = take(&mut reader, &right);
        assert_eq!(descriptors.all().unwrap_err(), Lost::TooMany);
        // The next message is not affected.
        sender.send(&left, header, [&[], &[]], &[wake.as_fd()], uncounted).unwrap();
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
        // Descriptors that nobody took are not those of the next message.
        assert_eq!(left.send(&[IoSlice::new(&bytes)], &[wake.as_fd()]), Ok(bytes.len()));
        assert!(reader.advance(&right).unwrap().is_some());
        assert_eq!(left.send(&[IoSlice::new(&bytes)], &[]), Ok(bytes.len()));
        assert!(take(&mut reader, &right).2.is_empty());
    }

    #[test]
    fn a_body_may_have_as_many_bytes_as_the_limit() {
        let (left, right) = pair();
        for bytes in [0, 1, 64] {
            let header = Header::command(1, Command::Reset, bytes);
            assert_eq!(Sender::new().send(&left, header, [&vec![5; bytes], &[]], &[], uncounted), Ok(false));
            assert_eq!(take(&mut Reader::new(64), &right).1, vec![5; bytes]);
        }
    }

    #[test]
    fn peeking_leaves_the_header_in_the_socket() {
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
    fn other_control_messages_are_no_descriptors() {
        let (left, right) = pair();
        setsockopt(&right, sockopt::PassCred, &true).unwrap();
        let (mut reader, wake) = (Reader::new(64), Wake::new().unwrap());
        let header = Header::command(1, Command::Reset, 0);
        for count in [0, 1] {
            let descriptors = vec![wake.as_fd(); count];
            assert_eq!(Sender::new().send(&left, header, [&[], &[]], &descriptors, uncounted), Ok(false));
            assert_eq!(take(&mut reader, &right).2.all().unwrap().len(), count);
        }
    }

    #[test]
    fn an_invalid_size_ends_the_stream() {
        for size in [0u32, 15, 16 + 65, u32::MAX] {
            let (left, right) = pair();
            let header = Header { size, ..Header::command(1, Command::Reset, 0) };
            assert_eq!(left.send(&[IoSlice::new(&header.encode())], &[]), Ok(HEADER_BYTES));
            assert_eq!(Reader::new(64).advance(&right), Err(Ended::Size(size)));
        }
    }
}
