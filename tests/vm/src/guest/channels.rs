//! Cards with CIRCUS channels on the kernel's VFIO.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use fpga_vm::{CARDS, Request};
use serde_json::Value;

use crate::cards::{selector, with_cards};
use crate::command::{self, User, run, start};
use crate::loss::{QUIET, assert_gone};
use crate::pci::{self, PciFunction};
use crate::shells::selftest;
use crate::{Guest, tests};

tests! {
    ["channels"] => [
        what_is_known_without_opening_a_card_with_channels,
        words_cross_from_each_card_to_each,
        a_definition_is_loaded_and_shown,
        each_part_of_a_card_with_channels_is_tested,
        a_stream_ends_when_its_card_is_gone,
    ],
}

const BOUND: Duration = Duration::from_secs(60);
const DEFINITION: &str = "/tmp/channels.xml";

fn cards() -> Vec<PciFunction> {
    pci::cards("0x1234", "0xf9a1")
}

fn printed(words: &[&str]) -> Value {
    command::printed(User::Worker, words, BOUND)
}

fn what_is_known_without_opening_a_card_with_channels(guest: &Guest) {
    let cards = cards();
    let listed = printed(&["fpgactl", "list", "--cards", &selector(&cards), "--json"]);
    for card in listed["cards"].as_array().expect("cards") {
        guest.log(card);
        assert_eq!(
            (card["name"].as_str(), card["sequencer"].as_str()),
            (Some("mock card with CIRCUS channels"), Some("none"))
        );
    }
    // This machine has no huge pages, which `doctor` says as well.
    let output = run(User::Worker, &["fpgactl", "doctor", &cards[0].address], BOUND);
    let found = output.stdout.lines().find(|line| line.trim_start().starts_with("ok    sequencer"));
    guest.log(found.unwrap_or_default());
    assert!(found.is_some_and(|line| line.contains("none, but CIRCUS channels")), "{output}");
}

fn words_cross_from_each_card_to_each(guest: &Guest) {
    let cards = cards();
    let output = run(User::Worker, &with_cards(&["fpga-cards", "channels"], &cards), BOUND).good();
    assert_eq!(output.stdout.lines().count(), CARDS * CARDS, "{output}");
    guest.log(output.stdout);
}

fn a_definition_is_loaded_and_shown(guest: &Guest) {
    let cards = selector(&cards());
    let end = |name: &str, way: &str| {
        format!("<channel name=\"{name}\"><type>int</type><width>32</width><depth>8</depth><{way}>3</{way}></channel>")
    };
    let definition = format!("<channels>{}{}</channels>", end("out", "write-to"), end("in", "read-from"));
    fs::write(DEFINITION, definition).expect("a file");
    let words = ["fpgactl", "channel", "load", DEFINITION, "--cards", &cards, "--place", "in=3", "--json"];
    let loaded = printed(&words);
    guest.log(&loaded["channels"]);
    assert_eq!((loaded["kind"].as_str(), loaded["mock"].as_bool()), (Some("vfio"), Some(true)));
    assert_eq!(loaded["channels"][0]["route"], serde_json::json!([0, 1, 3]));
    let info = printed(&["fpgactl", "info", "--cards", &cards, "--json"]);
    assert_eq!((info["schema"].as_str(), info["mock"].as_bool()), (Some("fpgactl.info-channels/1"), Some(true)));
    for (node, card) in info["cards"].as_array().expect("cards").iter().enumerate() {
        guest.log(card);
        assert_eq!((card["node"].as_u64(), card["routed"].as_bool()), (Some(node as u64), Some(true)));
    }
}

fn each_part_of_a_card_with_channels_is_tested(guest: &Guest) {
    for card in &cards() {
        let checks = selftest(guest, User::Worker, card);
        assert_eq!(checks, ["function", "readings", "channels", "words"]);
    }
}

/// QEMU lives on only if nobody looks at the card just then: see `cards_whose_server_is_killed`.
fn a_stream_ends_when_its_card_is_gone(guest: &Guest) {
    let cards = cards();
    let mut stream = start(User::Worker, &["fpga-cards", "stream", &cards[0].address]);
    stream.until_it_says("at work", BOUND);
    stream.pause(true);
    thread::sleep(QUIET);
    guest.log(guest.ask(Request::KillServer).expect("the server can be killed"));
    thread::sleep(QUIET);
    cards.iter().for_each(PciFunction::forbid_reset);
    let begin = Instant::now();
    stream.pause(false);
    assert_gone(guest, &stream.finish(BOUND), begin.elapsed());
}
