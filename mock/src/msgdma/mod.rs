//! Intel's modular scatter-gather DMA (mSGDMA) beside a card's sequencer: an entry of the accelerator's feature list, whose engine
//! copies between card memory and host memory.
//!
//! A model of the documents that `fpga_regs::msgdma` names, without a view to any driver: it takes registers in any order, in
//! accesses of 4 or 8 bytes, and notes what the documents forbid.

mod descriptor;
mod dispatcher;
mod endpoint;
mod header;
mod planted;
mod registers;
mod transfer;

pub use descriptor::Violation;
pub use planted::Fault;

pub(crate) use endpoint::CardWithEngine;
