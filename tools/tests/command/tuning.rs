//! Choosing a configuration of the wormhole router: traces, figures, and what is refused.

use std::fs;

use crate::{command_with_room, json, run};

/// Two nodes that send to each other through one that sends too.
const TRACE: &str = "torus 8x1x1\n0 0 2 16\n0 1 2 16\n5 2 0 16 # back\n";

#[test]
fn a_trace_is_run_by_all_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let [trace, figure] = ["halo.trace", "halo.svg"].map(|name| directory.path().join(name));
    let [trace, figure] = [trace.to_str().unwrap(), figure.to_str().unwrap()];
    fs::write(trace, TRACE).unwrap();
    let tuned = json(&["tune", trace, "--metric", "mean", "--svg", figure]);
    assert_eq!((&tuned["traffic"], &tuned["torus"], &tuned["packets"]), (&trace.into(), &[8, 1, 1].into(), &3.into()));
    let rows = tuned["configurations"].as_array().unwrap();
    assert_eq!(rows.len(), 15);
    let mean = |row: &serde_json::Value| row["latency_mean_cycles"].as_f64().unwrap();
    let best = rows.iter().find(|row| row["configuration"] == tuned["best"]).unwrap();
    assert!(rows.iter().all(|row| mean(best) <= mean(row)), "{tuned}");
    // Shortest routes: 2, 1 and 2 links of 16 flits.
    assert!(rows.iter().all(|row| row["flit_hops"].as_u64() >= Some(80)), "{tuned}");
    assert_eq!(rows[0]["flit_hops"], 80);
    let drawn = fs::read_to_string(figure).unwrap();
    assert!(drawn.contains("mean latency of a packet") && drawn.contains("o1turn"), "{drawn}");
    assert_eq!(json(&["tune", trace, "--metric", "mean"])["configurations"], tuned["configurations"]);
}

/// As in the table: the area is that of the channels in use and of the classes.
#[test]
fn the_best_area_is_the_smallest_of_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let figure = directory.path().join("area.svg");
    let figure = figure.to_str().unwrap();
    let tuned = json(&["tune", "diagonals", "--packets", "1", "--metric", "area", "--svg", figure]);
    let rows = tuned["configurations"].as_array().unwrap();
    let areas: Vec<f64> = rows.iter().map(|row| row["alms"].as_f64().unwrap()).collect();
    let (least, mean) = (areas.iter().copied().fold(f64::MAX, f64::min), areas.iter().sum::<f64>() / 15.0);
    let first = areas.iter().position(|area| *area == least).unwrap();
    assert_eq!(tuned["best"], rows[first]["configuration"], "{tuned}");
    let is_near = |key: &str, value: f64| (tuned[key].as_f64().unwrap() / value - 1.0).abs() < 1e-3;
    assert!(is_near("mean", mean) && is_near("difference_percent", 100.0 * (mean - least) / mean), "{tuned}");
    assert!(fs::read_to_string(figure).unwrap().contains("area of a router"));
}

/// First cycles up to the last one that a trace can have: the time before them is no time of the run.
#[test]
fn a_trace_can_begin_late() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("late.trace");
    let tune = |first: &str| {
        fs::write(&trace, format!("torus 4x1x1\n{first} 0 1 8\n")).unwrap();
        json(&["tune", trace.to_str().unwrap()])["configurations"][0]["batch_cycles"].as_u64().unwrap()
    };
    // One packet over one link: 31 cycles and 8 flits, whatever the turn of the credit flits.
    for first in ["0", "1000000000", "1000000000000"] {
        assert!((30..=50).contains(&tune(first)), "{first}: {}", tune(first));
    }
}

/// A disk that fills: the figure before is kept.
#[test]
fn a_figure_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let figure = directory.path().join("halo.svg");
    fs::write(&figure, "before").unwrap();
    let tune = ["tune", "neighbours", "--shape", "2x2x2", "--packets", "1", "--svg", figure.to_str().unwrap()];
    let output = command_with_room(4, &tune).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("halo.svg"), "{error}");
    assert_eq!(fs::read_to_string(&figure).unwrap(), "before");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a file is left");
}

#[test]
fn what_a_network_cannot_carry_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("wrong.trace");
    let path = trace.to_str().unwrap();
    let fails = |arguments: &[&str], code: i32, message: &str| {
        let output = run(&[&["tune"], arguments].concat());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(message), "{printed}");
    };
    for (line, message) in [
        ("0 0 8 1", "wrong.trace:2: no node 8 (available: 0 to 7)"),
        ("0 0 1", "wrong.trace:2: expected four numbers, CYCLE FROM TO FLITS"),
        ("0 0 1 500", "a packet of 500 flits does not fit a buffer (at most 450)"),
    ] {
        fs::write(&trace, format!("torus 8x1x1\n{line}\n")).unwrap();
        fails(&[path], 7, message);
    }
    fails(&[path, "--load", "2"], 2, "--load has no effect: the trace ");
    fails(&[path, "--svg", path], 7, "is also an input");
    fails(&["tornadoes"], 2, "no pattern and no file \"tornadoes\" (patterns: neighbours, diagonals,");
    fails(&["transpose", "--shape", "4x4x2"], 7, "transpose needs sides of equal length");
    fails(&["cube", "--shape", "17x1x1"], 7, "invalid torus: 17 x 1 x 1");
    fails(
        &["all-to-all", "--shape", "8x8x8", "--packets", "39"],
        7,
        "all-to-all sends 10203648 packets on a torus of 8 x 8 x 8 (expected at most 10000000; use a smaller --shape, or \
         --packets up to 38)",
    );
    fails(
        &["all-to-all", "--shape", "16x16x16", "--packets", "1"],
        7,
        "sends 16773120 packets on a torus of 16 x 16 x 16 (expected at most 10000000; use a smaller --shape)",
    );
    fails(&["neighbours", "--shape", "16x16x16", "--packets", "100000"], 7, "sends 2457600000 packets");
    fails(&["transpose", "--shape", "16x16x8", "--packets", "100000"], 7, "transpose needs sides of equal length");
    fails(&["cube", "--channels", "3"], 2, "3");
    fails(&["cube", "--cards", "mock:optweb:4"], 2, "--cards has no effect");
}
