//! `fpgactl selftest`: what it finds on mock cards, and what it says of a card that fails.

use crate::served::Served;
use crate::{json, run, stdout};

/// What is tested of an Alveo card: the engine, and the sequencer behind it.
const ALVEO: [&str; 9] = [
    "function",
    "xdma, poll mode",
    "xdma, interrupts",
    "xdma, rates",
    "readings",
    "sequencer",
    "instructions",
    "card memory",
    "errors",
];

fn ids(printed: &serde_json::Value) -> Vec<&str> {
    printed["checks"].as_array().unwrap().iter().map(|check| check["id"].as_str().unwrap()).collect()
}

#[test]
fn each_part_of_a_card_is_tested() {
    let engine = json(&["selftest", "mock:alveo-xdma:1/0"]);
    assert_eq!(engine["schema"], "fpgactl.selftest/1");
    assert_eq!((engine["kind"].as_str(), engine["mock"].as_bool()), (Some("mock"), Some(true)));
    assert_eq!(ids(&engine), ALVEO[..5]);
    let behind_engine = json(&["selftest", "mock:alveo-xdma:2/1"]);
    assert_eq!(ids(&behind_engine), ALVEO);
    let sequencer = json(&["selftest", "mock:s10-dfl:4/3"]);
    assert_eq!(ids(&sequencer), ["function", "readings", "sequencer", "instructions", "card memory", "errors"]);
    for printed in [engine, behind_engine, sequencer] {
        for check in printed["checks"].as_array().unwrap() {
            assert!(check["ok"] == true && check["ms"].is_number(), "{check}");
        }
    }
    let control = json(&["selftest", "mock:s10-dfl:4/3.control"]);
    assert_eq!(ids(&control), ["function", "control function", "accelerator reset", "control errors", "readings"]);
    assert!(control["checks"].as_array().unwrap().iter().all(|check| check["ok"] == true), "{control}");
    let both = json(&["selftest", "mock:s10-pac:2/1"]);
    let of_control = ["function", "control function", "accelerator reset", "control errors"];
    let of_engine = ["msgdma, poll mode", "msgdma, interrupts", "msgdma, rates", "readings"];
    let of_card = ["sequencer", "instructions", "card memory", "errors"];
    assert_eq!(ids(&both), [&of_control[..], &of_engine, &of_card].concat());
    assert!(both["checks"].as_array().unwrap().iter().all(|check| check["ok"] == true), "{both}");
    let exerciser = json(&["selftest", "mock:s10-dfl:4/3.he-lb"]);
    assert_eq!(ids(&exerciser), ["function", "readings", "host exerciser"]);
    assert!(exerciser["checks"].as_array().unwrap().iter().all(|check| check["ok"] == true), "{exerciser}");
    let text = stdout(&["selftest", "mock:alveo-xdma:1"]);
    assert!(
        text.starts_with("function          ok  10ee:903f (AMD UltraScale+ shell, 8 GT/s x16), BAR0 1 MiB"),
        "{text}"
    );
    assert!(text.ends_with("note: a mock card; rates are of this machine's memory, not of hardware\n"), "{text}");
}

#[test]
fn cards_on_sockets_are_tested_alike() {
    let served = Served::new(&["mock:alveo-xdma:2"]);
    let printed = json(&["selftest", &served.card(1)]);
    assert_eq!((printed["kind"].as_str(), printed["mock"].as_bool()), (Some("vfio-user"), Some(true)));
    assert_eq!(ids(&printed), ALVEO);
    let served = Served::new(&["mock:s10-dfl:2"]);
    assert_eq!(
        ids(&json(&["selftest", &served.card(0)])),
        ["function", "readings", "sequencer", "instructions", "card memory", "errors"]
    );
    let control = json(&["selftest", &served.control(0)]);
    assert_eq!(ids(&control), ["function", "control function", "accelerator reset", "control errors", "readings"]);
}

#[test]
fn a_card_that_fails_is_told_with_the_reason() {
    let output = run(&["selftest", "mock:optweb:2/0+flip=0@64"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("FAILED")).unwrap();
    assert!(line.starts_with("card memory") && line.contains("cannot be corrected"), "{line}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "fpgactl: 1 check failed\n");
}

#[test]
fn selectors_of_other_cards_are_refused() {
    for (card, code, why) in [
        ("mock:optweb:2", 2, "selects 2 cards: select one"),
        ("mock:alveo-xdma:2/2", 4, "no card 2 (available: 0 to 1)"),
        ("mock:alveo-xdma:0", 4, "invalid number of cards: 0"),
        ("mock:alveo-xdma:two", 2, "expected a number of cards"),
        ("mock:alveo-xdma:2/0.control", 2, "no function .control"),
        ("mock:alveo-xdma:2/0+poisoned=0@1", 2, "+poisoned has no effect on these cards"),
        ("mock:s10-dfl:4@circus/9", 4, "no card 9"),
    ] {
        let output = run(&["selftest", card]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{card}: {error}");
        assert!(error.contains(why), "{card}: {error}");
    }
}

#[test]
fn a_card_without_a_sequencer_is_told_as_such() {
    let card = "mock:alveo-xdma:1";
    let output = run(&["coll", "barrier", "--cards", card]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("has no command sequencer"), "{error}");
    // Its sensors are shown all the same.
    let text = stdout(&["info", "--cards", card]);
    assert!(text.starts_with("mock:alveo-xdma:1: no command sequencer\n"), "{text}");
    assert!(text.contains("cms   fpga_temperature    44 C      48 C      44 C\n"), "{text}");
    let info = json(&["info", "--cards", card]);
    assert_eq!(info["schema"], "fpgactl.info-readings/1");
    assert_eq!(info["readings"]["board"][0]["value"], "MOCK00000001");
    let rows = info["readings"]["rows"].as_array().unwrap();
    let fan = rows.iter().find(|row| row["name"] == "fan_speed").unwrap();
    assert_eq!(
        (fan["value"].as_u64(), fan["unit"].as_str(), fan["state"].as_str()),
        (Some(1180), Some("rpm"), Some("good"))
    );
    let dimm = rows.iter().find(|row| row["name"] == "dimm_0_temperature").unwrap();
    assert_eq!((&dimm["value"], dimm["state"].as_str()), (&serde_json::Value::Null, Some("absent")));
    let doctor = run(&["doctor", card]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8(doctor.stdout).unwrap().contains("no command sequencer"));
}

#[test]
fn every_operation_runs_behind_the_shell_of_a_stratix_card() {
    run_every_operation(&Served::new(&["mock:s10-dfl:4"]).all());
}

#[test]
fn every_operation_runs_behind_the_engine_of_an_alveo_card() {
    for cards in ["mock:alveo-xdma:4", "mock:alveo-xdma:4+bypass", "mock:alveo-xdma:4+bar4"] {
        run_every_operation(cards);
        run_every_operation(&Served::new(&[cards]).all());
    }
}

#[test]
fn every_operation_runs_behind_the_shell_that_a_stratix_card_is_sold_with() {
    run_every_operation("mock:s10-pac:4");
    run_every_operation(&Served::new(&["mock:s10-pac:4"]).all());
}

/// A sequencer that masters the bus through the engine does what one on the bus does.
#[test]
fn descriptor_bypass_is_named_and_reaches_host_memory() {
    let info = json(&["info", "--cards", "mock:alveo-xdma:2+bypass"]);
    assert_eq!((info["feed"].as_str(), info["capabilities"]["host_memory"].as_bool()), (Some("host ring"), Some(true)));
    assert_eq!((info["bypass"]["h2c"].as_u64(), info["bypass"]["c2h"].as_u64()), (Some(1), Some(1)));
    let text = stdout(&["info", "--cards", "mock:alveo-xdma:2/1+bypass"]);
    assert!(text.contains("through H2C channel 1 and C2H channel 1 of its DMA engine"), "{text}");
    assert!(json(&["info", "--cards", "mock:optweb:2"])["bypass"].is_null());
    let printed = json(&["selftest", "mock:alveo-xdma:2/1+bypass"]);
    assert_eq!(ids(&printed), ALVEO);
    for (cards, why) in [
        ("mock:optweb:2+bypass", "+bypass has no effect on these cards"),
        ("mock:s10-dfl:2+bar4", "+bar4 has no effect on these cards"),
        ("mock:alveo-xdma:2+bar4+bypass", "exclude each other"),
        ("mock:alveo-xdma:2+reset=3+bypass", "+reset has no effect on these cards"),
        ("mock:alveo-xdma:2/0+bypass,mock:alveo-xdma:2/1", "expected mock cards of one fabric"),
    ] {
        let output = run(&["coll", "barrier", "--cards", cards]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(why), "{error}");
    }
    for option in ["split=3", "late=20", "drift=50", "posted=3"] {
        let cards = format!("mock:alveo-xdma:4+{option}+bypass");
        stdout(&["coll", "allgather", "--bytes", "100KiB", "--cards", &cards]);
    }
    let output = run(&["coll", "barrier", "--cards", "mock:alveo-xdma:2+bypass+unanswered=0@0"]);
    assert!(matches!(output.status.code(), Some(1 | 5 | 6)), "{output:?}");
}

#[test]
fn info_shows_a_host_exerciser_alone() {
    let card = "mock:s10-dfl:2/1.he-lb";
    let info = json(&["info", "--cards", card]);
    assert_eq!(info["schema"], "fpgactl.info-readings/1");
    let rows = info["readings"]["rows"].as_array().unwrap();
    let errors = rows.iter().find(|row| row["part"] == "he-lb").unwrap();
    assert_eq!((errors["name"].as_str(), errors["value"].as_u64()), (Some("errors"), Some(0)));
    let text = stdout(&["info", "--cards", card]);
    assert!(text.starts_with(&format!("{card}: no command sequencer\n")), "{text}");
    assert!(text.contains("host exerciser  HE-LB, version 1 of its registers, clock 250 MHz"), "{text}");
}

/// What a sequencer that reaches no host memory cannot do is refused by name, before anything is launched.
#[test]
fn what_needs_host_memory_is_refused_on_an_alveo_card() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("host.seq");
    std::fs::write(&program, "ranks 2\nbuffer there = host size 64\ncopy source there, destination 0, bytes 64\n")
        .unwrap();
    let program = program.to_str().unwrap();
    for (arguments, why) in [
        (&["pipe", "--cards", "mock:alveo-xdma:2"] as &[&str], "its sequencer does not reach host memory"),
        (&["run", program, "--cards", "mock:alveo-xdma:2"], "reaches no host memory"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{error}");
        assert!(error.contains(why), "{error}");
    }
    let info = json(&["info", "--cards", "mock:alveo-xdma:2"]);
    assert_eq!(
        (info["feed"].as_str(), info["capabilities"]["host_memory"].as_bool()),
        (Some("card ring"), Some(false))
    );
}

/// Behind the shell of a real card every operation takes as many cycles as on the mock's own cards in process.
fn run_every_operation(cards: &str) {
    for operation in crate::OPERATIONS {
        let options: &[&str] = match operation {
            "barrier" => &[],
            "scatterv" | "gatherv" | "allgatherv" => &["--counts", "64,0,4KiB,7"],
            "alltoallv" => &["--counts", "1KiB,0,64,7"],
            "reduce" | "allreduce" | "reduce_scatter" | "scan" | "exscan" => {
                &["--bytes", "4KiB", "--op", "sum", "--dtype", "i32"]
            }
            _ => &["--bytes", "64KiB"],
        };
        let run = |cards: &str| json(&[&["coll", operation][..], options, &["--cards", cards]].concat());
        let (shell, own) = (run(cards), run("mock:optweb:4"));
        assert_eq!(shell["verified"], own["verified"], "{operation}");
        for time in ["t1_us", "t2_us"] {
            assert!(shell[time].is_number() && shell[time] == own[time], "{operation}: {shell} {own}");
        }
    }
}
