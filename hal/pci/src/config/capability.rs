//! Parsers of capabilities. Each returns `None` if the function does not have the capability, or if the copy ends before
//! the fields that are read.
//!
//! Layouts: PCI Express Base Specification 5.0, sections 7.5.3 (PCI Express), 7.7.2 (MSI-X), 7.8.4 (AER), 7.9.5 (vendor-specific).

use std::ops::Range;

use super::link::Lanes;
use super::registers::{
    CAPABILITY_EXPRESS, CAPABILITY_MSIX, CAPABILITY_VENDOR, EXTENDED_AER, EXTENDED_VENDOR, MSIX_CONTROL,
    MSIX_ENTRY_BYTES, MSIX_TABLE,
};
use super::space::{Capability, Space};
use crate::BarIndex;

/// The PCI Express capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Express {
    /// Offset in configuration space.
    pub offset: u16,
    /// Best speed and width of its link; `None` for virtual functions and integrated endpoints, or if the copy ends before.
    pub link_capable: Option<Lanes>,
    /// Present speed and width of its link; `None` while the link is down, and as for `link_capable`.
    pub link: Option<Lanes>,
}

/// The MSI-X capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Msix {
    /// Offset in configuration space.
    pub offset: u16,
    /// Vectors of the table, 1 to 2048.
    pub vectors: u16,
    /// BAR of the table, and offset in the BAR in bytes; `None` if it names BAR 6 or 7, which are reserved.
    pub table: Option<(BarIndex, u32)>,
}

/// The AER capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aer {
    /// Offset in configuration space.
    pub offset: u16,
    /// Uncorrectable errors that occurred, one bit each.
    pub uncorrectable: u32,
    /// Correctable errors that occurred.
    pub correctable: u32,
}

/// A vendor-specific capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vendor {
    /// Offset in configuration space.
    pub offset: u16,
    /// Id that the vendor chose; `None` in the first list.
    pub id: Option<u16>,
}

impl Msix {
    /// Returns the BAR and the bytes of the table, or `None` if the capability names a reserved BAR.
    pub fn table_bytes(&self) -> Option<(BarIndex, Range<u64>)> {
        let (bar, start) = self.table?;
        let start = u64::from(start);
        Some((bar, start..start + u64::from(self.vectors) * MSIX_ENTRY_BYTES))
    }
}

impl Space {
    fn capability(&self, id: u8) -> Option<u16> {
        self.capabilities().first(id.into()).map(|entry| entry.offset)
    }

    fn extended(&self, id: u16) -> Option<u16> {
        self.extended_capabilities().first(id).map(|entry| entry.offset)
    }

    /// Parses the PCI Express capability.
    pub fn express(&self) -> Option<Express> {
        let offset = self.capability(CAPABILITY_EXPRESS)?;
        Some(Express {
            offset,
            link_capable: self.u32(offset + 0x0c).and_then(Lanes::from_register),
            link: self.u16(offset + 0x12).and_then(|bits| Lanes::from_register(bits.into())),
        })
    }

    /// Parses the MSI-X capability.
    pub fn msix(&self) -> Option<Msix> {
        let offset = self.capability(CAPABILITY_MSIX)?;
        let control = self.u16(offset + MSIX_CONTROL)?;
        let table = self.u32(offset + MSIX_TABLE)?;
        Some(Msix {
            offset,
            vectors: (control & 0x7ff) + 1,
            table: BarIndex::new((table & 7) as u8).map(|bar| (bar, table & !7)),
        })
    }

    /// Parses the AER capability.
    pub fn aer(&self) -> Option<Aer> {
        let offset = self.extended(EXTENDED_AER)?;
        Some(Aer { offset, uncorrectable: self.u32(offset + 0x04)?, correctable: self.u32(offset + 0x10)? })
    }

    /// Returns all vendor-specific capabilities of both lists.
    pub fn vendor_specific(&self) -> Vec<Vendor> {
        let first = |entry: &Capability| Vendor { offset: entry.offset, id: None };
        let extended =
            |entry: &Capability| Some(Vendor { offset: entry.offset, id: Some(self.u16(entry.offset + 4)?) });
        let (short, long) = (self.capabilities().found, self.extended_capabilities().found);
        let short = short.iter().filter(|entry| entry.id == u16::from(CAPABILITY_VENDOR)).map(first);
        let long = long.iter().filter(|entry| entry.id == EXTENDED_VENDOR).filter_map(extended);
        short.chain(long).collect()
    }
}

/// Returns the name of a capability in the first list, from the specification.
pub const fn name(id: u16) -> Option<&'static str> {
    Some(match id {
        0x01 => "power management",
        0x03 => "vital product data",
        0x05 => "MSI",
        0x09 => "vendor-specific",
        0x0d => "bridge subsystem ids",
        0x10 => "PCI Express",
        0x11 => "MSI-X",
        0x12 => "SATA",
        0x13 => "advanced features",
        _ => return None,
    })
}

/// Returns the name of a capability in the extended list.
pub const fn extended_name(id: u16) -> Option<&'static str> {
    Some(match id {
        0x0001 => "AER",
        0x0002 | 0x0009 => "virtual channel",
        0x0003 => "serial number",
        0x0004 => "power budgeting",
        0x000b => "vendor-specific",
        0x000d => "ACS",
        0x000e => "ARI",
        0x000f => "ATS",
        0x0010 => "SR-IOV",
        0x0013 => "page request",
        0x0015 => "resizable BAR",
        0x0017 => "TPH",
        0x0018 => "LTR",
        0x0019 => "secondary PCI Express",
        0x001b => "PASID",
        0x001e => "L1 substates",
        0x001f => "precision time measurement",
        0x0023 => "designated vendor-specific",
        0x0025 => "data link feature",
        0x0026 => "physical layer 16 GT/s",
        0x0027 => "lane margining",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words typed by hand from the specification, not from the constants above.
    fn card() -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        for (at, word) in [
            (0x00, 0x903f_10ee_u32),
            (0x04, 0x0010_0006),
            (0x34, 0x40),
            (0x40, 0x0003_4801),
            (0x44, 0x0000_000b),
            (0x48, 0x008a_6005),
            (0x60, 0x8007_7011),
            (0x64, 0x0000_8002),
            (0x68, 0x0000_8fe7),
            (0x70, 0x0002_9010),
            (0x74, 0x1000_8022),
            (0x78, 0x0000_2910),
            (0x7c, 0x0000_7903),
            (0x80, 0x1082_0000),
            (0x90, 0x0014_0009),
            (0x100, 0x1402_0001),
            (0x104, 0x0010_0000),
            (0x110, 0x0000_2001),
            (0x140, 0x1801_000b),
            (0x144, 0x0101_0020),
            (0x180, 0x1c01_0010),
            (0x188, 0x0000_0001),
            (0x18c, 0x0004_0004),
            (0x190, 0x0000_0002),
            (0x194, 0x0001_0010),
            (0x198, 0xbccf_0000),
            (0x1c0, 0x0001_000d),
            (0x1c4, 0x001d_005f),
        ] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn every_field() {
        let space = Space::new(card()).unwrap();
        let msix = space.msix().unwrap();
        assert_eq!(msix, Msix { offset: 0x60, vectors: 8, table: Some((BarIndex::new(2).unwrap(), 0x8000)) });
        assert_eq!(msix.table_bytes(), Some((BarIndex::new(2).unwrap(), 0x8000..0x8080)));
        let express = space.express().unwrap();
        assert_eq!(express.link_capable.unwrap().to_string(), "8 GT/s x16");
        assert_eq!(express.link.unwrap().to_string(), "5 GT/s x8");
        assert!(express.link.unwrap().is_below(express.link_capable.unwrap()));
        let aer = space.aer().unwrap();
        assert_eq!((aer.uncorrectable, aer.correctable), (1 << 20, 0x2001));
        let ids: Vec<_> = space.vendor_specific().iter().map(|one| (one.offset, one.id)).collect();
        assert_eq!(ids, [(0x90, None), (0x140, Some(0x20))]);
    }

    fn all(space: &Space) {
        let _ = (space.header(), space.express(), space.aer());
        if let Some(msix) = space.msix() {
            assert!((1..=2048).contains(&msix.vectors));
        }
        assert!(space.vendor_specific().len() <= 1024);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// A copy cut anywhere, and with any bytes changed: no parser panics, and what is cut off is absent.
        #[test]
        fn cut_and_changed(len in 64usize..4096, changes in prop::collection::vec((0usize..4096, any::<u8>()), 0..8)) {
            let mut bytes = card();
            bytes.truncate(len);
            let cut = Space::new(bytes.clone()).unwrap();
            all(&cut);
            prop_assert_eq!(cut.msix().is_some(), len >= 0x68);
            prop_assert_eq!(cut.aer().is_some(), len >= 0x114);
            for (at, value) in changes {
                let at = at % len;
                bytes[at] = value;
            }
            all(&Space::new(bytes).unwrap());
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 64..4097)) {
            all(&Space::new(bytes).unwrap());
        }
    }
}
