//! Mock cards on a mock fabric.
//!
//! A [`Fabric`] is a number of cards and the network between them, on one clock of virtual time. Each card is an
//! [`Endpoint`](fpga_hal::Endpoint): configuration space, registers, MSI-X, card memory, a command sequencer and the
//! distributed switch. It gets no shortcut: it sees BAR accesses, reads its instructions out of host memory through the
//! bus's IOMMU, moves real bytes between card memories, and fails as a card would.
//!
//! ```
//! use fpga_hal::{BarIndex, Domain, in_process};
//! use fpga_mock::{Fabric, Profile};
//! use fpga_regs::sequencer;
//!
//! let fabric = Fabric::new(Profile::optweb(4))?;
//! let domain = Domain::in_process();
//! let card = in_process::attach(fabric.endpoint(2), &domain, "card 2")?;
//! let registers = card.window(BarIndex::new(0).unwrap())?;
//! assert_eq!(registers.read_u32(0x1000 + u64::from(sequencer::MAGIC))?, sequencer::MAGIC_VALUE);
//! assert_eq!(registers.read_u32(0x1000 + u64::from(sequencer::NODE))?, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Published totals emerge from the components of a [`Profile`]; no total is written down in this crate.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod bluelink;
mod card;
mod channels;
pub mod dfl;
pub mod engine;
mod environment;
mod event;
mod fabric;
mod fault;
mod model;
pub mod msgdma;
mod net;
mod on_card;
mod profile;
mod proto;
mod reduce;
#[cfg(test)]
mod testing;
mod violations;
mod world;
pub mod xdma;

pub use card::memory::{CardMemory, MemoryError};
pub use card::user_logic::{UserCall, UserLogic};
pub use channels::ChannelCards;
pub use environment::Statistics;
pub use fabric::{Accesses, Clock, Fabric, LateDma, Recorder};
pub use fault::{Fault, Moved, When};
pub use net::noise;
pub use net::transfers::LinkTransfer;
pub use profile::{Basis, Component, Hardware, Profile, ProfileError, Shell, System};
pub use proto::{circus, communicator_table, mpi_fpga, novog};
