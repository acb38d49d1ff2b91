//! The language of a card's command sequencer: instructions, programs, assembler, verifier and planner. Nothing here touches a
//! device.
//!
//! An [`Instruction`] is one 64-byte word to the sequencer, a [`Completion`] one 32-byte word from it; `docs/isa.md` defines
//! every bit. A [`Program`](plan::Program) is the list of instructions of one card, a [`ProgramSet`](plan::ProgramSet) the programs of
//! a group of cards. The [planner](mod@plan) makes the set of a collective, the [assembler](asm) makes programs from text, and the
//! [verifier](mod@verify) checks all programs of a set together.
//!
//! ```
//! use cmdseq::asm::{Options, assemble};
//! use cmdseq::plan::ProgramSet;
//! use cmdseq::{Capabilities, Instruction, Operation, Reason, verify};
//!
//! // Two ranks exchange 4 KiB, in text.
//! let text = "\
//! ranks 2
//! buffer out = card size 4KiB
//! buffer in = card size 4KiB
//! sendrecv peer 1 - rank, root 1 - rank, source out, destination in, bytes 4KiB
//! ";
//! let mut no_includes = |_: &str| Err("no includes".to_owned());
//! let assembled = assemble("pair.seq", text, &mut no_includes, &Options::default()).unwrap();
//! let mut set = ProgramSet::new([0, 1], assembled.assembly.programs.iter().map(|rank| rank.instructions.clone()));
//!
//! // The words for the cards, and back.
//! let word = set.programs[0].instructions[0].encode();
//! assert_eq!(Instruction::decode(&word).unwrap().operation, Operation::Sendrecv);
//!
//! // The verifier accepts both programs together, and refuses one of them alone.
//! # let capabilities: Capabilities = Capabilities {
//! #     isa: 1, clock_khz: 250_000, nodes: 2, topology: cmdseq::Topology::FullyConnected, ports: 1, memory_bytes: 8 << 30,
//! #     memory_channels: 32, stripe_half_bytes: 256 << 20, queue_depth_max: 1024, communicators: 32, communicator_ranks: 2,
//! #     communicator_generations: 256, resident_programs: 8, resident_words: 256, signals: 64, tables: 16, windows: 16, lanes: 1,
//! #     address_align: 1, eager_bytes: 16384, eager_limit: 4096, operations: u64::MAX, element_types: u32::MAX, reductions: u32::MAX,
//! #     host_memory: true, reductions_extend: false, extrapolated: false, switch: None,
//! #     timing: cmdseq::capability::Timing {
//! #         dispatch_cycles: 1, memory_read_cycles: 1, handover_cycles: 1, switch_cycles: 1, control_ps: 1, data_ps: 1,
//! #         acknowledge_ps: 1, hop_ps: 0, link_mbps: 1, channel_mbps: 1, host_mbps: 1, beat_bytes: 32, reduce_beat_cycles: 1,
//! #         reduce_unit_cycles: 1,
//! #     },
//! # };
//! assert_eq!(verify(&set, &capabilities), Ok(()));
//! set.programs[1].instructions.clear();
//! let refusal = verify(&set, &capabilities).unwrap_err();
//! assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Unmatched));
//! ```
//!
//! # Modules
//!
//! Each module uses only those in the rows above it.
//!
//! | module | content |
//! |---|---|
//! | [`reduction`] | element types and reductions, with their arithmetic |
//! | [`instruction`], [`completion`], [`Encoded`] | the words to and from the sequencer |
//! | [`capability`], [`table`], `program`, [`communicator`] | what a card reports, stores and runs; ids of communicators |
//! | [`switch`] | collectives that the switches of a network compute |
//! | [`ranges`], `refusal`, [`limits`] | the memory that an instruction accesses; refusals and limits |
//! | `matching` | which instructions run together |
//! | [`mod@verify`] | the verifier |
//! | `request`, [`cost`], [`calibration`] | requests to the planner, and what predictions are based on |
//! | [`meaning`] | the result of programs, compared with a request |
//! | [`mod@plan`] | the planner |
//! | [`graph`] | several collectives as one program |
//! | [`asm`] | the assembler, with files of programs and plans |
//! | [`routing`] | cables, routing tables and their check |
//! | [`markdown`] | the tables of `docs/isa.md` |
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
mod program;
pub mod ranges;
pub mod reduction;
mod refusal;
mod request;
pub mod routing;
pub mod switch;
pub mod table;
pub mod text;
mod topology;
pub mod verify;

pub use capability::Capabilities;
pub use completion::{Completion, Status};
pub use cost::CostModel;
pub use encoded::Encoded;
pub use instruction::{AddressSpace, DecodeError, Flags, Instruction, Layout, Operand, Operation};
pub use ranges::{Context, OwnBlock, RangeError, Transfer, Transfers, transfers};
pub use reduction::{Combine, Element, Reduction};
pub use refusal::{Declaration, Reason, Refusal};
pub use table::{Table, Tables};
pub use topology::{Hop, Topology, TopologyError};
pub use verify::verify;
