//! `bench coll`: sizes, groups and algorithms in one process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::printed::are_as_expected;
use crate::served::Served;
use crate::{command, json, run, stdout};

/// The objects of NDJSON.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(crate::parsed).collect()
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    lines(&stdout(&[&["bench", "coll"], arguments, &["--json"]].concat()))
}

/// Replaces the host's times, which differ from run to run: the sixth number of a line of the table.
fn without_host_times(text: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.get(8) {
            Some(host) if words.len() == 12 && host.parse::<f64>().is_ok() => line.replacen(*host, "(host)", 1),
            _ => line.to_owned(),
        }
    };
    text.lines().map(|one| line(one).split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn the_table_is_as_expected() {
    let arguments = ["bench", "coll", "allreduce", "--op", "sum", "-b", "8", "-e", "32K", "-f", "16", "-g", "2,4"];
    let barrier = ["bench", "coll", "barrier", "-g", "2,3", "--repeat", "4"];
    let all = ["bench", "coll", "broadcast", "-b", "1KiB", "-e", "1KiB", "--algorithm", "all"];
    are_as_expected(
        [("bench-coll", &arguments[..]), ("bench-coll-barrier", &barrier), ("bench-coll-all", &all)]
            .into_iter()
            .map(|(name, arguments)| (name, without_host_times(&stdout(arguments)))),
    );
}

/// A barrier moves no data: its bandwidths are null, as its schema says.
#[test]
fn a_barrier_has_no_bandwidth() {
    for row in rows(&["barrier", "-g", "2,4"]) {
        for key in ["algbw_gbps", "busbw_gbps", "bound_busbw_gbps"] {
            assert_eq!(row.get(key), Some(&Value::Null), "{row}");
        }
    }
}

/// Each line is what `coll` measures with the same data.
#[test]
fn a_line_is_what_the_single_command_measures() {
    for row in rows(&["allgather", "-b", "64", "-e", "64K", "-f", "32", "--repeat", "3", "--seed", "5"]) {
        assert_eq!(row["schema"], "fpgactl.bench-coll/1");
        let (bytes, seed) = (row["bytes"].to_string(), row["seed"].to_string());
        let coll = json(&["coll", "allgather", "--bytes", &bytes, "--seed", &seed, "--repeat", "3"]);
        for (ours, theirs) in [
            ("p50_us", "arrival_us"),
            ("p99_us", "arrival_us"),
            ("predicted_us", "predicted_us"),
            ("bound_us", "bound_us"),
            ("algorithm", "algorithm"),
            ("ranks", "ranks"),
            ("mock", "mock"),
        ] {
            assert_eq!(row[ours], coll[theirs], "{ours} of {bytes} bytes");
        }
        assert!(row["host_us"].as_f64().unwrap() > 0.0);
        assert_eq!((&row["wrong_bytes"], &row["refused"]), (&0.into(), &Value::Null));
    }
}

/// PERFORMANCE.md of nccl-tests: S over t, times a factor of the operation.
#[test]
fn bandwidths_are_those_of_nccl_tests() {
    for (op, blocks, factor) in [
        ("allreduce", 1.0, 1.5),
        ("reduce", 1.0, 1.0),
        ("broadcast", 1.0, 1.0),
        ("sendrecv", 1.0, 1.0),
        ("reduce_scatter", 4.0, 0.75),
        ("allgather", 4.0, 0.75),
        ("alltoall", 4.0, 0.75),
        ("scatter", 4.0, 0.75),
        ("gather", 4.0, 0.75),
        ("alltoallv", 4.0, 0.75),
    ] {
        let reduction: &[&str] = if op.contains("reduce") { &["--op", "max"] } else { &[] };
        let rows = rows(&[&[op, "-b", "4K", "-e", "16K", "-f", "4"], reduction].concat());
        assert_eq!(rows.len(), 2);
        for row in rows {
            let number = |key: &str| row[key].as_f64().unwrap();
            let expected = number("bytes") * blocks * 8e-3 / number("p50_us");
            assert!((number("algbw_gbps") - expected).abs() < 1e-5, "{row}");
            assert!((number("busbw_gbps") - expected * factor).abs() < 1e-5, "{row}");
            assert!(
                number("bound_us") <= number("p50_us") && number("bound_busbw_gbps") >= number("busbw_gbps"),
                "{row}"
            );
        }
    }
}

#[test]
fn every_measurement_is_in_every_file() {
    let directory = tempfile::tempdir().unwrap();
    let [csv, svg] = ["sweep.csv", "sweep.svg"].map(|name| directory.path().join(name).display().to_string());
    let arguments = ["scatter", "-e", "4K", "-f", "8", "-g", "2,4", "--algorithm", "all", "--csv", &csv, "--svg", &svg];
    let rows = rows(&arguments);
    let csv = std::fs::read_to_string(csv).unwrap();
    let (header, lines) = csv.split_once('\n').unwrap();
    let columns: Vec<&str> = header.split(',').collect();
    assert_eq!(lines.lines().count(), rows.len());
    for (line, row) in lines.lines().zip(&rows) {
        // Only the last field may have commas.
        let fields: Vec<&str> = line.splitn(columns.len(), ',').collect();
        for (column, field) in columns.iter().zip(fields) {
            let text = match &row[column] {
                Value::Null => String::new(),
                Value::String(text) if *column == "refused" => format!("\"{}\"", text.replace('"', "\"\"")),
                Value::String(text) => text.clone(),
                number => number.as_f64().unwrap().to_string(),
            };
            assert_eq!(field, text, "{column} of {line}");
        }
    }
    assert!(rows.iter().any(|row| row["refused"].is_string()) && rows.iter().any(|row| row["p50_us"].is_number()));
    let figure = std::fs::read_to_string(svg).unwrap().replace('\n', "");
    for word in ["scatter", "direct, 2 ranks", "bound, 4 ranks", "bus bandwidth, Gb/s"] {
        assert!(figure.contains(word), "{word}");
    }
}

#[test]
fn wrong_requests_have_their_exit_codes() {
    for (arguments, code, message) in [
        (&["broadcast", "-b", "64", "-e", "8"][..], 2, "expected 0 < begin <= end"),
        (&["broadcast", "-b", "0"], 2, "expected 0 < begin <= end"),
        (&["broadcast", "-f", "1"], 2, "2.."),
        (&["broadcast", "--root", "9"], 7, "root"),
        (&["broadcast", "-g", "2,8"], 7, "--groups has 8 cards: --cards mock:optweb:4 has 4"),
        (&["barrier", "-e", "64"], 2, "a barrier moves no data"),
        (&["barrier", "--svg", "x.svg"], 2, "a barrier has no sizes"),
        (&["allreduce"], 2, "--op"),
        (&["send", "--algorithm", "ring", "-e", "8"], 7, "ring"),
        (&["send", "--csv", "/nowhere/x.csv"], 4, "/nowhere"),
        (&["allreduce", "--op", "sum", "--dtype", "f32", "-b", "6", "-e", "6"], 7, "invalid size 6 B"),
    ] {
        let output = run(&[&["bench", "coll"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
}

/// A size that no card has room for is a line; the others are measured.
#[test]
fn a_refused_size_does_not_end_the_sweep() {
    let rows = rows(&["allgather", "-b", "1K", "-e", "16T", "-f", "17179869184"]);
    assert_eq!(rows.len(), 2);
    assert!(rows[0]["p50_us"].is_number() && rows[1]["refused"].is_string(), "{rows:?}");
    assert!(rows[1].get("p50_us").is_none());
}

/// As is a size that is no whole number of elements. The default sizes begin with an element.
#[test]
fn a_size_of_no_whole_elements_does_not_end_the_sweep() {
    let sum = rows(&["allreduce", "--op", "sum", "--dtype", "f32", "-b", "2", "-e", "16"]);
    assert_eq!(sum.len(), 4);
    let refused = sum[0]["refused"].as_str().unwrap();
    assert!(refused.contains("invalid size 2 B: expected a multiple of 4 B"), "{refused}");
    assert_eq!(["op", "reduction", "dtype"].map(|key| &sum[0][key]), ["allreduce", "sum", "f32"], "{}", sum[0]);
    assert_eq!((&sum[0]["ranks"], &sum[0]["bytes"], &sum[0]["algorithm"]), (&4.into(), &2.into(), &Value::Null));
    assert!(sum[1..].iter().all(|row| row["p50_us"].is_number()), "{sum:?}");
    let pairs = rows(&["allreduce", "--op", "minloc", "--dtype", "f64i32", "-e", "64"]);
    let measured = |key: &str| pairs.iter().map(|row| row[key].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!((measured("bytes"), measured("wrong_bytes")), (vec![16, 32, 64], vec![0; 3]));
}

/// With all sizes refused there is nothing to draw, and the refusal is what ends the command.
#[test]
fn a_sweep_of_refusals_is_7_with_a_figure_too() {
    let directory = tempfile::tempdir().unwrap();
    let [csv, svg] = ["sweep.csv", "sweep.svg"].map(|name| directory.path().join(name));
    let (to_csv, to_svg) = (csv.to_str().unwrap(), svg.to_str().unwrap());
    let output = run(&["bench", "coll", "allgather", "-b", "3GiB", "-e", "4GiB", "--csv", to_csv, "--svg", to_svg]);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{error}");
    assert!(error.contains("no algorithm can run this request"), "{error}");
    assert!(csv.exists() && out.contains(&format!("written: {to_csv}\n")), "{out}");
    assert!(!svg.exists() && !out.contains(to_svg), "{out}");
}

/// The card stops in a later measurement: the earlier ones are printed, and in the file.
#[test]
fn a_card_that_stops_leaves_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("sweep.csv");
    let arguments =
        ["bench", "coll", "allgather", "-e", "1M", "--timeout", "1", "--json", "--csv", csv.to_str().unwrap()];
    let output = run(&[&arguments[..], &["--cards", "mock:optweb:4+stop=1@0.0.100000"]].concat());
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = lines(std::str::from_utf8(&output.stdout).unwrap());
    assert!((1..17).contains(&rows.len()), "{rows:?}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), rows.len() + 1);
}

/// Ctrl-C: what was measured is in the files, and the cards can be used.
#[test]
fn an_interrupted_sweep_is_kept() {
    let served = Served::new(&["mock:optweb:2"]);
    let directory = tempfile::tempdir().unwrap();
    let [csv, svg] = ["sweep.csv", "sweep.svg"].map(|name| directory.path().join(name).display().to_string());
    let (selector, sweep) = (served.all(), ["bench", "coll", "broadcast", "-b", "8", "-e", "8G", "--json"]);
    let mut child = command(&[&sweep[..], &["--cards", &selector, "--csv", &csv, "--svg", &svg]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert!(Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let rows = lines(&(first + &rest));
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), rows.len() + 1);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("broadcast"));
    stdout(&["coll", "broadcast", "--bytes", "64", "--cards", &selector]);
}

/// `bench coll … | head -1` ends the sweep, which would take hours.
#[test]
fn a_reader_that_leaves_ends_the_sweep() {
    let arguments = ["bench", "coll", "broadcast", "-b", "8", "-e", "512M", "--repeat", "50", "--json"];
    let mut child = command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Planning for large fabrics takes long.
#[test]
fn a_figure_that_cannot_be_written_is_refused_before_anything_is_planned() {
    let output = run(&["bench", "planner", "--cards", "mock:optweb:65", "--svg", "/nowhere/planner.svg"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(4) && error.contains("/nowhere"), "{error}");
}
