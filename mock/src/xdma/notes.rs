//! What tests ask a card about its host.

use crate::xdma::channel::Direction;

/// What a host did that the product guide forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Descriptors that follow one another cross a boundary of 4 KiB.
    ListCrossesPage,
    /// A list is not aligned to 32 bytes.
    MisalignedList,
    /// A descriptor moves no bytes.
    NoBytes,
    /// RUN rose while the channel was busy.
    StartedWhileBusy,
    /// An access to the DMA BAR was not of 4 bytes.
    NotFourBytes,
}

/// A fetch of descriptors by a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// Direction of the channel.
    pub direction: Direction,
    /// Number of the channel.
    pub channel: u32,
    /// Address of the first descriptor.
    pub iova: u64,
    /// Descriptors.
    pub count: u32,
}
