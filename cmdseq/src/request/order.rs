//! The order in which a reduction folds the contributions of the ranks.

use crate::named::{named, parsed};

named! {
    /// The required order of a reduction.
    #[derive(Default)]
    Order {
        /// The order of the algorithm: the same on every run and every rank, but dependent on algorithm and number of ranks.
        #[default]
        Any, "any";
        /// `(((c_0 . c_1) . c_2) ... . c_(N-1))` with every fold of two rounded to the element type, as in a loop over the ranks:
        /// the same bits with every algorithm and on every fabric.
        Rank, "rank";
    }
}

parsed! { Order("order", UnknownOrder) }
