//! The order in which a reduction folds the contributions of the ranks, where that shows in the bits.

use super::{Algorithm, Refusal, Request};
use crate::named::by_name;
use crate::{Combine, Element, Reduction};

/// The order that a reduction must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// That of the algorithm: the same on every run and every rank, but another with another algorithm or number of ranks.
    #[default]
    Any,
    /// `(((c_0 . c_1) . c_2) ... . c_(N-1))` with every fold of two rounded to the type of the elements, as a loop over
    /// the ranks gives it: the same bits with every algorithm and on every fabric.
    Rank,
}

impl Order {
    /// All of them.
    pub const ALL: &[Order] = &[Order::Any, Order::Rank];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Order::Any => "any",
            Order::Rank => "rank",
        }
    }
}

by_name! { Order("order", UnknownOrder) { "any", "rank" } }

impl Request {
    /// Whether the contributions must be folded one after another in the order of ranks, because any other order could give
    /// other bits.
    pub(super) fn needs_rank_order(&self) -> bool {
        self.order == Order::Rank && self.ranks() > 2 && self.combine.is_some_and(Combine::depends_on_order)
    }
}

/// Refuses an algorithm that folds in another order than the request's.
pub(super) fn check(request: &Request, algorithm: Algorithm) -> Result<(), Refusal> {
    let Some(combine) = request.combine.filter(|_| request.needs_rank_order()) else { return Ok(()) };
    let cause = match algorithm {
        // One that does not fold is refused for that.
        Algorithm::Ring | Algorithm::TwoLevel | Algorithm::Pairwise => return Ok(()),
        Algorithm::Direct | Algorithm::Multipath if !combine.element.is_narrow() => return Ok(()),
        Algorithm::Direct | Algorithm::Multipath => format!(
            "{algorithm} rounds a {combine} once, behind all ranks; in the order of ranks it is rounded at each of them, as \
             ring and two-level do"
        ),
        Algorithm::Binomial | Algorithm::RecursiveDoubling | Algorithm::HalvingDoubling => format!(
            "{algorithm} folds pairs of ranks first, which gives other bits of a {combine} than the order of ranks; {} keep \
             that",
            if combine.element.is_narrow() { "ring and two-level" } else { "direct, multipath, ring and two-level" }
        ),
    };
    Err(Refusal::general(cause))
}

impl Combine {
    /// Whether folding in another order can give other bits: only sums and products of floats are rounded. All else is the
    /// same in any order, NaNs and zeros with their signs too.
    pub const fn depends_on_order(self) -> bool {
        matches!(self.reduction, Reduction::Sum | Reduction::Prod)
            && matches!(self.element, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }
}
