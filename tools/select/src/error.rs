//! Errors of selectors.

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
