//! Mock cards with the identities of real cards, on the kernel's VFIO.

use std::time::Duration;

use fpga_tests::{oracle, reduction};
use fpga_vm::CARDS;
use serde_json::Value;

use crate::cards::compare_with;
use crate::command::{User, run};
use crate::pci::{self, PciFunction};
use crate::{Guest, tests};

tests! {
    ["stratix"] => [
        every_operation_on_stratix_cards_takes_as_many_cycles_as_in_process,
        each_part_of_a_stratix_card_is_tested,
    ],
    ["alveo"] => [each_part_of_an_alveo_card_is_tested],
}

const BOUND: Duration = Duration::from_secs(60);

fn functions(vendor: &str, device: &str) -> Vec<PciFunction> {
    let found = PciFunction::all(vendor, device);
    assert_eq!(found.len(), CARDS, "cards");
    found
}

fn stratix() -> Vec<PciFunction> {
    let cards = functions("0x8086", "0xbccf");
    pci::give_to_worker(&cards);
    cards
}

fn every_operation_on_stratix_cards_takes_as_many_cycles_as_in_process(guest: &Guest) {
    let all = oracle::OPERATIONS.iter().chain(&oracle::VECTOR_FORMS).chain(&reduction::OPERATIONS);
    compare_with(guest, &stratix(), "mock:s10-dfl:4", all.copied());
}

/// Runs `fpgactl selftest`, and returns the names of the checks.
fn selftest(guest: &Guest, user: User, card: &PciFunction) -> Vec<String> {
    let words = ["fpgactl", "selftest", &format!("vfio:{}", card.address), "--json"];
    let output = run(user, &words, BOUND).good();
    let printed: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"));
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
        assert_eq!(checks, ["function", "sequencer", "instructions", "card memory", "errors"]);
    }
}

/// By root: rules give no default ids of AMD's tools to a group of users.
fn each_part_of_an_alveo_card_is_tested(guest: &Guest) {
    for card in &functions("0x10ee", "0x903f") {
        card.give_to_vfio();
        let checks = selftest(guest, User::Root, card);
        assert_eq!(checks, ["function", "xdma, poll mode", "xdma, interrupts", "xdma, rates"]);
    }
}
