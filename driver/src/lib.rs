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

mod blame;
mod block;
mod bound;
mod calibrate;
mod card;
mod cluster;
mod communicator;
mod communicators;
mod deadline;
mod discover;
mod error;
mod execute;
mod health;
mod host_ring;
mod lanes;
mod ledger;
mod memory;
mod persistent;
mod queue;
mod queue_state;
mod registry;
mod repetitions;
mod report;
mod resident;
mod sequencer_state;
mod stopping;
mod summary;
mod synchronise;
mod tables;
mod times;
mod token;
mod waiting;

// The card that the tests of the whole driver have, for those of its parts.
#[cfg(test)]
extern crate self as fpga_driver;
#[cfg(test)]
#[allow(dead_code, reason = "it is made for more tests than there are here")]
#[path = "../tests/wire/fake.rs"]
mod fake;

pub use blame::Unfinished;
pub use bound::Bound;
pub use calibrate::calibrate;
pub use card::Card;
pub use cluster::Cluster;
pub use communicator::{Choice, Communicator};
pub use communicators::Contexts;
pub use discover::find_sequencer;
pub use error::{Error, NO_DETAIL, Result};
pub use health::{Health, PcieErrors};
pub use persistent::Prepared;
pub use queue::{QueuePair, check};
pub use queue_state::State;
pub use repetitions::{REPETITIONS_KEPT, Release};
pub use report::{COMPLETIONS_KEPT, Execution, RankReport, Report};
pub use resident::Resident;
pub use sequencer_state::{Current, SequencerState};
pub use summary::Summary;
pub use times::Times;
pub use token::Token;
