//! Blocks between ranks that are not linked go over other cards, which keep them in memory from one hop to the next.
//!
//! `routes` finds the cards that relay and the paths, `timetable` puts hops into rounds, and `workspace` places what is relayed.
//!
//! Cards are numbered as the programs of a plan: ranks first, then the relays outside of the group.

mod routes;
mod timetable;
mod workspace;

pub(super) use routes::{Routes, goes_from_rank_to_rank};
pub(super) use timetable::Timetable;
