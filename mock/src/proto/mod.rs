//! Protocols: what a transfer is while it runs, and what it waits for.

pub(crate) mod bluelink;
pub mod circus;
pub mod communicator_table;
pub mod mpi_fpga;
pub mod novog;
pub(crate) mod optweb;
pub(crate) mod refusal;
