//! What happens in the events of a fabric.

mod events;
mod faults;
mod host_dma;
pub(crate) mod logged;
mod posted;
pub(crate) mod registers;
mod reset;
pub(crate) mod routed;
mod split_dma;
mod switched;
