//! `coll` by several processes, each with a card of its own, that meet over a socket.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::served::Served;
use crate::traces::File;
use crate::{command, json, run};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Processes that meet at a socket in a directory of their own.
struct Job {
    directory: TempDir,
    of: u32,
}

impl Job {
    fn new(of: u32) -> Self {
        Job { directory: tempfile::tempdir().unwrap(), of }
    }

    fn start(&self, rank: u32, arguments: &[&str]) -> Child {
        self.command(rank, arguments).spawn().unwrap()
    }

    fn command(&self, rank: u32, arguments: &[&str]) -> Command {
        let meet = format!("unix:{}", self.directory.path().join("meet").display());
        let (rank, of) = (rank.to_string(), self.of.to_string());
        let mut command = command(&["coll"]);
        command.args(arguments).args(["--rank", &rank, "--of", &of, "--meet", &meet]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs all ranks with arguments of their own.
    fn run(&self, arguments: impl Fn(u32) -> Vec<String>) -> Vec<Output> {
        let start = |rank| {
            let arguments = arguments(rank);
            self.start(rank, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let ranks: Vec<Child> = (0..self.of).map(start).collect();
        ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
    }
}

fn words(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|word| (*word).to_owned()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Checks that all ranks have failed with this exit code and this one line, and printed nothing else.
fn refused(outputs: &[Output], code: i32, expected: &str) {
    for (rank, output) in outputs.iter().enumerate() {
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "rank {rank}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "rank {rank}: {error}");
        assert!(output.stdout.is_empty(), "rank {rank}: {}", text(&output.stdout));
    }
}

fn options(operation: &str) -> Vec<&'static str> {
    match operation {
        "reduce" | "allreduce" | "reduce_scatter" | "scan" | "exscan" => {
            vec!["--bytes", "4KiB", "--op", "sum", "--dtype", "f32"]
        }
        "barrier" => Vec::new(),
        _ => vec!["--bytes", "4KiB"],
    }
}

#[test]
fn every_operation_is_bit_for_bit_and_takes_the_same_time() {
    for of in [2, 4, 8] {
        let served = Served::new(&[&format!("mock:optweb:{of}")]);
        let cards = served.all();
        for operation in crate::OPERATIONS {
            let options = options(operation);
            let arguments = [&[operation, "--cards", &cards, "--timeout", "60"], &*options].concat();
            let expected = json(&[&["coll"], &*arguments].concat());
            let job = Job::new(of);
            let outputs = job.run(|_| words(&[&*arguments, &["--json"]].concat()));
            for (rank, output) in outputs.iter().enumerate() {
                assert!(output.status.success(), "{operation} by {of}, rank {rank}: {}", text(&output.stderr));
                assert!(rank == 0 || output.stdout.is_empty(), "rank {rank}: {}", text(&output.stdout));
            }
            let found = crate::parsed(&outputs[0].stdout);
            assert_eq!(found, expected, "{operation} by {of}");
            assert_eq!(found["verified"], true);
        }
    }
}

#[test]
fn ranks_that_differ_are_named_and_nothing_runs() {
    let served = Served::new(&["mock:optweb:4"]);
    let other = Served::new(&["mock:optweb:4"]);
    let with = |rank: u32, odd: u32, usual: &[&str], strange: &[&str]| -> Vec<String> {
        words(&[&["--timeout", "30"][..], if rank == odd { strange } else { usual }].concat())
    };
    let cards = served.all();
    let gather = ["allgather", "--bytes", "4KiB", "--cards", &cards];
    let odd = |strange: &[&str], odd: u32| Job::new(4).run(|rank| with(rank, odd, &gather, strange));
    let bytes = odd(&["allgather", "--bytes", "8KiB", "--cards", &cards], 2);
    refused(&bytes, 7, "Rank 2: its --bytes is 8192, and that of rank 0 is 4096");
    let operation = odd(&["broadcast", "--bytes", "4KiB", "--cards", &cards], 0);
    refused(&operation, 7, "Rank 0: its operation is broadcast, and that of rank 1 is allgather");
    let same_card = odd(&["allgather", "--bytes", "4KiB", "--cards", &served.card(1)], 3);
    refused(&same_card, 7, "/1.sock is that of rank 1: each rank needs a card of its own");
    let fabric = odd(&["allgather", "--bytes", "4KiB", "--cards", &other.card(1)], 1);
    refused(
        &fabric,
        7,
        "(node 1) is of another fabric than those of ranks 0, 2, 3, or not linked to them: nothing sent between them arrives",
    );
    let node = odd(&["allgather", "--bytes", "4KiB", "--cards", &other.card(1)], 2);
    refused(&node, 7, "is node 1, and so is");
    let missing = odd(&["allgather", "--bytes", "4KiB", "--cards", "vfio-user:/nowhere/0.sock"], 2);
    refused(&missing, 4, "rank 2: cannot open \"vfio-user:/nowhere/0.sock\": Cannot connect to the socket");
    let file = odd(&[&gather[..], &["--input", "/nowhere/0.npy"]].concat(), 1);
    refused(&file, 4, "rank 1: /nowhere/0.npy: No such file or directory");
    let as_json = [&gather[..], &["--json"]].concat();
    let no_file = [&as_json[..], &["--input", "/nowhere/0.npy"]].concat();
    for (rank, output) in Job::new(4).run(|rank| with(rank, 1, &as_json, &no_file)).iter().enumerate() {
        assert_eq!(crate::parsed(&output.stderr)["kind"], "no-file", "rank {rank}");
    }

    let directory = tempfile::tempdir().unwrap();
    let calibration = directory.path().join("calibration.json");
    let calibration = calibration.to_str().unwrap();
    assert!(run(&["calibrate", "--cards", "mock:optweb:4", "--output", calibration]).status.success());
    let calibrated = odd(&[&gather[..], &["--calibration", calibration]].concat(), 3);
    refused(&calibrated, 7, "Rank 3: its calibration is a file with hash ");
    // All have it.
    let all = Job::new(4).run(|_| words(&[&gather[..], &["--calibration", calibration]].concat()));
    assert!(all.iter().all(|rank| rank.status.success()), "{all:?}");
}

#[test]
fn ranks_of_another_job_are_refused() {
    let cards = "vfio-user:/nowhere/0.sock";
    let job = Job::new(2);
    let other = Job { of: 3, directory: job.directory };
    let rank_1 = other.start(1, &["barrier", "--cards", cards]);
    let job = Job { of: 2, directory: other.directory };
    let rank_0 = job.start(0, &["barrier", "--cards", cards]);
    let outputs = [rank_0, rank_1].map(|rank| rank.wait_with_output().unwrap());
    refused(&outputs, 7, "rank 1: it has --of 3, and rank 0 has --of 2");
    // Nobody else comes.
    let alone = job.start(0, &["barrier", "--cards", cards, "--timeout", "0.5"]).wait_with_output().unwrap();
    refused(&[alone], 5, "rank 1 did not come to unix:");
    // Cards that no other process can open.
    let mock = job.run(|_| words(&["barrier", "--cards", "mock:optweb:2"]));
    refused(&mock, 7, "selects mock cards of this process: serve them with `fpgactl mock serve`");
    let usage = run(&["coll", "barrier", "--rank", "2", "--of", "2", "--meet", "unix:/nowhere/meet"]);
    assert_eq!(
        (usage.status.code(), text(&usage.stderr).lines().next().unwrap().contains("--rank 2")),
        (Some(2), true)
    );
    assert_eq!(run(&["coll", "barrier", "--rank", "1"]).status.code(), Some(2));
    assert_eq!(run(&["coll", "barrier", "--rank", "1", "--of", "2", "--meet", "/path"]).status.code(), Some(2));
}

/// Ranks of a job on `cards` that run for long, once `rank` has opened its card.
fn running(job: &Job, cards: &str, rank: usize) -> Vec<Child> {
    let arguments = ["allgather", "--bytes", "4MiB", "--repeat", "60000", "--timeout", "600", "--cards", cards];
    let mut ranks: Vec<Child> = (0..job.of)
        .map(|number| {
            let mut command = job.command(number, &arguments);
            if number as usize == rank {
                command.env("RUST_LOG", "fpga_driver=debug");
            }
            command.spawn().unwrap()
        })
        .collect();
    // It tells when it has opened its card, after all have met.
    let mut lines = BufReader::new(ranks[rank].stderr.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains(&format!("node {rank} of {}", job.of)) {}
    ranks
}

#[test]
fn sockets_that_are_missing_are_no_card_of_another_rank() {
    let job = Job::new(2);
    let nowhere = format!("vfio-user:{}", job.directory.path().join("nowhere").display());
    let outputs = job.run(|_| words(&["barrier", "--cards", &nowhere]));
    refused(&outputs, 4, "nowhere");
}

/// Whoever opens the control function of a card resets it.
#[test]
fn a_rank_has_the_control_function_of_its_card() {
    let served = Served::new(&["mock:s10-dfl:2"]);
    let mut ranks = running(&Job::new(2), &served.all(), 0);
    let info = run(&["info", "--cards", &served.control(0)]);
    ranks.iter_mut().for_each(|rank| rank.kill().unwrap());
    ranks.iter_mut().for_each(|rank| assert!(!rank.wait().unwrap().success()));
    assert_eq!(info.status.code(), Some(4), "{}", text(&info.stdout));
}

/// Ranks of 3 that run for long, of which one is ended by a signal.
fn ended(signal: &str, rank: usize) -> Vec<Output> {
    let served = Served::new(&["mock:optweb:3"]);
    let ranks = running(&Job::new(3), &served.all(), rank);
    thread::sleep(Duration::from_millis(700));
    let status = std::process::Command::new("kill").args([signal, &ranks[rank].id().to_string()]).status().unwrap();
    assert!(status.success());
    let began = Instant::now();
    let outputs = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    outputs
}

#[test]
fn the_others_end_when_a_rank_is_killed() {
    for rank in [0_usize, 2] {
        let mut outputs = ended("-KILL", rank);
        outputs.remove(rank);
        refused(&outputs, 6, &format!("Rank {rank} is gone: "));
    }
}

#[test]
fn an_interrupt_of_one_ends_all() {
    let mut outputs = ended("-INT", 1);
    assert_eq!(outputs[1].status.code(), Some(130));
    outputs.remove(1);
    refused(&outputs, 6, "Rank 1 is gone: ");
}

/// Whatever read of host memory it fails at, from the join of the ranks to the output.
#[test]
fn all_ranks_name_the_rank_whose_card_has_halted() {
    for read in 0..9 {
        let served = Served::new(&[&format!("mock:optweb:2+poisoned=1@{read}")]);
        let cards = served.all();
        let arguments = ["allgather", "--bytes", "4KiB", "--cards", &cards, "--timeout", "60", "--json"];
        for (rank, output) in Job::new(2).run(|_| words(&arguments)).iter().enumerate() {
            let error = crate::parsed(&output.stderr);
            assert_eq!(
                (&error["kind"], &error["rank"]),
                (&"failed".into(), &1.into()),
                "read {read}, rank {rank}: {error}"
            );
        }
    }
}

/// The time limit holds from the join of the ranks on.
#[test]
fn a_card_that_stands_still_ends_all_ranks_in_time() {
    let served = Served::new(&["mock:optweb:2+stop=1"]);
    let cards = served.all();
    for output in Job::new(2).run(|_| words(&["barrier", "--cards", &cards, "--timeout", "1", "--json"])) {
        let error = crate::parsed(&output.stderr);
        assert_eq!((&error["kind"], &error["rank"]), (&"timeout".into(), &1.into()), "{error}");
        let (_, waited) = error["message"].as_str().unwrap().split_once("Waited ").unwrap();
        // Without the limit, 10 s.
        assert!(waited.split_once('s').unwrap().0.parse::<f64>().unwrap() < 9.0, "{error}");
    }
}

/// Every rank writes the result of its card, and reads the same files as one process.
#[test]
fn arrays_are_those_of_one_process() {
    let served = Served::new(&["mock:optweb:2"]);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let cards = served.all();
    let made = run(&[
        "coll",
        "allgather",
        "--bytes",
        "4KiB",
        "--dtype",
        "i32",
        "--cards",
        &cards,
        "--output",
        &path("made.npy"),
    ]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let inputs = format!("{},{}", path("made-0.npy"), path("made-1.npy"));
    let reduce = ["allreduce", "--op", "sum", "--cards", &cards, "--input", &inputs, "--output"];
    let (one, several) = (path("one.npy"), path("several.npy"));
    assert!(run(&[&["coll"], &reduce[..], &[&one]].concat()).status.success());
    let outputs = Job::new(2).run(|_| words(&[&reduce[..], &[&several]].concat()));
    assert!(outputs.iter().all(|rank| rank.status.success()), "{outputs:?}");
    let printed = text(&outputs[0].stdout);
    for rank in 0..2 {
        let (one, several) = (path(&format!("one-{rank}.npy")), path(&format!("several-{rank}.npy")));
        assert_eq!(fs::read(one).unwrap(), fs::read(&several).unwrap());
        assert!(printed.contains(&several), "{printed}");
    }
}

/// Each rank writes what it and its card did, to a file with its number.
#[test]
fn every_rank_has_a_trace() {
    let served = Served::new(&["mock:optweb:2"]);
    let cards = served.all();
    let job = Job::new(2);
    let path = job.directory.path().join("trace.pftrace").to_str().unwrap().to_owned();
    let outputs = job.run(|_| words(&["allgather", "--bytes", "4KiB", "--cards", &cards, "--trace", &path]));
    let mut all = Vec::new();
    let mut counts = 0;
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let path = job.directory.path().join(format!("trace-{rank}.pftrace"));
        let trace = File::open(&path);
        assert_eq!((trace.count("wait"), trace.count("allgather")), (1, 1));
        assert!(trace.count("clock") >= 1);
        counts += trace.count("doorbell");
        all.extend(fs::read(path).unwrap());
    }
    // One after the other they are a file too, with tracks of their own: File checks that none is described twice.
    let trace = File::of(&all);
    assert_eq!((trace.count("wait"), trace.count("allgather"), trace.count("doorbell")), (2, 2, counts));
}
