//! Offsets, bits and ids of configuration space.
//!
//! Source: PCI Express Base Specification, sections 7.5 (header) and 7.7.2 (MSI-X). Endpoints may use them too.

/// Length of configuration space, in bytes.
pub const BYTES: u16 = 4096;
/// Vendor id, 16 bits. All-ones: no function answered.
pub const VENDOR: u16 = 0x00;
/// Device id, 16 bits.
pub const DEVICE: u16 = 0x02;
/// Command register, 16 bits.
pub const COMMAND: u16 = 0x04;
/// Command: the function decodes accesses to its memory BARs.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command: the function may send requests (DMA, MSI-X).
pub const COMMAND_MASTER: u16 = 1 << 2;
/// Status register, 16 bits.
pub const STATUS: u16 = 0x06;
/// Status: the function has a capability list.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Revision in the lowest byte, class code in the upper three, 32 bits.
pub const CLASS_REVISION: u16 = 0x08;
/// Header type, 8 bits: 0 for endpoints; bit 7: the device has several functions.
pub const HEADER_TYPE: u16 = 0x0e;
/// First of six consecutive base address registers, 32 bits each.
pub const BARS: u16 = 0x10;
/// Offset of the first capability, 8 bits.
pub const CAPABILITIES: u16 = 0x34;
/// Interrupt pin, 8 bits: 1 to 4 for INTA to INTD, 0 for none.
pub const INTERRUPT_PIN: u16 = 0x3d;
/// In the MSI-X capability: message control, 16 bits. The low 11 bits are the number of vectors less one.
pub const MSIX_CONTROL: u16 = 2;
/// Message control: MSI-X is enabled.
pub const MSIX_ENABLE: u16 = 1 << 15;
/// Message control: all vectors are masked.
pub const MSIX_MASK_ALL: u16 = 1 << 14;
/// In the MSI-X capability: offset of the table, with its BAR in the low three bits, 32 bits.
pub const MSIX_TABLE: u16 = 4;
/// Length of one entry of the MSI-X table, in bytes: address (64 bits), data (32 bits), vector control (32 bits, bit 0
/// masks).
pub const MSIX_ENTRY_BYTES: u64 = 16;
/// Capability id of vendor-specific bytes in the first list.
pub const CAPABILITY_VENDOR: u8 = 0x09;
/// Capability id of PCI Express.
pub const CAPABILITY_EXPRESS: u8 = 0x10;
/// Capability id of MSI-X.
pub const CAPABILITY_MSIX: u8 = 0x11;
/// Where the list of extended capabilities begins.
pub const EXTENDED: u16 = 0x100;
/// Extended capability id of Advanced Error Reporting.
pub const EXTENDED_AER: u16 = 0x0001;
/// Extended capability id of a vendor-specific capability.
pub const EXTENDED_VENDOR: u16 = 0x000b;
