//! Errors of reading sysfs.

use std::io;
use std::path::PathBuf;

use fpga_pci::PciAddress;

/// Why a part of sysfs cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The function does not exist.
    #[error("There is no PCI function {address}")]
    NoFunction {
        /// Address asked for.
        address: PciAddress,
    },
    /// A file, link or directory cannot be read.
    #[error("Cannot read {}", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file or link has unexpected content.
    #[error("{} holds {content:?}: expected {expected}", path.display())]
    Malformed {
        /// Its path.
        path: PathBuf,
        /// The beginning of its content.
        content: String,
        /// The expected content.
        expected: &'static str,
    },
}

/// Result with the [`Error`] of this crate.
pub type Result<T> = std::result::Result<T, Error>;
