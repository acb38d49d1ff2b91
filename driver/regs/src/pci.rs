//! PCI identity and BAR layout of the cards whose shell carries the sequencer behind a Device Feature List.

/// Vendor id of the mock card. 1234 is the unregistered id that virtual devices use, so no real card is mistaken for it.
pub const VENDOR: u16 = 0x1234;
/// Device id of the mock card with a sequencer.
pub const DEVICE: u16 = 0xf9a0;
/// Device id of the mock card with a channel block.
pub const CHANNELS_DEVICE: u16 = 0xf9a1;
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

/// What the configuration space of a function says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem_device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
    /// Index and bytes of each BAR; all are 64-bit.
    pub bars: &'static [(u8, u64)],
    /// Whether the BARs are prefetchable.
    pub is_prefetchable: bool,
    /// Its MSI-X.
    pub msix: Msix,
}

impl Function {
    /// Returns the bytes of a BAR, 0 if it has none of this index.
    pub const fn bar_bytes(&self, index: u8) -> u64 {
        let mut place = 0;
        while place < self.bars.len() {
            if self.bars[place].0 == index {
                return self.bars[place].1;
            }
            place += 1;
        }
        0
    }
}

/// Where the MSI-X structures of a function are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Msix {
    /// BAR of both.
    pub bar: u8,
    /// Vectors, up to 32.
    pub vectors: u16,
    /// Offset of the table.
    pub table: u32,
    /// Offset of the pending bits.
    pub pending: u32,
}

/// The mock card with a sequencer.
pub const CARD: Function = Function {
    vendor: VENDOR,
    device: DEVICE,
    subsystem_vendor: VENDOR,
    subsystem_device: DEVICE,
    class: CLASS,
    revision: REVISION,
    bars: &[(REGISTERS_BAR, REGISTERS_BAR_BYTES), (MSIX_BAR, MSIX_BAR_BYTES)],
    is_prefetchable: false,
    msix: Msix { bar: MSIX_BAR, vectors: MSIX_VECTORS, table: MSIX_TABLE_OFFSET, pending: MSIX_PENDING_OFFSET },
};

/// The mock card with a channel block.
pub const CHANNELS_CARD: Function = Function { device: CHANNELS_DEVICE, subsystem_device: CHANNELS_DEVICE, ..CARD };
