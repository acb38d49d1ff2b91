//! The sequencer as the host sees it through registers: where it is, what it can do, what it is doing, what went wrong.

pub(crate) mod block;
pub(crate) mod bypass;
pub(crate) mod discover;
pub(crate) mod health;
pub(crate) mod listed;
pub(crate) mod preserved;
pub(crate) mod state;
