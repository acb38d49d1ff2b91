//! PCI ids of known cards.
//!
//! An id belongs to the loaded image, not to the board. A card whose shell has other ids is selected by its address.
//! `udev/cards` holds the same ids. Sources: XRT `devices.h`, Linux `drivers/fpga/dfl-pci.c` and `altera-cvp.c`, libxdma's
//! table, pci.ids.

use fpga_hal::sysfs::{Ids, PciFunction};
use fpga_regs::pci;

/// Class of processing accelerators (PCI Code and ID Assignment, base class 12h).
const CLASS_ACCELERATOR: u32 = 0x12;

/// Xilinx.
const XILINX: u16 = 0x10ee;
/// Intel.
const INTEL: u16 = 0x8086;

/// Vendor, device and name of each known card.
const CARDS: &[(u16, u16, &str)] = &[
    (pci::VENDOR, pci::DEVICE, "mock card"),
    (pci::VENDOR, pci::CHANNELS_DEVICE, "mock card with CIRCUS channels"),
    (INTEL, 0x09c4, "Intel PAC Arria 10 GX"),
    (INTEL, 0x09c5, "Intel PAC Arria 10 GX, virtual function"),
    (INTEL, 0x0b2b, "Intel PAC D5005 (Stratix 10 SX)"),
    (INTEL, 0x0b2c, "Intel PAC D5005 (Stratix 10 SX), virtual function"),
    (INTEL, 0x0b30, "Intel PAC N3000"),
    (INTEL, 0x0b31, "Intel PAC N3000, virtual function"),
    (INTEL, 0xbcbd, "Intel Xeon with FPGA"),
    (INTEL, 0xbcbf, "Intel Xeon with FPGA, virtual function"),
    (INTEL, 0xbcc0, "Intel Xeon with FPGA"),
    (INTEL, 0xbcc1, "Intel Xeon with FPGA, virtual function"),
    (INTEL, 0xbcce, "Intel card with an OFS shell"),
    (INTEL, 0xbccf, "Intel card with an OFS shell, virtual function"),
    (0x1172, 0x2494, "Intel Arria 10 OpenCL reference platform"),
    (0x1172, 0x5170, "Intel Stratix 10 GX OpenCL reference platform"),
    (0x1c2c, 0x1000, "Silicom N5010 (Stratix 10 DX)"),
    (0x1c2c, 0x1001, "Silicom N5011 (Stratix 10 DX)"),
    (0x12ba, 0x0069, "BittWare VectorPath"),
    (0x12ba, 0x0079, "BittWare VectorPath"),
    (0x12ba, 0x007a, "BittWare VectorPath"),
    (XILINX, 0x5000, "Alveo U200, management"),
    (XILINX, 0x5001, "Alveo U200"),
    (XILINX, 0x5004, "Alveo U250, management"),
    (XILINX, 0x5005, "Alveo U250"),
    (XILINX, 0x500c, "Alveo U280, management"),
    (XILINX, 0x500d, "Alveo U280"),
    (XILINX, 0x5020, "Alveo U50, management"),
    (XILINX, 0x5021, "Alveo U50"),
    (XILINX, 0x505c, "Alveo U55C, management"),
    (XILINX, 0x505d, "Alveo U55C"),
    (XILINX, 0x506c, "Alveo U50C, management"),
    (XILINX, 0x506d, "Alveo U50C"),
    (XILINX, 0xd000, "Alveo U200, factory image"),
    (XILINX, 0xd004, "Alveo U250, factory image"),
    (XILINX, 0xd00c, "Alveo U280, factory image"),
    (XILINX, 0xd020, "Alveo U50, factory image"),
    (XILINX, 0x9011, "AMD UltraScale+ shell, 2.5 GT/s x1"),
    (XILINX, 0x9012, "AMD UltraScale+ shell, 2.5 GT/s x2"),
    (XILINX, 0x9014, "AMD UltraScale+ shell, 2.5 GT/s x4"),
    (XILINX, 0x9018, "AMD UltraScale+ shell, 2.5 GT/s x8"),
    (XILINX, 0x9021, "AMD UltraScale+ shell, 5 GT/s x1"),
    (XILINX, 0x9022, "AMD UltraScale+ shell, 5 GT/s x2"),
    (XILINX, 0x9024, "AMD UltraScale+ shell, 5 GT/s x4"),
    (XILINX, 0x9028, "AMD UltraScale+ shell, 5 GT/s x8"),
    (XILINX, 0x9031, "AMD UltraScale+ shell, 8 GT/s x1"),
    (XILINX, 0x9032, "AMD UltraScale+ shell, 8 GT/s x2"),
    (XILINX, 0x9034, "AMD UltraScale+ shell, 8 GT/s x4"),
    (XILINX, 0x9038, "AMD UltraScale+ shell, 8 GT/s x8"),
    (XILINX, 0x903f, "AMD UltraScale+ shell, 8 GT/s x16"),
    (XILINX, 0x9041, "AMD UltraScale+ shell, 16 GT/s x1"),
    (XILINX, 0x9042, "AMD UltraScale+ shell, 16 GT/s x2"),
    (XILINX, 0x9044, "AMD UltraScale+ shell, 16 GT/s x4"),
    (XILINX, 0x9048, "AMD UltraScale+ shell, 16 GT/s x8"),
];

/// Names by subsystem id, more specific than the names of the shells.
const BOARDS: &[(u16, u16, u16, u16, &str)] = &[
    (INTEL, 0xbcce, INTEL, 0x138d, "Intel PAC D5005 with an OFS shell"),
    (INTEL, 0xbccf, INTEL, 0x138d, "Intel PAC D5005 with an OFS shell, virtual function"),
    (INTEL, 0xbcce, INTEL, 0x1770, "Intel N6000"),
    (INTEL, 0xbcce, INTEL, 0x1771, "Intel N6001"),
    (INTEL, 0xbcce, INTEL, 0x17d4, "Intel C6100"),
];

/// Returns the name that goes with the ids of a known card.
pub(crate) fn name_of(vendor: u16, device: u16) -> Option<&'static str> {
    CARDS.iter().find(|card| (card.0, card.1) == (vendor, device)).map(|card| card.2)
}

/// Returns the name of a known card.
pub(crate) fn name(function: &PciFunction) -> Option<&'static str> {
    let board = |one: &&(u16, u16, u16, u16, &'static str)| {
        (one.0, one.1) == (function.vendor, function.device) && Some((one.2, one.3)) == function.subsystem
    };
    BOARDS.iter().find(board).map(|board| board.4).or_else(|| name_of(function.vendor, function.device))
}

/// Whether the ids are those of a known card.
pub(crate) fn is_card(ids: &Ids) -> bool {
    CARDS.iter().any(|card| (card.0, card.1) == (ids.vendor, ids.device))
}

/// Whether a function with these ids is a card bound to VFIO.
pub(crate) fn is_bound_card(ids: &Ids) -> bool {
    ids.driver.as_deref() == Some(fpga_hal::sysfs::VFIO_PCI) && (is_card(ids) || ids.class >> 16 == CLASS_ACCELERATOR)
}

/// What is known about a function's sequencer without opening the function, which would reset the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sequencer {
    /// The sequencer of a mock card.
    Mock,
    /// Depends on the loaded image.
    Unknown,
    /// A mock card with CIRCUS channels in its place.
    Channels,
    /// Missing, for this reason.
    None(&'static str),
}

impl Sequencer {
    /// Returns the name in `--json` and tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Sequencer::Mock => "mock",
            Sequencer::Unknown => "unknown",
            Sequencer::Channels | Sequencer::None(_) => "none",
        }
    }
}

/// Infers the sequencer from the ids, which belong to the loaded image.
pub(crate) fn sequencer(function: &PciFunction) -> Sequencer {
    match (function.vendor, function.device) {
        (pci::VENDOR, pci::DEVICE) => return Sequencer::Mock,
        (pci::VENDOR, pci::CHANNELS_DEVICE) => return Sequencer::Channels,
        _ => {}
    }
    match name(function) {
        Some(name) if name.ends_with(", management") => Sequencer::None("management function"),
        Some(name) if name.ends_with(", factory image") => Sequencer::None("factory image"),
        Some(_) => Sequencer::Unknown,
        None if is_accelerator(function) => Sequencer::Unknown,
        None => Sequencer::None("unknown PCI ids"),
    }
}

/// Whether a function is a processing accelerator.
pub(crate) fn is_accelerator(function: &PciFunction) -> bool {
    function.class >> 16 == CLASS_ACCELERATOR
}

/// Whether a function may be a card with unknown ids: by its class, or because the function is bound to VFIO.
pub(crate) fn may_be_card(function: &PciFunction) -> bool {
    is_accelerator(function) || function.driver.as_deref() == Some(fpga_hal::sysfs::VFIO_PCI)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// `udev/cards` (active and commented-out lines) and `CARDS` hold the same ids.
    #[test]
    fn udev_lists_the_same_cards() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../udev/cards");
        let text = std::fs::read_to_string(path).unwrap();
        let is_id = |word: &&str| word.len() == 9 && word.as_bytes()[4] == b':';
        let first = |line: &'static str| line.split([' ', '#']).next().filter(is_id);
        let text: &'static str = text.leak();
        let active: Vec<&str> = text.lines().filter_map(first).collect();
        let off: Vec<&str> = text.lines().filter_map(|line| first(line.strip_prefix('#')?)).collect();
        // AMD's tools give these ids to any design, so they do not identify a board.
        assert!(active.iter().all(|id| !id.starts_with("10ee:9")), "{active:?}");
        assert!(off.iter().all(|id| id.starts_with("10ee:9")) && !off.is_empty(), "{off:?}");
        let listed = [active, off].concat();
        let ids: BTreeSet<String> = CARDS.iter().map(|card| format!("{:04x}:{:04x}", card.0, card.1)).collect();
        assert_eq!(ids.len(), CARDS.len(), "duplicate id");
        assert_eq!(listed.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>(), ids);
        assert_eq!(listed.len(), ids.len(), "duplicate id in udev/cards");
        for board in BOARDS {
            assert!(CARDS.iter().any(|card| (card.0, card.1) == (board.0, board.1)), "{}", board.4);
        }
    }
}
