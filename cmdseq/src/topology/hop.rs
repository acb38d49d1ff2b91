//! Steps of ways.

/// A step of a way: the link at `port` of `node`, a card or a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The card or switch that the link leaves.
    pub node: u32,
    /// Its port.
    pub port: u32,
}
