//! A block on its way from one rank to another.

/// A block on its way from one rank to another. Addresses are in card memory, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Where it lies at `from`.
    pub(super) source: u64,
    /// Where it, or what it is folded to, comes to lie at `to`.
    pub(super) destination: u64,
    pub(super) bytes: u64,
    /// Where the contribution of `to` lies that it is folded with; `None` if it is not.
    pub(super) own: Option<u64>,
}
