//! Errors of selectors.

use std::io;
use std::iter::successors;
use std::path::PathBuf;

use fpga_mock::ProfileError;

/// Error of a selector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The selector has none of the known forms.
    #[error("invalid selector {selector:?}: {why}")]
    Syntax {
        /// The selector, as given.
        selector: String,
        /// What is wrong, and what is expected.
        why: String,
    },
    /// The selector is valid, but names a missing card or link.
    #[error("unknown card {selector:?}: {why}")]
    NoCard {
        /// The selector, as given.
        selector: String,
        /// What is missing, and what is available.
        why: String,
    },
    /// The directory of a selector's sockets cannot be read.
    #[error("cannot open {selector:?}: cannot read the directory {}", .path.display())]
    Directory {
        /// The selector, as given.
        selector: String,
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The selector names other cards where mock cards are required.
    #[error("invalid selector {selector:?}: expected a mock fabric, such as mock:optweb:4")]
    NotMock {
        /// The selector, as given.
        selector: String,
    },
    /// The shape is invalid.
    #[error("invalid fabric {selector:?}")]
    Profile {
        /// The selector, as given.
        selector: String,
        /// The reason.
        #[source]
        source: ProfileError,
    },
    /// Opening a card failed.
    #[error("cannot open {selector:?}")]
    Open {
        /// The selector of the card.
        selector: String,
        /// The reason.
        #[source]
        source: fpga_hal::Error,
    },
}

impl Error {
    /// Whether this process or the machine had no file descriptor or no memory left. It says nothing about the card.
    pub fn is_out_of_resources(&self) -> bool {
        self.causes()
            .filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
            .any(|errno| OUT_OF_RESOURCES.contains(&errno))
    }

    pub(crate) fn causes(&self) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
        successors(std::error::Error::source(self), |cause| cause.source())
    }
}

/// `ENOMEM`, `ENFILE` and `EMFILE` of Linux `include/uapi/asm-generic/errno-base.h`.
const OUT_OF_RESOURCES: [i32; 3] = [12, 23, 24];
