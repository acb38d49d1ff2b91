//! The vfio-user server and client: with raw bytes, with each other, and with an independent client.
#![allow(unreachable_pub, reason = "modules of one test share more than a library would export")]

mod absent;
mod answers;
mod card;
mod described;
mod descriptors;
mod exhausted;
mod functions;
mod hostile;
mod interrupts;
mod logged;
mod malformed;
mod neighbour;
mod others;
mod paths;
mod protocol;
mod raw;
mod reentrant;
mod setting;
mod stalls;
