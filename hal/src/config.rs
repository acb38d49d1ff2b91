//! Configuration space: the registers every function has, and the walk to those that some have.
//!
//! Offsets and bits are those of the PCI Express Base Specification, sections 7.5 (header) and 7.7.2 (MSI-X). Endpoints
//! may use them too. [`Space`] is a copy of it taken apart: header, both lists, and what stands in them.

mod capability;
mod space;

pub use capability::*;
pub use space::{Capability, End, HEADER_BYTES, Header, Space, Walk};

use crate::endpoint::BarLayout;
use crate::{Error, Result};

/// Bytes of configuration space.
pub const BYTES: u16 = 4096;
/// Vendor id, 16 bits. All-ones: nobody answers.
pub const VENDOR: u16 = 0x00;
/// Device id, 16 bits.
pub const DEVICE: u16 = 0x02;
/// Command register, 16 bits.
pub const COMMAND: u16 = 0x04;
/// Command: the function answers to its BARs.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command: the function may make requests of its own (DMA, MSI-X).
pub const COMMAND_MASTER: u16 = 1 << 2;
/// Status register, 16 bits.
pub const STATUS: u16 = 0x06;
/// Status: there is a capability list.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Revision in the lowest byte, class code in the three above, 32 bits.
pub const CLASS_REVISION: u16 = 0x08;
/// Header type, 8 bits: 0 for endpoints; bit 7 says that the device has several functions.
pub const HEADER_TYPE: u16 = 0x0e;
/// The first base address register, 32 bits, of six in a row.
pub const BARS: u16 = 0x10;
/// Offset of the first capability, 8 bits.
pub const CAPABILITIES: u16 = 0x34;
/// Interrupt pin, 8 bits: 1 to 4 for INTA to INTD, 0 for none.
pub const INTERRUPT_PIN: u16 = 0x3d;
/// Capability id of MSI-X.
pub const CAPABILITY_MSIX: u8 = 0x11;
/// In the MSI-X capability: message control, 16 bits. Its low 11 bits are the table's size less one.
pub const MSIX_CONTROL: u16 = 2;
/// Message control: MSI-X is on.
pub const MSIX_ENABLE: u16 = 1 << 15;
/// Message control: all vectors are masked.
pub const MSIX_MASK_ALL: u16 = 1 << 14;
/// In the MSI-X capability: the table's offset, and in the low three bits its BAR, 32 bits.
pub const MSIX_TABLE: u16 = 4;
/// Bytes of one entry of the MSI-X table: address (64 bits), data (32 bits), vector control (32 bits, bit 0 masks).
pub const MSIX_ENTRY_BYTES: u64 = 16;

/// Where the list may lie: behind the header, in the first 256 bytes.
const FIRST_CAPABILITY: u16 = 0x40;
/// Capabilities that fit there, four bytes each: a longer list is a loop.
const MOST_CAPABILITIES: usize = (256 - 0x40) / 4;

/// What the low byte of its base address register says of a BAR of `bytes` bytes. Of ports, nothing.
pub(crate) fn bar_layout(low: u8, bytes: u64) -> BarLayout {
    let is_memory = low & 1 == 0;
    BarLayout { bytes, is_64_bit: is_memory && low >> 1 & 3 == 2, prefetchable: is_memory && low >> 3 & 1 == 1 }
}

/// Offset of the first capability `id`, or `None` if the list ends without it.
///
/// `read` reads `width` bytes (1 or 2) at an offset. The list may be anything: nothing is taken for granted.
pub(crate) fn find_capability(id: u8, read: impl Fn(u16, u16) -> Result<u16>) -> Result<Option<u16>> {
    if read(STATUS, 2)? & STATUS_CAPABILITIES == 0 {
        return Ok(None);
    }
    let mut from = CAPABILITIES;
    for _ in 0..=MOST_CAPABILITIES {
        // The low two bits are reserved.
        let offset = read(from, 1)? & 0xfc;
        if offset == 0 {
            return Ok(None);
        }
        if offset < FIRST_CAPABILITY {
            return Err(Error::CapabilityList { offset: from });
        }
        let found = read(offset, 1)?;
        if found == u16::from(id) {
            return Ok(Some(offset));
        }
        if found == 0xff {
            return Err(Error::CapabilityList { offset });
        }
        from = offset + 1;
    }
    Err(Error::CapabilityList { offset: from })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find(space: &[u8; 256]) -> Result<Option<u16>> {
        find_capability(CAPABILITY_MSIX, |offset, width| {
            let low = u16::from(space[usize::from(offset)]);
            Ok(if width == 2 { low | u16::from(space[usize::from(offset) + 1]) << 8 } else { low })
        })
    }

    fn space(entries: &[(u8, u8, u8)]) -> [u8; 256] {
        let mut space = [0; 256];
        space[0x06] = 0x10;
        space[0x34] = entries.first().map_or(0, |entry| entry.0);
        for &(offset, id, next) in entries {
            space[usize::from(offset)] = id;
            space[usize::from(offset) + 1] = next;
        }
        space
    }

    #[test]
    fn it_follows_the_list() {
        assert_eq!(find(&space(&[(0x40, 0x01, 0x50), (0x50, 0x10, 0x9d), (0x9c, 0x11, 0)])).unwrap(), Some(0x9c));
        assert_eq!(find(&space(&[(0x40, 0x01, 0x50), (0x50, 0x10, 0)])).unwrap(), None);
        assert_eq!(find(&space(&[])).unwrap(), None);
        let mut none = space(&[(0x40, 0x11, 0)]);
        none[0x06] = 0;
        assert_eq!(find(&none).unwrap(), None);
        // All 48 of them.
        let mut full: Vec<_> = (0x10..0x40u8).map(|i| (i * 4, 0x09, (i + 1).wrapping_mul(4))).collect();
        full.last_mut().unwrap().1 = 0x11;
        assert_eq!(find(&space(&full)).unwrap(), Some(0xfc));
    }

    #[test]
    fn kinds_of_bars() {
        // PCI Local Bus Specification 3.0, section 6.2.5.1.
        for (low, is_64_bit, prefetchable) in
            [(0x00, false, false), (0x04, true, false), (0x0c, true, true), (0x08, false, true), (0x0d, false, false)]
        {
            assert_eq!(bar_layout(low, 64), BarLayout { bytes: 64, is_64_bit, prefetchable }, "{low:#x}");
        }
    }

    #[test]
    fn broken_lists_end() {
        for list in [
            space(&[(0x40, 0x01, 0x40)]),
            space(&[(0x40, 0x01, 0x48), (0x48, 0x05, 0x40)]),
            space(&[(0x40, 0x01, 0x10)]),
            [0xff; 256],
        ] {
            assert!(matches!(find(&list), Err(Error::CapabilityList { .. })));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 256)) {
            let mut space: [u8; 256] = bytes.try_into().unwrap();
            space[0x06] |= 0x10;
            if let Ok(Some(offset)) = find(&space) {
                prop_assert_eq!(space[usize::from(offset)], 0x11);
                prop_assert!((0x40..=0xfc).contains(&offset));
            }
        }
    }
}
