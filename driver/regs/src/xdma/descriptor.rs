//! The descriptor of a transfer: 32 bytes in host memory, little-endian, aligned to 32.

/// Bytes of a descriptor.
pub const BYTES: usize = 32;
/// What bits 31:16 of its first word are.
pub const MAGIC: u16 = 0xad4b;
/// Most bytes that one descriptor moves: its field has 28 bits.
pub const LENGTH_MAX: u32 = (1 << 28) - 1;
/// Most descriptors that follow the next one without a gap: the field has 6 bits.
pub const ADJACENT_MAX: u32 = 63;

const STOP: u32 = 1 << 0;
const COMPLETED: u32 = 1 << 1;
const END_OF_PACKET: u32 = 1 << 4;
const ADJACENT_SHIFT: u32 = 8;

/// A descriptor (PG344, descriptors).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// The channel stops behind it.
    pub stop: bool,
    /// Its completion is noted: by the bit in STATUS, or by a writeback.
    pub completed: bool,
    /// The last of a packet, on streams.
    pub end_of_packet: bool,
    /// Descriptors that follow the one at `next` without a gap, up to [`ADJACENT_MAX`].
    pub adjacent: u32,
    /// Bytes to move, up to [`LENGTH_MAX`].
    pub bytes: u32,
    /// IOVA in host memory for H2C, AXI address for C2H.
    pub source: u64,
    /// AXI address for H2C, IOVA in host memory for C2H.
    pub destination: u64,
    /// IOVA of the next block of descriptors.
    pub next: u64,
}

impl Descriptor {
    /// Returns the descriptor as it is in memory. Bits outside of a field are cut off.
    pub fn encode(&self) -> [u8; BYTES] {
        let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let control = u32::from(MAGIC) << 16
            | (self.adjacent & ADJACENT_MAX) << ADJACENT_SHIFT
            | flag(self.stop, STOP)
            | flag(self.completed, COMPLETED)
            | flag(self.end_of_packet, END_OF_PACKET);
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&control.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.bytes & LENGTH_MAX).to_le_bytes());
        for (place, address) in [(8, self.source), (16, self.destination), (24, self.next)] {
            bytes[place..place + 8].copy_from_slice(&address.to_le_bytes());
        }
        bytes
    }

    /// Returns the descriptor in `bytes`, or `None` if it does not begin with [`MAGIC`].
    pub fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let address = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let control = word(0);
        (control >> 16 == u32::from(MAGIC)).then(|| Descriptor {
            stop: control & STOP != 0,
            completed: control & COMPLETED != 0,
            end_of_packet: control & END_OF_PACKET != 0,
            adjacent: control >> ADJACENT_SHIFT & ADJACENT_MAX,
            bytes: word(4) & LENGTH_MAX,
            source: address(8),
            destination: address(16),
            next: address(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields retyped by hand from PG344, table of descriptors.
    #[test]
    fn fields_are_where_the_guide_has_them() {
        let descriptor = Descriptor {
            stop: true,
            completed: true,
            end_of_packet: true,
            adjacent: 0x3f,
            bytes: 0x0fed_cba9,
            source: 0x1122_3344_5566_7788,
            destination: 0x99aa_bbcc_ddee_ff00,
            next: 0x0123_4567_89ab_cdef,
        };
        let bytes = descriptor.encode();
        let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(
            words,
            [0xad4b_3f13, 0x0fed_cba9, 0x5566_7788, 0x1122_3344, 0xddee_ff00, 0x99aa_bbcc, 0x89ab_cdef, 0x0123_4567]
        );
        assert_eq!(Descriptor::decode(&bytes), Some(descriptor));
        assert_eq!(Descriptor::decode(&[0; 32]), None);
    }
}
