//! Mock cards with the identities of real cards, on the kernel's VFIO.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fpga_tests::{oracle, reduction};
use fpga_vm::CARDS;
use serde_json::Value;

use crate::cards::compare_with;
use crate::command::{User, printed, run, start};
use crate::pci::{self, PciFunction};
use crate::{Guest, tests};

tests! {
    ["stratix"] => [
        every_operation_on_stratix_cards_takes_as_many_cycles_as_in_process,
        each_part_of_a_stratix_card_is_tested,
        an_image_is_loaded_through_a_control_function,
        a_host_exerciser_reaches_host_memory,
    ],
    ["alveo", "bypass"] => [each_part_of_an_alveo_card_is_tested],
    ["alveo"] => [every_operation_on_alveo_cards_takes_as_many_cycles_as_in_process],
    ["bypass"] => [every_operation_by_descriptor_bypass_takes_as_many_cycles_as_in_process],
    ["pac"] => [
        every_operation_on_cards_as_sold_takes_as_many_cycles_as_in_process,
        each_part_of_a_card_as_sold_is_tested,
        an_image_is_loaded_through_the_only_function,
        errors_of_the_port_above_are_masked,
    ],
}

/// What `selftest` checks of a control function.
const OF_CONTROL: [&str; 5] = ["function", "control function", "accelerator reset", "control errors", "readings"];

/// What `selftest` checks of a card whose only function is control function and accelerator.
const AS_SOLD: [&str; 12] = [
    "function",
    "control function",
    "accelerator reset",
    "control errors",
    "msgdma, poll mode",
    "msgdma, interrupts",
    "msgdma, rates",
    "readings",
    "sequencer",
    "instructions",
    "card memory",
    "errors",
];

const BOUND: Duration = Duration::from_secs(60);

/// GUID of an accelerator that the model does not have.
const OTHER: &str = "56e203e9-864f-49a7-b94b-12284c31e02b";
/// Where images and their journal are.
const FOLDER: &str = "/tmp/images";

fn functions(vendor: &str, device: &str) -> Vec<PciFunction> {
    let found = PciFunction::all(vendor, device);
    assert_eq!(found.len(), CARDS, "cards");
    found
}

/// The cards; the host exerciser of the first, which has the same ids, is behind the last port.
fn stratix() -> Vec<PciFunction> {
    let mut cards = PciFunction::all("0x8086", "0xbccf");
    assert_eq!(cards.len(), CARDS + 1, "cards and an exerciser");
    pci::give_to_worker(&cards);
    cards.truncate(CARDS);
    cards
}

fn a_host_exerciser_reaches_host_memory(guest: &Guest) {
    stratix();
    let all = PciFunction::all("0x8086", "0xbccf");
    assert_eq!(selftest(guest, User::Worker, &all[CARDS]), ["function", "readings", "host exerciser"]);
}

fn every_operation_on_stratix_cards_takes_as_many_cycles_as_in_process(guest: &Guest) {
    let all = oracle::OPERATIONS.iter().chain(&oracle::VECTOR_FORMS).chain(&reduction::OPERATIONS);
    compare_with(guest, User::Worker, &stratix(), "mock:s10-dfl:4", all.copied());
}

/// Runs `fpgactl selftest`, and returns the names of the checks.
pub(crate) fn selftest(guest: &Guest, user: User, card: &PciFunction) -> Vec<String> {
    let words = ["fpgactl", "selftest", &format!("vfio:{}", card.address), "--json"];
    let printed = printed(user, &words, BOUND);
    assert_eq!(printed["kind"], "vfio", "{printed}");
    let checks = printed["checks"].as_array().unwrap_or_else(|| panic!("{printed}"));
    for check in checks {
        guest.log(format!("{}: {} ({} ms)", check["id"], check["found"], check["ms"]));
        assert_eq!(check["ok"], true, "{check}");
    }
    checks.iter().filter_map(|check| check["id"].as_str().map(str::to_owned)).collect()
}

fn each_part_of_a_stratix_card_is_tested(guest: &Guest) {
    for card in &stratix() {
        let checks = selftest(guest, User::Worker, card);
        assert_eq!(checks, ["function", "readings", "sequencer", "instructions", "card memory", "errors"]);
        commands_by_hand(guest, User::Worker, card);
    }
}

/// The commands for one card, by hand.
fn commands_by_hand(guest: &Guest, user: User, card: &PciFunction) {
    let card = format!("vfio:{}", card.address);
    for (user, words) in [
        (user, &["info", "--cards", &card][..]),
        (user, &["reg", &card, "MAGIC"]),
        (user, &["mem", "test", &card, "0x10001", "5MiB"]),
        // The kernel's own reset, which is root's.
        (User::Root, &["reset", &card]),
    ] {
        let output = run(user, &[&["fpgactl"], words].concat(), BOUND).good().stdout;
        guest.log(format!("{}: {}", words.join(" "), output.lines().next().unwrap_or_default()));
    }
}

fn an_image_is_loaded_through_a_control_function(guest: &Guest) {
    let cards = stratix();
    let controls = PciFunction::all("0x8086", "0xbcce");
    let [control] = controls.as_slice() else { panic!("{} control functions", controls.len()) };
    pci::give_to_worker(&controls);
    let checks = selftest(guest, User::Worker, control);
    assert_eq!(checks, OF_CONTROL);
    load_images(guest, &cards[0], control, "0x14");
    assert_eq!(selftest(guest, User::Worker, &cards[0]).len(), 6);
}

/// Loads another accelerator, and the model's again. `register` of the card has the first 32 bits of the accelerator's GUID.
fn load_images(guest: &Guest, card: &PciFunction, control: &PciFunction, register: &str) {
    let good = |words: &[&str]| run(User::Worker, &[&["fpgactl"], words].concat(), BOUND).good().stdout;
    run(User::Worker, &["mkdir", "-p", FOLDER], BOUND).good();
    let (card, control) = (format!("vfio:{}", card.address), format!("vfio:{}", control.address));
    for (image, guid) in [("other.gbs", &["--guid", OTHER][..]), ("card.gbs", &[])] {
        let path = format!("{FOLDER}/{image}");
        good(&[&["mock", "image", "--bytes", "64KiB", "--output", &path], guid].concat());
        guest.log(good(&["image", "load", &path, &control, "--state-dir", FOLDER]));
        let found: Value = serde_json::from_str(&good(&["reg", &card, register, "--json"])).expect("JSON");
        let expected = if guid.is_empty() { 0x6fe0_a4a1 } else { 0x56e2_03e9 };
        assert_eq!(found["value"], expected, "{image}");
    }
}

/// Only root masks the errors of the port above. A load that is killed leaves the masks to the next command.
fn errors_of_the_port_above_are_masked(guest: &Guest) {
    let cards = as_sold();
    let port = cards[0].port_above().expect("each card is behind a port");
    let before = port.error_masks();
    let card = format!("vfio:{}", cards[0].address);
    let [short, long] = ["short", "long"].map(|name| format!("{FOLDER}/{name}.gbs"));
    run(User::Worker, &["mkdir", "-p", FOLDER], BOUND).good();
    for (path, bytes) in [(&short, "64KiB"), (&long, "4MiB")] {
        run(User::Worker, &["fpgactl", "mock", "image", "--bytes", bytes, "--output", path], BOUND).good();
    }
    let words = ["fpgactl", "image", "load", &short, &card, "--json", "--state-dir", FOLDER];
    let printed = |user, words: &[&str]| printed(user, words, BOUND);
    let upstream = &printed(User::Worker, &words)["upstream"];
    guest.log(format!("by a user: {upstream}"));
    assert_eq!((upstream["port"].as_str(), upstream["masked"].as_bool()), (Some(&*port.address), Some(false)));
    assert!(upstream["reason"].as_str().is_some_and(|reason| reason.contains("only root may")), "{upstream}");
    assert_eq!(port.error_masks(), before);
    // Root has a folder of its own.
    let root = "/tmp/images-of-root";
    let words = ["fpgactl", "image", "load", &short, &card, "--json", "--state-dir", root];
    let upstream = &printed(User::Root, &words)["upstream"];
    guest.log(format!("by root: {upstream}"));
    assert_eq!((upstream["masked"].as_bool(), port.error_masks()), (Some(true), before));
    let mut load = start(User::Root, &["fpgactl", "image", "load", &long, &card, "--state-dir", root]);
    let pending = Path::new(root).join("vfio").join(&cards[0].address).join("pending");
    let deadline = Instant::now() + BOUND;
    while !pending.exists() {
        assert!(Instant::now() < deadline, "the load does not begin");
        thread::sleep(Duration::from_millis(1));
    }
    load.kill();
    guest.log(format!("masks of port {} are {before:x?}; of a killed load {:x?}", port.address, port.error_masks()));
    assert_ne!(port.error_masks(), before, "the load had not ended");
    let recovered = printed(User::Root, &["fpgactl", "image", "recover", &card, "--json", "--state-dir", root]);
    guest.log(format!("recovered: {recovered}"));
    assert_eq!(recovered["done"], "completed");
    assert_eq!((recovered["unmasked"].as_str(), port.error_masks()), (Some(&*port.address), before));
}

/// Cards whose only function is control function and accelerator.
fn as_sold() -> Vec<PciFunction> {
    pci::cards("0x8086", "0x0b2b")
}

fn every_operation_on_cards_as_sold_takes_as_many_cycles_as_in_process(guest: &Guest) {
    let all = oracle::OPERATIONS.iter().chain(&oracle::VECTOR_FORMS).chain(&reduction::OPERATIONS);
    compare_with(guest, User::Worker, &as_sold(), "mock:s10-pac:4", all.copied());
}

fn each_part_of_a_card_as_sold_is_tested(guest: &Guest) {
    for card in &as_sold() {
        let checks = selftest(guest, User::Worker, card);
        assert_eq!(checks, AS_SOLD);
        commands_by_hand(guest, User::Worker, card);
    }
}

fn an_image_is_loaded_through_the_only_function(guest: &Guest) {
    let cards = as_sold();
    load_images(guest, &cards[0], &cards[0], "bar2:0x40014");
    assert_eq!(selftest(guest, User::Worker, &cards[0]), AS_SOLD);
}

/// By root: rules give no default ids of AMD's tools to a group of users.
fn each_part_of_an_alveo_card_is_tested(guest: &Guest) {
    for card in &functions("0x10ee", "0x903f") {
        card.give_to_vfio();
        let checks = selftest(guest, User::Root, card);
        let before = ["function", "xdma, poll mode", "xdma, interrupts", "xdma, rates", "readings"];
        assert_eq!(checks, [&before[..], &["sequencer", "instructions", "card memory", "errors"]].concat());
        commands_by_hand(guest, User::Root, card);
    }
}

fn every_operation_on_alveo_cards_takes_as_many_cycles_as_in_process(guest: &Guest) {
    every_operation_on_alveo(guest, "mock:alveo-xdma:4");
}

fn every_operation_by_descriptor_bypass_takes_as_many_cycles_as_in_process(guest: &Guest) {
    every_operation_on_alveo(guest, "mock:alveo-xdma:4+bypass");
}

fn every_operation_on_alveo(guest: &Guest, in_process: &str) {
    let cards = functions("0x10ee", "0x903f");
    cards.iter().for_each(PciFunction::give_to_vfio);
    let all = oracle::OPERATIONS.iter().chain(&oracle::VECTOR_FORMS).chain(&reduction::OPERATIONS);
    compare_with(guest, User::Root, &cards, in_process, all.copied());
}
