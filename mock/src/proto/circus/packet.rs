//! Packets of 64 bytes: a header of 4 bytes, and a payload of 60.
//!
//! The header is a little-endian word. From bit 0 on it has the destination (6 bits, or 8 in larger networks), the channel (8),
//! the bytes of payload that are data (6), whether a message ends with them (1) or begins with them (1), and the number of the
//! packet (8), modulo 256 and from 0 on for each send kernel; the rest is zero. The paper states only the width of the
//! destination, and that there is a channel. A receive kernel sees from beginning and number that packets before are missing.

use crate::profile::circus::{HEADER_BYTES, PACKET_BYTES};

/// Bytes of its payload.
pub(crate) const PAYLOAD_BYTES: usize = PACKET_BYTES - HEADER_BYTES;

const CHANNEL_BITS: u32 = 8;
const LENGTH_BITS: u32 = 6;
const NUMBER_BITS: u32 = 8;

/// Positions of the header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the destination.
    pub(crate) destination_bits: u32,
}

/// A packet as the send kernel makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) destination: u32,
    pub(crate) channel: u8,
    pub(crate) payload: [u8; PAYLOAD_BYTES],
    /// Bytes of the payload that are data.
    pub(crate) length: u8,
    /// Whether a message ends with it.
    pub(crate) is_last: bool,
    /// Whether a message begins with it.
    pub(crate) is_first: bool,
    /// Packets that the send kernel has made before, modulo 256.
    pub(crate) number: u8,
}

impl Format {
    /// Returns the number of nodes that a destination can name.
    pub(crate) fn nodes(self) -> u32 {
        1 << self.destination_bits
    }

    pub(crate) fn encode(self, packet: &Packet) -> [u8; PACKET_BYTES] {
        let fields = [
            (packet.destination, self.destination_bits),
            (packet.channel.into(), CHANNEL_BITS),
            (packet.length.into(), LENGTH_BITS),
            (packet.is_last.into(), 1),
            (packet.is_first.into(), 1),
            (packet.number.into(), NUMBER_BITS),
        ];
        let (mut header, mut at) = (0, 0);
        for (value, bits) in fields {
            header |= value << at;
            at += bits;
        }
        let mut bytes = [0; PACKET_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&u32::to_le_bytes(header));
        bytes[HEADER_BYTES..].copy_from_slice(&packet.payload);
        bytes
    }

    /// Reads a packet. Any bytes are one: after bit errors its length may be larger than its payload.
    pub(crate) fn decode(self, bytes: &[u8; PACKET_BYTES]) -> Packet {
        let (header, payload) = bytes.split_at(HEADER_BYTES);
        let mut rest = header.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let mut field = |bits: u32| {
            let value = rest & ((1 << bits) - 1);
            rest >>= bits;
            value
        };
        let (destination, channel) = (field(self.destination_bits), field(CHANNEL_BITS) as u8);
        let (length, is_last) = (field(LENGTH_BITS) as u8, field(1) == 1);
        let (is_first, number) = (field(1) == 1, field(NUMBER_BITS) as u8);
        let mut packet =
            Packet { destination, channel, payload: [0; PAYLOAD_BYTES], length, is_last, is_first, number };
        packet.payload.copy_from_slice(payload);
        packet
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_survive_their_encoding(
            is_wide: bool, destination in 0..256_u32, channel: u8, payload: Vec<u8>, is_last: bool, is_first: bool, number: u8
        ) {
            let format = Format { destination_bits: if is_wide { 8 } else { 6 } };
            let destination = destination % format.nodes();
            let length = payload.len().min(PAYLOAD_BYTES);
            let mut packet = Packet {
                destination, channel, payload: [0; PAYLOAD_BYTES], length: length as u8, is_last, is_first, number
            };
            packet.payload[..length].copy_from_slice(&payload[..length]);
            prop_assert_eq!(format.decode(&format.encode(&packet)), packet);
        }
    }

    #[test]
    fn fields_have_their_places() {
        let payload = [0xee; PAYLOAD_BYTES];
        let (is_last, is_first, number) = (true, true, 0x95);
        let packet = Packet { destination: 0x2a, channel: 0x81, payload, length: 60, is_last, is_first, number };
        let header = |bits| Format { destination_bits: bits }.encode(&packet)[..HEADER_BYTES].to_vec();
        assert_eq!(header(6), u32::to_le_bytes(0x2a | 0x81 << 6 | 60 << 14 | 3 << 20 | 0x95 << 22));
        assert_eq!(header(8), u32::to_le_bytes(0x2a | 0x81 << 8 | 60 << 16 | 3 << 22 | 0x95 << 24));
    }
}
