//! What sysfs says of PCI functions, and binding them, on directories made from listings.
#![forbid(unsafe_code)]

mod binding;
mod port;
#[path = "../tree/mod.rs"]
mod tree;

use std::path::Path;

use fpga_pci::{BarIndex, PciAddress};
use fpga_sysfs::{Access, BarKind, Error, Process, Sysfs, Use};
use proptest::prelude::*;
use tree::Tree;

const CARD: &str = "0000:3b:00.0";

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn sysfs(tree: &Tree) -> Sysfs {
    Sysfs::new(tree.root())
}

#[test]
fn everything_of_a_card() {
    let tree = Tree::new(&["machine"]);
    let card = sysfs(&tree).function(address(CARD)).unwrap();
    assert!(card.unread.is_empty(), "{:?}", card.unread);
    assert_eq!((card.vendor, card.device, card.class), (0x10ee, 0x903f, 0x12_0000));
    assert_eq!((card.subsystem, card.revision, card.numa_node), (Some((0x10ee, 7)), Some(0), Some(0)));
    let bars: Vec<_> = card.bars.iter().map(|bar| (bar.index, bar.address, bar.bytes, bar.kind)).collect();
    let expected = [
        (BarIndex::new(0).unwrap(), Some(0xe200_0000), 16 << 20, BarKind::Memory64),
        (BarIndex::new(2).unwrap(), Some(0xe300_0000), 1 << 16, BarKind::Memory64),
    ];
    assert_eq!(bars, expected);
    let config = card.config.as_ref().unwrap();
    assert_eq!((config.len(), config.msix().unwrap().vectors), (4096, 32));
    assert_eq!(config.express().unwrap().link.unwrap().to_string(), "8 GT/s x16");
    let lanes = [card.link.now, card.link.card, card.link.slot].map(|lanes| lanes.unwrap().to_string());
    assert_eq!(lanes, ["8 GT/s x16"; 3]);
    assert_eq!(card.upstream, Some(address("0000:3a:00.0")));
    assert_eq!((card.group, card.driver.as_deref()), (Some(42), Some("vfio-pci")));
    assert_eq!(card.driver_override.as_deref(), Some("vfio-pci"));
    assert_eq!(card.reset_methods, ["flr", "bus"]);
    assert_eq!(card.power.state.as_deref(), Some("D0"));
    assert_eq!(card.errors.correctable, [("RxErr".to_owned(), 2)]);
    assert!(card.errors.is_counted && card.errors.fatal.is_empty());
    assert_eq!((&card.virtual_functions, card.physical_function), (&None, None));
}

#[test]
fn physical_and_virtual_functions_know_each_other() {
    let tree = Tree::new(&["machine"]);
    let sysfs = sysfs(&tree);
    let physical = sysfs.function(address("0000:5e:00.0")).unwrap();
    let virtual_functions = physical.virtual_functions.unwrap();
    assert_eq!((virtual_functions.total, virtual_functions.enabled), (3, 1));
    assert_eq!(virtual_functions.addresses, [address("0000:5e:00.1")]);
    assert_eq!(physical.driver_override, None);
    let virtual_function = sysfs.function(address("0000:5e:00.1")).unwrap();
    assert_eq!(virtual_function.physical_function, Some(physical.address));
    assert_eq!(virtual_function.numa_node, None);
    // It has no link of its own.
    assert_eq!(virtual_function.link, physical.link);
    assert_eq!(virtual_function.link.best().unwrap().to_string(), "8 GT/s x16");
}

#[test]
fn all_functions_by_address() {
    let tree = Tree::new(&["machine"]);
    let listing = sysfs(&tree).functions().unwrap();
    assert!(listing.unread.is_empty());
    let addresses: Vec<_> = listing.functions.iter().map(|function| function.address.to_string()).collect();
    assert_eq!(addresses.len(), 10);
    assert!(addresses.is_sorted() && addresses.contains(&CARD.to_owned()));
    // A machine without PCI.
    assert!(Sysfs::new(tree.path("etc")).functions().unwrap().functions.is_empty());
    let none = sysfs(&tree).function(address("0000:77:00.0"));
    assert!(matches!(none, Err(Error::NoFunction { .. })));
}

#[test]
fn only_what_is_wanted_is_read() {
    let tree = Tree::new(&["machine"]);
    // One whose ids cannot be read may be wanted: that is said.
    std::fs::write(tree.path("sys/bus/pci/devices/0000:00:02.0/vendor"), "0x").unwrap();
    let listing = sysfs(&tree).functions_where(|ids| ids.vendor == 0x10ee).unwrap();
    let addresses: Vec<_> = listing.functions.iter().map(|function| function.address).collect();
    assert_eq!((addresses, listing.unread.len()), (vec![address(CARD)], 1));
    let ids = sysfs(&tree).ids(address(CARD)).unwrap();
    assert_eq!((ids.device, ids.class, ids.driver.as_deref()), (0x903f, 0x12_0000, Some("vfio-pci")));
}

#[test]
fn a_function_without_power_is_not_woken() {
    let tree = Tree::new(&["machine", "asleep"]);
    let card = sysfs(&tree).function(address(CARD)).unwrap();
    assert!(card.config.is_none() && card.unread.is_empty());
    assert_eq!(card.power.state.as_deref(), Some("D3cold"));
}

#[test]
fn names_of_processes_do_not_reach_the_terminal_as_they_are() {
    let tree = Tree::new(&["machine"]);
    std::fs::write(tree.path("proc/4711/comm"), "\x1b[2Jme\x07\n").unwrap();
    let sysfs = sysfs(&tree);
    let owners = sysfs.owners_of(&sysfs.function(address("0000:5e:00.1")).unwrap()).unwrap();
    assert_eq!(owners.found[0].name, "\u{fffd}[2Jme\u{fffd}");
}

#[test]
fn nonsense_is_noted_with_path_and_content() {
    let tree = Tree::new(&["machine", "garbage"]);
    let card = sysfs(&tree).function(address(CARD)).unwrap();
    assert_eq!((card.numa_node, card.revision, card.group, card.link.now), (None, None, None, None));
    assert!(card.bars.is_empty() && card.config.is_none());
    let notes: Vec<String> = card.unread.iter().map(Error::to_string).collect();
    for part in [
        "numa_node holds \"many\"",
        "resource holds \"not a",
        "\"9.9 GT/s PCIe\"",
        "\"sixteen\"",
        "\"0xzz\"",
        "iommu_group",
    ] {
        assert!(notes.iter().any(|note| note.contains(part)), "{part} is not in {notes:#?}");
    }
    // Ids are needed.
    std::fs::write(tree.path("sys/bus/pci/devices/0000:3b:00.0/vendor"), "0x10ee0").unwrap();
    assert!(matches!(sysfs(&tree).function(address(CARD)), Err(Error::Malformed { .. })));
    let listing = sysfs(&tree).functions().unwrap();
    assert_eq!((listing.functions.len(), listing.unread.len()), (9, 1));
}

#[test]
fn groups_and_who_spoils_them() {
    let tree = Tree::new(&["machine"]);
    let group = sysfs(&tree).group(42).unwrap();
    assert!(group.is_viable() && !group.is_unprotected);
    assert_eq!((group.members.len(), group.node().as_path()), (1, Path::new("/dev/vfio/42")));
    let tree = Tree::new(&["machine", "group-shared"]);
    let group = sysfs(&tree).group(42).unwrap();
    let foreign: Vec<_> = group.foreign().map(|member| (member.name.as_str(), member.driver.as_deref())).collect();
    assert_eq!(foreign, [("0000:01:00.0", Some("nvme"))]);
    assert!(sysfs(&tree).group(43).is_err());
    assert_eq!(sysfs(&tree).groups().unwrap(), [1, 2, 3, 42, 57, 58]);
}

#[test]
fn owners_are_found_by_their_descriptors() {
    let tree = Tree::new(&["machine"]);
    let sysfs = sysfs(&tree);
    let owners = |text| sysfs.owners_of(&sysfs.function(address(text)).unwrap()).unwrap();
    assert_eq!(owners("0000:5e:00.1").found, [Process { id: 4711, name: "train".into() }]);
    assert!(owners(CARD).found.is_empty());
}

#[test]
fn what_must_not_be_taken_away() {
    let tree = Tree::new(&["machine"]);
    let sysfs = sysfs(&tree);
    let uses = |text| sysfs.uses(&sysfs.function(address(text)).unwrap()).unwrap();
    let shown = |text| uses(text).iter().map(Use::to_string).collect::<Vec<_>>();
    let disk = shown("0000:01:00.0");
    for part in
        ["nvme0n1p1 is mounted at /boot/efi", "nvme0n1p2 is mounted at /", "dm-0 is built on its disk nvme0n1p2"]
    {
        assert!(disk.iter().any(|one| one.contains(part)), "{part} is not in {disk:?}");
    }
    assert_eq!(uses("0000:00:1f.6"), [Use::Interface { name: "eno1".into() }]);
    assert_eq!(uses("0000:00:02.0"), [Use::Display]);
    assert_eq!(uses("0000:3a:00.0"), [Use::Bridge]);
    assert!(uses(CARD).is_empty());
    let virtual_function = Use::VirtualFunction { address: address("0000:5e:00.1"), driver: "vfio-pci".into() };
    assert_eq!(uses("0000:5e:00.0"), [virtual_function], "it would go with the physical one");
    assert!(matches!(&uses("0000:5e:00.1")[..], [Use::Process(_)]));
}

/// A machine with many containers has long lists of mounts, and long lists of users.
#[test]
fn long_files_are_read_to_their_end() {
    let tree = Tree::new(&["machine"]);
    let sysfs = sysfs(&tree);
    let uses = || sysfs.uses(&sysfs.function(address("0000:01:00.0")).unwrap());
    let own = std::fs::read_to_string(tree.path("proc/self/mountinfo")).unwrap();
    let containers: String = (0..4000).map(|n| format!("{n} 22 0:{n} / /run/{n} rw - overlay overlay rw\n")).collect();
    assert!(containers.len() > 128 << 10);
    let expected = uses().unwrap();
    for process in ["1", "self"] {
        std::fs::create_dir_all(tree.path("proc/1")).unwrap();
        std::fs::write(tree.path("proc/1/mountinfo"), "").unwrap();
        std::fs::write(tree.path("proc/self/mountinfo"), "").unwrap();
        let list = tree.path("proc").join(process).join("mountinfo");
        std::fs::write(&list, format!("{containers}{own}")).unwrap();
        assert_eq!(uses().unwrap(), expected, "{process}");
        // What is too long for the limit is an error, and not cut.
        std::fs::File::create(&list).unwrap().set_len(1 << 30).unwrap();
        let error = uses().unwrap_err();
        assert!(matches!(&error, Error::Unreadable { path, .. } if *path == list), "{error:?}");
    }
    let users: String = (0..4000).map(|n| format!("user{n}:x:{n}:{n}:a user with a long name:/:/bin/sh\n")).collect();
    std::fs::write(tree.path("etc/passwd"), users).unwrap();
    assert_eq!(sysfs.user_name(3999).as_deref(), Some("user3999"));
}

/// A disk behind many hubs, and directories below a function without end.
#[test]
fn directories_below_a_function_are_examined_or_the_uses_are_unknown() {
    let tree = Tree::new(&["machine"]);
    let sysfs = sysfs(&tree);
    let uses = || sysfs.uses(&sysfs.function(address("0000:01:00.0")).unwrap());
    let before = uses().unwrap().len();
    let function = tree.path("sys/bus/pci/devices/0000:01:00.0");
    let deep = |hubs: usize| {
        let disk = function.join("1/".repeat(hubs)).join("sdz");
        std::fs::create_dir_all(disk.join("holders/dm-9")).unwrap();
        std::os::unix::fs::symlink("/sys/class/block", disk.join("subsystem")).unwrap();
    };
    deep(14);
    assert_eq!(uses().unwrap().len(), before + 1);
    deep(100);
    assert!(matches!(uses(), Err(Error::Unreadable { .. })));
}

#[test]
fn limits_and_permissions() {
    let tree = Tree::new(&["machine", "memlock-low", "no-permission"]);
    let sysfs = sysfs(&tree);
    let host = sysfs.host();
    assert!(host.unread.is_empty());
    assert_eq!(host.memlock.unwrap().soft, Some(8 << 20));
    assert_eq!((host.huge_pages.len(), host.huge_pages[0].bytes, host.huge_pages[0].free), (2, 2 << 20, 60));
    assert_eq!(sysfs.access(Path::new("/dev/vfio/vfio")).unwrap(), Access::Granted);
    assert!(matches!(sysfs.access(Path::new("/dev/vfio/42")).unwrap(), Access::Denied { mode: 0o600, .. }));
    assert_eq!(sysfs.access(Path::new("/dev/vfio/43")).unwrap(), Access::Missing);
}

/// The kernel refuses to write this file even to root, whose capabilities pass its mode.
#[test]
fn the_kernel_says_what_may_be_opened() {
    let access = |path: &str| Sysfs::new("/").access(Path::new(path)).unwrap();
    assert!(matches!(access("/proc/sys/kernel/random/boot_id"), Access::Denied { mode: 0o444, group: 0, .. }));
    assert_eq!(access("/dev/null"), Access::Granted);
    assert_eq!(access("/dev/null/none"), Access::Missing);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes in any attributes: the card is read, or an error says what is wrong.
    #[test]
    fn any_content(changes in prop::collection::vec((0usize..16, prop::collection::vec(any::<u8>(), 0..300)), 1..5)) {
        const NAMES: [&str; 16] = [
            "vendor", "device", "class", "revision", "resource", "numa_node", "current_link_speed", "config",
            "current_link_width", "max_link_width", "driver_override", "reset_method", "power_state", "aer_dev_fatal",
            "aer_dev_correctable", "subsystem_device",
        ];
        let tree = Tree::new(&["machine"]);
        for (name, bytes) in &changes {
            std::fs::write(tree.path("sys/bus/pci/devices/0000:3b:00.0").join(NAMES[*name]), bytes).unwrap();
        }
        match sysfs(&tree).function(address(CARD)) {
            Ok(card) => prop_assert_eq!(card.address, address(CARD)),
            Err(error) => prop_assert!(matches!(error, Error::Malformed { .. }), "{}", error),
        }
    }
}
