//! UNIX sockets, asked without connecting: a connection resets a card, and takes the place of a rank that comes to a meeting.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Who is behind a UNIX socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A server, or somebody whom this user may not ask for.
    Server,
    /// Nobody: the process that made it was killed, and has left it.
    Nobody,
    /// A process that takes datagrams, as no server of cards does.
    Datagrams,
}

/// Finds who is behind `socket`. A file that is no socket has nobody behind it.
///
/// Sends nothing: a datagram socket is refused as of the wrong type by a server, which does not notice, and as unconnected by the
/// socket that a killed process has left.
pub(crate) fn behind(socket: &Path) -> Behind {
    match UnixDatagram::unbound().and_then(|probe| probe.connect(socket)) {
        Ok(()) => Behind::Datagrams,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Behind::Nobody,
        Err(_) => Behind::Server,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn who_is_behind_a_socket_is_found_without_connecting() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let server = UnixListener::bind(path("server")).unwrap();
        server.set_nonblocking(true).unwrap();
        assert_eq!(behind(&path("server")), Behind::Server);
        assert_eq!(server.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(server);
        assert_eq!(behind(&path("server")), Behind::Nobody);
        let datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        assert_eq!(behind(&path("datagrams")), Behind::Datagrams);
        drop(datagrams);
        assert_eq!(behind(&path("datagrams")), Behind::Nobody);
    }
}
