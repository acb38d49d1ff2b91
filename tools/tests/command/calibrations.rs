//! From a measured fabric to plans that go by it.

use crate::{command, json, run, stdout};

const SLOW: &str = "mock:optweb:4+slow=20";

fn predicted_and_counted(arguments: &[&str]) -> (f64, f64) {
    let wanted = ["coll", "alltoall", "--bytes", "1MiB", "--cards", SLOW];
    let printed = json(&[&wanted, arguments].concat());
    (printed["predicted_us"].as_f64().unwrap(), printed["arrival_us"].as_f64().unwrap())
}

#[test]
fn plans_go_by_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("slow.json");
    let path = file.to_str().unwrap();
    let text = stdout(&["calibrate", "--cards", SLOW, "--output", path]);
    assert!(text.contains("link_mbps") && text.contains("mock cards") && text.contains(path), "{text}");

    let printed = json(&["calibrate", "--cards", SLOW, "--output", path]);
    let written = crate::parsed(std::fs::read(&file).unwrap());
    assert_eq!(printed, written);
    assert_eq!(written["schema"], "fpgactl.calibration/1");
    let of = |name: &str| {
        let all = written["parameters"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["measured"].as_f64().unwrap()
    };
    assert!((of("link_mbps") / 20_000.0 - 1.0).abs() < 0.01);

    // By what the cards say a block takes less than half of what it does.
    let (predicted, counted) = predicted_and_counted(&[]);
    assert!(predicted < 0.5 * counted, "{predicted} and {counted}");
    let (predicted, counted) = predicted_and_counted(&["--calibration", path]);
    assert!((predicted / counted - 1.0).abs() < 0.02, "{predicted} and {counted}");
    let plan = ["plan", "alltoall", "--bytes", "1MiB", "--json", "--cards", SLOW];
    let by_variable = command(&plan).env("FPGACTL_CALIBRATION", path).output().unwrap();
    let by_variable = crate::parsed(&by_variable.stdout);
    assert_eq!(by_variable["predicted"]["arrival_us"].as_f64(), Some(predicted));
}

/// The blocks that a late card finds in its receive buffer have come over slow links too.
#[test]
fn slow_links_hide_nothing_of_the_cards() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("slow.json");
    for slow in [1, 3] {
        let cards = format!("mock:optweb:4+slow={slow}");
        let written = json(&["calibrate", "--cards", &cards, "--output", file.to_str().unwrap()]);
        let all = written["parameters"].as_array().unwrap();
        let measured = |name: &str| all.iter().find(|one| one["name"] == name).unwrap()["measured"].clone();
        assert_eq!((measured("link_mbps"), measured("switch_cycles")), ((slow * 1000).into(), 10.into()), "{cards}");
        assert_eq!(measured("reduce_unit_cycles"), 8, "{cards}");
        let beats = written["not_measured"].as_array().unwrap().iter().find(|one| one["name"] == "reduce_beat_cycles");
        assert!(beats.unwrap()["why"].as_str().unwrap().contains("as fast as the pseudo channel"), "{cards}");
    }
}

/// Links of 100 Gb/s behind pseudo channels of 51.2 Gb/s; the cards state 45.
#[test]
fn links_that_are_faster_than_the_pseudo_channels_are_not_taken_for_slower() {
    const FAST: &str = "mock:optweb:2+slow=100";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fast.json");
    let path = file.to_str().unwrap();
    let written = json(&["calibrate", "--cards", FAST, "--output", path]);
    let all = written["parameters"].as_array().unwrap();
    let measured = |name: &str| all.iter().find(|one| one["name"] == name).unwrap()["measured"].clone();
    assert_eq!(measured("link_mbps"), measured("channel_mbps"));
    let printed = json(&["coll", "send", "--peer", "1", "--bytes", "1MiB", "--cards", FAST, "--calibration", path]);
    let [bound, predicted, counted] =
        ["bound_us", "predicted_us", "arrival_us"].map(|name| printed[name].as_f64().unwrap());
    assert!(bound <= counted && (predicted / counted - 1.0).abs() < 0.02, "{bound}, {predicted}, {counted}");
}

/// The links are faster than the cards state, so a plan is faster than the bound of what they state.
#[test]
fn the_bound_is_that_of_the_measured_rates() {
    const FAST: &str = "mock:optweb:4+slow=46";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fast.json");
    let path = file.to_str().unwrap();
    stdout(&["calibrate", "--cards", FAST, "--output", path]);
    let planned = |more: &[&str]| {
        let plan = ["plan", "alltoall", "--bytes", "4KiB", "--cards", FAST];
        let printed = json(&[&plan[..], more].concat());
        (printed["predicted"]["arrival_us"].as_f64().unwrap(), printed["bound_us"].as_f64().unwrap())
    };
    let (predicted, bound) = planned(&["--calibration", path]);
    assert!(bound <= predicted && bound < planned(&[]).1, "{bound} and {predicted}");
    let sizes = ["-b", "4KiB", "-e", "4KiB", "--cards", FAST, "--calibration", path, "--json"];
    let row = crate::parsed(stdout(&[&["bench", "coll", "alltoall"], &sizes[..]].concat()));
    let coll = json(&["coll", "alltoall", "--bytes", "4KiB", "--cards", FAST, "--calibration", path]);
    assert_eq!((row["bound_us"].as_f64(), coll["bound_us"].as_f64()), (Some(bound), Some(bound)));
}

#[test]
fn files_that_do_not_fit_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (good, torn, gone) = (path("good"), path("torn"), path("gone"));
    stdout(&["calibrate", "--cards", "mock:optweb:2", "--output", &good]);
    let text = std::fs::read_to_string(&good).unwrap();
    std::fs::write(&torn, &text[..text.len() / 2]).unwrap();
    for (file, cards, exit, reason) in [
        (&good, "mock:optweb:3", 7, "nodes is 2 there, 3 here"),
        (&good, "mock:optweb:2x2", 7, "another fabric"),
        (&torn, "mock:optweb:2", 7, "invalid calibration"),
        (&gone, "mock:optweb:2", 4, "No such file"),
    ] {
        let output = run(&["plan", "send", "--cards", cards, "--calibration", file]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{text}");
        assert!(text.contains(reason) && text.contains(file), "{text}");
    }
    let nowhere = run(&["calibrate", "--cards", "mock:optweb:2", "--output", "/nowhere/file"]);
    assert_eq!(nowhere.status.code(), Some(4));
}
