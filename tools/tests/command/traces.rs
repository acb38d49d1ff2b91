//! `--trace`: what is in the file, and what happens when it cannot be written. `tests/run trace` opens files with Perfetto's own
//! trace processor.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use fpga_trace::packet::{DebugAnnotation, EventType, Trace, TrackEvent, whole_packets};
use prost::Message as _;
use serde_json::Value;

use crate::served::Served;
use crate::{command_with_room, json, run, stdout};

/// A span of a file.
#[derive(Debug)]
struct Span {
    track: String,
    name: String,
    begin: u64,
    end: u64,
    event: TrackEvent,
}

impl Span {
    fn number(&self, name: &str) -> Option<u64> {
        let named = |one: &&DebugAnnotation| one.name.as_deref() == Some(name);
        self.event.debug_annotations.iter().find(named)?.uint_value
    }
}

/// A file, with what holds of every file checked: all tracks exist, spans are closed and contain each other.
pub(crate) struct File {
    spans: Vec<Span>,
    /// Values by track.
    values: BTreeMap<String, Vec<i64>>,
    /// Names of moments.
    instants: Vec<String>,
}

impl File {
    pub(crate) fn open(path: impl AsRef<Path>) -> Self {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(whole_packets(&bytes), bytes.len());
        Self::of(&bytes)
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let packets = Trace::decode(bytes).unwrap().packet;
        let mut names: BTreeMap<u64, String> = BTreeMap::new();
        for track in packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()) {
            let parent = track.parent_uuid.map(|parent| names[&parent].clone() + "/").unwrap_or_default();
            let name = parent + track.name.as_deref().unwrap();
            assert!(names.insert(track.uuid.unwrap(), name).is_none(), "{track:?} is described twice");
        }
        let mut file = File { spans: Vec::new(), values: BTreeMap::new(), instants: Vec::new() };
        let mut open: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
        // Stable: as a reader sorts.
        let mut events: Vec<_> = packets.into_iter().filter(|packet| packet.track_event.is_some()).collect();
        events.sort_by_key(|packet| packet.timestamp);
        for packet in events {
            let (at, event) = (packet.timestamp.unwrap(), packet.track_event.unwrap());
            let uuid = event.track_uuid.unwrap();
            let (track, name) = (names[&uuid].clone(), event.name.clone().unwrap_or_default());
            match event.r#type() {
                EventType::SliceBegin => {
                    open.entry(uuid).or_default().push(Span { track, name, begin: at, end: at, event });
                }
                EventType::SliceEnd => {
                    let span = open.get_mut(&uuid).and_then(Vec::pop).expect("a span is open");
                    file.spans.push(Span { end: at, ..span });
                }
                EventType::Counter => file.values.entry(track).or_default().push(event.counter_value.unwrap()),
                EventType::Instant => file.instants.push(name),
                EventType::Unspecified => panic!("{event:?}"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "{open:?}");
        file
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().filter(move |span| span.name == name)
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.named(name).count()
    }
}

fn at(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_collective_is_in_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    for cards in
        ["mock:optweb:4", "mock:optweb:4+drift=99+posted=2", "mock:optweb:2x2", "mock:alveo-xdma:4", "mock:circus:2x2"]
    {
        let path = at(&folder, "trace");
        let arguments =
            ["coll", "allgather", "--bytes", "4KiB", "--algorithm", "direct", "--cards", cards, "--trace", &path];
        // Not every network has all links.
        let arguments =
            if cards.contains("2x2") { [&arguments[..4], &arguments[6..]].concat() } else { arguments.to_vec() };
        let printed = json(&arguments);
        let trace = &printed["trace"];
        assert_eq!(trace["file"], path);
        assert_eq!((&trace["dropped"], &trace["complete"]), (&Value::from(0), &Value::from(true)));
        assert_eq!(trace["bytes"], std::fs::metadata(&path).unwrap().len());
        let file = File::open(&path);
        for (name, count) in
            [("open", 1), ("plan", 1), ("prepare", 1), ("wait", 1), ("check", 1), ("copy in", 4), ("copy out", 4)]
        {
            assert_eq!(file.count(name), count, "{name} on {cards}");
        }
        // Two before each measurement, each of several instructions where cards are not linked.
        assert!(file.count("barrier") >= 8, "{cards}");
        for node in 0..4 {
            let track =
                format!("card {node} (mock:{}/{node}", cards.trim_start_matches("mock:").split('+').next().unwrap());
            assert!(file.spans.iter().any(|span| span.track.starts_with(&track)), "{track}");
        }
        let check = file.named("check").next().unwrap();
        assert!(file.named("copy out").all(|span| check.begin <= span.begin && span.end <= check.end));
        assert!(file.values.values().all(|values| values.last() == Some(&0) && values.iter().all(|value| *value >= 0)));
        let longest = file.spans.iter().filter(|span| span.track.contains("instructions"));
        assert!(longest.map(|span| span.end - span.begin).max().unwrap() > 0);
        transfers_follow_instructions(&file, cards);
    }
}

/// Each transfer lies inside the instruction that an arrow leads from.
fn transfers_follow_instructions(file: &File, cards: &str) {
    let mut from: BTreeMap<u64, &Span> = BTreeMap::new();
    for span in file.spans.iter().filter(|span| span.track.ends_with("instructions")) {
        from.extend(span.event.flow_ids.iter().map(|flow| (*flow, span)));
    }
    let transfers: Vec<&Span> = file.named("transfer").collect();
    // On a grid of two rows and two columns, each card sends along its row and along its column.
    let least = if cards.contains("2x2") { 4 * 2 } else { 4 * 3 };
    assert!(transfers.len() >= least, "{cards}: {}", transfers.len());
    for transfer in transfers {
        let [flow] = transfer.event.terminating_flow_ids.as_slice() else { panic!("{transfer:?}") };
        let instruction = from[flow];
        assert!(instruction.begin <= transfer.begin && transfer.end <= instruction.end, "{transfer:?} {instruction:?}");
        assert_eq!(instruction.number("tag"), transfer.number("tag"));
        assert!(transfer.track.contains(&format!("card {} to card", transfer.number("from").unwrap())));
    }
}

#[test]
fn programs_and_sweeps_have_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (program, path) = (at(&folder, "pair.seq"), at(&folder, "trace"));
    std::fs::write(&program, "ranks 2\nbuffer a = card size 4KiB\nbuffer b = card size 4KiB\nsendrecv peer 1 - rank, root 1 - rank, source a, destination b, bytes 4KiB\n").unwrap();
    let run = ["run", &program, "--cards", "mock:optweb:2", "--trace", &path];
    assert_eq!(json(&run)["trace"]["dropped"], 0);
    let file = File::open(&path);
    assert_eq!((file.count("sendrecv"), file.count("transfer"), file.count("plan")), (2, 2, 1));
    // A stored program is one instruction: its transfers belong to the launch.
    stdout(&[&run[..], &["--persistent", "--repeat", "3"]].concat());
    let file = File::open(&path);
    assert_eq!((file.count("launch"), file.count("transfer"), file.count("wait")), (6, 6, 3));
    let launches: usize = file.named("launch").map(|span| span.event.flow_ids.len()).sum();
    assert_eq!(launches, 6);
    let sweep = ["bench", "coll", "broadcast", "-b", "64", "-e", "4K", "-f", "8", "--json", "--trace", &path];
    let printed = stdout(&sweep);
    let last: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["schema"], &last["trace"]["file"]),
        (&"fpgactl.bench-coll-trace/1".into(), &Value::from(path.as_str()))
    );
    let file = File::open(&path);
    assert_eq!((file.count("plan"), file.count("wait"), file.count("check")), (3, 3, 3));
    let printed = stdout(&sweep.iter().copied().filter(|word| *word != "--json").collect::<Vec<_>>());
    assert!(printed.contains(&format!("\ntrace: {path}\n")), "{printed}");
}

#[test]
fn served_cards_have_clocks_of_their_own() {
    let served = Served::new(&["mock:optweb:2"]);
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "trace");
    stdout(&["coll", "allgather", "--bytes", "4KiB", "--cards", &served.all(), "--trace", &path]);
    let file = File::open(&path);
    assert_eq!((file.count("allgather"), file.count("transfer")), (2, 0));
    assert!(file.count("clock") >= 2 && file.named("clock").all(|span| span.track.starts_with("card ")));
}

#[test]
fn a_run_that_fails_leaves_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "trace");
    let cards = "mock:optweb:4+stop=2@1000";
    let run = run(&[
        "coll",
        "barrier",
        "--start-delay",
        "2000,0,0,0",
        "--cards",
        cards,
        "--timeout",
        "0.5",
        "--trace",
        &path,
    ]);
    assert_eq!(run.status.code(), Some(5));
    let file = File::open(&path);
    assert_eq!((file.count("wait"), file.count("check")), (1, 0));
}

#[test]
fn a_path_that_cannot_be_written_is_refused_before_any_launch() {
    let folder = tempfile::tempdir().unwrap();
    let input = at(&folder, "in.npy");
    stdout(&["coll", "scatter", "--bytes", "64", "--output", &input]);
    let input = at(&folder, "in-1.npy");
    let coll = ["coll", "broadcast", "--input", &input, "--dtype", "u8", "--trace"];
    for (path, code, expected) in [
        (input.as_str(), 7, "is also an input"),
        (at(&folder, "none/trace").as_str(), 4, "No such file"),
        (folder.path().to_str().unwrap(), 7, "is a directory"),
    ] {
        for more in [&coll[..], &["bench", "coll", "barrier", "--trace"]] {
            if code == 7 && more[0] == "bench" && path == input {
                continue;
            }
            let output = run(&[more, &[path]].concat());
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{more:?} {path}: {error}");
            assert!(error.contains(expected) && output.stdout.is_empty(), "{more:?} {path}: {error}");
        }
    }
    let twice = run(&[
        "coll",
        "broadcast",
        "--bytes",
        "64",
        "--output",
        &at(&folder, "x-0.npy"),
        "--trace",
        &at(&folder, "x-0.npy"),
    ]);
    assert!(matches!(twice.status.code(), Some(0 | 7)));
}

/// Checks that the collective's result was printed, and that the loss of the trace was said.
fn result_stands(output: &Output, path: &str) {
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{error}");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&printed["verified"], &printed["trace"]["complete"]), (&true.into(), &false.into()));
    assert!(error.contains(path) && error.contains("trace not written") && error.contains("results stand"), "{error}");
}

#[test]
fn a_full_disk_loses_the_trace_and_not_the_result() {
    let coll = ["coll", "allgather", "--bytes", "64KiB", "--json", "--trace"];
    result_stands(&run(&[&coll[..], &["/dev/full"]].concat()), "/dev/full");
    // A file that must not exceed 2 MiB, as on a disk that fills; memory that cards access has room in that.
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "trace");
    let coll = ["coll", "barrier", "--repeat", "5000", "--timeout", "60", "--json", "--trace", &path];
    result_stands(&command_with_room(2048, &coll).output().unwrap(), &path);
    let bytes = std::fs::read(&path).unwrap();
    assert!((1 << 20..=2 << 20).contains(&bytes.len()), "{}", bytes.len());
    assert_eq!(whole_packets(&bytes), bytes.len(), "no packet is cut");
    assert!(Trace::decode(&*bytes).unwrap().packet.len() > 20);
}

/// A command that fails prints no result, which would say that the trace is not whole.
#[test]
fn a_failure_says_that_its_trace_is_lost_too() {
    let cards = "mock:optweb:4+cut=0-1@3";
    let coll = ["coll", "allreduce", "--op", "sum", "--dtype", "f32"];
    let bench = ["bench", "coll", "allreduce", "--op", "sum", "--dtype", "f32"];
    for arguments in [&coll[..], &bench] {
        let arguments = [arguments, &["--cards", cards, "--trace"]].concat();
        let output = run(&[&arguments[..], &["/dev/full", "--json"]].concat());
        assert_eq!(output.status.code(), Some(6), "{output:?}");
        let message = crate::parsed(&output.stderr)["message"].as_str().unwrap().to_owned();
        assert!(message.contains("link") && message.contains("/dev/full: trace not written: "), "{message}");
        let output = run(&[&arguments[..], &["/dev/null"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(6) && !error.contains("trace"), "{error}");
    }
}

/// What it prints may be read by nobody.
#[test]
fn a_failure_after_the_results_says_that_its_trace_is_lost_too() {
    let sum = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/seq/sum.seq");
    let stopped = ["run", sum, "--cards", "mock:optweb:4+stop=0@10", "--timeout", "1"];
    for (arguments, code) in [
        (&["bench", "coll", "alltoall", "-b", "64GiB", "-e", "64GiB", "--cards", "mock:optweb:2"][..], 7),
        (&stopped, 5),
        (&[&stopped[..], &["--persistent"]].concat(), 5),
        (&["run", sum, "--cards", "mock:optweb:4", "--dump", "output@0=/dev/full"], 1),
    ] {
        let output = run(&[arguments, &["--trace", "/dev/full"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains("; /dev/full: trace not written: "), "{arguments:?}: {error}");
    }
}

#[test]
fn more_records_than_room_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "trace");
    let printed = json(&["coll", "barrier", "--repeat", "70000", "--timeout", "600", "--trace", &path]);
    // 70002 barriers on each of four cards, and doorbells.
    let dropped = printed["trace"]["dropped"].as_u64().unwrap();
    assert!(dropped >= 4 * (70_002 - 65_536), "{dropped}");
    let file = File::open(&path);
    assert_eq!(file.count("barrier"), 4 * 65_536);
    let depths = file.values.values();
    assert!(depths.clone().count() == 4 && depths.clone().all(|values| values.last() == Some(&0)));
    assert!(depths.flatten().all(|depth| (0..=1024).contains(depth)), "more than the queue has entries");
    assert!(file.instants.iter().filter(|name| name.starts_with("instructions dropped")).count() == 4);
}
