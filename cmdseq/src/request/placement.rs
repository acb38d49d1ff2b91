//! The placement of a plan's data.

use crate::Operand;
use crate::ranges::Range;

/// The placement of a plan's data, with the same addresses on every card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The input. Several blocks may be striped; a single block is not.
    pub input: Operand,
    /// The output, likewise. It may equal the input, for algorithms that work in place.
    pub output: Operand,
    /// Intermediate memory, disjoint from both. Cards outside of the group that relay use no other memory.
    pub between: Range,
}
