//! Capabilities taken apart. Each is `None` if the function does not have it, or if the copy ends before its words do.
//!
//! Layouts: PCI Express Base Specification 5.0, sections 7.5.2 (power management), 7.5.3 (PCI Express), 7.7.1 (MSI), 7.7.2
//! (MSI-X), 7.7.7 (ACS), 7.8.4 (AER), 7.9.5 (vendor-specific), 9.3.3 (SR-IOV).

use std::fmt;

use super::space::{Capability, Space};
use crate::BarIndex;

/// Capability id of power management.
pub const CAPABILITY_POWER: u8 = 0x01;
/// Capability id of MSI.
pub const CAPABILITY_MSI: u8 = 0x05;
/// Capability id of vendor-specific bytes in the first list.
pub const CAPABILITY_VENDOR: u8 = 0x09;
/// Capability id of PCI Express.
pub const CAPABILITY_EXPRESS: u8 = 0x10;
/// Extended capability id of Advanced Error Reporting.
pub const EXTENDED_AER: u16 = 0x0001;
/// Extended capability id of a vendor-specific capability.
pub const EXTENDED_VENDOR: u16 = 0x000b;
/// Extended capability id of Access Control Services.
pub const EXTENDED_ACS: u16 = 0x000d;
/// Extended capability id of Single Root I/O Virtualization.
pub const EXTENDED_SRIOV: u16 = 0x0010;

/// Rate of a link's lane, in millions of transfers a second. Displays as `8 GT/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSpeed {
    mega_transfers: u32,
}

impl LinkSpeed {
    /// From its 4-bit code in a link register: 1 to 6 are 2.5, 5, 8, 16, 32 and 64 GT/s.
    pub const fn from_code(code: u8) -> Option<Self> {
        let mega_transfers = match code {
            1 => 2_500,
            2 => 5_000,
            3 => 8_000,
            4 => 16_000,
            5 => 32_000,
            6 => 64_000,
            _ => return None,
        };
        Some(LinkSpeed { mega_transfers })
    }

    /// From millions of transfers a second, if links have that rate.
    pub fn from_mega_transfers(mega_transfers: u32) -> Option<Self> {
        (1..=6).filter_map(LinkSpeed::from_code).find(|speed| speed.mega_transfers == mega_transfers)
    }

    /// Millions of transfers a second.
    pub const fn mega_transfers(self) -> u32 {
        self.mega_transfers
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GT/s", f64::from(self.mega_transfers) / 1e3)
    }
}

/// Speed and width of a link. Displays as `8 GT/s x16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lanes {
    /// Rate of each lane.
    pub speed: LinkSpeed,
    /// Number of lanes, 1 to 32.
    pub width: u8,
}

impl Lanes {
    /// From the low ten bits of a link register: speed in 3:0, width in 9:4. `None` for a link that is not there.
    const fn from_register(bits: u32) -> Option<Self> {
        let width = (bits >> 4 & 0x3f) as u8;
        match LinkSpeed::from_code((bits & 0xf) as u8) {
            Some(speed) if width > 0 => Some(Lanes { speed, width }),
            _ => None,
        }
    }

    /// The slower speed and the smaller width of the two: what a link between such ends can have.
    pub fn between(self, other: Lanes) -> Lanes {
        Lanes { speed: self.speed.min(other.speed), width: self.width.min(other.width) }
    }

    /// Whether it is slower or narrower than `other`.
    pub fn is_below(self, other: Lanes) -> bool {
        self.speed < other.speed || self.width < other.width
    }
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x{}", self.speed, self.width)
    }
}

/// The PCI Express capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Express {
    /// Where it begins.
    pub offset: u16,
    /// Kind of port, 4 bits: 0 endpoint, 4 root port, 5 upstream and 6 downstream port of a switch, …
    pub port_type: u8,
    /// Whether the function can be reset on its own.
    pub has_function_reset: bool,
    /// Largest payload it can take, in bytes.
    pub payload_capable: u16,
    /// Largest payload it may send, in bytes.
    pub payload: u16,
    /// Largest read request it may make, in bytes.
    pub read_request: u16,
    /// What its link can be; `None` for virtual functions and integrated endpoints.
    pub link_capable: Option<Lanes>,
    /// What its link is now; `None` while it is down, and as for `link_capable`.
    pub link: Option<Lanes>,
}

/// The MSI capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Msi {
    /// Where it begins.
    pub offset: u16,
    /// Whether it is on.
    pub is_enabled: bool,
    /// Vectors it asks for, 1 to 32.
    pub vectors: u8,
    /// Whether it can be given a 64-bit address.
    pub is_64_bit: bool,
}

/// The MSI-X capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Msix {
    /// Where it begins.
    pub offset: u16,
    /// Whether it is on.
    pub is_enabled: bool,
    /// Whether all vectors are masked.
    pub is_masked: bool,
    /// Vectors of the table, 1 to 2048.
    pub vectors: u16,
    /// BAR of the table and offset in it, in bytes; `None` if it names a BAR that cannot be.
    pub table: Option<(BarIndex, u32)>,
    /// BAR of the pending bits and offset in it, in bytes.
    pub pending: Option<(BarIndex, u32)>,
}

/// The power management capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Power {
    /// Where it begins.
    pub offset: u16,
    /// Power state: 0 to 3, D0 to D3hot.
    pub state: u8,
    /// Whether it keeps its registers from D3hot to D0.
    pub keeps_registers: bool,
}

/// The AER capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aer {
    /// Where it begins.
    pub offset: u16,
    /// Uncorrectable errors that have been seen, a bit each.
    pub uncorrectable: u32,
    /// Uncorrectable errors that are not reported.
    pub uncorrectable_mask: u32,
    /// Uncorrectable errors that are fatal.
    pub severity: u32,
    /// Correctable errors that have been seen.
    pub correctable: u32,
    /// Correctable errors that are not reported.
    pub correctable_mask: u32,
}

/// The SR-IOV capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sriov {
    /// Where it begins.
    pub offset: u16,
    /// Whether virtual functions are on.
    pub is_enabled: bool,
    /// Virtual functions it can have.
    pub total: u16,
    /// Virtual functions it has now.
    pub active: u16,
    /// Routing id of the first virtual function, from that of the physical one.
    pub first: u16,
    /// Distance between routing ids of virtual functions.
    pub stride: u16,
    /// Device id of virtual functions.
    pub device: u16,
}

/// The ACS capability: what decides how finely the IOMMU can tell functions apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acs {
    /// Where it begins.
    pub offset: u16,
    /// What the port can do: bits 0 source validation, 2 request redirect, 3 completion redirect, 4 upstream forwarding.
    pub capable: u16,
    /// What of it is on.
    pub enabled: u16,
}

/// A vendor-specific capability: of the extended list, or of the first, which has neither id nor revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vendor {
    /// Where it begins.
    pub offset: u16,
    /// The vendor's id for it; `None` in the first list.
    pub id: Option<u16>,
    /// The vendor's revision of it; `None` in the first list.
    pub revision: Option<u8>,
    /// Bytes, its header included.
    pub bytes: u16,
}

impl Space {
    fn capability(&self, id: u8) -> Option<u16> {
        self.capabilities().first(id.into()).map(|entry| entry.offset)
    }

    fn extended(&self, id: u16) -> Option<u16> {
        self.extended_capabilities().first(id).map(|entry| entry.offset)
    }

    /// The PCI Express capability.
    pub fn express(&self) -> Option<Express> {
        let offset = self.capability(CAPABILITY_EXPRESS)?;
        let flags = self.u16(offset + 0x02)?;
        let device = self.u32(offset + 0x04)?;
        let control = self.u16(offset + 0x08)?;
        let bytes = |code: u32| 128u16 << (code & 7).min(5);
        Some(Express {
            offset,
            port_type: (flags >> 4 & 0xf) as u8,
            has_function_reset: device >> 28 & 1 == 1,
            payload_capable: bytes(device),
            payload: bytes(u32::from(control) >> 5),
            read_request: bytes(u32::from(control) >> 12),
            link_capable: self.u32(offset + 0x0c).and_then(Lanes::from_register),
            link: self.u16(offset + 0x12).and_then(|bits| Lanes::from_register(bits.into())),
        })
    }

    /// The MSI capability.
    pub fn msi(&self) -> Option<Msi> {
        let offset = self.capability(CAPABILITY_MSI)?;
        let control = self.u16(offset + 2)?;
        Some(Msi {
            offset,
            is_enabled: control & 1 == 1,
            vectors: 1 << (control >> 1 & 7).min(5),
            is_64_bit: control >> 7 & 1 == 1,
        })
    }

    /// The MSI-X capability.
    pub fn msix(&self) -> Option<Msix> {
        let offset = self.capability(super::CAPABILITY_MSIX)?;
        let control = self.u16(offset + super::MSIX_CONTROL)?;
        let place = |at| {
            let word = self.u32(at)?;
            Some(BarIndex::new((word & 7) as u8).map(|bar| (bar, word & !7)))
        };
        Some(Msix {
            offset,
            is_enabled: control & super::MSIX_ENABLE != 0,
            is_masked: control & super::MSIX_MASK_ALL != 0,
            vectors: (control & 0x7ff) + 1,
            table: place(offset + super::MSIX_TABLE)?,
            pending: place(offset + super::MSIX_TABLE + 4)?,
        })
    }

    /// The power management capability.
    pub fn power(&self) -> Option<Power> {
        let offset = self.capability(CAPABILITY_POWER)?;
        let status = self.u16(offset + 4)?;
        Some(Power { offset, state: (status & 3) as u8, keeps_registers: status >> 3 & 1 == 1 })
    }

    /// The AER capability.
    pub fn aer(&self) -> Option<Aer> {
        let offset = self.extended(EXTENDED_AER)?;
        let word = |at: u16| self.u32(offset + at);
        Some(Aer {
            offset,
            uncorrectable: word(0x04)?,
            uncorrectable_mask: word(0x08)?,
            severity: word(0x0c)?,
            correctable: word(0x10)?,
            correctable_mask: word(0x14)?,
        })
    }

    /// The SR-IOV capability.
    pub fn sriov(&self) -> Option<Sriov> {
        let offset = self.extended(EXTENDED_SRIOV)?;
        let word = |at: u16| self.u16(offset + at);
        Some(Sriov {
            offset,
            is_enabled: word(0x08)? & 1 == 1,
            total: word(0x0e)?,
            active: word(0x10)?,
            first: word(0x14)?,
            stride: word(0x16)?,
            device: word(0x1a)?,
        })
    }

    /// The ACS capability.
    pub fn acs(&self) -> Option<Acs> {
        let offset = self.extended(EXTENDED_ACS)?;
        Some(Acs { offset, capable: self.u16(offset + 4)?, enabled: self.u16(offset + 6)? })
    }

    /// All vendor-specific capabilities of both lists.
    pub fn vendor_specific(&self) -> Vec<Vendor> {
        let first = |entry: &Capability| {
            let bytes = self.u8(entry.offset + 2)?;
            Some(Vendor { offset: entry.offset, id: None, revision: None, bytes: bytes.into() })
        };
        let extended = |entry: &Capability| {
            let word = self.u32(entry.offset + 4)?;
            Some(Vendor {
                offset: entry.offset,
                id: Some(word as u16),
                revision: Some((word >> 16 & 0xf) as u8),
                bytes: (word >> 20) as u16,
            })
        };
        let (short, long) = (self.capabilities().found, self.extended_capabilities().found);
        let short = short.iter().filter(|entry| entry.id == u16::from(CAPABILITY_VENDOR)).filter_map(first);
        let long = long.iter().filter(|entry| entry.id == EXTENDED_VENDOR).filter_map(extended);
        short.chain(long).collect()
    }
}

/// Name of a capability of the first list, as the specification has it.
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

/// Name of a capability of the extended list.
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
        let power = space.power().unwrap();
        assert_eq!(power, Power { offset: 0x40, state: 3, keeps_registers: true });
        let msi = space.msi().unwrap();
        assert_eq!(msi, Msi { offset: 0x48, is_enabled: false, vectors: 32, is_64_bit: true });
        let msix = space.msix().unwrap();
        assert_eq!((msix.offset, msix.is_enabled, msix.is_masked, msix.vectors), (0x60, true, false, 8));
        assert_eq!((msix.table, msix.pending), (Some((BarIndex::new(2).unwrap(), 0x8000)), None));
        let express = space.express().unwrap();
        assert_eq!((express.port_type, express.has_function_reset), (0, true));
        assert_eq!((express.payload_capable, express.payload, express.read_request), (512, 128, 512));
        assert_eq!(express.link_capable.unwrap().to_string(), "8 GT/s x16");
        assert_eq!(express.link.unwrap().to_string(), "5 GT/s x8");
        assert!(express.link.unwrap().is_below(express.link_capable.unwrap()));
        let aer = space.aer().unwrap();
        assert_eq!((aer.uncorrectable, aer.correctable), (1 << 20, 0x2001));
        let sriov = space.sriov().unwrap();
        assert_eq!((sriov.is_enabled, sriov.total, sriov.active), (true, 4, 2));
        assert_eq!((sriov.first, sriov.stride, sriov.device), (16, 1, 0xbccf));
        assert_eq!(space.acs().unwrap(), Acs { offset: 0x1c0, capable: 0x5f, enabled: 0x1d });
        let ids: Vec<_> = space.vendor_specific().iter().map(|one| (one.offset, one.id, one.bytes)).collect();
        assert_eq!(ids, [(0x90, None, 0x14), (0x140, Some(0x20), 0x10)]);
    }

    #[test]
    fn speeds() {
        let speeds: Vec<_> = (0..16).filter_map(LinkSpeed::from_code).map(|speed| speed.to_string()).collect();
        assert_eq!(speeds, ["2.5 GT/s", "5 GT/s", "8 GT/s", "16 GT/s", "32 GT/s", "64 GT/s"]);
        assert_eq!(LinkSpeed::from_mega_transfers(8000), LinkSpeed::from_code(3));
        assert_eq!(LinkSpeed::from_mega_transfers(8001), None);
    }

    fn all(space: &Space) {
        let _ = (space.header(), space.express(), space.msi(), space.power(), space.aer(), space.sriov(), space.acs());
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
            prop_assert_eq!(cut.msix().is_some(), len >= 0x6c);
            prop_assert_eq!(cut.acs().is_some(), len >= 0x1c8);
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
