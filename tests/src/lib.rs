//! Shared by the tests of the whole workspace: test data, drivers of cases, and an oracle independent of planner and mock.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// The examples of `docs/persistent.md`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/persistent.md")]
mod persistent_examples {}

pub mod altered;
pub mod bus_times;
pub mod conformance;
pub mod dice;
pub mod folding;
pub mod interpreter;
pub mod memory;
pub mod oracle;
pub mod pattern;
pub mod prediction;
pub mod program_sets;
pub mod raw_host;
pub mod reduction;
pub mod relaunch;
pub mod run;
pub mod sweep;
pub mod threads;
mod windows;
pub mod without_msix;
