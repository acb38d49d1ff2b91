//! Why a graph has no schedule.

use std::fmt;

use crate::Element;
use crate::refusal::Refusal;
use crate::request::{Algorithm, Collective};

/// A side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// What the ranks have before.
    Input,
    /// What they have after.
    Output,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Input => "input",
            Side::Output => "output",
        })
    }
}

/// Why a graph has no schedule, or a buffer cannot be bound to an address. Steps are named by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Nothing to do.
    #[error("the graph has no steps")]
    NoSteps,
    /// Names are not unique.
    #[error("there are two buffers {name:?}")]
    TwoBuffers {
        /// The name.
        name: String,
    },
    /// A step names a buffer that is not there.
    #[error("step {step} names buffer {buffer:?}, which the graph does not have")]
    UnknownBuffer {
        /// The step.
        step: usize,
        /// The name.
        buffer: String,
    },
    /// A step comes after one that is not there.
    #[error("step {step} comes after step {after}, which the graph does not have")]
    UnknownStep {
        /// The step.
        step: usize,
        /// The one it names.
        after: usize,
    },
    /// A step has data and no buffer for it.
    #[error("step {step} has {bytes} B of {side} and no buffer for it")]
    NoBuffer {
        /// The step.
        step: usize,
        /// Which side.
        side: Side,
        /// How much the rank with most of it has.
        bytes: u64,
    },
    /// A buffer does not hold what a step has.
    #[error("step {step}: its {side} of {needed} B does not fit buffer {buffer:?} of {bytes} B")]
    TooSmall {
        /// The step.
        step: usize,
        /// Which side.
        side: Side,
        /// The buffer.
        buffer: String,
        /// Bytes of the buffer, of a striped one of a block.
        bytes: u64,
        /// Bytes that it would need.
        needed: u64,
    },
    /// A buffer holds elements of another type.
    #[error("step {step}: buffer {buffer:?} holds {held}, and the step is of {expected}")]
    WrongType {
        /// The step.
        step: usize,
        /// The buffer.
        buffer: String,
        /// What the buffer holds.
        held: Element,
        /// What the step needs.
        expected: Element,
    },
    /// A step is on a card that the graph is not for.
    #[error("step {step} is on node {node}, which is not one of the graph's")]
    NotInGroup {
        /// The step.
        step: usize,
        /// The node.
        node: u32,
    },
    /// Steps wait for each other.
    #[error("each of these steps would have to come after the one before it, and the first after the last: {}", list(.steps))]
    Cycle {
        /// The steps of one cycle.
        steps: Vec<usize>,
    },
    /// The address of a buffer is not one of the card, or in the way of another.
    #[error("buffer {buffer:?} at {address:#x}: {cause}")]
    BadAddress {
        /// The buffer.
        buffer: String,
        /// Where it would be.
        address: u64,
        /// Why not.
        cause: String,
    },
    /// Memory is too small.
    #[error("there is no room for buffer {buffer:?} of {bytes} B")]
    NoRoom {
        /// The buffer.
        buffer: String,
        /// Its bytes, of a striped one of a block.
        bytes: u64,
    },
    /// A launch has three arguments.
    #[error("buffer {buffer:?} is the fourth to be bound at launch; a launch has three arguments")]
    TooManyArguments {
        /// The fourth.
        buffer: String,
    },
    /// Stripes are where they are.
    #[error("buffer {buffer:?} is striped; only buffers in one piece can be bound at launch")]
    StripedArgument {
        /// The buffer.
        buffer: String,
    },
    /// A buffer was not declared to be rebindable, or is not there.
    #[error("buffer {buffer:?} is none that can be bound at launch; those are: {}", .bindable.join(", "))]
    NotBindable {
        /// The buffer.
        buffer: String,
        /// Those that can.
        bindable: Vec<String>,
    },
    /// The card's table is too small.
    #[error(
        "the steps need {needed} communicators besides that of all cards, and the cards' tables have {table} in all"
    )]
    TooManyCommunicators {
        /// How many the steps need so far.
        needed: usize,
        /// Entries of the table.
        table: u32,
    },
    /// A plan that needs tables in the cards' slots, which other plans write over.
    #[error("step {step} needs tables on the cards; it cannot be part of a graph")]
    Tables {
        /// The step.
        step: usize,
    },
    /// A plan that uses launch arguments itself.
    #[error("step {step}: the programs of {algorithm} use launch arguments, which are the graph's")]
    Arguments {
        /// The step.
        step: usize,
        /// The way chosen for it.
        algorithm: Algorithm,
    },
    /// The planner refuses a step.
    #[error("step {step} ({collective}) is refused")]
    Refused {
        /// The step.
        step: usize,
        /// What it is.
        collective: Collective,
        /// Why.
        #[source]
        source: Refusal,
    },
    /// The verifier refuses the whole.
    #[error("the programs of all steps together are refused")]
    Whole(#[source] Refusal),
}

fn list(steps: &[usize]) -> String {
    let names: Vec<String> = steps.iter().map(usize::to_string).collect();
    names.join(", ")
}
