//! Userspace driver for FPGA cards with a command sequencer.
//!
//! What lives here: finding the sequencer on a card and reading what it can do ([`Card`]), its submission and completion
//! rings ([`QueuePair`], [`Bound`], [`Token`]), moving data between host and card memory, resident programs ([`Resident`]),
//! communicators ([`Communicator`]), collectives that are launched again and again ([`Prepared`]), and running the planner's
//! programs on the cards of a group and timing them ([`Cluster`], [`Report`]). How a card is reached is `fpga-hal`'s, what an
//! instruction means is `cmdseq`'s.
//!
//! ```text
//!   Cluster ── Card 0 ── QueuePair ── push: store the word ──▶ submission ring ──▶ ┐
//!         │                        ── ring: one MMIO write ─▶ doorbell ──────────▶ ├ sequencer
//!         │                        ◀─ poll: the phase turns ── completion ring ◀── ┘
//!         ├─ Card 1 ── ...            wait: spin, then sleep on the interrupt
//! ```
//!
//! ```no_run
//! # fn example(function: fpga_hal::Function) -> fpga_driver::Result<()> {
//! use cmdseq::{Instruction, Operand};
//! use fpga_driver::Card;
//! use std::time::Duration;
//!
//! let mut card = Card::open(function)?;
//! card.write_memory(0, b"sixteen bytes...")?;
//! let copy = Instruction::copy(Operand::card(0), Operand::card(4096), 16);
//! let token = card.queue_mut().submit(copy)?;
//! let completion = card.wait(&token, Duration::from_secs(1))?;
//! println!("{} cycles of a {} kHz clock", completion.t2, card.capabilities().clock_khz);
//! let mut back = [0; 16];
//! card.read_memory(4096, &mut back)?;
//! # Ok(())
//! # }
//! ```
//!
//! Submitting costs one MMIO write and no MMIO read, lock, allocation or system call; taking completions costs one MMIO
//! write for every half ring. Every wait is bounded. Host memory that an instruction names is kept until the card has
//! completed the instruction, or has stopped for sure: see [`Bound`] and [`State`].
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod card;
mod cluster;
mod communicators;
mod deadline;
mod error;
mod ledger;
mod queue;
mod report;
mod sequencer;
mod transport;

pub use card::Card;
pub use card::resident::Resident;
pub use cluster::Cluster;
pub use cluster::blame::Unfinished;
pub use cluster::calibrate::calibrate;
pub use cluster::persistent::Prepared;
pub use communicators::contexts::Contexts;
pub use communicators::{Choice, Communicator};
pub use error::{Error, NO_DETAIL, Result};
pub use ledger::bound::Bound;
pub use ledger::state::State;
pub use ledger::token::Token;
pub use queue::{QueuePair, check};
pub use report::repetitions::{REPETITIONS_KEPT, Release};
pub use report::summary::Summary;
pub use report::times::Times;
pub use report::{COMPLETIONS_KEPT, Execution, RankReport, Report};
pub use sequencer::discover::find_sequencer;
pub use sequencer::health::{Health, PcieErrors};
pub use sequencer::state::{Current, SequencerState};
pub use transport::card_ring::RingWindow;
