//! The order in which a reduction folds the contributions of the ranks.

use crate::named::by_name;

/// The required order of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The order of the algorithm: the same on every run and every rank, but dependent on algorithm and number of ranks.
    #[default]
    Any,
    /// `(((c_0 . c_1) . c_2) ... . c_(N-1))` with every fold of two rounded to the element type, as in a loop over the ranks: the
    /// same bits with every algorithm and on every fabric.
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
