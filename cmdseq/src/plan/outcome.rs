//! What the planner makes.

use crate::cost::Terms;
use crate::program::{Communicator, Program};
use crate::request::{Algorithm, Request};

/// What the planner expects, in picoseconds of the fabric's time from the issue of the first instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prediction {
    /// All beats counted out.
    pub t1_ps: u64,
    /// Complete.
    pub t2_ps: u64,
    /// Last byte counted in at the last destination.
    pub arrival_ps: u64,
    /// What the arrival is made of.
    pub terms: Terms,
}

/// What the planner makes of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What was asked.
    pub request: Request,
    /// The way chosen.
    pub algorithm: Algorithm,
    /// One program per rank of the request's group.
    pub programs: Vec<Program>,
    /// Communicators to define before; the same ids on all cards that are members. Without [`WORLD`](crate::instruction::WORLD), which always is.
    pub communicators: Vec<Communicator>,
    /// What it should take.
    pub predicted: Prediction,
    /// Bytes that cross the busiest link in one direction.
    pub busiest_link_bytes: u64,
    /// Bytes that a destination gets from other ranks, at the destination that gets most.
    pub bytes_per_destination: u64,
    /// What a user should know, such as that times are extrapolated.
    pub notes: Vec<String>,
}
