//! libfpga: cards, card memory and collectives for programs in C and C++. `docs/c.md` is its guide, `include/fpga.h` its header.
//!
//! No handle is a pointer to memory, and no panic leaves the library. `unsafe` is only where memory of the caller is read or
//! written, in `memory.rs`, where the state of its thread is set, in `cancellation.rs`, and where its forks are noticed, in `fork.rs`.
#![deny(missing_docs)]

mod cancellation;
mod cluster;
mod collective;
mod error;
mod fork;
mod handles;
mod memory;
mod status;
mod texts;

pub use cluster::*;
pub use collective::*;
pub use handles::{fpga_cluster, fpga_collective};
pub use status::*;
pub use texts::*;
