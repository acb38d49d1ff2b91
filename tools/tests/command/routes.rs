//! Tables of statically scheduled routers: what is written, and what is refused with which place.

use std::fs;

use crate::{json, run};

const COLLECTIVES: &str = r#"{"torus": [4, 4, 1], "collectives": [
    {"kind": "multicast", "root": 0, "members": [1, 2, 5], "packets": 8},
    {"kind": "reduction", "root": 3, "members": [3, 7, 9]},
    {"kind": "unicast", "root": 1, "members": [2]}]}"#;

#[test]
fn compiled_tables_pass_the_check_and_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let [list, tables] = ["list.json", "tables.json"].map(|name| directory.path().join(name));
    let [list, tables] = [list.to_str().unwrap(), tables.to_str().unwrap()];
    fs::write(list, COLLECTIVES).unwrap();
    for algorithm in ["ocr", "rpm"] {
        let compiled = json(&["route", "compile", list, "-o", tables, "--algorithm", algorithm]);
        assert_eq!(compiled["schema"], "fpgactl.route-compile/1");
        assert_eq!((&compiled["algorithm"], &compiled["collectives"]), (&algorithm.into(), &3.into()));
        let verified = json(&["route", "verify", tables]);
        assert_eq!((&verified["hops"], &verified["bits"]), (&compiled["hops"], &compiled["bits"]));
        let shown = json(&["route", "show", tables]);
        let bits = shown["nodes"].as_array().unwrap().iter().map(|node| node["bits"].as_u64().unwrap());
        assert_eq!(bits.sum::<u64>(), compiled["bits"].as_u64().unwrap());
    }
    let one = json(&["route", "show", tables, "--node", "3"]);
    let entries = one["nodes"][0]["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry.as_str().unwrap().contains("reduction 0 of")), "{one}");
    assert_eq!(run(&["route", "show", tables, "--node", "16"]).status.code(), Some(4));
    assert_eq!(run(&["route", "show", tables, "--cards", "mock:novo-g:4x4x1"]).status.code(), Some(2));
}

#[test]
fn lists_are_refused_with_the_collective() {
    let directory = tempfile::tempdir().unwrap();
    let [list, tables] = ["list.json", "tables.json"].map(|name| directory.path().join(name));
    let arguments = ["route", "compile", list.to_str().unwrap(), "-o", tables.to_str().unwrap()];
    for (from, to, message) in [
        ("[4, 4, 1]", "[4, 4, 0]", "invalid torus: 4 x 4 x 0 (each side has 1 to 16 nodes"),
        ("[1, 2, 5]", "[1, 2, 16]", "collective 0: no node 16 (available: 0 to 15)"),
        ("[3, 7, 9]", "[]", "collective 1: a reduction of no members"),
        ("[2]", "[2, 3]", "collective 2: a unicast to 2 members"),
        ("\"packets\": 8", "\"packets\": 5000", "packets wait at the input from"),
        ("\"packets\": 8", "\"packet\": 8", "unknown field `packet`"),
        ("\"packets\": 8", "\"packets\": 8, \"starts\": [[[0, 0]]]", "unknown field `starts`"),
    ] {
        fs::write(&list, COLLECTIVES.replacen(from, to, 1)).unwrap();
        let output = run(&arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{printed}");
        assert!(printed.contains(message), "{printed}");
        assert!(!tables.exists(), "{printed}");
    }
    fs::write(&list, COLLECTIVES).unwrap();
    let output = run(&[&arguments[..], &["--depth", "1"]].concat());
    assert!(String::from_utf8(output.stderr).unwrap().contains("whose buffer holds 1 "));
    let output = run(&[&arguments[..], &["--cards", "mock:optweb:4"]].concat());
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn changed_tables_are_refused_with_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let [list, tables] = ["list.json", "tables.json"].map(|name| directory.path().join(name));
    fs::write(&list, COLLECTIVES).unwrap();
    json(&["route", "compile", list.to_str().unwrap(), "-o", tables.to_str().unwrap()]);
    let valid = crate::parsed(fs::read(&tables).unwrap());
    let refuse = |change: &dyn Fn(&mut serde_json::Value), message: &str| {
        let mut changed = valid.clone();
        change(&mut changed);
        fs::write(&tables, changed.to_string()).unwrap();
        let output = run(&["route", "verify", tables.to_str().unwrap()]);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{printed}");
        assert!(printed.contains(message), "{printed}");
    };
    // A unicast entry of node 2 that leads along X, and back to node 2 by the neighbours' first entries.
    refuse(
        &|tables| {
            for node in 0..16 {
                tables["nodes"][node]["routes"] = serde_json::json!(vec!["00000000"; 8]);
            }
        },
        "packets loop: they return to node",
    );
    refuse(&|tables| tables["nodes"][1]["routes"] = serde_json::json!([]), "node 1 has no entry");
    refuse(
        &|tables| tables["nodes"][2]["routes"][0] = "g".into(),
        "node 2: entry 0 of the routing table: \"g\" is no hex",
    );
    refuse(
        &|tables| {
            let entry = &mut tables["nodes"][2]["routes"][0];
            *entry = format!("+{}", &entry.as_str().unwrap()[1..]).into();
        },
        "node 2: entry 0 of the routing table: \"+",
    );
    refuse(
        &|tables| tables["nodes"][2]["routes"][0] = "30000000".into(),
        "node 2: entry 0 of the routing table: type 3",
    );
    refuse(&|tables| tables["nodes"][3]["reductions"][0] = "70000".into(), "reduction entry 0 of node 3 gets");
    refuse(&|tables| tables["torus"][0] = 2.into(), "tables of 16 nodes do not fit a torus of 8");
}

#[test]
fn tables_are_loaded_into_the_cards() {
    let directory = tempfile::tempdir().unwrap();
    let [list, tables] = ["list.json", "tables.json"].map(|name| directory.path().join(name));
    let [list, tables] = [list.to_str().unwrap(), tables.to_str().unwrap()];
    fs::write(list, COLLECTIVES).unwrap();
    let compiled = json(&["route", "compile", list, "-o", tables]);
    let loaded = json(&["route", "load", tables, "--cards", "mock:novo-g:4x4x1"]);
    assert_eq!((&loaded["generation"], &loaded["cards"], &loaded["bits"]), (&1.into(), &16.into(), &compiled["bits"]));
    let fails = |cards: &str, code: i32, message: &str| {
        let output = run(&["route", "load", tables, "--cards", cards]);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(message), "{printed}");
    };
    fails("mock:novo-g:4x4x4", 7, "expected cards such as mock:novo-g:4x4x1");
    fails("mock:novo-g:4x4x1/0", 4, "card 1 is missing (expected all 16 cards of a torus of 4 x 4 x 1)");
    fails("mock:circus:4x4", 1, "has no statically scheduled router");
    let mut wrong = crate::parsed(fs::read(tables).unwrap());
    wrong["nodes"][1]["routes"] = serde_json::json!([]);
    fs::write(tables, wrong.to_string()).unwrap();
    fails("mock:novo-g:4x4x1", 7, "node 1 has no entry");
    let shown = json(&["route", "show", "--cards", "mock:novo-g:4x4x1"]);
    assert_eq!((&shown["generation"], &shown["selector"]), (&0.into(), &"mock:novo-g:4x4x1".into()));
}

/// Tables stay on served cards from one command to the next.
#[test]
fn served_cards_keep_their_tables() {
    let directory = tempfile::tempdir().unwrap();
    let [list, tables] = ["list.json", "tables.json"].map(|name| directory.path().join(name));
    let [list, tables] = [list.to_str().unwrap(), tables.to_str().unwrap()];
    fs::write(list, COLLECTIVES.replace("4, 4, 1", "2, 2, 2").replace("3, 7, 9", "3, 7, 6")).unwrap();
    json(&["route", "compile", list, "-o", tables]);
    let from_file = json(&["route", "show", tables, "--node", "3"]);
    let script = format!(
        "{command} route load {tables} > /dev/null && {command} route load {tables} > /dev/null && {command} route show --node 3 --json",
        command = env!("CARGO_BIN_EXE_fpgactl")
    );
    let output = run(&["mock", "serve", "mock:novo-g:2x2x2", "--", "sh", "-c", &script]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = crate::parsed(output.stdout);
    assert_eq!((&shown["generation"], &shown["nodes"]), (&2.into(), &from_file["nodes"]));
}
