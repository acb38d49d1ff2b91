//! Limits of the verifier's time and memory. Programs above one are refused as [`Reason::TooLong`], with the limit's name.

use crate::refusal::{Reason, Refusal};

/// Instructions of all ranks, with loops unrolled.
pub const EXPANDED_MAX: usize = 1 << 20;
/// Instructions times ranks, with one-sided operations: each instruction has a vector clock.
pub const ORDERED_MAX: u64 = 1 << 31;
/// Stored entries of vector clocks, 4 bytes each.
pub const KNOWN_MAX: usize = 1 << 25;
/// Stored uses of memory that one-sided operations access.
pub const USES_MAX: usize = 1 << 23;
/// Comparisons of uses with earlier uses, and of waits with puts.
pub const COMPARED_MAX: u64 = 1 << 28;
/// Blocks checked one by one, and compared pairs of blocks of vector forms.
pub const BLOCKS_MAX: u64 = 1 << 27;
/// Pieces of memory stored for an expectation: in the memory of all cards, in flight, and in folds.
pub const PIECES_MAX: usize = 1 << 22;
/// Pieces of memory read, written and folded for an expectation.
pub const MOVED_MAX: usize = 1 << 25;
/// Inputs searched in outputs for an expectation.
pub const INPUTS_MAX: u64 = 1 << 28;

/// Refuses programs whose verification needs more `what` than the limit `name` of `most`.
pub(crate) fn too_long(name: &str, most: impl std::fmt::Display, what: &str) -> Refusal {
    Refusal::general(format!("verification needs more than {most} {what} (limit {name}); divide the programs"))
        .because(Reason::TooLong)
}
