//! Why functions are gone.

/// Why a function is gone, as far as its bus knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ending {
    /// The bus requested the release of the function.
    #[error("the bus requested its release")]
    ReleaseRequested,
    /// This process closed the connection to the function's server.
    #[error("this process closed the connection")]
    Closed,
    /// The function's server closed the connection, or its process has ended.
    #[error("the server closed the connection")]
    ServerClosed,
    /// The function's server broke the protocol or a limit, or the socket failed: what happened.
    #[error("{0}")]
    Fault(String),
}
