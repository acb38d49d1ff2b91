//! The order in which a reduction folds the contributions of the ranks, where that shows in the bits.

use crate::named::by_name;

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
