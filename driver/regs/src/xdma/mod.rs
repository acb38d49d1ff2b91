//! AMD's DMA/Bridge Subsystem for PCI Express (XDMA): the registers of its DMA BAR, and its descriptors.
//!
//! Source: product guide PG195, and PG344 for the same core on Versal. Registers are 32 bits wide; an address of the BAR has the
//! block in bits 15:12, the channel in 11:8 and the register in 7:0.
//!
//! An engine has up to four channels from host to card (H2C) and four from card to host (C2H). A channel runs a list of
//! [`Descriptor`]s in host memory. The software sets [`channel::CONTROL`]'s bit `RUN`; the channel fetches and runs descriptors up
//! to one with `STOP`.

mod descriptor;

pub use descriptor::{ADJACENT_MAX, BYTES as DESCRIPTOR_BYTES, Descriptor, LENGTH_MAX, MAGIC};

use crate::Register;
use crate::bits::flags;
use crate::pci::{Function, Msix};

/// Most channels in each direction.
pub const CHANNELS_MAX: u32 = 4;
/// Bytes of the registers of one channel in one block, and from one channel to the next.
pub const STRIDE: u32 = 0x100;
/// Bytes of the DMA BAR.
pub const BAR_BYTES: u64 = 64 << 10;
/// BAR with the registers of user logic in the example design of an Alveo card.
pub const USER_BAR: u8 = 0;
/// Bytes of [`USER_BAR`].
pub const USER_BAR_BYTES: u64 = 1 << 20;
/// BAR with the DMA registers in the example design.
pub const DMA_BAR: u8 = 2;
/// BAR through which the host accesses card memory without DMA in the example design.
pub const BYPASS_BAR: u8 = 4;
/// Bytes of [`BYPASS_BAR`].
pub const BYPASS_BAR_BYTES: u64 = 64 << 20;
/// Address bits that the engine masters.
pub const DMA_BITS: u8 = 64;
/// Offset of the MSI-X table in the DMA BAR.
pub const MSIX_TABLE: u32 = 0x8000;
/// Offset of the pending bits of MSI-X in the DMA BAR.
pub const MSIX_PENDING: u32 = 0x8fe0;
/// Vectors of MSI-X.
pub const MSIX_VECTORS: u16 = 32;
/// Interrupts of user logic.
pub const USER_INTERRUPTS: u32 = 16;

/// The function of an UltraScale+ card with the core's example design for 16 lanes of the third generation. The id belongs to
/// the core's defaults: cards with other logic have it too.
pub const FUNCTION: Function = Function {
    vendor: 0x10ee,
    device: 0x903f,
    subsystem_vendor: 0x10ee,
    subsystem_device: 0x0007,
    class: 0x05_80_00,
    revision: 0,
    bars: &[(USER_BAR, USER_BAR_BYTES), (DMA_BAR, BAR_BYTES), (BYPASS_BAR, BYPASS_BAR_BYTES)],
    is_prefetchable: false,
    msix: Msix { bar: DMA_BAR, vectors: MSIX_VECTORS, table: MSIX_TABLE, pending: MSIX_PENDING },
};

/// What the upper 12 bits of each identifier are.
const IDENTIFIER_CORE: u32 = 0x1fc;
/// The version field of identifiers since Vivado 2017.1.
pub const VERSION: u32 = 6;

/// A block of the DMA BAR: bits 15:12 of the address of its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Channels from host to card.
    H2c = 0,
    /// Channels from card to host.
    C2h = 1,
    /// Interrupts.
    Interrupts = 2,
    /// Configuration of the core.
    Config = 3,
    /// Descriptors of channels from host to card.
    H2cDescriptors = 4,
    /// Descriptors of channels from card to host.
    C2hDescriptors = 5,
    /// What is common to the fetch of descriptors of all channels.
    Common = 6,
}

impl Block {
    /// All blocks, by number.
    pub const ALL: [Block; 7] = [
        Block::H2c,
        Block::C2h,
        Block::Interrupts,
        Block::Config,
        Block::H2cDescriptors,
        Block::C2hDescriptors,
        Block::Common,
    ];

    /// Offset of the registers of `channel` in the BAR; blocks that channels share have them at channel 0.
    pub const fn base(self, channel: u32) -> u32 {
        ((self as u32) << 12) | (channel * STRIDE)
    }

    /// What IDENTIFIER of the block reads, for `channel` (0 in shared blocks) and memory-mapped data.
    pub const fn identifier(self, channel: u32) -> u32 {
        IDENTIFIER_CORE << 20 | (self as u32) << 16 | channel << 8 | VERSION
    }

    /// The registers of the block.
    pub const fn table(self) -> &'static [Register] {
        match self {
            Block::H2c | Block::C2h => channel::TABLE,
            Block::Interrupts => interrupts::TABLE,
            Block::Config => config::TABLE,
            Block::H2cDescriptors | Block::C2hDescriptors => descriptors::TABLE,
            Block::Common => common::TABLE,
        }
    }
}

/// The tables with their headings in `docs/registers.md`.
pub const BLOCKS: [(&str, &[Register]); 5] = [
    ("XDMA channel n, at 0x0000 (H2C) or 0x1000 (C2H) + n * 0x100 of the DMA BAR", channel::TABLE),
    ("XDMA interrupts, at 0x2000", interrupts::TABLE),
    ("XDMA configuration, at 0x3000", config::TABLE),
    ("XDMA descriptors of channel n, at 0x4000 (H2C) or 0x5000 (C2H) + n * 0x100", descriptors::TABLE),
    ("XDMA common descriptor fetch, at 0x6000", common::TABLE),
];

/// The registers of a channel (PG195, H2C and C2H channel registers).
pub mod channel {
    use crate::registers;

    registers! {
        IDENTIFIER = 0x00, ReadOnly, None, "31:20 0x1fc, 19:16 block, 15 stream, 11:8 channel, 7:0 version.";
        CONTROL = 0x04, ReadWrite, Some(0), "See the bits of CONTROL of an XDMA channel.";
        CONTROL_SET = 0x08, WriteOneToSet, Some(0), "CONTROL.";
        CONTROL_CLEAR = 0x0c, WriteOneToClear, Some(0), "CONTROL.";
        reserved 0x10..0x40;
        STATUS = 0x40, WriteOneToClear, Some(0), "See the bits of STATUS of an XDMA channel. BUSY cannot be cleared. A rising edge of RUN clears all others.";
        STATUS_CLEAR = 0x44, ReadToClear, Some(0), "STATUS. A read does not clear BUSY.";
        COMPLETED = 0x48, ReadOnly, Some(0), "Descriptors completed since the last rising edge of RUN.";
        ALIGNMENTS = 0x4c, ReadOnly, None, "23:16 alignment of addresses in bytes, 15:8 granularity of lengths in bytes, 7:0 bits of an address. 0 means 1, 1 and 64.";
        reserved 0x50..0x88;
        WRITEBACK_LO = 0x88, ReadWrite, Some(0), "IOVA of the word for poll mode, bits 31:0.";
        WRITEBACK_HI = 0x8c, ReadWrite, Some(0), "IOVA of the word for poll mode, bits 63:32.";
        INTERRUPT_ENABLE = 0x90, ReadWrite, Some(0), "Bits of STATUS that interrupt.";
        INTERRUPT_ENABLE_SET = 0x94, WriteOneToSet, Some(0), "INTERRUPT_ENABLE.";
        INTERRUPT_ENABLE_CLEAR = 0x98, WriteOneToClear, Some(0), "INTERRUPT_ENABLE.";
        reserved 0x9c..0xc0;
        MONITOR_CONTROL = 0xc0, ReadWrite, Some(0), "Performance monitor: bit 0 run, bit 1 clear, bit 2 stop and clear with RUN.";
        MONITOR_CYCLES_LO = 0xc4, ReadOnly, Some(0), "Cycles while the monitor ran, bits 31:0.";
        MONITOR_CYCLES_HI = 0xc8, ReadOnly, Some(0), "Cycles while the monitor ran, bits 41:32.";
        MONITOR_DATA_LO = 0xcc, ReadOnly, Some(0), "Beats of data while the monitor ran, bits 31:0.";
        MONITOR_DATA_HI = 0xd0, ReadOnly, Some(0), "Beats of data while the monitor ran, bits 41:32.";
        reserved 0xd4..0x100;
    }
}

/// The registers of interrupts (PG195, IRQ block). Bits of channels: H2C channels from bit 0, then the C2H channels.
pub mod interrupts {
    use crate::registers;

    registers! {
        IDENTIFIER = 0x00, ReadOnly, None, "0x1fc20006.";
        USER_ENABLE = 0x04, ReadWrite, Some(0), "Bit n: interrupt n of user logic is enabled.";
        USER_ENABLE_SET = 0x08, WriteOneToSet, Some(0), "USER_ENABLE.";
        USER_ENABLE_CLEAR = 0x0c, WriteOneToClear, Some(0), "USER_ENABLE.";
        CHANNEL_ENABLE = 0x10, ReadWrite, Some(0), "Bit n: the interrupt of channel n is enabled.";
        CHANNEL_ENABLE_SET = 0x14, WriteOneToSet, Some(0), "CHANNEL_ENABLE.";
        CHANNEL_ENABLE_CLEAR = 0x18, WriteOneToClear, Some(0), "CHANNEL_ENABLE.";
        reserved 0x1c..0x40;
        USER_REQUEST = 0x40, ReadOnly, Some(0), "Interrupts of user logic that are asserted and enabled. A rising edge sends the message.";
        CHANNEL_REQUEST = 0x44, ReadOnly, Some(0), "Interrupts of channels that are asserted and enabled. A rising edge sends the message.";
        USER_PENDING = 0x48, ReadOnly, Some(0), "Interrupts of user logic that are asserted.";
        CHANNEL_PENDING = 0x4c, ReadOnly, Some(0), "Interrupts of channels that are asserted: STATUS and INTERRUPT_ENABLE have a bit in common.";
        reserved 0x50..0x80;
        USER_VECTORS_0 = 0x80, ReadWrite, Some(0), "Vectors of user interrupts 0 to 3, in bits 4:0, 12:8, 20:16 and 28:24.";
        USER_VECTORS_1 = 0x84, ReadWrite, Some(0), "Vectors of user interrupts 4 to 7.";
        USER_VECTORS_2 = 0x88, ReadWrite, Some(0), "Vectors of user interrupts 8 to 11.";
        USER_VECTORS_3 = 0x8c, ReadWrite, Some(0), "Vectors of user interrupts 12 to 15.";
        reserved 0x90..0xa0;
        CHANNEL_VECTORS_0 = 0xa0, ReadWrite, Some(0), "Vectors of channels 0 to 3, as above.";
        CHANNEL_VECTORS_1 = 0xa4, ReadWrite, Some(0), "Vectors of channels 4 to 7.";
        reserved 0xa8..0x100;
    }

    /// The registers with the vectors of user interrupts, four in each.
    pub const USER_VECTORS: [u32; 4] = [USER_VECTORS_0, USER_VECTORS_1, USER_VECTORS_2, USER_VECTORS_3];
    /// Bits of a vector in a register of four.
    pub const VECTOR_MASK: u32 = 0x1f;
}

/// The registers of the core's configuration (PG195, config block).
pub mod config {
    use crate::registers;

    registers! {
        IDENTIFIER = 0x00, ReadOnly, None, "0x1fc30006.";
        BUS_DEVICE = 0x04, ReadOnly, None, "15:8 bus, 7:3 device, 2:0 function, as the host numbered them.";
        MAX_PAYLOAD = 0x08, ReadOnly, None, "2:0 Max_Payload_Size: 0 is 128 bytes, each next one twice as many.";
        MAX_READ_REQUEST = 0x0c, ReadOnly, None, "2:0 Max_Read_Request_Size, as above.";
        SYSTEM_ID = 0x10, ReadOnly, None, "Chosen when the core was built.";
        MSI_ENABLE = 0x14, ReadOnly, None, "Bit 0: MSI is enabled. Bit 1: MSI-X is enabled.";
        DATA_WIDTH = 0x18, ReadOnly, None, "Width of the data path: 0 is 64 bits, each next one twice as wide.";
        PCIE_CONTROL = 0x1c, ReadWrite, Some(0), "Bit 0: relaxed ordering.";
        reserved 0x20..0x40;
        USER_MAX_PAYLOAD = 0x40, ReadWrite, Some(5), "2:0 largest payload that the core uses; 6:4 the one in force.";
        USER_MAX_READ_REQUEST = 0x44, ReadWrite, Some(5), "2:0 largest read request that the core uses; 6:4 the one in force.";
        reserved 0x48..0x60;
        WRITE_FLUSH_TIMEOUT = 0x60, ReadWrite, Some(0), "4:0 timeout of writes on streams.";
        reserved 0x64..0x100;
    }
}

/// The registers of a channel's descriptors (PG195, SGDMA registers).
pub mod descriptors {
    use crate::registers;

    registers! {
        IDENTIFIER = 0x00, ReadOnly, None, "31:20 0x1fc, 19:16 block, 15 stream, 11:8 channel, 7:0 version.";
        reserved 0x04..0x80;
        FIRST_LO = 0x80, ReadWrite, Some(0), "IOVA of the first descriptor, bits 31:0.";
        FIRST_HI = 0x84, ReadWrite, Some(0), "IOVA of the first descriptor, bits 63:32.";
        FIRST_ADJACENT = 0x88, ReadWrite, Some(0), "5:0 descriptors that follow the first one without a gap. Together they cross no boundary of 4 KiB.";
        CREDITS = 0x8c, ReadWrite, Some(0), "9:0 descriptors that the channel may fetch in credit mode. A write adds to it; it is cleared when RUN or the mode is.";
        reserved 0x90..0x100;
    }
}

/// The registers that the descriptor fetch of all channels shares. Bits: 3:0 H2C channels, 19:16 C2H channels.
pub mod common {
    use crate::registers;

    registers! {
        IDENTIFIER = 0x00, ReadOnly, None, "0x1fc60006.";
        reserved 0x04..0x10;
        HALT = 0x10, ReadWrite, Some(0), "Bit of a channel: it fetches no descriptors.";
        HALT_SET = 0x14, WriteOneToSet, Some(0), "HALT.";
        HALT_CLEAR = 0x18, WriteOneToClear, Some(0), "HALT.";
        reserved 0x1c..0x20;
        CREDIT_MODE = 0x20, ReadWrite, Some(0), "Bit of a channel: it fetches only as many descriptors as it has credits.";
        CREDIT_MODE_SET = 0x24, WriteOneToSet, Some(0), "CREDIT_MODE.";
        CREDIT_MODE_CLEAR = 0x28, WriteOneToClear, Some(0), "CREDIT_MODE.";
        reserved 0x2c..0x100;
    }
}

flags! {
    /// Bits of [`channel::CONTROL`]. Bits named as those of [`Status`] let the channel note that event in STATUS, and stop for it.
    Control {
        RUN = 0, "The channel runs. It stays set when the channel stops: the next start needs a rising edge. Cleared while it runs, the channel stops behind the present descriptor.";
        DESCRIPTOR_STOPPED = 1, "Note this event.";
        DESCRIPTOR_COMPLETED = 2, "Note this event.";
        ALIGN_MISMATCH = 3, "Note this event.";
        MAGIC_STOPPED = 4, "Note this event.";
        INVALID_LENGTH = 5, "Note this event.";
        IDLE_STOPPED = 6, "Note this event.";
        READ_ERROR_0 = 9, "Note this event.";
        READ_ERROR_1 = 10, "Note this event.";
        READ_ERROR_2 = 11, "Note this event.";
        READ_ERROR_3 = 12, "Note this event.";
        READ_ERROR_4 = 13, "Note this event.";
        WRITE_ERROR_0 = 14, "Note this event. H2C only, as all write errors.";
        WRITE_ERROR_1 = 15, "Note this event.";
        WRITE_ERROR_2 = 16, "Note this event.";
        WRITE_ERROR_3 = 17, "Note this event.";
        WRITE_ERROR_4 = 18, "Note this event.";
        DESCRIPTOR_ERROR_0 = 19, "Note this event.";
        DESCRIPTOR_ERROR_1 = 20, "Note this event.";
        DESCRIPTOR_ERROR_2 = 21, "Note this event.";
        DESCRIPTOR_ERROR_3 = 22, "Note this event.";
        DESCRIPTOR_ERROR_4 = 23, "Note this event.";
        FIXED_ADDRESS = 25, "C2H only: the card's address stays the same, as of a FIFO.";
        WRITEBACK = 26, "Poll mode: after a descriptor with COMPLETED, the channel writes a word to host memory: bit 31 an error was noted, 23:0 descriptors completed.";
    }
}

impl Control {
    /// Every event and error that a channel can note, those of AXI writes included.
    pub const EVENTS: Control = Control::from_bits_retain(0x00ff_fe7e);
    /// Errors of AXI writes, which only channels from the host can note.
    pub const WRITE_ERRORS: Control = Control::from_bits_retain(0x0007_c000);
}

flags! {
    /// Bits of [`channel::STATUS`] (PG195, channel status). An event is noted if its bit in [`Control`] is set.
    Status {
        BUSY = 0, "The channel works.";
        DESCRIPTOR_STOPPED = 1, "A descriptor with STOP completed.";
        DESCRIPTOR_COMPLETED = 2, "A descriptor with COMPLETED completed.";
        ALIGN_MISMATCH = 3, "An address or length has not the alignment that a fixed address needs.";
        MAGIC_STOPPED = 4, "A descriptor did not begin with 0xad4b.";
        INVALID_LENGTH = 5, "Streams only.";
        IDLE_STOPPED = 6, "RUN was cleared, and the channel has stopped.";
        READ_ERROR_0 = 9, "H2C: the bus refused a read of host memory. C2H: no slave decodes the AXI address.";
        READ_ERROR_1 = 10, "H2C: a read of host memory was aborted. C2H: an AXI slave answered with an error.";
        READ_ERROR_2 = 11, "H2C: a read of host memory had a parity error.";
        READ_ERROR_3 = 12, "H2C: a read of host memory was answered with poisoned data.";
        READ_ERROR_4 = 13, "H2C: an unexpected completion.";
        WRITE_ERROR_0 = 14, "H2C: no slave decodes the AXI address.";
        WRITE_ERROR_1 = 15, "H2C: an AXI slave answered with an error.";
        DESCRIPTOR_ERROR_0 = 19, "The bus refused a fetch of descriptors.";
        DESCRIPTOR_ERROR_1 = 20, "A fetch of descriptors was aborted.";
        DESCRIPTOR_ERROR_2 = 21, "A fetch of descriptors had a parity error.";
        DESCRIPTOR_ERROR_3 = 22, "A fetch of descriptors was answered with poisoned data.";
        DESCRIPTOR_ERROR_4 = 23, "A fetch of descriptors had an unexpected completion.";
    }
}

impl Status {
    /// Bits after which a transfer is not complete.
    pub const FAILURES: Status = Status::from_bits_retain(0x00f8_fe38);
}

/// The word that a channel in poll mode writes to host memory (PG195, poll mode).
pub mod writeback {
    /// The channel noted an error.
    pub const ERROR: u32 = 1 << 31;
    /// Descriptors completed since RUN.
    pub const COUNT: u32 = 0x00ff_ffff;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Retyped by hand from PG195.
    #[test]
    fn addresses_and_identifiers_retyped() {
        assert_eq!(Block::H2c.base(3) + channel::STATUS_CLEAR, 0x0344);
        assert_eq!(Block::C2h.base(1) + channel::CONTROL_CLEAR, 0x110c);
        assert_eq!(Block::Interrupts.base(0) + interrupts::CHANNEL_VECTORS_0, 0x20a0);
        assert_eq!(Block::Config.base(0) + config::WRITE_FLUSH_TIMEOUT, 0x3060);
        assert_eq!(Block::H2cDescriptors.base(0) + descriptors::FIRST_LO, 0x4080);
        assert_eq!(Block::C2hDescriptors.base(2) + descriptors::CREDITS, 0x528c);
        assert_eq!(Block::Common.base(0) + common::CREDIT_MODE_CLEAR, 0x6028);
        assert_eq!(Block::H2c.base(0) + channel::INTERRUPT_ENABLE_CLEAR, 0x0098);
        assert_eq!(Block::H2c.base(0) + channel::WRITEBACK_HI, 0x008c);
        let identifiers = [0x1fc0_0106, 0x1fc1_0106, 0x1fc2_0006, 0x1fc3_0006, 0x1fc4_0106, 0x1fc5_0106, 0x1fc6_0006];
        for (block, identifier) in Block::ALL.into_iter().zip(identifiers) {
            let is_shared = matches!(block, Block::Interrupts | Block::Config | Block::Common);
            assert_eq!(block.identifier(if is_shared { 0 } else { 1 }), identifier);
        }
        assert_eq!(Control::EVENTS.bits(), 0b1111_1111_1111_1110_0111_1110);
        assert_eq!(Status::WRITE_ERROR_1.bits(), 1 << 15);
        assert_eq!(Status::DESCRIPTOR_ERROR_4.bits(), 1 << 23);
    }
}
