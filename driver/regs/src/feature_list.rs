//! The Device Feature List: 64-bit headers, each saying what it heads and where the next one is.
//!
//! Source: Linux `Documentation/fpga/dfl.rst` and `drivers/fpga/dfl.h`. Fields of a header word: 11:0 id, 15:12 revision, 39:16
//! next header in bytes from this one, 40 end of list, 59:52 version, 63:60 type. An AFU, a BBB and an FIU carry a GUID in the two
//! words behind it, and so does every feature whose header is of version 1. That version says in two more words where the
//! registers are.

/// Header type of an accelerator function.
pub const TYPE_AFU: u8 = 1;
/// Header type of a building block with a GUID of its own.
pub const TYPE_BBB: u8 = 2;
/// Header type of a private feature.
pub const TYPE_PRIVATE: u8 = 3;
/// Header type of a unit of the shell: the management engine (id 0) or a port (id 1).
pub const TYPE_FIU: u8 = 4;

/// GUID of the accelerator function that carries a command sequencer, `6fe0a4a1-5a0c-4d0e-9a57-7f1f4f8b2c10`.
pub const CARD_GUID: u128 = 0x6fe0a4a1_5a0c_4d0e_9a57_7f1f4f8b2c10;
/// GUID of the command sequencer, `c7e3b1d2-2f64-47f5-8e0b-93d1a65e4f08`.
pub const SEQUENCER_GUID: u128 = 0xc7e3b1d2_2f64_47f5_8e0b_93d1a65e4f08;
/// GUID of the memory for the rings of a sequencer that does not master the bus, `d1f0b6a4-3c59-4e8e-8a72-60c4e917b35d`.
pub const CARD_RING_GUID: u128 = 0xd1f0b6a4_3c59_4e8e_8a72_60c4e917b35d;
/// GUID of the block that says through which channels of AMD's engine a sequencer masters the bus,
/// `8f3a61d7-0b52-4c1e-9d84-27e5b6c0f19a`.
pub const DESCRIPTOR_BYPASS_GUID: u128 = 0x8f3a61d7_0b52_4c1e_9d84_27e5b6c0f19a;
/// GUID of the channel block of a CIRCUS card, `2b9f6d74-8c3e-4b0a-a1d6-5e07c94f1388`.
pub const CHANNEL_GUID: u128 = 0x2b9f6d74_8c3e_4b0a_a1d6_5e07c94f1388;
/// GUID of the router block of a card of Novo-G#, `84c1f7e2-0d5b-4c36-9b1e-f3a8d2657094`.
pub const ROUTER_GUID: u128 = 0x84c1f7e2_0d5b_4c36_9b1e_f3a8d2657094;
/// GUID of the FFT block of a card of Novo-G#, `3e90b65d-71a4-4f28-8d03-c65f1b7ae942`.
pub const FFT_GUID: u128 = 0x3e90b65d_71a4_4f28_8d03_c65f1b7ae942;

/// Offset of the first header in the register BAR.
pub const START: u32 = 0;
/// Offset of the GUID from its header.
pub const GUID: u64 = 0x08;
/// Offset, from a header of version 1, of the place of the registers: offset from the header in 63:1, or address if bit 0 is set.
pub const REGISTERS: u64 = 0x18;
/// Bit of the word at [`REGISTERS`]: it holds an address.
pub const REGISTERS_ABSOLUTE: u64 = 1;
/// Offset, from a header of version 1, of the bytes of the registers (63:32).
pub const REGISTERS_BYTES: u64 = 0x20;

/// Id of Intel's vendor-specific capability in configuration space that says where lists begin.
pub const VSEC_ID: u16 = 0x43;
/// Vendor whose functions have it.
pub const VSEC_VENDOR: u16 = 0x8086;
/// Offset of the number of lists from the capability, 32 bits.
pub const VSEC_COUNT: u16 = 0x08;
/// Offset of the first list's place from the capability, 32 bits for each list: BAR in 2:0, offset in 31:3, in bytes.
pub const VSEC_PLACES: u16 = 0x0c;

/// Headers a list may have before it is taken for a loop.
pub const HEADERS_MAX: usize = 64;

/// One header word, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Feature id, 12 bits.
    pub id: u16,
    /// Revision, 4 bits.
    pub revision: u8,
    /// Bytes from this header to the next; zero where the list ends.
    pub next: u32,
    /// Whether this is the last header.
    pub end_of_list: bool,
    /// Version of the header, 8 bits: 0 or 1.
    pub version: u8,
    /// Type, 4 bits.
    pub kind: u8,
}

impl Header {
    /// Takes a header word apart. Every 64-bit value is a header; whether it makes sense is the walker's to say.
    pub const fn decode(word: u64) -> Self {
        Header {
            id: (word & 0xfff) as u16,
            revision: (word >> 12 & 0xf) as u8,
            next: (word >> 16 & 0xff_ffff) as u32,
            end_of_list: word >> 40 & 1 == 1,
            version: (word >> 52) as u8,
            kind: (word >> 60) as u8,
        }
    }

    /// Puts a header word together.
    pub const fn encode(self) -> u64 {
        (self.id as u64 & 0xfff)
            | (self.revision as u64 & 0xf) << 12
            | (self.next as u64 & 0xff_ffff) << 16
            | (self.end_of_list as u64) << 40
            | (self.version as u64) << 52
            | (self.kind as u64) << 60
    }

    /// Whether a GUID stands in the two words behind the header.
    pub const fn has_guid(self) -> bool {
        self.version >= 1 || self.kind == TYPE_AFU || self.kind == TYPE_BBB || self.kind == TYPE_FIU
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of the PAC D5005's management interface: `0x4000_0000_1000_0000` (OFS d5005 feature list walk).
    #[test]
    fn decodes_a_known_header() {
        let header = Header::decode(0x4000_0000_1000_0000);
        assert_eq!(header, Header { id: 0, revision: 0, next: 0x1000, end_of_list: false, version: 0, kind: 4 });
        assert_eq!(header.encode(), 0x4000_0000_1000_0000);
        // Its HSSI feature, revision 1, and the port error feature that ends the list.
        assert_eq!(Header::decode(0x3000_0000_1000_100f_u64).revision, 1);
        assert!(Header::decode(0x3000_0100_0000_2010).end_of_list);
    }
}
