//! Register tables of the cards: data only.
//!
//! One table says name, offset, access, reset value, side effect and meaning of every register. The driver takes its
//! offsets from it, the mock its behaviour, and `docs/registers.md` is [`markdown::render`]ed from it.
//!
//! ```
//! use fpga_regs::{Access, sequencer};
//!
//! let doorbell = sequencer::queue::TABLE.iter().find(|r| r.offset == sequencer::queue::SUBMISSION_TAIL).unwrap();
//! assert_eq!(doorbell.access, Access::WriteOnly);
//! // Queue 2's doorbell, as an offset into the sequencer's block:
//! assert_eq!(sequencer::queue::base(2) + sequencer::queue::SUBMISSION_TAIL, 0x498);
//! ```
//!
//! Registers are 32 bits wide, little-endian, and accessed whole and aligned; nothing needs an atomic 64-bit
//! access. The headers of a [`feature_list`] and the registers of [`dfl`] are 64 bits wide, and may be accessed in halves.
//! The building block of [`msgdma`] takes accesses of 8 bytes, too.
#![recursion_limit = "256"]
#![forbid(unsafe_code)]

pub mod alveo;
pub mod bits;
pub mod card_ring;
pub mod channel;
pub mod cms;
pub mod decoupler;
pub mod descriptor_bypass;
pub mod dfl;
pub mod feature_list;
pub mod fft;
pub mod hwicap;
pub mod markdown;
pub mod msgdma;
pub mod pci;
pub mod router;
pub mod sensor;
pub mod sequencer;
pub mod xdma;

/// What the host may do with a register, and what a read or write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Writes are ignored.
    ReadOnly,
    /// A read returns what was last written, or the reset value.
    ReadWrite,
    /// Reads return zero.
    WriteOnly,
    /// A read returns the bits; writing a one clears that bit, writing a zero leaves it.
    WriteOneToClear,
    /// A read returns the bits; writing a one sets that bit, writing a zero leaves it.
    WriteOneToSet,
    /// A read returns the bits and clears them; writes are ignored.
    ReadToClear,
}

impl Access {
    /// The short form used in register tables: RO, RW, WO, RW1C, RW1S, RC.
    pub const fn short(self) -> &'static str {
        match self {
            Access::ReadOnly => "RO",
            Access::ReadWrite => "RW",
            Access::WriteOnly => "WO",
            Access::WriteOneToClear => "RW1C",
            Access::WriteOneToSet => "RW1S",
            Access::ReadToClear => "RC",
        }
    }
}

/// One line of a register table.
#[derive(Debug, Clone, Copy)]
pub struct Register {
    /// Name as in `docs/registers.md`.
    pub name: &'static str,
    /// Byte offset from the start of its table.
    pub offset: u32,
    /// Bytes the line covers: 4 for a register, more for a reserved range.
    pub bytes: u32,
    /// What the host may do.
    pub access: Access,
    /// Value after reset; `None` where the card says it (a capability).
    pub reset: Option<u32>,
    /// What a read or write does besides, and what the value means.
    pub description: &'static str,
}

impl Register {
    /// Whether this line is a reserved range: reads as zero, writes are ignored.
    pub const fn is_reserved(&self) -> bool {
        self.name.is_empty()
    }
}

/// The line of `table` that covers `offset`.
pub fn lookup(table: &'static [Register], offset: u32) -> Option<&'static Register> {
    let index = table.partition_point(|register| register.offset + register.bytes <= offset);
    table.get(index).filter(|register| register.offset <= offset)
}

/// Declares a register table: one constant per register for its offset, and `TABLE` with every line in order.
///
/// A line is `NAME = offset, Access, reset, "description";` and a gap is `reserved offset..end;`.
macro_rules! registers {
    (@table [$($done:tt)*]) => {
        /// Every line of the table, by rising offset, without gaps.
        pub const TABLE: &[$crate::Register] = &[$($done)*];
    };
    (@table [$($done:tt)*] reserved $from:literal .. $to:literal; $($rest:tt)*) => {
        registers!(@table [$($done)* $crate::Register {
            name: "", offset: $from, bytes: $to - $from, access: $crate::Access::ReadOnly, reset: Some(0),
            description: "Reserved: reads as zero, writes are ignored.",
        },] $($rest)*);
    };
    (@table [$($done:tt)*] $name:ident = $offset:literal, $access:ident, $reset:expr, $text:literal; $($rest:tt)*) => {
        #[doc = $text]
        pub const $name: u32 = $offset;
        registers!(@table [$($done)* $crate::Register {
            name: stringify!($name), offset: $offset, bytes: 4, access: $crate::Access::$access, reset: $reset,
            description: $text,
        },] $($rest)*);
    };
    ($($lines:tt)*) => { registers!(@table [] $($lines)*); };
}
pub(crate) use registers;

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that has a gap, an overlap or a wrong end would make driver and mock disagree with the document.
    fn adds_up(table: &[Register], window: u32) {
        let mut at = 0;
        for register in table {
            assert_eq!(register.offset, at, "{} does not start where its predecessor ends", register.name);
            assert_eq!(register.offset % 4, 0);
            at += register.bytes;
        }
        assert_eq!(at, window);
    }

    #[test]
    fn tables_fill_their_windows() {
        adds_up(sequencer::TABLE, sequencer::QUEUES_OFFSET);
        adds_up(sequencer::queue::TABLE, sequencer::queue::STRIDE);
        adds_up(card_ring::TABLE, card_ring::BLOCK_BYTES);
        adds_up(descriptor_bypass::TABLE, descriptor_bypass::BLOCK_BYTES);
        adds_up(cms::TABLE, 0x20);
        adds_up(hwicap::TABLE, hwicap::BLOCK_BYTES);
        adds_up(decoupler::TABLE, decoupler::BLOCK_BYTES);
        adds_up(channel::TABLE, channel::ENDS_OFFSET);
        adds_up(channel::end::TABLE, channel::end::STRIDE);
        adds_up(router::TABLE, router::WINDOW_OFFSET);
        adds_up(fft::TABLE, fft::BLOCK_BYTES);
        for (_, table) in xdma::BLOCKS {
            adds_up(table, xdma::STRIDE);
        }
        adds_up(msgdma::csr::TABLE, msgdma::DESCRIPTOR - msgdma::CSR);
        adds_up(msgdma::extended::TABLE, msgdma::extended::BYTES);
        adds_up(msgdma::standard::TABLE, msgdma::standard::BYTES);
        adds_up(msgdma::response::TABLE, msgdma::response::BYTES);
        adds_up(msgdma::span::TABLE, msgdma::span::BYTES);
    }

    #[test]
    fn headers_of_slots_are_taken_apart_as_put_together() {
        for header in [(0, 0, false), (1, 56, true), (u32::MAX, 4088, false)] {
            assert_eq!(channel::slot::decode(channel::slot::encode(header.0, header.1, header.2)), header);
        }
        assert_eq!(channel::slot::encode(7, 60, true), 0x8000_003c_0000_0007);
    }

    #[test]
    fn sources_are_taken_apart_as_put_together() {
        for (index, input) in [(0, 0), (u16::MAX, 5), (7, 3)] {
            assert_eq!(router::source::decode(router::source::encode(index, input)), Some((index, input)));
        }
        assert_eq!([6 << 16, 7 << 16, 1 << 19].map(router::source::decode), [None; 3]);
    }

    #[test]
    fn lookup_finds_first_last_and_reserved() {
        assert_eq!(lookup(sequencer::TABLE, 0x020).unwrap().name, "MAGIC");
        assert_eq!(lookup(sequencer::TABLE, 0x023).unwrap().name, "MAGIC");
        assert!(lookup(sequencer::TABLE, 0x018).unwrap().is_reserved());
        assert!(lookup(sequencer::TABLE, sequencer::QUEUES_OFFSET).is_none());
    }

    /// Offsets retyped by hand from docs/registers.md, so that a slip in the table is seen.
    #[test]
    fn offsets_retyped() {
        assert_eq!(sequencer::MAGIC, 0x20);
        assert_eq!(sequencer::NODE, 0x34);
        assert_eq!(sequencer::EAGER_BYTES, 0x6c);
        assert_eq!(sequencer::CONTROL, 0x100);
        assert_eq!(sequencer::STATUS, 0x104);
        assert_eq!(sequencer::ERROR, 0x108);
        assert_eq!(sequencer::EAGER_LIMIT, 0x10c);
        assert_eq!(sequencer::ABORT, 0x110);
        assert_eq!(sequencer::CYCLES_LO, 0x118);
        assert_eq!(sequencer::queue::SUBMISSION_TAIL, 0x18);
        assert_eq!(sequencer::queue::COMPLETION_HEAD, 0x1c);
        assert_eq!(sequencer::queue::INTERRUPT_ARM, 0x20);
        assert_eq!(sequencer::queue::base(0), 0x400);
        assert_eq!(sequencer::queue::base(1), 0x440);
        assert_eq!(card_ring::MAGIC_VALUE, 0x474e_4952);
        assert_eq!((card_ring::OFFSET, card_ring::ENGINE_HI, card_ring::INTERRUPT), (0x20, 0x34, 0x38));
        assert_eq!((card_ring::BAR, card_ring::VERSION_VALUE), (0x3c, 0x0002_0000));
        assert_eq!(descriptor_bypass::MAGIC_VALUE, 0x5350_5942);
        assert_eq!((descriptor_bypass::H2C_CHANNEL, descriptor_bypass::INTERRUPT), (0x20, 0x28));
        assert_eq!(channel::NODE, 0x28);
        assert_eq!(channel::ENDS, 0x44);
        assert_eq!(channel::STATUS, 0x100);
        assert_eq!(channel::ROUTES_LOAD, 0x104);
        assert_eq!(channel::LOST_NO_CHANNEL, 0x114);
        assert_eq!(channel::end::base(0), 0x200);
        assert_eq!(channel::end::base(7), 0x3c0);
        assert_eq!(channel::end::MAX, 56);
        assert_eq!(channel::end::RING_BASE_LO, 0x10);
        assert_eq!(channel::end::ENABLE, 0x2c);
        assert_eq!(channel::end::DOORBELL, 0x30);
        assert_eq!(channel::end::INTERRUPT_ARM, 0x34);
        assert_eq!((router::MAGIC_VALUE, router::SIDES, router::SELECT), (0x5455_4f52, 0x2c, 0x100));
        assert_eq!((router::STAGED, router::COMMIT, router::GENERATION, router::DROPPED), (0x118, 0x11c, 0x120, 0x138));
        assert_eq!((router::WINDOW_OFFSET, router::WINDOW_ENTRIES), (0x1000, 256));
        assert_eq!((fft::MAGIC_VALUE, fft::CORES_16, fft::SIDE, fft::ARM), (0x3354_4646, 0x28, 0x100, 0x120));
        assert_eq!((fft::STATE, fft::SEEN_XY, fft::FIRST_YZ, fft::YZ_END), (0x128, 0x130, 0x144, 0x16c));
        assert_eq!(pci::VENDOR, 0x1234);
        assert_eq!(pci::DEVICE, 0xf9a0);
    }
}
