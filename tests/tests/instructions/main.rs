//! What cards do with instructions, one by one and in programs.
#![forbid(unsafe_code)]

mod hostile_instructions;
mod lanes;
mod local_folds;
mod loops;
mod mutation;
mod planted_defects;
mod random_programs;
mod raw_registers;
mod reducing_receives;
mod signals;
mod user_logic;
mod versions;
mod windows;
