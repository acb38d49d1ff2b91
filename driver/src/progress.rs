//! How far the loading of an image has got.

/// How far the loading of an image has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the card has taken.
    pub pushed: u64,
    /// Bytes of the image.
    pub total: u64,
}
