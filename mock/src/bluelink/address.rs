//! What the 12 bits of a flit's address say: a board and one of its channels.

use crate::proto::bluelink::Address;

/// Boards that an address can name.
pub const BOARDS_MAX: usize = 256;
/// Channels of each board.
pub const CHANNELS: usize = 16;

/// Destination of a flit: 8 bits of board, 4 bits of channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The board.
    pub board: u8,
    /// The channel, below [`CHANNELS`]; a larger one is taken modulo that.
    pub channel: u8,
}

impl From<Target> for Address {
    fn from(target: Target) -> Self {
        let channel = u16::from(target.channel) % CHANNELS as u16;
        // 256 boards of 16 channels are all addresses there are.
        Address::new(u16::from(target.board) * CHANNELS as u16 + channel).unwrap_or_default()
    }
}

impl From<Address> for Target {
    fn from(address: Address) -> Self {
        let (board, channel) = (address.get() / CHANNELS as u16, address.get() % CHANNELS as u16);
        Target { board: board as u8, channel: channel as u8 }
    }
}
