//! Why programs are refused: for people a sentence, for programs a name.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $item:ident = $text:literal,)*) => {
        /// Why nothing is planned or launched.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[doc = $doc])* $item,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$item,)*];

            /// Name in `--json` and in `docs/verifier.md`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Reason::$item => $text,)*
                }
            }

            /// What it says, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Reason::$item => concat!($($doc),*).trim_ascii(),)*
                }
            }
        }
    };
}

reasons! {
    /// What is asked of the planner cannot be, or no algorithm does it here.
    Request = "request",
    /// There is not one program for each rank, or a rank's node does not exist.
    Programs = "programs",
    /// A communicator cannot be defined as it is given.
    Communicators = "communicators",
    /// A field has a value that its operation does not allow.
    Field = "field",
    /// The cards do not have the operation, element type, reduction, signal, table or slot.
    Unsupported = "unsupported",
    /// An instruction names a communicator that is not defined on its card.
    Membership = "membership",
    /// Root or peer is not a rank of the communicator, or is the rank itself.
    Rank = "rank",
    /// There is no link between two cards that exchange something.
    Link = "link",
    /// A range leaves card memory, here or at the peer.
    Memory = "memory",
    /// A striped block does not fit its half of a stripe.
    Stripe = "stripe",
    /// An instruction writes what it also reads or writes itself.
    Overlap = "overlap",
    /// A piece that is sent eagerly does not fit the receive buffer.
    EagerOverrun = "eager-overrun",
    /// Members of a communicator run different operations together.
    OperationMismatch = "operation-mismatch",
    /// Two that exchange something say different numbers of bytes.
    BytesMismatch = "bytes-mismatch",
    /// Members of a communicator divide different vectors.
    ExtentMismatch = "extent-mismatch",
    /// Tables of block lengths do not say the same at both ends.
    TableMismatch = "table-mismatch",
    /// Contributions to one fold are of different types.
    TypeMismatch = "type-mismatch",
    /// Contributions to one fold are folded differently.
    ReductionMismatch = "reduction-mismatch",
    /// Members of a communicator name different roots.
    RootMismatch = "root-mismatch",
    /// One sends eagerly and the other waits for rendezvous.
    TransportMismatch = "transport-mismatch",
    /// Instructions that meet have different tags, neither of them 0.
    TagMismatch = "tag-mismatch",
    /// Two instructions would meet, were they on the same communicator.
    CommunicatorMismatch = "communicator-mismatch",
    /// An instruction finds no partner: none is left in the partner's program.
    Unmatched = "unmatched",
    /// Instructions wait for each other in a cycle.
    Deadlock = "deadlock",
    /// A wait for a signal to which not enough can be added.
    NoSignal = "no-signal",
    /// Something is added to a signal that nothing waits for.
    SignalLeft = "signal-left",
    /// More can be added to a signal than its 32 bits hold.
    SignalOverflow = "signal-overflow",
    /// What a put with signal brings is read or overwritten without a wait for its signal.
    UseBeforeSignal = "use-before-signal",
    /// One writes what another reads or writes, and nothing orders the two.
    Race = "race",
    /// A program or table that is launched or used is not there, or cannot be stored.
    Stored = "stored",
    /// The programs take more than one of the verifier's limits allows.
    TooLong = "too-long",
    /// The programs do not do what is expected of them.
    Expectation = "expectation",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why nothing was planned or launched. Names rank and instruction where there are any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause}", place(*rank, *instruction))]
pub struct Refusal {
    /// Rank it is about.
    pub rank: Option<u32>,
    /// Index of the instruction in that rank's program.
    pub instruction: Option<usize>,
    /// What kind of mistake it is.
    pub reason: Reason,
    /// What is wrong, and what would be right.
    pub cause: String,
}

impl Refusal {
    /// Of the request or the fabric as a whole.
    pub(crate) fn general(cause: String) -> Self {
        Refusal { rank: None, instruction: None, reason: Reason::Request, cause }
    }

    /// Of one rank.
    pub(crate) fn of(rank: usize, cause: String) -> Self {
        Refusal { rank: Some(rank as u32), ..Refusal::general(cause) }
    }

    /// Of one instruction of one rank.
    pub(crate) fn at(rank: usize, instruction: usize, cause: String) -> Self {
        Refusal { instruction: Some(instruction), ..Refusal::of(rank, cause) }
    }

    /// The same, for another reason.
    pub(crate) fn because(self, reason: Reason) -> Self {
        Refusal { reason, ..self }
    }
}

fn place(rank: Option<u32>, instruction: Option<usize>) -> String {
    match (rank, instruction) {
        (Some(rank), Some(instruction)) => format!("rank {rank}, instruction {instruction}: "),
        (Some(rank), None) => format!("rank {rank}: "),
        _ => String::new(),
    }
}

/// What is wrong with an instruction by itself; the caller knows where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: Reason,
    pub(crate) cause: String,
}

impl Fault {
    pub(crate) fn new(reason: Reason, cause: impl Into<String>) -> Self {
        Fault { reason, cause: cause.into() }
    }
}
