//! Turns a card selector into functions on a bus.
//!
//! - `mock:PROFILE:SHAPE` selects a fabric of in-process mock cards. `PROFILE` is `optweb`; `SHAPE` is a number of cards
//!   (fully connected) or `GROUPSxSIZE` (a Dragonfly). `/NODE` after the shape selects one card of the fabric. `+lanes=N` gives
//!   each card N lanes, at most 64. The cards do more of what hardware does ([`Hardware`](fpga_mock::Hardware)) with
//!   - `+posted=N`: register writes act late, up to N of them;
//!   - `+split=SEED`: DMA is split as on PCIe, and answered in any order;
//!   - `+drift=PPM`: each card has a clock of its own;
//!   - `+errors=BITS`: one in so many bits on links is wrong;
//!   - `+reset=MS`: a reset of a card takes so long.
//!
//!   Each fault begins with `+`:
//!   - `+stop=NODE@WHEN` stops the clock of a card: after a fabric time in microseconds, or `CARD.TRANSFER.BYTES`, once
//!     that card has moved so many bytes of this transfer of an instruction (no `@`: at once);
//!   - `+cut=A-B@WHEN` cuts the link between two cards;
//!   - `+flap=A-B@WHEN` takes the link between two cards down and, 10 us later, up again, each time that WHEN comes, 16 times;
//!   - `+slow=GBPS` sets the actual rate of all links; the cards still report the nominal rate;
//!   - `+unanswered=NODE@N` never answers a card's read of host memory, after N others; `+poisoned=NODE@N` answers it with
//!     poisoned data;
//!   - `+garble=A-B@N` hits what the link from card A to card B carries after N other things with a bit error;
//!   - `+drop=A-B@N` hits a packet of the tables that the link from card A of Novo-G# to its neighbour B carries, after N others: B drops it;
//!   - `+flip=NODE@ADDRESS` flips two bits of a word of card memory, which cannot be corrected;
//!   - `+late=US` delays replies of host memory by up to this time.
//!
//!   Times are at most one day.
//!
//!   `mock:s10-dfl:SHAPE` is the fabric `optweb` behind the shell of a Stratix 10 card: PCI ids, BARs and MSI-X are those of a PAC
//!   D5005. `/NODE.control` selects the control function of such a card, `/NODE.he-lb` its host exerciser.
//!   `mock:s10-pac:SHAPE` is the same without OFS: a card is its own control function.
//!   `mock:alveo-xdma:SHAPE` is the same fabric behind AMD's DMA engine on Alveo cards.
//! - `mock:alveo-xdma:1` selects one Alveo card with the engine, in no fabric and without a sequencer.
//! - `vfio:0000:3b:00.0`, or the bare address, selects a function bound to the kernel's VFIO driver. `+vf-token=UUID` sets
//!   the token that a virtual function shares with its physical function. `+no-iommu` accepts that no IOMMU protects host
//!   memory from the card. `+without-reset` opens a card without a reset method (see [`Options`](fpga_hal::vfio::Options)).
//! - `vfio-user:/run/fpga/0.sock` selects the function on a vfio-user socket. A directory, such as `vfio-user:/run/fpga`,
//!   selects all its sockets, ordered by the number in the name.
//!
//! Commas separate several cards of one bus; mock cards must belong to one fabric.
//!
//! ```
//! let selection = fpga_select::select("mock:optweb:4")?;
//! assert_eq!(selection.functions.len(), 4);
//! assert_eq!(selection.kind, fpga_select::Kind::Mock);
//! # Ok::<(), fpga_select::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod channel_cards;
mod error;
mod mock_cards;
mod part;
mod selection;
mod selector;
mod sockets;
#[cfg(test)]
mod tests;
mod vfio_card;
mod xdma_cards;

pub use fpga_mock::{
    Accesses, Basis, CardMemory, Clock, Component, Fabric, Profile, Recorder, bluelink, circus, dfl, mpi_fpga, novog,
    xdma,
};

pub use crate::error::Error;
pub use crate::part::Part;
pub use crate::selection::{Kind, Selection};
pub use crate::selector::{DEFAULT, MockFunction, NodeEndpoint, Selector, select};
