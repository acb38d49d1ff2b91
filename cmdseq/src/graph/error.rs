//! Errors of graphs.

use std::fmt;

use crate::Element;
use crate::refusal::Refusal;
use crate::request::{Algorithm, Collective};

/// A side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The data before the step.
    Input,
    /// The data after the step.
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

/// Why a graph has no schedule, or a buffer cannot be bound to an address. Steps are identified by number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The graph has no steps.
    #[error("the graph has no steps")]
    NoSteps,
    /// Two buffers have the same name.
    #[error("duplicate buffer {name:?}")]
    TwoBuffers {
        /// The name.
        name: String,
    },
    /// A step uses an unknown buffer.
    #[error("step {step}: unknown buffer {buffer:?}")]
    UnknownBuffer {
        /// The step.
        step: usize,
        /// The name.
        buffer: String,
    },
    /// A step follows an unknown step.
    #[error("step {step} follows unknown step {after}")]
    UnknownStep {
        /// The step.
        step: usize,
        /// The unknown step.
        after: usize,
    },
    /// A step has data, but no buffer for it.
    #[error("step {step} has no buffer for its {side} of {bytes} B")]
    NoBuffer {
        /// The step.
        step: usize,
        /// Which side.
        side: Side,
        /// Bytes of the rank with the most data.
        bytes: u64,
    },
    /// A buffer is too small for a step.
    #[error("step {step}: its {side} of {needed} B exceeds buffer {buffer:?} of {bytes} B")]
    TooSmall {
        /// The step.
        step: usize,
        /// Which side.
        side: Side,
        /// The buffer.
        buffer: String,
        /// Bytes of the buffer; if striped, of one block.
        bytes: u64,
        /// Bytes that the step needs.
        needed: u64,
    },
    /// A buffer has another element type.
    #[error("step {step}: buffer {buffer:?} has elements of {held}, expected {expected}")]
    WrongType {
        /// The step.
        step: usize,
        /// The buffer.
        buffer: String,
        /// Element type of the buffer.
        held: Element,
        /// Element type of the step.
        expected: Element,
    },
    /// A step uses a card outside of the graph.
    #[error("step {step}: node {node} is not in the graph's group")]
    NotInGroup {
        /// The step.
        step: usize,
        /// The node.
        node: u32,
    },
    /// Steps depend on each other in a cycle.
    #[error("cyclic order of steps {}", list(.steps))]
    Cycle {
        /// The steps of one cycle.
        steps: Vec<usize>,
    },
    /// The address of a buffer is invalid or in use.
    #[error("buffer {buffer:?} at {address:#x}: {cause}")]
    BadAddress {
        /// The buffer.
        buffer: String,
        /// The address.
        address: u64,
        /// The reason.
        cause: String,
    },
    /// Card memory is too small.
    #[error("no memory left for buffer {buffer:?} of {bytes} B")]
    NoRoom {
        /// The buffer.
        buffer: String,
        /// Its bytes; if striped, of one block.
        bytes: u64,
    },
    /// More buffers than launch arguments are rebindable.
    #[error("too many rebindable buffers: {buffer:?} is the fourth, a launch has three arguments")]
    TooManyArguments {
        /// The fourth buffer.
        buffer: String,
    },
    /// A striped buffer is rebindable.
    #[error("striped buffer {buffer:?} cannot be rebindable")]
    StripedArgument {
        /// The buffer.
        buffer: String,
    },
    /// The buffer is unknown or not rebindable.
    #[error("buffer {buffer:?} is not rebindable (available: {})", .bindable.join(", "))]
    NotBindable {
        /// The buffer.
        buffer: String,
        /// The rebindable buffers.
        bindable: Vec<String>,
    },
    /// The card's communicator table is too small.
    #[error("the steps need {needed} communicators besides communicator 0: the cards' tables have {table} entries")]
    TooManyCommunicators {
        /// Communicators of the steps so far.
        needed: usize,
        /// Entries of the table.
        table: u32,
    },
    /// A plan needs tables, whose slots other plans overwrite.
    #[error("step {step} needs tables on the cards, which graphs do not support")]
    Tables {
        /// The step.
        step: usize,
    },
    /// A plan uses launch arguments itself.
    #[error("step {step}: {algorithm} uses launch arguments, which graphs do not support")]
    Arguments {
        /// The step.
        step: usize,
        /// Its algorithm.
        algorithm: Algorithm,
    },
    /// The planner refuses a step.
    #[error("step {step} ({collective}) is refused")]
    Refused {
        /// The step.
        step: usize,
        /// The collective.
        collective: Collective,
        /// The refusal.
        #[source]
        source: Refusal,
    },
    /// The verifier refuses the programs.
    #[error("the programs of all steps are refused")]
    Whole(#[source] Refusal),
}

fn list(steps: &[usize]) -> String {
    let names: Vec<String> = steps.iter().map(usize::to_string).collect();
    names.join(", ")
}
