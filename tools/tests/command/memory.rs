//! `fpgactl mem`: card memory by hand.

use std::fs;

use crate::served::Served;
use crate::{json, run, stdout};

/// Every shell, a card of each in process and, last, one without a sequencer.
const CARDS: [&str; 6] = [
    "mock:optweb:2/1",
    "mock:s10-dfl:2/0",
    "mock:s10-pac:2/1",
    "mock:alveo-xdma:2/0",
    "mock:alveo-xdma:2/1+bypass",
    "mock:alveo-xdma:1",
];

#[test]
fn memory_is_tested_behind_every_shell() {
    for cards in CARDS {
        let printed = json(&["mem", "test", cards, "0x10003", "9MiB", "--seed", "7"]);
        assert_eq!((printed["action"].as_str(), printed["address"].as_u64()), (Some("test"), Some(0x1_0003)));
        assert_eq!((printed["bytes"].as_u64(), printed["mock"].as_bool()), (Some(9 << 20), Some(true)), "{cards}");
    }
    let text = stdout(&["mem", "test", "mock:optweb:2/0", "0", "64"]);
    assert_eq!(text, "64 bytes at 0x0: written, read back and restored\n");
}

/// The memory of this card outlives a reset, and so the commands.
#[test]
fn what_is_written_is_read() {
    let served = Served::new(&["mock:alveo-xdma:1"]);
    let card = served.card(0);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (input, output) = (path("in"), path("out"));
    let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&input, &data).unwrap();
    let text = stdout(&["mem", "write", &card, "0x7", &input]);
    assert_eq!(text, format!("5000000 bytes at 0x7: written from {input}\n"));
    let text = stdout(&["mem", "read", &card, "0x7", "5000000", "--output", &output]);
    assert_eq!(text, format!("5000000 bytes at 0x7: written to {output}\n"));
    assert!(fs::read(&output).unwrap() == data);
    assert_eq!(stdout(&["mem", "fill", &card, "0x100", "19", "0x6867666564636261"]), "19 bytes at 0x100: filled\n");
    assert_eq!(
        stdout(&["mem", "read", &card, "0x100", "18"]),
        "000000000100  61 62 63 64 65 66 67 68 61 62 63 64 65 66 67 68  abcdefghabcdefgh\n\
         000000000110  61 62                                            ab\n"
    );
    let read = json(&["mem", "read", &card, "0x110", "4"]);
    assert_eq!(read["hex"].as_str().unwrap(), format!("616263{:02x}", data[0x113 - 7]));
    stdout(&["mem", "test", &card, "0x0", "1MiB"]);
    assert_eq!(json(&["mem", "read", &card, "0x110", "4"])["hex"], read["hex"], "restored");
}

#[test]
fn what_is_not_there_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("nothing").to_str().unwrap().to_owned();
    for (arguments, code, why) in [
        (&["mem", "read", "mock:optweb:2", "0", "64"][..], 2, "mock:optweb:2 selects 2 cards: select one"),
        (&["mem", "read", "mock:optweb:2/0", "0", "65537"], 2, "65537 bytes are too many to print: at most 65536"),
        (&["mem", "read", "mock:optweb:2/0", "x", "1"], 2, "invalid address \"x\""),
        (&["mem", "fill", "mock:optweb:2/0", "0", "1", "y"], 2, "invalid pattern \"y\""),
        (&["mem", "write", "mock:optweb:2/0", "0", &missing], 4, "nothing"),
        (&["mem", "read", "mock:optweb:2/0", "0xffffffffffffffff", "64"], 2, "end beyond 64-bit addresses"),
        (&["mem", "read", "mock:optweb:2/0", "0x4000000000", "64"], 7, "card memory range"),
        (&["mem", "read", "mock:alveo-xdma:1", "0x4000000000", "64"], 1, "no card memory at this address"),
        // Before anything is written, and so at once.
        (&["mem", "fill", "mock:alveo-xdma:2/0", "0", "1TiB", "7"], 7, "1099511627776 bytes at 0x0"),
        (&["mem", "fill", "mock:alveo-xdma:1", "64", "1TiB", "7"], 1, "no card memory at this address"),
        (&["mem", "fill", "mock:optweb:2/0", "64", "18446744073709551615", "7"], 2, "end beyond 64-bit addresses"),
        (&["mem", "read", "mock:s10-dfl:2/0.he-lb", "0", "64"], 1, "no command sequencer"),
        (&["mem", "test", "mock:optweb:2/0+flip=0@64", "0", "4KiB"], 1, "cannot be corrected"),
        (&["mem", "read", "mock:optweb:2/0", "0", "64", "--cards", "mock:optweb:2"], 2, "--cards has no effect"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
}

/// Accesses of an instruction, as docs/cost.md has them.
#[test]
fn each_way_to_feed_a_card_has_its_accesses() {
    let printed = json(&["bench", "accesses"]);
    let rows = printed["rows"].as_array().unwrap();
    let found: Vec<(&str, &str, f64, f64)> = rows
        .iter()
        .map(|row| {
            let of = |key: &str| row["instruction"][key].as_f64().unwrap();
            (row["cards"].as_str().unwrap(), row["feed"].as_str().unwrap(), of("writes"), of("reads"))
        })
        .collect();
    assert_eq!(
        found,
        [
            ("mock:optweb:2", "host ring", 1.0, 0.0),
            ("mock:s10-dfl:2", "host ring", 1.0, 0.0),
            ("mock:s10-pac:2", "host ring", 1.0, 0.0),
            ("mock:alveo-xdma:2+bypass", "host ring", 1.0, 0.0),
            ("mock:alveo-xdma:2", "card ring", 18.0, 0.0),
            ("mock:alveo-xdma:2+bar4", "card ring", 18.0, 1.0),
            ("mock:alveo-xdma:2", "registers", 17.0, 10.0),
        ]
    );
    // An engine, or copy instructions, need far fewer accesses than a BAR.
    for row in rows {
        let by_bar = row["by_bar"].as_f64().unwrap();
        for way in ["to_card", "from_card"] {
            let all = row[way]["writes"].as_f64().unwrap() + row[way]["reads"].as_f64().unwrap();
            assert!(all > 0.0 && all < by_bar / 100.0, "{row}");
        }
    }
    let one = json(&["bench", "accesses", "--cards", "mock:circus:2x2"]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    assert_eq!(run(&["bench", "accesses", "--cards", "vfio-user:/nowhere"]).status.code(), Some(2));
}
