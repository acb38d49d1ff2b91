//! Exit codes of what cannot be done, and that stderr says why in both forms.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use crate::run;
use crate::served::Served;

fn exits_with(code: i32, arguments: &[&str]) -> serde_json::Value {
    let output = run(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(!text.is_empty(), "{arguments:?}");
    let output = run(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    let error = crate::parsed(&output.stderr);
    assert_eq!(error["schema"], "fpgactl.error/1");
    assert_eq!(error["exit"], code);
    error
}

#[test]
fn usage_is_2() {
    for arguments in [
        &["coll"] as &[&str],
        &["coll", "allgatter"],
        &["coll", "allgather", "--bytes", "1MB"],
        &["coll", "allgather", "--bytes", "-1"],
        &["coll", "allgather", "--repeat", "0"],
        &["coll", "allgather", "--dtype", "f31"],
        &["coll", "allreduce"],
        &["coll", "gatherv", "--counts", "1,,2"],
        &["coll", "gatherv", "--counts", "1", "--bytes", "1"],
        &["coll", "allreduce", "--op", "mean"],
        &["coll", "allgather", "--timeout", "0"],
        &["coll", "allgather", "--start-delay", "1,x"],
        &["coll", "allgather", "--algorithm", "fast"],
        &["coll", "allgather", "--cards", "moc:optweb:4"],
        &["topo", "--cards", "mock:circus:0x3"],
        &["topo", "--cards", "mock:circus:1"],
        &["topo", "--cards", "mock:bluelink:65536x65536"],
        &["topo", "--cards", "mock:optweb:0x4"],
        &["bench", "optweb", "--row", "nothing"],
        &["nothing"],
        &["completions", "cmd"],
    ] {
        let error = exits_with(2, arguments);
        assert_eq!(error["kind"], "usage", "{arguments:?}");
    }
}

/// A command that opens cards without publishing them takes no directory for that. The variable is for all commands.
#[test]
fn a_directory_for_no_counters_is_refused() {
    for arguments in [
        &["mem", "fill", "mock:optweb:2/0", "0", "64", "1"] as &[&str],
        &["selftest", "mock:optweb:2/0"],
        &["info"],
        &["topo", "--dragonfly", "6"],
        &["bench", "planner", "--cards", "mock:optweb:2"],
        &["disasm", "/nowhere/x"],
        &["stats", "/nowhere/x"],
    ] {
        let error = exits_with(2, &[arguments, &["--stats-dir", "/nowhere"]].concat());
        assert!(error["message"].as_str().unwrap().contains("--stats-dir has no effect"), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    super::stdout(&["topo", "--stats-dir", directory.path().to_str().unwrap()]);
}

/// What is printed on a full disk is not printed.
#[test]
fn help_that_cannot_be_printed_is_1() {
    for arguments in [&["help"] as &[&str], &["--version"], &["coll", "--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = super::command(arguments).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("fpgactl: stdout: "), "{error}");
    }
}

#[test]
fn no_such_card_is_4() {
    for selector in ["mock:optweb:99", "mock:optweb:1", "vfio:0000:3b:00.0", "vfio-user:/run/none.sock"] {
        assert_eq!(exits_with(4, &["coll", "barrier", "--cards", selector])["kind"], "no-card");
    }
}

#[test]
fn a_card_that_stops_is_5_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.npy");
    let arguments = ["coll", "allgather", "--bytes", "64KiB", "--timeout", "0.3", "--output", path.to_str().unwrap()];
    // At once, at a time, and after 30 000 of the 65 536 bytes for the second of three others.
    for (when, rank) in [("+stop=2", 2), ("+stop=2@100", 2), ("+stop=1@1.1.30000", 1)] {
        let selector = format!("mock:optweb:4{when}");
        let error = exits_with(5, &[&arguments[..], &["--cards", &selector]].concat());
        assert_eq!(error["rank"], rank, "{error}");
        assert!(error["message"].as_str().unwrap().contains("destinations are undefined"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

/// Whoever holds the others up is blamed, and no victim, wherever the cards are when it stops.
#[test]
fn the_card_that_stops_is_named_with_what_it_was_at() {
    for (operation, phase) in [("allgather", "copy in of rank 2"), ("barrier", "ranks 0, 1, 3 wait for rank 2")] {
        let cards = "mock:optweb:4+stop=2";
        let error = exits_with(5, &["coll", operation, "--timeout", "0.5", "--cards", cards]);
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["rank"], 2, "{message}");
        assert!(message.contains(phase), "{message}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("four.seq");
    let words = "ranks 4\nbuffer in = card size 64MiB\nbuffer out = card size 64MiB\nsendrecv peer (rank + 1) % ranks, \
                 root (rank - 1) % ranks, source in, destination out, bytes 16MiB\nbarrier\n";
    std::fs::write(&path, words).unwrap();
    let path = path.to_str().unwrap();
    for mode in [&[][..], &["--persistent"]] {
        for (rank, when) in [(0, ""), (1, "@100"), (2, "@2.0.5000000"), (3, "@2000")] {
            // A launch that goes on is not aborted, which would tell apart a card that has stopped while it waited and one that waits.
            if rank == 1 && !mode.is_empty() {
                continue;
            }
            let selector = format!("mock:optweb:4+stop={rank}{when}");
            let arguments = [&["run", path, "--timeout", "0.5", "--json", "--cards", &selector], mode].concat();
            let output = run(&arguments);
            let error = crate::parsed(&output.stderr);
            assert_eq!((output.status.code(), &error["rank"]), (Some(5), &rank.into()), "{arguments:?}: {error}");
        }
    }
}

/// Cards outside of the group relay, and are named, unless they may not.
#[test]
fn cards_without_a_link_use_others() {
    fn apart<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let both = ["allreduce", "--op", "sum", "--bytes", "4KiB", "--group", "0,3", "--cards", "mock:optweb:2x2"];
        [&[command], &both[..], more].concat()
    }
    let ran = super::json(&apart("coll", &[]));
    let notes: Vec<&str> = ran["notes"].as_array().unwrap().iter().filter_map(|note| note.as_str()).collect();
    assert!(notes.contains(&"node 2 outside of the group relays"), "{notes:?}");
    let planned = super::json(&apart("plan", &["--relays", "1"]));
    assert_eq!(planned["relays"], serde_json::json!([1]));
    let of_relay = &planned["programs"][2];
    assert_eq!((&of_relay["rank"], &of_relay["node"]), (&serde_json::Value::Null, &1.into()));
    let text = super::stdout(&apart("plan", &["--relays", "1"]));
    assert!(text.contains("\nrelay on node 1\n"), "{text}");
    let refused = exits_with(7, &apart("plan", &["--relays", "none"]));
    assert!(refused["message"].as_str().unwrap().contains("let node 1 or node 2 relay"), "{refused}");
}

/// A barrier of one card among four says nothing, so it is not said to be verified.
#[test]
fn one_card_of_several_is_no_collective() {
    for operation in ["barrier", "allgather"] {
        let error = exits_with(7, &["coll", operation, "--group", "2", "--cards", "mock:optweb:4"]);
        assert!(error["message"].as_str().unwrap().contains("1 card of a fabric of 4"), "{error}");
    }
    for command in ["coll", "plan"] {
        let some = super::json(&[command, "barrier", "--group", "1,3", "--cards", "mock:optweb:4"]);
        assert_eq!((&some["ranks"], &some["notes"][0]), (&2.into(), &"2 of the fabric's 4 cards take part".into()));
        let text = super::stdout(&[command, "barrier", "--group", "1,3", "--cards", "mock:optweb:4"]);
        assert!(text.contains("\nnote: 2 of the fabric's 4 cards take part\n"), "{command}: {text}");
        let all = super::json(&[command, "barrier", "--cards", "mock:optweb:4"]);
        assert_eq!(all["notes"], serde_json::json!([]), "{command}");
    }
}

/// Ranks leave a tree one after the other, and would begin the next repetition so.
#[test]
fn a_repeated_barrier_takes_as_long_as_one() {
    for (cards, algorithm) in [
        ("mock:optweb:2", "binomial"),
        ("mock:optweb:3", "binomial"),
        ("mock:circus:4x4", "binomial"),
        ("mock:optweb:4", "direct"),
    ] {
        let options = ["barrier", "--algorithm", algorithm, "--cards", cards];
        let once = super::json(&[&["coll"], &options[..]].concat());
        let often = super::json(&[&["coll"], &options[..], &["--repeat", "4"]].concat());
        let swept = super::stdout(&[&["bench", "coll"], &options[..], &["--repeat", "4", "--json"]].concat());
        let swept: serde_json::Value = serde_json::from_str(swept.lines().next().unwrap()).unwrap();
        let one = once["arrival_us"].as_f64().unwrap();
        for (found, what) in [(&often["arrival_us"], "coll"), (&swept["p50_us"], "bench coll")] {
            // Cards begin together but for a cycle.
            let found = found.as_f64().unwrap();
            assert!((found - one).abs() <= one / 100.0, "{what} {options:?}: {found} us, once {one} us");
        }
    }
}

#[test]
fn a_barrier_is_repeated_as_often_as_asked() {
    let text = super::stdout(&["coll", "barrier", "--cards", "mock:optweb:2", "--repeat", "10000"]);
    assert!(text.contains("max of 10000"), "{text}");
    assert!(text.lines().all(|line| line.len() < 200), "{text}");
    let printed = super::json(&["coll", "barrier", "--cards", "mock:optweb:2", "--repeat", "70000"]);
    assert_eq!(printed["skew_us"].as_array().unwrap().len(), 65_536);
    assert_eq!(printed["skew"]["count"], 70_000);
}

#[test]
fn a_link_that_is_down_is_6() {
    let error = exits_with(6, &["coll", "allgather", "--cards", "mock:optweb:4+cut=0-1"]);
    assert!(error["message"].as_str().unwrap().contains("link"), "{error}");
}

#[test]
fn refused_before_launch_is_7() {
    for arguments in [
        &["coll", "allreduce", "--op", "xor", "--dtype", "f32"] as &[&str],
        &["coll", "allreduce", "--op", "minloc", "--dtype", "i32"],
        &["coll", "reduce", "--op", "sum", "--dtype", "f64", "--bytes", "12"],
        &["coll", "alltoall", "--group", "0,3", "--relays", "none", "--cards", "mock:optweb:2x2"],
        &["coll", "gatherv", "--counts", "1,2,3"],
        &["coll", "gatherv", "--counts", "1,2,3,4/1,2,3,4"],
        &["coll", "alltoallv", "--counts", "1,2,3,4/1,2,3,4"],
        &["coll", "scatterv", "--counts", "1,2,3,9GiB"],
        &["coll", "scatterv", "--counts", "4,4,4,6", "--dtype", "f32"],
        &["coll", "alltoallv", "--group", "0,3", "--relays", "0", "--cards", "mock:optweb:2x2"],
        &["coll", "scatter", "--root", "4"],
        &["coll", "send", "--peer", "9"],
        &["coll", "allgather", "--bytes", "1GiB", "--algorithm", "direct"],
        &["coll", "broadcast", "--bytes", "16777215TiB"],
        &["coll", "allgather", "--algorithm", "multipath"],
        &["coll", "allgather", "--algorithm", "two-level"],
        &["coll", "send", "--eager-limit", "1MiB"],
        &["coll", "send", "--start-delay", "1,2"],
        &["coll", "scatter", "--bytes", "7", "--dtype", "f32"],
        &["coll", "send", "--output", "."],
        &["plan", "scatter", "--root", "4"],
        &["coll", "broadcast", "--relays", "1,3,1", "--group", "0,2"],
        &["coll", "broadcast", "--relays", "2", "--group", "0,2"],
    ] {
        assert_eq!(exits_with(7, arguments)["kind"], "refused", "{arguments:?}");
    }
}

#[test]
fn refusals_name_the_rank() {
    assert_eq!(exits_with(7, &["coll", "allgather", "--group", "0,1,1"])["rank"], 2);
    assert_eq!(exits_with(7, &["plan", "allgather", "--group", "0,9"])["rank"], 1);
}

/// The process's own limit counts as the machine's: an allocation beyond it would end the process.
#[test]
fn mock_cards_need_no_more_memory_than_the_process_may_have() {
    let limited = |kib: u32, arguments: &[&str]| {
        let inner = super::command(arguments);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh"]);
        let output = shell.arg(inner.get_program()).args(inner.get_args()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = limited(2_000_000, &["coll", "allgather", "--bytes", "256MiB"]);
    assert_eq!(code, Some(7), "{error}");
    assert!(error.contains("of available memory"), "{error}");
    // Each of 2 * 256 * 256 bytes lies in a stripe, and so in a frame of memory, of its own.
    let (code, error) = limited(1_000_000, &["coll", "alltoall", "--bytes", "1", "--cards", "mock:circus:16x16"]);
    assert_eq!(code, Some(7), "{error}");
    assert!(error.contains("need 512 MiB on mock cards, in frames of 4 KiB"), "{error}");

    // What programs write is not known before, so the cards have no more than that.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fill.seq");
    let program = "ranks 2\nbuffer a = card size 512MiB\n\
                   fill destination a, bytes 512MiB, extent 0x0101010101010101\nbarrier\n";
    std::fs::write(&path, program).unwrap();
    let (code, error) = limited(700_000, &["run", path.to_str().unwrap(), "--cards", "mock:optweb:2"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("the machine has no memory left for mock cards"), "{error}");
}

/// One that does not use it looks at nothing in it.
#[test]
fn cards_that_are_no_text_matter_to_those_who_use_them() {
    let with_cards = |arguments: &[&str]| {
        let output = super::command(arguments).env("FPGACTL_CARDS", OsStr::from_bytes(b"mock:\xff")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for used in ["list", "info", "topo", "doctor"] {
        let (code, error) = with_cards(&[used]);
        assert_eq!(code, Some(2), "{used}: {error}");
        assert!(error.contains(r#"invalid selector "mock:\xFF" in --cards or FPGACTL_CARDS"#), "{used}: {error}");
    }
    for unused in [&["schema"][..], &["reg", "mock:optweb:2", "NODE"], &["info", "--cards", "mock:optweb:2"]] {
        assert_eq!(with_cards(unused), (Some(0), String::new()), "{unused:?}");
    }
}

#[test]
fn only_one_card_or_a_whole_fabric_has_a_register() {
    assert_eq!(
        super::json(&["reg", "mock:s10-dfl:4/1.control+drift=3", "0x0"])["selector"],
        "mock:s10-dfl:4/1.control+drift=3"
    );
    let both = |first, second| format!("mock:optweb:2/{first},mock:optweb:2/{second}");
    for cards in [both(0, 1), both(1, 0)] {
        exits_with(2, &["reg", &cards, "NODE"]);
    }
    exits_with(2, &["topo", "--cards", "mock:s10-dfl:4/1.control"]);
}

/// With too few file descriptors a card cannot be opened, and yet it is there.
#[test]
fn a_limit_of_the_process_is_no_missing_card() {
    let served = Served::new(&["mock:optweb:2"]);
    let cards = served.all();
    let mut told = String::new();
    for arguments in [&["list"][..], &["info"], &["coll", "barrier"], &["pipe"]] {
        // Fewer than 4 do not start the command.
        for files in 4..=16 {
            let inner = super::command(&[arguments, &["--cards", &cards]].concat());
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"]);
            shell.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
            shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let output = shell.output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}, {files}: {error}");
            assert!(!error.contains("unknown card"), "{arguments:?}, {files}: {error}");
            told += &error;
        }
    }
    for expected in ["cannot read the directory", "Cannot connect to the socket", "Too many open files"] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(run(&["info", "--cards", &cards]).status.success());
}
