//! CIRCUS: OpenCL channels from card to card of a torus (Fujita et al., 2020).
//!
//! User logic writes words into a channel. A send kernel packs them into packets of 64 bytes, a multiplexer gives the packets
//! of all channels to the router of the card, routers bring them to their destination, a demultiplexer there gives each one
//! to the receive kernel of its channel, and that cuts the payloads into words again. A [`Design`] says which channels and
//! kernels there are, and a [`Network`] runs it.

mod build;
mod card;
mod design;
mod fifo;
mod host_ends;
mod kernels;
mod link_rate;
mod network;
mod packet;
mod pipe;
mod stall;
mod user_logic;
pub mod wire;

pub use crate::profile::circus::Profile;
pub use cmdseq::routing::{PortTables, RouteError, Torus, TorusError};
pub use design::{Channel, ChannelId, Design, DesignError, Placement};
pub use fifo::{Traffic, Word};
pub(crate) use host_ends::Direction;
pub use link_rate::{Overhead, link_gbps};
pub use network::{BuildError, HostError, LinkCounters, Loss, LossPlace, Network};
pub use stall::{Place, Stall};
pub use user_logic::{Channels, Kernel};
