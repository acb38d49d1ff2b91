//! The instruction set, its assembler, and what programs mean.
#![forbid(unsafe_code)]

mod assembler;
#[path = "../cards/mod.rs"]
mod cards;
mod elements;
mod graph;
mod isa;
mod meaning;
mod outputs;
mod ranges;
mod reduction;
