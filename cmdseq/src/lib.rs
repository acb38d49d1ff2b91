//! The language of a card's command sequencer.
//!
//! An [`Instruction`] is one 64-byte word to the sequencer, a [`Completion`] one 32-byte word from it; `docs/isa.md`
//! gives every bit. A [`Program`](program::Program) is an ordered list of instructions for one card, and the
//! [planner](plan) makes one program per rank out of a collective, which the [verifier](mod@verify) checks together. Nothing
//! here touches a device.
//!
//! ```
//! use cmdseq::{Instruction, Operand};
//!
//! // Rank 0 scatters 4 KiB to each rank of communicator 0: blocks striped over the memory I/Os at the source, and
//! // stored in the other pseudo channel at the destination.
//! let scatter = Instruction::scatter(0, Operand::card(0).striped(), Operand::card(1 << 28), 4096).with_tag(7);
//! let word = scatter.encode();
//! assert_eq!(word.len(), 64);
//! assert_eq!(Instruction::decode(&word), Ok(scatter));
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod asm;
pub mod calibration;
pub mod capability;
pub mod communicator;
pub mod completion;
pub mod cost;
mod encoded;
pub mod graph;
pub mod instruction;
pub mod limits;
pub mod markdown;
mod matching;
pub mod meaning;
mod named;
pub mod plan;
pub mod program;
pub mod ranges;
pub mod reduction;
pub mod refusal;
pub mod request;
pub mod table;
pub mod verify;

pub use capability::{Capabilities, Topology};
pub use completion::{Completion, Status};
pub use cost::CostModel;
pub use encoded::Encoded;
pub use instruction::{AddressSpace, DecodeError, Flags, Instruction, Layout, Operand, Operation};
pub use ranges::{AddressOverflow, Context, OwnBlock, RangeError, Transfer, Transfers, transfers};
pub use reduction::{Combine, Element, Reduction};
pub use refusal::{Reason, Refusal};
pub use table::{Table, Tables};
pub use verify::verify;
