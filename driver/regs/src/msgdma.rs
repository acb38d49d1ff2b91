//! Intel's modular scatter-gather DMA (mSGDMA), and the building block by which a feature list leads to it.
//!
//! Sources: Embedded Peripherals IP User Guide (683130), modular scatter-gather DMA; Linux `drivers/dma/altera-msgdma.c`; for the
//! building block, its addresses and its places OPAE's `fpga_dma_internal.h`. Registers are 32 bits wide, and the building block
//! takes accesses of 4 and of 8 bytes.
//!
//! The host writes descriptors into registers, not into memory: eight words, of which the last has [`DescriptorControl::GO`] and
//! commits the descriptor. The dispatcher keeps them in a queue whose depth a designer chooses.

use crate::Register;
use crate::bits::flags;

/// GUID of the building block that copies between memories, `ef82def7-f6ec-40fc-a914-9a35bace01ea`.
pub const GUID: u128 = 0xef82def7_f6ec_40fc_a914_9a35bace01ea;
/// GUID of the building block from memory to a stream, `fee69b44-2f77-43ed-9ff4-9b8cf9ee6335`.
pub const TO_STREAM_GUID: u128 = 0xfee69b44_2f77_43ed_9ff4_9b8cf9ee6335;
/// GUID of the building block from a stream to memory, `f118209a-d59a-4b3f-a66c-d700a658a015`.
pub const FROM_STREAM_GUID: u128 = 0xf118209a_d59a_4b3f_a66c_d700a658a015;
/// Feature id of the building block.
pub const FEATURE_ID: u16 = 0x765;

/// Bytes of the building block, from its feature header on.
pub const BLOCK_BYTES: u32 = 0x2000;
/// Offset of the registers of the dispatcher in the building block.
pub const CSR: u32 = 0x40;
/// Offset of the port for extended descriptors.
pub const DESCRIPTOR: u32 = 0x60;
/// Offset of the control of the window on card memory (address span extender).
pub const SPAN: u32 = 0x200;
/// Offset of the window on card memory.
pub const WINDOW: u32 = 0x1000;
/// Bytes of the window on card memory.
pub const WINDOW_BYTES: u32 = 0x1000;

/// Addresses and lengths of descriptors are multiples of this.
pub const ALIGN: u64 = 64;
/// Most bytes of one descriptor: 1023 KiB, as the block is configured (`FPGA_DMA_BUF_SIZE`).
pub const LENGTH_MAX: u32 = 1023 << 10;
/// Most lines of 64 bytes in a burst at host memory. A burst begins at a multiple of its length.
pub const BURST_MAX: u8 = 4;

/// Bits of an address that say which memory it is in.
pub const SPACE: u64 = 3 << 48;
/// Space of card memory.
pub const CARD_SPACE: u64 = 0;
/// Space of a line that reads [`MAGIC`].
pub const ROM_SPACE: u64 = 1 << 48;
/// Space of host memory: the IOVA is in the bits below.
pub const HOST_SPACE: u64 = 2 << 48;
/// Space of host memory, written behind all that was written before.
pub const FENCED_HOST_SPACE: u64 = 3 << 48;
/// Address bits inside of a space.
pub const ADDRESS_BITS: u32 = 48;
/// What the first 8 bytes of [`ROM_SPACE`] read: the letters `Wrt_Sync`. Copied to host memory, it shows that all before is there.
pub const MAGIC: u64 = 0x5772_745f_5379_6e63;

/// Version of the feature header of the building block in this project's model.
pub const HEADER_VERSION: u8 = 1;
/// Offset, from a header of version 1, of the word that says whether parameters follow.
pub const HAS_PARAMETERS: u64 = 0x20;
/// Bit of the word at [`HAS_PARAMETERS`].
pub const PARAMETERS: u64 = 1 << 31;
/// Offset of the first parameter from a header of version 1: id in 15:0, version in 31:16, last in 32, words of 8 bytes to the next
/// in 63:35 (Linux `dfl.h`).
pub const FIRST_PARAMETER: u64 = 0x28;
/// Id of the parameter with vectors of MSI-X: the first in 31:0 and their number in 63:32 of the word behind it.
pub const MSIX_PARAMETER: u64 = 1;
/// Bit of a parameter: the last.
pub const LAST_PARAMETER: u64 = 1 << 32;

/// The tables with their headings in `docs/registers.md`.
pub const BLOCKS: [(&str, &[Register]); 5] = [
    ("mSGDMA dispatcher, at 0x40 of the building block", csr::TABLE),
    ("mSGDMA extended descriptor, at 0x60", extended::TABLE),
    ("mSGDMA window on card memory, at 0x200", span::TABLE),
    ("mSGDMA standard descriptor, in designs without extended ones", standard::TABLE),
    ("mSGDMA response, in designs with a port for responses", response::TABLE),
];

/// The registers of the dispatcher (683130, CSR; Linux `struct msgdma_csr`).
pub mod csr {
    use crate::registers;

    registers! {
        STATUS = 0x00, WriteOneToClear, Some(0x0a), "See the bits of STATUS of an mSGDMA. Only IRQ is cleared by a one.";
        CONTROL = 0x04, ReadWrite, Some(0), "See the bits of CONTROL of an mSGDMA. RESET and the bits that flush read 0 once done.";
        FILL_LEVEL = 0x08, ReadOnly, Some(0), "Descriptors in the queue: of the write master in 31:16, of the read master in 15:0.";
        RESPONSE_FILL_LEVEL = 0x0c, ReadOnly, Some(0), "Responses in the queue in 15:0.";
        SEQUENCE = 0x10, ReadOnly, Some(0), "Numbers of the descriptors last begun: by the write master in 31:16, by the read master in 15:0.";
        CONFIG_1 = 0x14, ReadOnly, Some(0), "How the component was configured, in newer versions.";
        CONFIG_2 = 0x18, ReadOnly, Some(0), "How the component was configured, in newer versions.";
        TYPE = 0x1c, ReadOnly, Some(0), "Type and version, in newer versions.";
    }
}

/// The words of an extended descriptor (683130, extended descriptor format; Linux `struct msgdma_extended_desc`).
pub mod extended {
    use crate::registers;

    registers! {
        READ_LO = 0x00, WriteOnly, Some(0), "Address of the source, lower half.";
        WRITE_LO = 0x04, WriteOnly, Some(0), "Address of the destination, lower half.";
        LENGTH = 0x08, WriteOnly, Some(0), "Bytes.";
        BURST = 0x0c, WriteOnly, Some(0), "Lines of a burst: writes 31:24, reads 23:16; 0 means as many as possible. Number of the descriptor in 15:0.";
        STRIDE = 0x10, WriteOnly, Some(0), "Lines from one to the next: writes 31:16, reads 15:0. 1 goes on, 0 stays.";
        READ_HI = 0x14, WriteOnly, Some(0), "Address of the source, upper half.";
        WRITE_HI = 0x18, WriteOnly, Some(0), "Address of the destination, upper half.";
        CONTROL = 0x1c, WriteOnly, Some(0), "See the bits of CONTROL of an mSGDMA descriptor. With GO the descriptor is queued.";
    }

    /// Bytes of a descriptor.
    pub const BYTES: u32 = 0x20;
}

/// The words of a standard descriptor, of designs whose addresses have 32 bits (683130, standard descriptor format).
pub mod standard {
    use crate::registers;

    registers! {
        READ = 0x00, WriteOnly, Some(0), "Address of the source.";
        WRITE = 0x04, WriteOnly, Some(0), "Address of the destination.";
        LENGTH = 0x08, WriteOnly, Some(0), "Bytes.";
        CONTROL = 0x0c, WriteOnly, Some(0), "As of an extended descriptor.";
    }

    /// Bytes of a descriptor.
    pub const BYTES: u32 = 0x10;
}

/// The response of a descriptor (683130, response port; Linux `struct msgdma_response`).
pub mod response {
    use crate::registers;

    registers! {
        BYTES_TRANSFERRED = 0x00, ReadOnly, Some(0), "Bytes transferred.";
        STATUS = 0x04, ReadOnly, Some(0), "Errors in 7:0, early termination in 8. A read takes the response from the queue.";
    }

    /// Bytes of the port.
    pub const BYTES: u32 = 0x08;
}

/// Which part of card memory the window shows (OPAE `fpga_dma_internal.h`, address span extender).
pub mod span {
    use crate::registers;

    registers! {
        PAGE_LO = 0x00, ReadWrite, Some(0), "Address of the first byte in the window, lower half: a multiple of 4 KiB.";
        PAGE_HI = 0x04, ReadWrite, Some(0), "Its upper half.";
    }

    /// Bytes of the registers.
    pub const BYTES: u32 = 0x08;
}

flags! {
    /// Bits of [`csr::STATUS`].
    Status {
        BUSY = 0, "The queue has descriptors, or a master moves data.";
        EMPTY = 1, "The queue of descriptors is empty.";
        FULL = 2, "The queue of descriptors is full.";
        RESPONSES_EMPTY = 3, "The queue of responses is empty.";
        RESPONSES_FULL = 4, "The queue of responses is full.";
        STOPPED = 5, "The dispatcher has stopped because CONTROL says so.";
        RESETTING = 6, "The dispatcher is being reset.";
        STOPPED_ON_ERROR = 7, "The dispatcher has stopped because of an error.";
        STOPPED_EARLY = 8, "The dispatcher has stopped because a transfer ended early.";
        IRQ = 9, "An event has occurred for which a descriptor wants an interrupt. A one clears it.";
    }
}

flags! {
    /// Bits of [`csr::CONTROL`].
    Control {
        STOP = 0, "Stop, in the middle of a descriptor.";
        RESET = 1, "Reset the dispatcher, and empty its queues.";
        STOP_ON_ERROR = 2, "Stop when a transfer has an error.";
        STOP_EARLY = 3, "Stop when a transfer ends early.";
        INTERRUPTS = 4, "Interrupts are sent.";
        STOP_DESCRIPTORS = 5, "Begin no further descriptor.";
        FLUSH_DESCRIPTORS = 6, "Empty the queue of descriptors, in the building block.";
        FLUSH_READS = 7, "Empty the read master, in the building block.";
        FLUSH_WRITES = 8, "Empty the write master, in the building block.";
    }
}

flags! {
    /// Bits of [`extended::CONTROL`]. The channel is in 7:0, the errors that interrupt are in 23:16.
    DescriptorControl {
        START_OF_PACKET = 8, "A stream's packet begins.";
        END_OF_PACKET = 9, "A stream's packet ends.";
        PARK_READS = 10, "Repeat reads until there is another descriptor.";
        PARK_WRITES = 11, "Repeat writes until there is another descriptor.";
        END_ON_PACKET = 12, "A stream's packet ends the transfer.";
        END_ON_LENGTH = 13, "The length ends the transfer.";
        COMPLETE_IRQ = 14, "Interrupt at the end.";
        EARLY_IRQ = 15, "Interrupt if the transfer ends early.";
        EARLY_DONE = 24, "Begin the next descriptor before all data was read.";
        WAIT_FOR_WRITES = 25, "Complete when writes are answered, in the building block.";
        GO = 31, "Queue the descriptor.";
    }
}

/// All errors that a descriptor can have cause an interrupt.
pub const ERROR_IRQS: u32 = 0xff << 16;
