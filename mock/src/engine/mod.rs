//! The discrete-event engine: future events in order, and streams that share resources. It knows no card and no network.

mod agenda;
pub(crate) mod streams;

pub use agenda::{Agenda, Time};
