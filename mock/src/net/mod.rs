//! Networks between cards: who is linked with whom, what a link carries, what waits at its end, and routers.

pub(crate) mod arbiter;
pub(crate) mod buffer;
pub(crate) mod flit;
pub(crate) mod line;
pub(crate) mod link;
pub mod noise;
pub(crate) mod payload;
pub(crate) mod replay;
pub(crate) mod router;
pub(crate) mod serial;
pub(crate) mod transfers;
pub(crate) mod wiring;
