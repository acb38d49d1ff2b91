//! MPI-FPGA: collectives that the switches of a network compute (Haghi et al., 2021).
//!
//! A processor gives its switch one packet. The switch cuts it into network packets, and its collective units combine and
//! multiply these on the way: in a *direct* network in the card of each member, in an *indirect* one in leaf and spine
//! switches. A [`Network`] runs calls in virtual time, with real data. `docs/mpi-fpga.md` has the formats, the algorithms and
//! the order in which contributions are combined.

mod attached;
mod header;
mod host;
mod message;
mod network;
mod predicted;
mod switch;
mod units;

pub use crate::profile::mpi_fpga::Profile;
pub use cmdseq::switch::{
    Call, CallError, Collective, Form, HEADER_BYTES, PACKET_BYTES, PAYLOAD_BYTES, PHIT_BYTES, PROCESSOR_HEADER_BYTES,
    Shape, ShapeError, fold_order,
};
pub use network::{COMMUNICATORS, Network, NetworkError, Outcome, Waits};
pub use predicted::predicted_ps;
pub use units::logic_units;
