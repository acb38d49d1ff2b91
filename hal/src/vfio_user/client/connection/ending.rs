//! What ends a connection.

use nix::errno::Errno;

use crate::ending::Ending;
use crate::vfio_user::wire::reader::Ended;

impl Ending {
    /// Returns the ending for a server that `did` what it must not.
    pub(super) fn fault(did: impl std::fmt::Display) -> Self {
        Ending::Fault(format!("the server {did}"))
    }
}

impl From<Errno> for Ending {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EPIPE | Errno::ECONNRESET => Ending::ServerClosed,
            // The sender's limit of bytes that wait.
            Errno::ENOBUFS => Ending::fault("does not read its messages"),
            errno => Ending::Fault(format!("the socket failed: {}", errno.desc())),
        }
    }
}

impl From<Ended> for Ending {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Closed => Ending::ServerClosed,
            Ended::Size(bytes) => Ending::fault(format_args!("sent a message with the invalid size {bytes}")),
            Ended::Failed(errno) => errno.into(),
        }
    }
}

impl From<Ending> for std::io::Error {
    fn from(ending: Ending) -> Self {
        std::io::Error::new(std::io::ErrorKind::ConnectionAborted, ending)
    }
}
