//! Exit codes of what cannot be done, and that stderr says why in both forms.

use crate::run;

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
    let some = super::json(&["coll", "barrier", "--group", "1,3", "--cards", "mock:optweb:4"]);
    assert_eq!((&some["ranks"], &some["notes"][0]), (&2.into(), &"2 of the fabric's 4 cards take part".into()));
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
    ] {
        assert_eq!(exits_with(7, arguments)["kind"], "refused", "{arguments:?}");
    }
}

#[test]
fn refusals_name_the_rank() {
    assert_eq!(exits_with(7, &["coll", "allgather", "--group", "0,1,1"])["rank"], 2);
    assert_eq!(exits_with(7, &["plan", "allgather", "--group", "0,9"])["rank"], 1);
}
