//! Errors of graphs.

use crate::refusal::Refusal;
use crate::request::Collective;

/// Why a graph has no schedule, or a buffer cannot be bound to an address. Steps are identified by number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The graph has no steps.
    #[error("the graph has no steps")]
    NoSteps,
    /// Buffers or steps are not valid, do not fit each other, or do not fit the cards.
    #[error("{cause}")]
    Definition {
        /// The step, if it concerns one.
        step: Option<usize>,
        /// What is wrong, with the step and the buffer.
        cause: String,
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
    /// The buffer is unknown or not rebindable.
    #[error("buffer {buffer:?} is not rebindable (available: {})", .bindable.join(", "))]
    NotBindable {
        /// The buffer.
        buffer: String,
        /// The rebindable buffers.
        bindable: Vec<String>,
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

impl GraphError {
    /// The error of a graph.
    pub(super) fn general(cause: String) -> Self {
        GraphError::Definition { step: None, cause }
    }

    /// The error of a step; its number begins the message.
    pub(super) fn of(step: usize, cause: &str) -> Self {
        GraphError::Definition { step: Some(step), cause: format!("step {step}{cause}") }
    }
}
