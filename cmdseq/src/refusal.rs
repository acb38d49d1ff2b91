//! Refusals of the planner and the verifier: a reason for programs, a message for people.

use crate::named::explained;

explained! {
    /// The kind of a refusal. Its name is that in `--json` output and in `docs/verifier.md`.
    Reason {
        /// The request is invalid, or no algorithm can run it on these cards.
        Request, "request";
        /// Programs and ranks do not correspond, or a rank's node does not exist.
        Programs, "programs";
        /// The definition of a communicator is invalid.
        Communicators, "communicators";
        /// The value of a field is invalid for the operation.
        Field, "field";
        /// The cards lack the operation, element type, reduction, signal, table or slot, or do not reach host memory.
        Unsupported, "unsupported";
        /// An instruction uses a communicator that is not defined on its card.
        Membership, "membership";
        /// Root or peer is not a rank of the communicator, or is the own rank.
        Rank, "rank";
        /// Two cards that exchange data have no link.
        Link, "link";
        /// A range exceeds card memory, of the own card or the peer.
        Memory, "memory";
        /// A striped block exceeds its half of a stripe.
        Stripe, "stripe";
        /// An instruction writes bytes that it also reads or writes elsewhere.
        Overlap, "overlap";
        /// An eager piece exceeds the receive buffer.
        EagerOverrun, "eager-overrun";
        /// Members of a communicator run different operations at the same step.
        OperationMismatch, "operation-mismatch";
        /// Instructions that meet have different numbers of bytes.
        BytesMismatch, "bytes-mismatch";
        /// Members of a communicator divide vectors of different lengths.
        ExtentMismatch, "extent-mismatch";
        /// Both ends of a transfer have different block lengths in their tables.
        TableMismatch, "table-mismatch";
        /// Contributions to one reduction have different element types.
        TypeMismatch, "type-mismatch";
        /// Contributions to one reduction have different reductions.
        ReductionMismatch, "reduction-mismatch";
        /// Members of a communicator have different roots.
        RootMismatch, "root-mismatch";
        /// Instructions that meet differ in protocol: one is eager, the other rendezvous.
        TransportMismatch, "transport-mismatch";
        /// Instructions that meet have different tags, neither of them 0.
        TagMismatch, "tag-mismatch";
        /// Two instructions would meet if they were on the same communicator.
        CommunicatorMismatch, "communicator-mismatch";
        /// An instruction has no partner in the rest of the partner's program.
        Unmatched, "unmatched";
        /// Instructions wait for each other in a cycle.
        Deadlock, "deadlock";
        /// A wait never ends, because no further put adds to its signal.
        NoSignal, "no-signal";
        /// A signal is not zero after the programs.
        SignalLeft, "signal-left";
        /// The puts to a signal can exceed its 32 bits.
        SignalOverflow, "signal-overflow";
        /// Data of a put_signal is read or overwritten without a wait for its signal.
        UseBeforeSignal, "use-before-signal";
        /// Two accesses to the same bytes, at least one of them a write, are not ordered.
        Race, "race";
        /// A one-sided operation reaches no open window that allows it, or a window is opened twice, closed while in use, or
        /// left open.
        Window, "window";
        /// A resident program or table is missing, or cannot be stored.
        Stored, "stored";
        /// The programs exceed a limit of the verifier.
        TooLong, "too-long";
        /// The programs do not have the expected result.
        Expectation, "expectation";
    }
}

/// A declaration that a refusal concerns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Declaration {
    /// A communicator.
    Communicator {
        /// Its id.
        id: u16,
        /// The ranks of its members, in its order.
        members: Box<[u32]>,
    },
    /// A table.
    Table {
        /// The rank that has it.
        rank: u32,
        /// Its slot.
        slot: u16,
    },
}

/// Why nothing was planned or launched, with rank and instruction if it concerns one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause}", location(*rank, *instruction))]
pub struct Refusal {
    /// The rank.
    pub rank: Option<u32>,
    /// Index of the instruction in that rank's program.
    pub instruction: Option<usize>,
    /// The declaration, if it concerns one and no instruction.
    pub declaration: Option<Declaration>,
    /// The kind.
    pub reason: Reason,
    /// What is wrong, and what fixes it.
    pub cause: String,
}

impl Refusal {
    /// Refuses the whole request.
    pub fn general(cause: String) -> Self {
        Refusal { rank: None, instruction: None, declaration: None, reason: Reason::Request, cause }
    }

    /// Refuses one rank.
    pub(crate) fn of(rank: usize, cause: String) -> Self {
        Refusal { rank: Some(rank as u32), ..Refusal::general(cause) }
    }

    /// Refuses one instruction of one rank.
    pub fn at(rank: usize, instruction: usize, cause: String) -> Self {
        Refusal { instruction: Some(instruction), ..Refusal::of(rank, cause) }
    }

    /// Adds the instruction that it concerns.
    pub(crate) fn located(self, rank: usize, instruction: usize) -> Self {
        Refusal { rank: Some(rank as u32), instruction: Some(instruction), ..self }
    }

    /// Adds the declaration.
    pub(crate) fn in_declaration(self, declaration: Option<Declaration>) -> Self {
        Refusal { declaration, ..self }
    }

    /// Replaces the reason.
    pub fn because(self, reason: Reason) -> Self {
        Refusal { reason, ..self }
    }
}

/// Refuses without a place; the caller knows it.
pub(crate) fn refuse<T>(reason: Reason, cause: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::general(cause.into()).because(reason))
}

fn location(rank: Option<u32>, instruction: Option<usize>) -> String {
    match (rank, instruction) {
        (Some(rank), Some(instruction)) => format!("rank {rank}, instruction {instruction}: "),
        (Some(rank), None) => format!("rank {rank}: "),
        _ => String::new(),
    }
}
