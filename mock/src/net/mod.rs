//! The network between cards: who is linked with whom, what a link carries, and what waits at its end.

pub(crate) mod buffer;
pub(crate) mod line;
pub(crate) mod link;
pub mod noise;
pub(crate) mod payload;
pub(crate) mod wiring;
