//! `fpgactl doctor` on faults that are planted in this guest, and their mends carried out. docs/permissions.md has a table of
//! the faults that are planted here, and of those that are planted only in a directory.

use std::time::Duration;

use serde_json::Value;

use crate::command::{User, run, start};
use crate::pci::PciFunction;
use crate::{Guest, permissions, tests};

tests! {
    ["devices"] => [doctor_finds_a_shared_group_and_a_wrong_driver, doctor_finds_that_msix_is_absent],
    ["private"] => [doctor_finds_faults_and_their_mends_work],
}

const BOUND: Duration = Duration::from_secs(60);

/// One check of one card.
#[track_caller]
fn check(guest: &Guest, user: User, before: &str, device: &PciFunction, id: &str) -> Value {
    let line = format!("{before}exec fpgactl doctor {} --json", device.address);
    let output = run(user, &["sh", "-c", &line], BOUND);
    let printed: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"));
    let checks = printed["checks"].as_array().unwrap_or_else(|| panic!("{output}"));
    let found = checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id} in {output}"));
    guest.log(format!("{id}: {} {} {}", found["ok"], found["found"], found["mend"]));
    found.clone()
}

/// Has the doctor of `user` find a fault, does what it says as root, and has it see that the fault is gone. What it found.
#[track_caller]
fn find_and_mend(guest: &Guest, user: User, device: &PciFunction, id: &str) -> Value {
    let bad = check(guest, user, "", device, id);
    let found = &bad;
    assert_eq!(found["ok"], false, "{found}");
    assert_eq!(found["by"], "root", "{found}");
    let mend = found["mend"].as_str().expect("a mend");
    // It is told from where the project lies.
    run(User::Root, &["sh", "-c", &format!("cd /host && {mend}")], BOUND).good();
    permissions::udevadm(&["settle"]);
    let found = check(guest, user, "", device, id);
    assert_eq!(found["ok"], true, "{found}");
    bad
}

/// Gives a node back to root, as before the rules came.
fn take_back(device: &PciFunction) {
    run(User::Root, &["chown", "root:root", &device.node()], BOUND).good();
    run(User::Root, &["chmod", "600", &device.node()], BOUND).good();
}

fn doctor_finds_faults_and_their_mends_work(guest: &Guest) {
    permissions::install();
    let cards = PciFunction::all("0x1234", "0xf9a0");
    let card = &cards[3];
    for card in cards.iter().filter(|card| card.driver().is_some()) {
        run(User::Root, &["fpgactl", "unbind", &card.address], BOUND).good();
    }
    run(User::Root, &["rmmod", "vfio-pci"], BOUND).good();
    find_and_mend(guest, User::Worker, card, "module");
    // It has none; for another than the right one, see below.
    find_and_mend(guest, User::Worker, card, "driver");
    find_and_mend(guest, User::Worker, card, "hugepages");
    take_back(card);
    let found = find_and_mend(guest, User::Worker, card, "node");
    assert!(found["cause"].as_str().is_some_and(|cause| cause.contains("have not been applied")), "{found}");
    run(User::Root, &["sed", "-i", "/^1234:f9a0/d", "/etc/fpga/cards"], BOUND).good();
    take_back(card);
    let found = find_and_mend(guest, User::Worker, card, "node");
    assert!(found["cause"].as_str().is_some_and(|cause| cause.contains("is not in /etc/fpga/cards")), "{found}");
    let mut holder = start(User::Worker, &["fpga-cards", "hold", &card.address]);
    holder.until_it_says("at work", BOUND);
    assert_eq!(check(guest, User::Worker, "", card, "bus-master")["ok"], true);
    run(User::Root, &["setpci", "-s", &card.address, "COMMAND=0:4"], BOUND).good();
    find_and_mend(guest, User::Worker, card, "bus-master");
    holder.kill();
    // Who is not in the group is told to join it.
    let found = check(guest, User::Stranger, "", card, "node");
    assert_eq!(found["ok"], false, "{found}");
    assert_eq!(found["mend"], "usermod -aG fpga stranger");
    // A soft limit that the user can raise.
    let found = check(guest, User::Worker, "ulimit -S -l 64; ", card, "memlock");
    assert_eq!(found["ok"], false, "{found}");
    let mend = format!("ulimit -S -l 64; {}; ", found["mend"].as_str().expect("a mend"));
    assert_eq!(check(guest, User::Worker, &mend, card, "memlock")["ok"], true);
    // And then all is well.
    let output = run(User::Worker, &["fpgactl", "doctor", &card.address], BOUND).good();
    guest.log(output.stdout);
}

/// Two controllers in one group, both with the kernel's driver. The mends work in the order in which they are told.
fn doctor_finds_a_shared_group_and_a_wrong_driver(guest: &Guest) {
    let [twin, other] = ["0000:00:16.0", "0000:00:16.1"].map(PciFunction::at);
    assert_eq!([twin.driver(), other.driver()], [Some("nvme".to_owned()), Some("nvme".to_owned())]);
    let found = check(guest, User::Root, "", &twin, "driver");
    assert_eq!((&found["ok"], &found["found"]), (&false.into(), &"nvme".into()), "{found}");
    assert_eq!(found["cause"], "the card is bound to the kernel driver nvme");
    let found = find_and_mend(guest, User::Root, &twin, "iommu-group");
    assert!(found["found"].to_string().contains("0000:00:16.1 (nvme)"), "{found}");
    find_and_mend(guest, User::Root, &twin, "driver");
    assert_eq!(twin.driver().as_deref(), Some("vfio-pci"));
    run(User::Root, &["fpgactl", "unbind", &twin.address], BOUND).good();
    other.let_the_kernel_choose();
    assert_eq!([twin.driver(), other.driver()], [Some("nvme".to_owned()), Some("nvme".to_owned())]);
}

/// No command can mend that.
fn doctor_finds_that_msix_is_absent(guest: &Guest) {
    let device = &PciFunction::all("0x1234", "0x11e8")[0];
    let found = check(guest, User::Root, "", device, "msix");
    assert_eq!((&found["ok"], &found["found"]), (&false.into(), &"none".into()), "{found}");
    assert!(found["cause"].to_string().contains("has no MSI-X capability"), "{found}");
    assert!(found["mend"].to_string().contains("load an image whose shell has MSI-X"), "{found}");
    assert_eq!(found["by"], "hand", "{found}");
}
