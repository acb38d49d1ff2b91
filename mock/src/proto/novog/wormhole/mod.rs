//! Novo-G#'s wormhole router with virtual channels, for traffic that is not known before a run (Sheng, sections 4.2 and 5.1).
//!
//! A router has six inputs and six outputs, and none for the node: packets are injected straight onto an output's link, and ejected
//! straight behind an input's routing computation. Packets of a link do not interleave: an output is a packet's from its first flit to
//! its last one. A packet begins to leave only if the known credit of a virtual channel at the other end holds all of it, at least the
//! published threshold; so a blocked packet holds buffers, but no link, and flits under way always have room.
//!
//! The region of the engine has one module, all routers in flat arrays, where `mock/src/net/router.rs` has a component for each: a
//! configuration is chosen among 15 by simulating all of them, so a flit-hop has to cost nanoseconds. That router also
//! has another policy: one virtual channel for each class, tables, credits without delay.

mod arbitration;
mod deadlock;
mod fabric;
mod network;
mod outcome;
mod routing;
mod traffic;

pub use crate::profile::wormhole::{CHANNELS_MAX, CHANNELS_MIN, Switch, WormholeProfile};
pub use arbitration::Arbitration;
pub use deadlock::{Deadlock, StuckChannel};
pub use network::WormholeNetwork;
pub use outcome::{Configuration, WormholeError, WormholeOutcome};
pub use routing::{Classes, Routing, Rules, Turn};
pub use traffic::{Message, Pattern, PatternError, Trace, TraceError, Traffic, Uniform};
