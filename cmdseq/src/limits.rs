//! What verifying may compute and keep. A set of programs past a limit is refused as [`Reason::TooLong`], with the limit's
//! name.

use crate::refusal::{Reason, Refusal};

/// Instructions of all ranks together that loops are unrolled to.
pub const EXPANDED_MAX: usize = 1 << 20;
/// Instructions times ranks, of programs with one-sided operations: for each instruction it is known what is over of every
/// rank.
pub const ORDERED_MAX: u64 = 1 << 31;
/// Numbers of instructions that are kept of what ranks know of each other, 4 bytes each.
pub const KNOWN_MAX: usize = 1 << 25;
/// Uses of memory that one-sided operations touch, which are kept to find races.
pub const USES_MAX: usize = 1 << 23;
/// Earlier uses and puts that later ones are compared with.
pub const COMPARED_MAX: u64 = 1 << 28;
/// Blocks of instructions that are looked at one by one, and pairs of blocks of vector forms that are compared.
pub const BLOCKS_MAX: u64 = 1 << 27;
/// Pieces of memory that are kept to find out what an output is: in the memory of all cards, on their way, or in folds.
pub const PIECES_MAX: usize = 1 << 22;
/// Pieces of memory that are read, written and folded to find out what an output is.
pub const MOVED_MAX: usize = 1 << 25;
/// Inputs that are looked for in folds, to find out whether an output is as expected.
pub const INPUTS_MAX: u64 = 1 << 28;

/// That `what` is more than `most`, the limit called `name`.
pub(crate) fn too_long(name: &str, most: impl std::fmt::Display, what: &str) -> Refusal {
    Refusal::general(format!("verifying it takes more than {most} {what} (limit {name}); divide the programs"))
        .because(Reason::TooLong)
}
