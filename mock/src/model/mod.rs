//! What happens in the events of a fabric.

mod copy;
mod events;
mod faults;
mod fold;
mod garbled;
mod host_dma;
pub(crate) mod logged;
mod moves;
mod posted;
mod rdma;
pub(crate) mod registers;
mod reset;
pub(crate) mod routed;
mod sequencer;
mod serving;
mod signals;
mod split_dma;
mod stored;
mod switch;
mod switched;
mod watch;
mod windows;
