//! `libfpga_mpi.so`: the blocking collectives of an unmodified MPI program on FPGA cards, one card a rank.
//!
//! The library is preloaded. It exports `MPI_Allreduce` and the other collectives under the names of MPI, so that calls of the
//! program, of the Fortran part of the MPI library and of Python come here first. A call that the cards can run goes to the card of
//! this rank; every other call goes to the MPI library, untouched, and is counted with its reason. `docs/mpi.md` says which.
//!
//! One binary serves Open MPI, MPICH and the MPI-5 ABI, and is built without any MPI: handles are words of the size of a pointer,
//! in which MPICH's handles of 32 bits occupy the low half, and constants come from tables (`abi`).
//!
//! ```text
//!   exports ── a call's arguments ──▶ offload ── decides, alike on all ranks ──▶ engine: the card
//!      │                                 │                                         ▲
//!      └─ pass through: the next one     ├─ records: one a communicator ── team ───┤
//!         of this name                   └─ statistics                             peers: agreement over MPI
//! ```
//!
//! `unsafe` is confined to calls of the MPI library (`foreign`, `abi`, `mpi`, `rounds`, `error_codes`), the exported functions
//! (`exports`, `offload`), the functions that MPI calls (`handlers`, `mpi`, `session`), the memory that the program names
//! (`arguments`, `buffers`, `hints`), and the limit of descriptors (`allocation`).
#![deny(missing_docs)]

mod abi;
mod allocation;
mod arguments;
mod buffers;
#[cfg(test)]
mod counted;
mod data;
mod engine;
mod entry;
mod error_codes;
pub mod exports;
mod folding;
mod foreign;
mod handlers;
mod hints;
mod memory;
mod mpi;
mod offload;
#[cfg(test)]
mod parted;
mod parts;
mod peers;
mod records;
mod rounds;
mod session;
mod settings;
mod shape;
mod stage;
mod statistics;
mod team;
mod trouble;
mod vector;
mod verdicts;
