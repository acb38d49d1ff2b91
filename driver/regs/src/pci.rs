//! PCI identity and BAR layout of the cards whose shell carries the sequencer behind a Device Feature List.

/// Vendor id of the mock card. 1234 is the unregistered id that virtual devices use, so no real card is mistaken for it.
pub const VENDOR: u16 = 0x1234;
/// Device id of the mock card.
pub const DEVICE: u16 = 0xf9a0;
/// Class code: processing accelerator (PCI Code and ID Assignment, base class 12h).
pub const CLASS: u32 = 0x12_00_00;
/// Revision of the mock card.
pub const REVISION: u8 = 1;

/// BAR with the Device Feature List and the sequencer's block; 64-bit, not prefetchable.
pub const REGISTERS_BAR: u8 = 0;
/// Bytes of [`REGISTERS_BAR`].
pub const REGISTERS_BAR_BYTES: u64 = 0x1_0000;
/// BAR with MSI-X table and pending bits; 64-bit, not prefetchable.
pub const MSIX_BAR: u8 = 4;
/// Bytes of [`MSIX_BAR`].
pub const MSIX_BAR_BYTES: u64 = 0x1000;
/// MSI-X vectors of the card.
pub const MSIX_VECTORS: u16 = 8;
/// Offset of the MSI-X table in [`MSIX_BAR`].
pub const MSIX_TABLE_OFFSET: u32 = 0;
/// Offset of the pending bits in [`MSIX_BAR`].
pub const MSIX_PENDING_OFFSET: u32 = 0x800;
/// Address bits the card can master.
pub const DMA_BITS: u8 = 48;
