//! What components of a BlueLink fabric send each other.

use crate::proto::bluelink::Payload;

/// A message between components.
#[derive(Debug, Clone, Copy)]
pub(super) enum Message<P: Payload> {
    /// To a cable: the last word of a flit has left the transceiver at this side.
    Sent { side: usize, wire: P::Wire },
    /// To a board: the last word of a flit is behind the transceiver of this port.
    Arrived { port: usize, wire: P::Wire },
    /// To a board: the transceiver of this port has a signal from now on, or none any more.
    Signal { port: usize, is_there: bool },
    /// To a board: an edge of its clock at which it has something to do.
    Edge,
    /// To a board: its host has given or taken a flit.
    HostAccess,
    /// To a board: it is configured again.
    Restart,
    /// To a cable: it is pulled.
    Unplug,
    /// To a cable: it is plugged.
    Plug,
    /// To a cable: its transceivers have locked, unless it was pulled since.
    Locked { plugged: u64 },
}
