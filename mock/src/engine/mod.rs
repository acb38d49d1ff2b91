//! The discrete-event engine: future events in order, components that exchange messages, clocks, and streams that share
//! resources. It knows no card and no network.

mod agenda;
mod clocked;
pub(crate) mod streams;
mod world;

pub use agenda::{Agenda, Time};
pub use clocked::{Clock, Clocked, Cycle, Region};
pub use world::{Component, ComponentId, Context, World};
