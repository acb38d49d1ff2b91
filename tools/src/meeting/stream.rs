//! UNIX and TCP sockets alike; none of them blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::meeting::address::Address;
use crate::meeting::part::Part;
use crate::meeting::resolver::resolve;
use crate::unix_sockets::{self, Behind, Table};

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Time limit of one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(1);

impl Stream {
    /// Connects, if somebody listens, within `most` but for a moment. A name that is not resolved by then is
    /// [`ErrorKind::TimedOut`]; a UNIX socket with as many waiting connections as it holds is [`ErrorKind::WouldBlock`].
    pub(super) fn connect(part: &Part, most: Duration) -> io::Result<Stream> {
        let began = Instant::now();
        match &part.address {
            Address::Unix(path) => {
                let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
                let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
                connect(socket.as_raw_fd(), &UnixAddr::new(path)?).map_err(|errno| match errno {
                    Errno::EAGAIN => {
                        io::Error::new(ErrorKind::WouldBlock, "as many connections wait there as it holds")
                    }
                    errno => errno.into(),
                })?;
                Ok(Stream::Unix(socket.into()))
            }
            Address::Tcp(place) => {
                let mut outcome = Err(io::Error::new(ErrorKind::NotFound, "the host has no address"));
                for address in resolve(place, most, &part.stop)? {
                    let left = most.saturating_sub(began.elapsed());
                    // None at all is not allowed.
                    let limit = ATTEMPT.min(left).max(Duration::from_millis(1));
                    outcome = TcpStream::connect_timeout(&address, limit).and_then(Stream::connected);
                    if outcome.is_ok() || left.is_zero() {
                        break;
                    }
                }
                outcome
            }
        }
    }

    /// Takes a connection to rank 0. If nobody listens at a port of this host, the kernel may choose the same port for this end, which is
    /// then connected to itself, and keeps rank 0 from the port.
    fn connected(stream: TcpStream) -> io::Result<Stream> {
        if stream.local_addr()? == stream.peer_addr()? {
            return Err(io::Error::new(ErrorKind::ConnectionRefused, "connected to itself"));
        }
        Stream::tcp(stream)
    }

    fn tcp(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Stream::Tcp(stream))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(buffer),
            Stream::Tcp(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// Where rank 0 listens. Removes its UNIX socket at the end.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens. A name that is not resolved within the time of the meeting is [`ErrorKind::TimedOut`].
    pub(super) fn bind(part: &Part) -> io::Result<Listener> {
        match &part.address {
            Address::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_over(path) => {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)?
                    }
                    outcome => outcome?,
                };
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
            Address::Tcp(place) => {
                let listener = TcpListener::bind(&*resolve(place, part.timeout, &part.stop)?)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tcp(listener))
            }
        }
    }

    /// Returns the next connection, if there is one.
    pub(super) fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match self {
            Listener::Unix(listener, _) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }),
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, _)| Stream::tcp(stream)),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether nobody listens at the socket at `path` any more.
fn is_left_over(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    is_socket && matches!(unix_sockets::behind(path, &Table::read(Path::new("/"))), Ok(Behind::Nobody))
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{SockaddrIn, bind, getsockname};

    use super::*;

    #[test]
    fn a_connection_to_itself_is_refused() {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(socket.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        let address: SockaddrIn = getsockname(socket.as_raw_fd()).unwrap();
        connect(socket.as_raw_fd(), &address).unwrap();
        let refused = Stream::connected(socket.into()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
