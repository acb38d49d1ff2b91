//! Collectives over rings, DMA and registers of mock cards, against an oracle.
#![forbid(unsafe_code)]

mod alltoall_scan;
mod calibration;
mod collectives;
mod communicators;
mod definitions;
mod eager_limits;
mod groups;
mod lying_peers;
mod one_sided;
mod persistent;
mod planner_choice;
mod processes;
mod reductions;
mod registration;
mod relays;
mod routed;
mod switches;
mod tori;
mod traces;
mod vector_forms;
