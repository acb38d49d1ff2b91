//! Userspace driver for FPGA cards with a command sequencer.
//!
//! It finds the sequencer on a card and reads its capabilities ([`Card`]), submits instructions and takes completions
//! ([`QueuePair`], [`Bound`], [`Token`]), moves data between host and card memory, stores resident programs ([`Resident`]),
//! defines communicators ([`Communicator`]), and runs programs on the cards of a group: plans with their times
//! ([`Cluster::execute`], [`Report`]), a caller's own ([`Cluster::run`]), and stored ones that are launched repeatedly
//! ([`Prepared`]). Programs on the hosts of two cards have pipes ([`PipeWriter`], [`PipeReader`]), and cards of a CIRCUS network have
//! channels ([`channel`]). Cards of Novo-G# have statically scheduled routers ([`routed`]). Images are loaded into the [`region`] of a
//! card. Parts of the makers' shells are the DMA engines of AMD ([`xdma`]) and Intel ([`msgdma`]) and the control functions of Intel
//! cards ([`dfl`]). `fpga-hal` reaches the cards; `cmdseq` defines instructions.
//!
//! ```text
//!   Cluster ── Card 0 ── QueuePair ── push: store the word ──▶ submission ring ──▶ ┐
//!         │                        ── ring: one MMIO write ─▶ doorbell ──────────▶ ├ sequencer
//!         │                        ◀─ poll: the phase turns ── completion ring ◀── ┘
//!         ├─ Card 1 ── ...            wait: spin, then sleep on the interrupt
//! ```
//!
//! ```
//! use cmdseq::{Instruction, Operand};
//! use fpga_driver::Card;
//! use fpga_hal::{Domain, in_process};
//! use fpga_mock::{Fabric, Profile};
//! use std::time::Duration;
//!
//! // A mock card in this process. A card in a slot is a `Function` of `fpga_hal::vfio::open`.
//! let fabric = Fabric::new(Profile::optweb(2))?;
//! let function = in_process::attach(fabric.endpoint(0), &Domain::in_process(), "example")?;
//!
//! let mut card = Card::open(function)?;
//! card.write_memory(0, b"sixteen bytes...")?;
//! let copy = Instruction::copy(Operand::card(0), Operand::card(4096), 16);
//! let token = card.queue_mut().submit(copy)?;
//! let completion = card.wait(&token, Duration::from_secs(1))?;
//! println!("{} cycles of a {} kHz clock", completion.t2, card.capabilities().clock_khz);
//! let mut back = [0; 16];
//! card.read_memory(4096, &mut back)?;
//! assert_eq!(&back, b"sixteen bytes...");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With rings in host memory, submitting costs one MMIO write and no MMIO read, lock, allocation or system call, and taking
//! completions costs one MMIO write for every half ring. Every wait is bounded. Host memory that an instruction names is kept
//! until the card has completed the instruction, or has certainly stopped: see [`Bound`] and [`State`].
//!
//! # Modules
//!
//! Each folder uses only those to its left; no two files use each other.
//!
//! ```text
//! feature list ◀ sequencer ◀ xdma ◀ transport ◀ shell ◀ card ◀ communicators, report ◀ cluster
//!                          ◀ ledger ◀ queue             ◀ pipe
//!                          ◀ msgdma             ◀ shell
//!                          ◀ channel, dfl ◀ region                                   ◀ routed
//!                          ◀ xdma ◀ alveo ◀ region
//!                registers   DMA     host ring   how a  memory   registry     times    execute, run
//!                of the      engine  card ring   card   programs contexts     summary  prepare, launch
//!                block                           is fed tables                         calibrate
//! ```
//!
//! A card whose sequencer masters nothing is behind AMD's engine ([`Feed`]): then data and completions move by it, and instructions
//! must not name host memory.
//!
//! # Threads and locks
//!
//! The driver starts no thread but those that close the cards of a [`Cluster`] side by side on the kernel's VFIO. Its only lock is on
//! the list of a channel card's free ends, for a few lines. A [`Card`] and its queue have one owner at a time, which the borrow checker
//! enforces: every call that changes something takes `&mut self`. They may be moved to another thread. The one thing that threads
//! share is the state of a queue's cells, because a [`Token`] may be dropped on any thread; it is atomic, and its order is checked by
//! a model.
//!
//! `fpga-hal` has locks, of its own, for mapping memory, interrupts and connections. The driver holds nothing of its own while
//! it calls `fpga-hal`, and `fpga-hal` never calls the driver, so no order of locks spans the two crates. Mapped registers,
//! rings in host memory and completions take no lock at all.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod alveo;
pub mod board;
mod card;
pub mod channel;
mod cluster;
mod communicators;
mod completion;
mod deadline;
pub mod dfl;
mod error;
pub mod feature_list;
mod ledger;
mod meanings;
pub mod msgdma;
mod peers;
mod pipe;
mod progress;
mod queue;
pub mod readings;
pub mod region;
mod report;
pub mod routed;
mod sequencer;
mod shell;
mod stats;
pub mod trace;
mod transport;
pub mod xdma;

pub use board::Feed;
pub use card::Card;
pub use card::control::CardFunctions;
pub use card::resident::Resident;
pub use cluster::agreement::digest;
pub use cluster::blame::Unfinished;
pub use cluster::calibrate::calibrate;
pub use cluster::persistent::Prepared;
pub use cluster::registration::Among;
pub use cluster::run::Outcome;
pub use cluster::{Cluster, in_phase};
pub use communicators::contexts::Contexts;
pub use communicators::roster::Member;
pub use communicators::{Choice, Communicator};
pub use error::{Error, ErrorKind, NO_DETAIL, Result};
pub use ledger::bound::Bound;
pub use ledger::state::State;
pub use ledger::submission::Submission;
pub use ledger::token::Token;
pub use peers::{Alone, Peers, PeersError};
pub use pipe::end::{PIPE_BUF, PIPE_BYTES, Pipe};
pub use pipe::error::PipeError;
pub use pipe::reader::PipeReader;
pub use pipe::writer::PipeWriter;
pub use queue::{QueuePair, check};
pub use report::repetitions::{REPETITIONS_KEPT, Release};
pub use report::summary::Summary;
pub use report::times::Times;
pub use report::{COMPLETIONS_KEPT, Execution, RankReport, Report};
pub use sequencer::discover::find_sequencer;
pub use sequencer::health::{Health, PcieErrors};
pub use sequencer::state::{Current, SequencerState};
pub use stats::{
    CardStats, OwnerState, PublishedSensors, SensedValue, StatsError, StatsFile, list_stats, read_stats,
    remove_gone_stats,
};
