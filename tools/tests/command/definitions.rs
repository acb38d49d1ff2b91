//! Channel definitions: what is refused, and where.

use std::fs;

use crate::run;

#[test]
fn errors_of_definitions_are_7_and_have_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.xml");
    let valid = fs::read_to_string("tests/command/programs/pingpong.xml").unwrap();
    let name = path.to_str().unwrap();
    for (text, place, message) in [
        (valid.replacen("<width>512", "<width>256", 1), "6:12", "channel ping_out: width 256 does not fit uint16"),
        (valid.replace("pong_in", "ping_in"), "22:3", "channel ping_in: second channel of this name"),
        (valid.replace("<channels>", "<!DOCTYPE a [<!ENTITY b 'c'>]><channels>"), "3:1", "no document type"),
        (valid.replace("<depth>32", "<depth>\u{1b}[31m"), "25:12", "channel pong_in: invalid depth"),
        (String::new(), "1:1", "found the end of the file"),
        (" ".repeat(2 << 20), "1:1", "at most 1048576 bytes"),
    ] {
        fs::write(&path, text).unwrap();
        let output = run(&["channel", "check", name]);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{printed}");
        assert!(output.stdout.is_empty() && !printed.contains('\u{1b}'), "{printed}");
        let (_, second) = printed.split_once('\n').unwrap();
        assert!(second.contains(message), "{printed}");
        assert!(second.starts_with(&format!("{name}:{place}: ")), "{printed}");
    }
    let output = run(&["channel", "check", directory.path().to_str().unwrap()]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{printed}");
    assert!(printed.contains("not a regular file"), "{printed}");
}

#[test]
fn ends_are_placed_on_cards_with_channels() {
    const FILE: &str = "tests/command/programs/pingpong.xml";
    for (options, code, message) in [
        (
            &["--cards", "mock:circus:4x4", "--place", "ping=3"][..],
            2,
            "no end ping in the definition (available: ping_in",
        ),
        (&["--cards", "mock:circus:4x4", "--place", "ping_in"], 2, "expected NAME=CARD"),
        (&["--cards", "mock:circus:4x4", "--place", "ping_in=-1"], 2, "expected NAME=CARD"),
        (&["--place", "ping_in=1", "--place", "ping_in=2"], 2, "end ping_in is placed twice"),
        (
            &["--cards", "mock:circus:4x4", "--place", "ping_in=16"],
            4,
            "no card 16 for end ping_in (available: 0 to 15)",
        ),
        (&["--cards", "mock:circus:17x2"], 4, "invalid torus: 2 x 17"),
        (&["--cards", "mock:optweb:4"], 2, "expected cards with channels"),
        (&["--cards", "mock:circus:4x4+stop=1@5"], 2, "without options and faults"),
    ] {
        let output = run(&[&["channel", "load", FILE], options].concat());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {printed}");
        assert!(printed.contains(message) && output.stdout.is_empty(), "{options:?}: {printed}");
    }
    // One card of a network: its table alone.
    let output = run(&["channel", "load", FILE, "--cards", "mock:circus:3x5/7"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && printed.contains("Routing tables of 1 cards"), "{printed}");
    // 256 cards, more than the published header names.
    let output = run(&["channel", "load", FILE, "--cards", "mock:circus:16x16", "--place", "ping_in=255", "--json"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["columns"], &json["channels"][0]["hops"]), (&16.into(), &2.into()));
    assert_eq!(json["tables"][255]["ports"].as_array().unwrap().len(), 256);
}

#[test]
fn given_tables_are_checked_before_they_are_loaded() {
    const LOAD: &[&str] = &["channel", "load", "tests/command/programs/pingpong.xml", "--cards", "mock:circus:2x4"];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tables.json");
    let tables = [&["--tables"], &[path.to_str().unwrap()][..]].concat();
    let valid = run(&[LOAD, &["--json"]].concat()).stdout;
    let valid: serde_json::Value = serde_json::from_slice(&valid).unwrap();
    fs::write(&path, valid.to_string()).unwrap();
    let again = run(&[LOAD, &["--json"], &tables].concat());
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&again.stdout).unwrap(), valid);
    let mut looping = valid.clone();
    looping["tables"][1]["ports"][2] = "west".into();
    let mut ending = valid.clone();
    ending["tables"][1]["ports"][2] = "own".into();
    let mut unknown = valid.clone();
    unknown["tables"][1]["ports"][2] = "up".into();
    let mut missing = valid.clone();
    missing["tables"].as_array_mut().unwrap().remove(1);
    let mut short = valid;
    short["tables"][1]["ports"].as_array_mut().unwrap().pop();
    for (text, message) in [
        (looping.to_string(), "no route from node 0 to node 2: packets return to node 0"),
        (ending.to_string(), "no route from node 0 to node 2: the table of node 1 names port 4"),
        (missing.to_string(), "no route from node 1 to node 0: the table of node 1 has no entry for node 0"),
        (unknown.to_string(), "unknown port \"up\" of card 1 (available: east, west, north, south, own)"),
        (short.to_string(), "invalid table of card 1, with 7 ports"),
        ("{".to_owned(), "invalid tables: "),
    ] {
        fs::write(&path, text).unwrap();
        let output = run(&[LOAD, &tables].concat());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{printed}");
        assert!(printed.contains(message) && output.stdout.is_empty(), "{printed}");
    }
}
