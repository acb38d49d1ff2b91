//! One-sided transfers in progress, and what they ask of the peer.

use cmdseq::instruction::{Rights, Window};

use crate::engine::streams::ResourceId;
use crate::net::payload::Payload;
use crate::proto::optweb::signal::Signal;

/// What a one-sided operation asks of a card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) window: Option<Window>,
    pub(crate) rights: Rights,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Permission for one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The card has no windows.
    Unchecked,
    /// Through the window in `slot` with this number.
    Window { slot: usize, number: u64 },
}

/// A one-sided transfer in progress.
#[derive(Debug)]
pub(crate) struct Rdma {
    pub(crate) is_read: bool,
    /// Source card and address.
    pub(crate) source: (usize, u64),
    /// Destination card and address.
    pub(crate) destination: (usize, u64),
    pub(crate) out: Box<[ResourceId]>,
    /// Picoseconds that the links after the first add.
    pub(crate) farther_ps: u64,
    /// Port of the issuer, and session of its link when the transfer began.
    pub(crate) port: usize,
    pub(crate) session: u32,
    /// The data, from when its last beat is out.
    pub(crate) data: Option<Payload>,
    /// Added to the peer's signal when the data has arrived.
    pub(crate) signal: Option<Signal>,
    pub(crate) peer: usize,
    /// What it asks of the peer, and the peer's permission.
    pub(crate) request: Request,
    pub(crate) admitted: Option<Admission>,
}
