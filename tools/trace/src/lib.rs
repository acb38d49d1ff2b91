//! Writes traces in Perfetto's format: what the host did, what each card ran and when, and what links carried. docs/traces.md
//! says what each track means, and how to open a file.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use fpga_driver::trace::{Moment, RECORDS};
//! # use fpga_hal::{Domain, in_process};
//! # let fabric = fpga_mock::Fabric::new(fpga_mock::Profile::optweb(2))?;
//! # let functions = vec![in_process::attach(fabric.endpoint(0), &Domain::in_process(), "card 0")?];
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("trace");
//! let mut cluster = fpga_driver::Cluster::open(functions)?;
//! cluster.start_trace(Moment::now(), RECORDS)?;
//! cluster.card_mut(0).write_memory(0, &[1; 4096])?;
//! let trace = cluster.take_trace().expect("it was started");
//! std::fs::write(path, fpga_trace::encode(&trace, None, None))?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod encode;
mod network;
pub mod packet;
mod placed;
mod writer;

pub use encode::encode;
pub use network::{Network, Transfer};
