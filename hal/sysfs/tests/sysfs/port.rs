//! Masks of the port above a card, on a file that stands for its configuration space.

use std::error::Error as _;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use fpga_sysfs::{ErrorMasks, PortError};
use proptest::prelude::*;

use crate::tree::Tree;
use crate::{CARD, address, sysfs};

const PORT: &str = "0000:3a:00.0";
/// Those of `port.txt`, typed by hand.
const BEFORE: ErrorMasks = ErrorMasks { uncorrectable: 0x0040_0000, correctable: 0xe000 };

fn tree() -> Tree {
    Tree::new(&["machine", "port"])
}

fn config(tree: &Tree) -> PathBuf {
    tree.path("sys/bus/pci/devices").join(PORT).join("config")
}

#[test]
fn masks_are_read_set_and_restored_and_nothing_else_is_touched() {
    let tree = tree();
    let sysfs = sysfs(&tree);
    assert_eq!(sysfs.port_above(address(CARD)).unwrap(), Some(address(PORT)));
    // That of a virtual function is above its physical function; a root port has none.
    assert_eq!(sysfs.port_above(address("0000:5e:00.1")).unwrap(), Some(address("0000:5d:00.0")));
    assert_eq!(sysfs.port_above(address(PORT)).unwrap(), None);
    let before = fs::read(config(&tree)).unwrap();
    let port = sysfs.open_port(address(PORT)).unwrap().unwrap();
    assert_eq!((port.address(), port.masks().unwrap()), (address(PORT), BEFORE));
    assert_eq!(fs::read(config(&tree)).unwrap(), before, "reading writes nothing");
    port.mask_all().unwrap();
    assert_eq!(port.masks().unwrap(), ErrorMasks::ALL);
    let mut expected = before.clone();
    expected[0x150..0x154].fill(0xff);
    expected[0x15c..0x160].fill(0xff);
    assert_eq!(fs::read(config(&tree)).unwrap(), expected);
    port.restore(BEFORE).unwrap();
    assert_eq!(fs::read(config(&tree)).unwrap(), before);
}

#[test]
fn one_process_at_a_time_masks_a_port() {
    let tree = tree();
    let sysfs = sysfs(&tree);
    let first = sysfs.open_port(address(PORT)).unwrap();
    let second = sysfs.open_port(address(PORT));
    assert!(matches!(second, Err(PortError::InUse { port }) if port == address(PORT)), "{second:?}");
    drop(first);
    assert!(sysfs.open_port(address(PORT)).unwrap().is_some());
}

#[test]
fn a_port_without_error_reporting_has_no_masks() {
    for listing in [
        // A list without AER, no list, and a bridge of conventional PCI, whose configuration space has 256 bytes.
        "$port/config @ 148 02 00 02 00",
        "$port/config @ 100 00 00 00 00",
        "$port/config x 256\n$port/config @ 0 86 80 30 20 07 04 00 00 07 00 04 06 10 00 01 00",
    ] {
        let mut tree = tree();
        tree.apply(listing);
        let before = fs::read(config(&tree)).unwrap();
        assert!(sysfs(&tree).open_port(address(PORT)).unwrap().is_none(), "{listing}");
        assert_eq!(fs::read(config(&tree)).unwrap(), before, "{listing}");
    }
}

#[test]
fn what_is_wrong_with_a_port_is_refused_before_anything_is_written() {
    for (listing, text) in [
        ("$port/config @ 148 01 00 82 14", "the list at 0x148"),
        ("$port/config @ 148 01 00 02 10", "the list at 0x148"),
        ("$port/config @ 148 01 00 42 00", "the list at 0x148"),
        ("$port/config @ 148 ff ff ff ff", "the list at 0x148"),
        ("$port/config @ 100 03 00 81 ff\n$port/config @ ff8 01 00 02 00", "AER of 0000:3a:00.0 at 0xff8 ends after"),
        ("$port/config @ 100 03 00 c1 fe\n$port/config @ fec 01 00 02 00", "AER of 0000:3a:00.0 at 0xfec ends after"),
        ("$port/config @ 0 ff ff ff ff ff ff ff ff", "does not answer"),
        ("$port/config @ e 00", "no bridge: its header has type 0"),
        ("$port/config x 64\n$port/config @ 0 86 80 30 20 07 04 10 00 07 00 04 06 10 00 01 00", "shows 64 bytes"),
        (
            "$port/config x 256\n$port/config @ 0 86 80 30 20 07 04 10 00 07 00 04 06 10 00 01 00\n$port/config @ 34 40 00\n$port/config @ 40 10 00",
            "shows 256 bytes",
        ),
        (
            "$port/config x 300\n$port/config @ 0 86 80 30 20 07 04 10 00 07 00 04 06 10 00 01 00\n$port/config @ 100 03 00 81 14",
            "the list at 0x148",
        ),
        ("$port/config x 20", "shows 20 bytes"),
        ("- $port/config\n$port/config/", "Cannot access"),
        ("- $port/config", "There is no PCI function 0000:3a:00.0"),
    ] {
        let mut tree = tree();
        tree.apply(listing);
        let before = fs::read(config(&tree)).ok();
        let error = sysfs(&tree).open_port(address(PORT)).unwrap_err();
        let place = match &error {
            PortError::BrokenList { source, .. } => format!("the list at {:#x}", source.offset),
            other => other.to_string(),
        };
        assert!(place.contains(text), "{listing}: {place}");
        assert_eq!(error.source().is_some(), matches!(error, PortError::BrokenList { .. } | PortError::Failed { .. }));
        assert_eq!(fs::read(config(&tree)).ok(), before, "{listing}");
    }
}

#[test]
fn a_port_that_goes_away_is_told() {
    let tree = tree();
    let port = sysfs(&tree).open_port(address(PORT)).unwrap().unwrap();
    port.mask_all().unwrap();
    let file = fs::OpenOptions::new().write(true).open(config(&tree)).unwrap();
    file.write_all_at(&[0xff; 4096], 0).unwrap();
    assert!(matches!(port.masks(), Err(PortError::Gone { .. })));
    assert!(matches!(port.restore(BEFORE), Err(PortError::Gone { .. })));
    file.set_len(64).unwrap();
    assert!(matches!(port.masks(), Err(PortError::Failed { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes, and any links of the list: opening ends, and writes nothing. What is written afterwards are eight bytes, in the two
    /// masks.
    #[test]
    fn any_configuration_space(
        length in prop_oneof![Just(4096usize), 0usize..4096],
        changes in prop::collection::vec((0usize..4096, any::<u8>()), 0..6),
        links in prop::collection::vec((0usize..960, 0u32..3, 0u32..1024), 0..40),
    ) {
        let mut tree = Tree::new(&["port"]);
        tree.apply("sys/bus/pci/devices/0000:3a:00.0 -> ../../../devices/pci0000:3a/0000:3a:00.0");
        let mut bytes = fs::read(config(&tree)).unwrap();
        for (at, id, next) in links {
            let at = 0x100 + at * 4;
            bytes[at..at + 4].copy_from_slice(&(next << 22 | 1 << 16 | id).to_le_bytes());
        }
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(length);
        fs::write(config(&tree), &bytes).unwrap();
        let opened = sysfs(&tree).open_port(address(PORT));
        prop_assert_eq!(&fs::read(config(&tree)).unwrap(), &bytes);
        if let Ok(Some(port)) = opened {
            let before = port.masks().unwrap();
            port.mask_all().unwrap();
            let after = fs::read(config(&tree)).unwrap();
            prop_assert_eq!(after.len(), bytes.len());
            let changed: Vec<usize> = (0..bytes.len()).filter(|&at| after[at] != bytes[at]).collect();
            prop_assert!(changed.iter().all(|at| (0x108..0xffc).contains(at)), "{:x?}", changed);
            prop_assert!(changed.len() <= 8 && changed.last().is_none_or(|last| last - changed[0] < 16), "{:x?}", changed);
            port.restore(before).unwrap();
            prop_assert_eq!(&fs::read(config(&tree)).unwrap(), &bytes);
        }
    }
}
