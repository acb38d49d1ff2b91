//! Packets on channels: a header flit with the length and the sender, then the bytes, eight in a flit.
//!
//! The flits of two senders mix on their way, so a channel that receives packets has one sender at a time.

use super::address::Target;
use super::error::FabricError;
use crate::proto::bluelink::Address;

/// Most bytes of a packet.
pub const PACKET_BYTES_MAX: usize = 4096;

/// Bytes of a flit's payload.
const FLIT_BYTES: usize = 8;
const LENGTH_BITS: u32 = 16;
const ADDRESS_BITS: u32 = 12;

/// A packet, and the channel that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Where answers go.
    pub from: Target,
    /// Up to [`PACKET_BYTES_MAX`] bytes.
    pub bytes: Vec<u8>,
}

/// Error of a packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Too long.
    #[error("packet too long: {bytes} bytes (most {PACKET_BYTES_MAX})")]
    Long {
        /// Its length.
        bytes: usize,
    },
    /// A flit that begins no packet.
    #[error("invalid packet header {0:#018x}")]
    Header(u64),
    /// The packet before is not sent yet.
    #[error("the packet before is not sent yet: {flits} flits are left")]
    Busy {
        /// Flits that wait.
        flits: usize,
    },
    /// Error of the fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl Packet {
    /// Returns the payloads of the packet's flits.
    ///
    /// # Errors
    /// [`PacketError::Long`].
    pub fn flits(&self) -> Result<Vec<u64>, PacketError> {
        let bytes = self.bytes.len();
        if bytes > PACKET_BYTES_MAX {
            return Err(PacketError::Long { bytes });
        }
        let header = bytes as u64 | u64::from(Address::from(self.from).get()) << LENGTH_BITS;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Ok([header].into_iter().chain(self.bytes.chunks(FLIT_BYTES).map(word)).collect())
    }
}

/// Makes packets of flits.
#[derive(Debug, Clone, Default)]
pub struct PacketReader {
    /// The packet that has begun, and its length.
    begun: Option<(Packet, usize)>,
}

impl PacketReader {
    /// Takes the payload of a flit, and returns the packet that it completes.
    ///
    /// # Errors
    /// [`PacketError::Header`] for a flit that begins no packet.
    pub fn push(&mut self, flit: u64) -> Result<Option<Packet>, PacketError> {
        let (mut packet, length) = match self.begun.take() {
            Some(begun) => begun,
            None => {
                let (length, address) = ((flit & 0xffff) as usize, flit >> LENGTH_BITS);
                let is_valid = length <= PACKET_BYTES_MAX && address >> ADDRESS_BITS == 0;
                let from = Address::new(address as u16).filter(|_| is_valid).ok_or(PacketError::Header(flit))?;
                let packet = Packet { from: from.into(), bytes: Vec::with_capacity(length) };
                return Ok(self.keep(packet, length));
            }
        };
        let bytes = FLIT_BYTES.min(length - packet.bytes.len());
        packet.bytes.extend_from_slice(&flit.to_le_bytes()[..bytes]);
        Ok(self.keep(packet, length))
    }

    fn keep(&mut self, packet: Packet, length: usize) -> Option<Packet> {
        if packet.bytes.len() == length {
            return Some(packet);
        }
        self.begun = Some((packet, length));
        None
    }
}
