//! MPI-FPGA: collectives that the switches of a network compute (Haghi et al., 2021).
//!
//! A processor gives its switch one packet. The switch cuts it into network packets, and its collective units combine and
//! multiply these on the way: in a *direct* network in the card of each member, in an *indirect* one in leaf and spine
//! switches. A [`Network`] runs calls in virtual time, with real data. `docs/mpi-fpga.md` has the formats, the algorithms and
//! the order in which contributions are combined.

mod call;
mod fat;
mod forms;
mod header;
mod host;
mod loggp;
mod message;
mod network;
mod shape;
mod switch;
mod units;

pub use crate::profile::mpi_fpga::Profile;
pub use call::{Call, CallError, Collective, Form, PAYLOAD_BYTES};
pub use header::{HEADER_BYTES, PACKET_BYTES, PHIT_BYTES, PROCESSOR_HEADER_BYTES};
pub use loggp::predicted_ps;
pub use network::{COMMUNICATORS, Network, NetworkError, Outcome, Waits};
pub use shape::{Shape, ShapeError};
pub use units::{fold_order, logic_units};
