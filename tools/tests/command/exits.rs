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
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
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
        &["bench", "optweb", "--row", "nothing"],
        &["nothing"],
        &["completions", "cmd"],
    ] {
        let error = exits_with(2, arguments);
        assert_eq!(error["kind"], "usage", "{arguments:?}");
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
    let arguments = ["coll", "allgather", "--timeout", "0.3", "--output", path.to_str().unwrap()];
    for when in ["+stop=2", "+stop=2@100", "+stop=1@250"] {
        let selector = format!("mock:optweb:4{when}");
        let error = exits_with(5, &[&arguments[..], &["--cards", &selector]].concat());
        assert!(error["message"].as_str().unwrap().contains("destinations are undefined"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
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
        &["coll", "alltoall", "--group", "0,1,2", "--cards", "mock:optweb:2x2"],
        &["coll", "gatherv", "--counts", "1,2,3"],
        &["coll", "gatherv", "--counts", "1,2,3,4/1,2,3,4"],
        &["coll", "alltoallv", "--counts", "1,2,3,4/1,2,3,4"],
        &["coll", "scatterv", "--counts", "1,2,3,9GiB"],
        &["coll", "scatterv", "--counts", "4,4,4,6", "--dtype", "f32"],
        &["coll", "alltoallv", "--group", "0,1,2", "--cards", "mock:optweb:2x2"],
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
