//! Novo-G#: statically scheduled routers, and links with measured jitter.

mod link;
mod network;
mod router;
pub mod wormhole;

pub use crate::profile::novog::{Profile, Sampling};
pub use link::LinkTimes;
pub use network::{Injection, LoadError, Network, Outcome};
pub use router::{Delivery, Payload};
