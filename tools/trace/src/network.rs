//! What the network of the cards says of itself, if it is a fabric of this process.

/// Data that a card sent to another, in the network's own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Node that sent the data.
    pub from: u32,
    /// Node that received it.
    pub to: u32,
    /// Bytes of data.
    pub bytes: u64,
    /// First beat on the link, in picoseconds.
    pub begin_ps: u64,
    /// After the last beat.
    pub end_ps: u64,
    /// Rate of the link, in megabits a second.
    pub link_mbps: u64,
    /// Node whose instruction the transfer belongs to.
    pub node: u32,
    /// Tag of that instruction.
    pub tag: u16,
    /// When it was issued, in picoseconds.
    pub issued_ps: u64,
}

/// A fabric that knows when its cards counted what, and what its links carried.
pub struct Network<'a> {
    /// The transfers.
    pub transfers: Vec<Transfer>,
    /// Transfers that had no room.
    pub dropped: u64,
    /// Returns when the counter of the card at a node had a value, in picoseconds of the network's time.
    pub time_of: &'a dyn Fn(u32, u64) -> Option<u64>,
}
