//! What can be wrong with a list.

/// Error of a walk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The list makes no sense.
    #[error("{0}")]
    List(String),
    /// The bus refused an access.
    #[error(transparent)]
    Bus(#[from] fpga_hal::Error),
}
