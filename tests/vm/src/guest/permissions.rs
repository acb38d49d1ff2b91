//! Who may open a card, the errors of those who may not, and the udev rules under a real udev.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::command::{User, run};
use crate::pci::PciFunction;
use crate::{Guest, cards, devices, tests};

tests! {
    ["devices"] => [
        before_the_install_nobody_but_root_may,
        after_the_install_members_may_and_others_are_told_what_helps,
        what_is_no_card_stays_roots,
        memory_that_may_not_be_locked_is_named,
    ],
    ["private"] => [
        the_boot_helper_binds_what_its_file_names,
        what_was_installed_is_taken_back,
    ],
}

const BOUND: Duration = Duration::from_secs(30);
/// Exit code of `fpgactl` without permission.
const NO_PERMISSION: i32 = 4;

/// Devices of QEMU that are given to the group as if they were cards: edu, nvme, a virtio-rng, an rtl8139.
const EXTRA_CARDS: &str = "1234:11e8\n1b36:0010\n1af4:1044\n10ec:8139\n";

/// Installs the rules, once, for the worker, and adds the devices of QEMU to the list of cards.
pub(crate) fn install() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(put_in_place);
}

fn put_in_place() {
    run(User::Root, &["/host/udev/install", "worker"], BOUND).good();
    let mut cards = File::options().append(true).open("/etc/fpga/cards").expect("the list of cards");
    cards.write_all(EXTRA_CARDS.as_bytes()).expect("room in the list");
}

/// What `udev/install` puts there, beside the group.
const INSTALLED: [&str; 8] = [
    "/etc/fpga/bind.conf",
    "/etc/fpga/cards",
    "/etc/security/limits.d/60-fpga.conf",
    "/etc/systemd/system/fpga-bind.service",
    "/etc/udev/rules.d/60-fpga.rules",
    "/usr/local/lib/fpga/bind-cards",
    "/usr/local/lib/fpga/made-group",
    "/usr/local/lib/fpga/only-cards",
];

/// Reads a register of the card as the given user.
fn read_register(user: User, device: &PciFunction) -> crate::command::Output {
    // Not every device of QEMU has a reset.
    let selector = format!("vfio:{}+without-reset", device.address);
    run(user, &["fpgactl", "reg", &selector, "bar0:0x0"], BOUND)
}

/// Runs `udevadm`, and again if it fails: udevd drops a request that is there before udevd has asked the socket for the sender's
/// credentials ("Invalid sender uid 65534" in its log), which on this slow processor is one of 500.
#[track_caller]
pub(crate) fn udevadm(words: &[&str]) {
    let words = [&["udevadm"], words].concat();
    let deadline = Instant::now() + BOUND;
    while let output = run(User::Root, &words, BOUND)
        && !output.status.success()
    {
        assert!(Instant::now() < deadline, "{output}");
    }
}

/// Group and mode of a node.
pub(crate) fn owner(node: &str) -> (u32, u32) {
    let found = fs::metadata(node).unwrap_or_else(|error| panic!("{node}: {error}"));
    (found.gid(), found.permissions().mode() & 0o777)
}

pub(crate) fn group_id(name: &str) -> u32 {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let line = groups.lines().find(|line| line.split(':').next() == Some(name)).expect("the group is there");
    line.split(':').nth(2).and_then(|number| number.parse().ok()).expect("a group has a number")
}

fn before_the_install_nobody_but_root_may(guest: &Guest) {
    let device = &PciFunction::all("0x1234", "0x11e8")[0];
    device.give_to_vfio();
    udevadm(&["settle"]);
    assert_eq!(owner(&device.node()), (0, 0o600));
    let output = read_register(User::Worker, device);
    guest.log(&output.stderr);
    assert_eq!(output.status.code(), Some(NO_PERMISSION), "{output}");
    read_register(User::Root, device).good();
}

fn after_the_install_members_may_and_others_are_told_what_helps(guest: &Guest) {
    install();
    // The device bound before has its node already: this is how docs/permissions.md has a line of cards take effect.
    udevadm(&["trigger", "--action=add", "--subsystem-match=vfio"]);
    udevadm(&["settle"]);
    let device = &devices::edu_devices()[0];
    assert_eq!(owner(&device.node()), (group_id("fpga"), 0o660));
    guest.log(read_register(User::Worker, device).good().stdout);
    let output = read_register(User::Stranger, device);
    guest.log(&output.stderr);
    assert_eq!(output.status.code(), Some(NO_PERMISSION), "{output}");
    assert!(output.stderr.contains("fpga") && output.stderr.contains("usermod -aG fpga"), "{output}");
}

/// The chip set's functions share a group; none of them is a card, whoever binds them to vfio-pci.
fn what_is_no_card_stays_roots(guest: &Guest) {
    install();
    let device = PciFunction::at("0000:00:1f.3");
    device.give_to_vfio();
    udevadm(&["settle"]);
    assert_eq!(owner(&device.node()), (0, 0o600));
    guest.log(format!("{} of {} stays root's", device.node(), device.address));
    let nodes = fs::read_dir("/dev").into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
    let group = group_id("fpga");
    assert_eq!(nodes.filter(|node| node.gid() == group && !node.is_dir()).count(), 0, "nothing else is the group's");
}

fn memory_that_may_not_be_locked_is_named(guest: &Guest) {
    let device = &devices::edu_devices()[0];
    let line = format!("ulimit -l 4 && exec edu {} msi 1", device.address);
    let output = run(User::Worker, &["sh", "-c", &line], BOUND);
    guest.log(&output.stderr);
    assert!(!output.status.success(), "{output}");
    assert!(output.stderr.contains("RLIMIT_MEMLOCK"), "{output}");
}

/// As at boot: no driver has a card, and vfio-pci is not loaded.
fn the_boot_helper_binds_what_its_file_names(guest: &Guest) {
    install();
    let cards = PciFunction::all("0x1234", "0xf9a0");
    for card in cards.iter().filter(|card| card.driver().is_some()) {
        run(User::Root, &["fpgactl", "unbind", &card.address], BOUND).good();
    }
    run(User::Root, &["rmmod", "vfio-pci"], BOUND).good();
    let bind = |lines: &str| {
        fs::write("/etc/fpga/bind.conf", lines).expect("the file is there");
        let output = run(User::Root, &["/usr/local/lib/fpga/bind-cards"], BOUND);
        guest.log(format!("{}{}", output.stdout, output.stderr));
        output
    };
    // A line that fails does not stop the next, and is told.
    let output = bind(&format!("# cards\n0000:77:00.0\n{}  # the second\n", cards[1].address));
    assert_eq!(output.status.code(), Some(1), "{output}");
    assert!(output.stderr.contains("0000:77:00.0"), "{output}");
    let drivers = || cards.iter().map(PciFunction::driver).collect::<Vec<_>>();
    let vfio = || Some("vfio-pci".to_owned());
    assert_eq!(drivers(), [None, vfio(), None, None]);
    // By ids all of them; that one is named twice does not matter.
    bind(&format!("{} 1234:f9a0", cards[2].address)).good();
    assert_eq!(drivers(), [vfio(), vfio(), vfio(), vfio()]);
    udevadm(&["settle"]);
    for card in &cards {
        read_register(User::Worker, card).good();
    }
}

fn what_was_installed_is_taken_back(guest: &Guest) {
    let card = &cards::cards()[0];
    assert!(INSTALLED.iter().all(|file| Path::new(file).exists()));
    assert_eq!(owner(&card.node()), (group_id("fpga"), 0o660));
    read_register(User::Worker, card).good();
    let refused = || {
        assert_eq!(owner(&card.node()), (0, 0o600));
        let output = read_register(User::Worker, card);
        guest.log(&output.stderr);
        assert_eq!(output.status.code(), Some(NO_PERMISSION), "{output}");
    };
    let uninstall = || drop(run(User::Root, &["/host/udev/uninstall"], BOUND).good());
    uninstall();
    let left = INSTALLED.iter().chain(&["/etc/fpga", "/usr/local/lib/fpga"]).filter(|file| Path::new(file).exists());
    assert_eq!(left.collect::<Vec<_>>(), [&""; 0]);
    let groups = fs::read_to_string("/etc/group").expect("groups");
    assert!(!groups.contains("fpga"), "{groups}");
    refused();
    // Nor does udev give away a node that is made now.
    run(User::Root, &["fpgactl", "unbind", &card.address], BOUND).good();
    card.give_to_vfio();
    udevadm(&["settle"]);
    refused();
    uninstall();
    // And it can come back; the other tests need it.
    put_in_place();
    assert_eq!(owner(&card.node()), (group_id("fpga"), 0o660));
    read_register(User::Worker, card).good();
}
