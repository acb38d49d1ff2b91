//! Why a connection has ended.

use nix::errno::Errno;

use crate::vfio_user::wire::reader::Ended;

/// Why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ending {
    /// This process closed the connection.
    #[error("this process closed the connection")]
    Closed,
    /// The server closed the connection, or its process has ended.
    #[error("the server closed the connection")]
    ServerClosed,
    /// The server broke the protocol or a limit, or the socket failed.
    #[error("{0}")]
    Fault(String),
}

impl Ending {
    /// Returns the ending for a server that `did` what it must not.
    pub(super) fn fault(did: impl std::fmt::Display) -> Self {
        Ending::Fault(format!("the server {did}"))
    }

    /// Whether the connection did not end in the ordinary way.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Ending::Fault(_))
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
