//! Where the data of a plan lies.

use crate::Operand;
use crate::ranges::Range;

/// Where the data of a plan lies, if the planner is not to choose: the same addresses on every card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The ranks' input. Several blocks may be striped; a single one is in block layout.
    pub input: Operand,
    /// The ranks' output, likewise. It may be where the input is, for algorithms that work in place.
    pub output: Operand,
    /// Room for what lies between, apart from both.
    pub between: Range,
}
