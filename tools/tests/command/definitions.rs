//! Channel definitions: what is refused, and where.

use std::fs;

use crate::served::Served;
use crate::{json, run, stdout};

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
    fs::write(&path, " ".repeat(2 << 20)).unwrap();
    let output = run(&["channel", "check", name]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        format!("fpgactl: {name}: file too large: a definition has at most 1048576 B\n")
    );
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
        (
            &["--cards", "mock:circus:17x2"],
            2,
            "\"mock:circus:17x2\": invalid shape: cards with channels have 1 to 16 rows",
        ),
        (&["--cards", "mock:circus:17"], 2, "\"mock:circus:17\": invalid shape"),
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
    let json = crate::parsed(&printed);
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
    let valid = crate::parsed(&valid);
    fs::write(&path, valid.to_string()).unwrap();
    let again = run(&[LOAD, &["--json"], &tables].concat());
    assert_eq!(crate::parsed(&again.stdout), valid);
    let mut looping = valid.clone();
    looping["tables"][1]["ports"][2] = "west".into();
    let mut ending = valid.clone();
    ending["tables"][1]["ports"][2] = "own".into();
    let mut unknown = valid.clone();
    unknown["tables"][1]["ports"][2] = "up".into();
    let mut missing = valid.clone();
    missing["tables"].as_array_mut().unwrap().remove(1);
    let mut missing_two = missing.clone();
    missing_two["tables"].as_array_mut().unwrap().pop();
    let mut twice = valid.clone();
    twice["tables"][1] = twice["tables"][2].clone();
    let other = |key: &str, value: serde_json::Value| {
        let mut other = valid.clone();
        other[key] = value;
        other.to_string()
    };
    let (schema, columns, rows) =
        (other("schema", "fpgactl.channel-load/2".into()), other("columns", 2.into()), other("rows", 4.into()));
    let unnamed = {
        let mut unnamed = valid.clone();
        unnamed.as_object_mut().unwrap().remove("schema");
        unnamed.to_string()
    };
    let mut short = valid;
    short["tables"][1]["ports"].as_array_mut().unwrap().pop();
    for (text, message) in [
        (looping.to_string(), "no route from node 0 to node 2: packets return to node 0"),
        (ending.to_string(), "no route from node 0 to node 2: the table of node 1 names port 4"),
        (missing.to_string(), "tables.json: cards without a table: 1 (expected one of each card)"),
        (missing_two.to_string(), "cards without a table: 1, 7 (expected one of each card)"),
        (twice.to_string(), "tables.json: two tables of card 2"),
        (schema, "schema \"fpgactl.channel-load/2\" (expected \"fpgactl.channel-load/1\")"),
        (columns, "tables of 2 columns and 2 rows do not fit a torus of 4 columns and 2 rows"),
        (rows, "tables of 4 columns and 4 rows do not fit a torus of 4 columns and 2 rows"),
        (unnamed, "invalid tables: missing field `schema`"),
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

#[test]
fn code_is_generated_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let definition = "tests/command/programs/pingpong.xml";
    let output = at("new/folder");
    let generate = |more: &[&'static str]| -> Vec<String> {
        [&["channel", "generate", definition, "--output", &output] as &[&str], more]
            .concat()
            .iter()
            .map(|one| one.to_string())
            .collect()
    };
    fn words(owned: &[String]) -> Vec<&str> {
        owned.iter().map(String::as_str).collect()
    }
    let printed = stdout(&words(&generate(&[])));
    let names = ["pingpong_cl.h", "pingpong_host.h", "pingpong_host.c", "pingpong_channels.rs"];
    for name in names {
        let text = fs::read_to_string(at(&format!("new/folder/{name}"))).unwrap();
        assert!(text.contains("pingpong") && printed.contains(&format!("{output}/{name}")), "{printed}");
    }
    // Files are replaced; others stay.
    fs::write(at("new/folder/pingpong_cl.h"), "old").unwrap();
    fs::write(at("new/folder/pingpong_host.c"), "mine").unwrap();
    let printed = json(&words(&generate(&["--only", "rust,device", "--ends", "pong_in,ping_out"])));
    assert_eq!(printed["schema"], "fpgactl.channel-generate/1");
    for (file, (part, name)) in
        printed["files"].as_array().unwrap().iter().zip([("device", names[0]), ("rust", names[3])])
    {
        let text = fs::read_to_string(at(&format!("new/folder/{name}"))).unwrap();
        assert_eq!((&file["part"], &file["bytes"]), (&part.into(), &text.len().into()));
        assert_eq!(file["file"], format!("{output}/{name}"));
        assert!(text.contains("ping_out") && text.contains("pong_in") && !text.contains("ping_in"), "{text}");
    }
    assert_eq!(fs::read_to_string(at("new/folder/pingpong_host.c")).unwrap(), "mine");
    // One file that cannot be written: none changes.
    fs::write(at("new/folder/pingpong_cl.h"), "old").unwrap();
    fs::remove_file(at("new/folder/pingpong_channels.rs")).unwrap();
    fs::create_dir(at("new/folder/pingpong_channels.rs")).unwrap();
    let failed = run(&words(&generate(&[])));
    assert_eq!(failed.status.code(), Some(7));
    assert_eq!(fs::read_to_string(at("new/folder/pingpong_cl.h")).unwrap(), "old");
    assert_eq!(fs::read_dir(at("new/folder")).unwrap().count(), 4);
}

#[test]
fn what_cannot_be_generated_is_7_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let valid = fs::read_to_string("tests/command/programs/pingpong.xml").unwrap();
    fs::write(at("keyword.xml"), valid.replace("ping_out", "kernel")).unwrap();
    fs::write(at("a b.xml"), &valid).unwrap();
    fs::write(at("wrong.xml"), valid.replacen("512", "511", 1)).unwrap();
    fs::write(at("file"), "").unwrap();
    for (name, output, ends, message) in [
        ("keyword.xml", "out", "kernel", "channel kernel: generated code cannot have this name"),
        ("a b.xml", "out", "ping_in", "invalid name \"a b\" of an application"),
        ("wrong.xml", "out", "ping_in", "width 511 does not fit"),
        ("keyword.xml", "file", "ping_in", "is a file: expected a directory"),
    ] {
        let output = run(&["channel", "generate", &at(name), "--output", &at(output), "--ends", ends]);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{printed}");
        assert!(printed.contains(message), "{printed}");
        assert!(!directory.path().join("out").exists(), "{name}");
    }
    let unknown = run(&["channel", "generate", &at("keyword.xml"), "--output", &at("out"), "--ends", "ping_out"]);
    let printed = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(2), "{printed}");
    assert!(printed.contains("no end ping_out in the definition (available: kernel, ping_in"), "{printed}");
    assert!(!directory.path().join("out").exists());
}

/// What the cards say of themselves, before and after tables were loaded.
#[test]
fn cards_with_channels_are_shown_and_tested() {
    let served = Served::new(&["mock:circus:2x3", "--channels"]);
    let tested = |node: u32| {
        let tested = json(&["selftest", &served.card(node)]);
        let checks = tested["checks"].as_array().unwrap();
        assert!(checks.iter().all(|check| check["ok"] == true), "{tested}");
        let ids: Vec<&str> = checks.iter().map(|check| check["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["function", "readings", "channels", "words"]);
        checks[3]["found"].as_str().unwrap().to_owned()
    };
    assert!(tested(2).starts_with("none sent: the card has no routing table"), "{}", tested(2));
    let shown = |selector: &str| json(&["info", "--cards", selector]);
    let info = shown(&served.all());
    assert_eq!((info["columns"].as_u64(), info["rows"].as_u64()), (Some(3), Some(2)), "{info}");
    assert_eq!((info["schema"].as_str(), info["mock"].as_bool()), (Some("fpgactl.info-channels/1"), Some(true)));
    assert!((0..6).all(|node| info["cards"][node]["node"] == node && info["cards"][node]["routed"] == false), "{info}");
    json(&["channel", "load", "tests/command/programs/pingpong.xml", "--cards", &served.all()]);
    assert!(tested(2).starts_with("256 KiB by channel 255 and back, "), "{}", tested(2));
    let info = shown(&served.card(2));
    assert_eq!(info["cards"].as_array().unwrap().len(), 1);
    assert_eq!((&info["cards"][0]["node"], &info["cards"][0]["routed"]), (&2.into(), &true.into()));
    assert_eq!(info["cards"][0]["lost"], serde_json::json!({"full": 0, "no_route": 0, "no_channel": 0}));
    let text = stdout(&["info", "--cards", &served.card(2)]);
    assert!(text.contains("packet     64 B, of which 60 B are words"), "{text}");
    // One of each kind is no network.
    let mixed = format!("{},{}", served.card(0), Served::new(&["mock:circus:2x2"]).card(0));
    assert!(!run(&["info", "--cards", &mixed]).status.success());
}

/// The cards of another process take the same tables, and those without channels say what they are.
#[test]
fn tables_are_loaded_into_served_cards() {
    const FILE: &str = "tests/command/programs/pingpong.xml";
    let served = Served::new(&["mock:circus:2x4", "--channels"]);
    let there = json(&["channel", "load", FILE, "--cards", &served.all()]);
    let here = json(&["channel", "load", FILE, "--cards", "mock:circus:2x4"]);
    assert_eq!((&there["tables"], &there["channels"]), (&here["tables"], &here["channels"]));
    assert_eq!(there["kind"], "vfio-user");
    let output = run(&["channel", "load", FILE, "--cards", &Served::new(&["mock:circus:2x2"]).all()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("has no channels"), "{text}");
    for (arguments, why) in [
        (&["mock:optweb:4", "--channels"] as &[&str], "expected cards with channels, such as mock:circus:8x8"),
        (&["mock:circus:2x2", "--channels", "--memory", "1GiB"], "--memory has no effect"),
        (&["mock:alveo-xdma:1", "--memory", "1GiB"], "--memory has no effect"),
    ] {
        let output = run(&[&["mock", "serve", "--socket-dir", "/nowhere/x"], arguments].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.contains(why), "{text}");
    }
}
