//! Folds: which contributions there are, where they are, and what the reduction units make of them.

use std::slice;

use cmdseq::ranges::{Reduced, Transfers};
use cmdseq::reduction::{Accumulator, Combine};

use crate::net::payload::Payload;

/// The fold of one instruction.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) reduced: Reduced,
    /// Where the partial results are written, by rank; empty if only the last result is.
    pub(crate) partials: Vec<u64>,
    /// Bytes of the current piece.
    pub(crate) accumulator: Option<Accumulator>,
    /// Number of receives from lower ranks.
    pub(crate) lower: usize,
    /// Contributions of other cards, in the order of the receives.
    pub(crate) contributions: Vec<Contribution>,
    /// What does not lie together is put together here.
    pub(crate) scratch: Vec<u8>,
    /// Contributions whose last beat has not reached the units, including the card's own.
    pub(crate) missing: usize,
    /// Eager: the bytes that arrived were drained from the receive buffers.
    pub(crate) is_drained: bool,
    pub(crate) is_counted: bool,
}

/// Location of a contribution's data.
#[derive(Debug, Clone)]
pub(crate) enum Contribution {
    /// Not arrived.
    Missing,
    /// A link brought it.
    Carried(Payload),
    /// In the card's own memory, at this address.
    Own(u64),
}

impl Fold {
    /// The fold of `transfers`, with `lower` receives from lower ranks; `None` if they do not fold.
    pub(crate) fn of(transfers: &Transfers, combine: Combine, lower: usize) -> Option<Self> {
        let (reduced, receives) = (transfers.reduced?, transfers.receives.len());
        let missing = receives + usize::from(reduced.own.is_some());
        let contributions = vec![Contribution::Missing; receives];
        let accumulator = Accumulator::new(combine);
        let partials = transfers.partials.clone();
        Some(Fold {
            reduced,
            partials,
            accumulator,
            lower,
            contributions,
            scratch: Vec::new(),
            missing,
            is_drained: false,
            is_counted: false,
        })
    }

    /// The fold of two operands of `bytes` in the card's own memory.
    pub(crate) fn of_two(combine: Combine, [first, second]: [u64; 2], destination: u64, bytes: u64) -> Self {
        Fold {
            reduced: Reduced { own: Some(second), destination, bytes },
            partials: Vec::new(),
            accumulator: Accumulator::new(combine),
            lower: 1,
            contributions: vec![Contribution::Own(first)],
            scratch: Vec::new(),
            missing: 0,
            is_drained: false,
            is_counted: false,
        }
    }

    /// Whether each contribution has a result of its own.
    pub(crate) fn keeps_partials(&self) -> bool {
        !self.partials.is_empty()
    }

    /// Returns where results are written.
    pub(crate) fn results(&self) -> &[u64] {
        if self.keeps_partials() { &self.partials } else { slice::from_ref(&self.reduced.destination) }
    }
}
