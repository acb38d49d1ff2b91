//! The vfio-user server and client: against raw bytes, against each other, and against a client of other people's.
#![allow(unreachable_pub, reason = "the files of one test share more than they would show")]

mod absent;
mod answers;
mod card;
mod described;
mod descriptors;
mod functions;
mod hostile;
mod interrupts;
mod malformed;
mod neighbour;
mod others;
mod paths;
mod protocol;
mod raw;
mod setting;
mod stalls;
