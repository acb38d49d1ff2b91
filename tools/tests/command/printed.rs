//! What is printed, beside `tests/expected`. With UPDATE=1 in the environment the expected files are written anew.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use crate::{command, json, stdout};

const PRINTED: &[(&str, &[&str])] = &[
    ("help", &["--help"]),
    ("help-list", &["list", "--help"]),
    ("help-info", &["info", "--help"]),
    ("help-doctor", &["doctor", "--help"]),
    ("help-bind", &["bind", "--help"]),
    ("help-unbind", &["unbind", "--help"]),
    ("help-reset", &["reset", "--help"]),
    ("help-reg", &["reg", "--help"]),
    ("help-mem", &["mem", "--help"]),
    ("help-mem-read", &["mem", "read", "--help"]),
    ("help-mem-write", &["mem", "write", "--help"]),
    ("help-mem-fill", &["mem", "fill", "--help"]),
    ("help-mem-test", &["mem", "test", "--help"]),
    ("mem-read", &["mem", "read", "mock:optweb:2/1", "0x1000", "20"]),
    ("mem-test-json", &["mem", "test", "mock:alveo-xdma:2/1", "0", "1MiB", "--json"]),
    ("help-selftest", &["selftest", "--help"]),
    ("help-coll", &["coll", "--help"]),
    ("help-plan", &["plan", "--help"]),
    ("help-calibrate", &["calibrate", "--help"]),
    ("help-asm", &["asm", "--help"]),
    ("help-disasm", &["disasm", "--help"]),
    ("help-lint", &["lint", "--help"]),
    ("help-run", &["run", "--help"]),
    ("lint-warned", &["lint", "tests/command/programs/warned.seq"]),
    ("run-ring", &["run", "tests/command/programs/ring.seq"]),
    ("run-ring-json", &["run", "tests/command/programs/ring.seq", "--json"]),
    ("help-channel", &["channel", "--help"]),
    ("help-channel-check", &["channel", "check", "--help"]),
    ("help-channel-generate", &["channel", "generate", "--help"]),
    ("channel-check", &["channel", "check", "tests/command/programs/pingpong.xml"]),
    ("channel-check-json", &["channel", "check", "tests/command/programs/pingpong.xml", "--json"]),
    ("help-channel-load", &["channel", "load", "--help"]),
    (
        "channel-load",
        &[
            "channel",
            "load",
            "tests/command/programs/pingpong.xml",
            "--cards",
            "mock:circus:4x4",
            "--place",
            "ping_in=10",
            "--place",
            "pong_out=10",
            "--place",
            "pong_in=0",
        ],
    ),
    (
        "channel-load-json",
        &["channel", "load", "tests/command/programs/pingpong.xml", "--cards", "mock:circus:2x2", "--json"],
    ),
    ("help-route", &["route", "--help"]),
    ("help-route-compile", &["route", "compile", "--help"]),
    ("help-route-verify", &["route", "verify", "--help"]),
    ("help-route-load", &["route", "load", "--help"]),
    ("help-route-show", &["route", "show", "--help"]),
    ("help-fft3d", &["fft3d", "--help"]),
    ("fft3d", &["fft3d", "--n", "16", "--cards", "mock:novo-g:2x2x2"]),
    ("help-tune", &["tune", "--help"]),
    ("tune", &["tune", "complement", "--metric", "worst"]),
    ("tune-json", &["tune", "transpose", "--shape", "2x2x2", "--json"]),
    ("help-bench", &["bench", "--help"]),
    ("help-bench-coll", &["bench", "coll", "--help"]),
    ("help-bench-optweb", &["bench", "optweb", "--help"]),
    ("help-bench-circus", &["bench", "circus", "--help"]),
    ("help-bench-bluelink", &["bench", "bluelink", "--help"]),
    ("help-bench-mpi-fpga", &["bench", "mpi-fpga", "--help"]),
    ("help-bench-novo-g", &["bench", "novo-g", "--help"]),
    ("help-bench-planner", &["bench", "planner", "--help"]),
    ("help-bench-accesses", &["bench", "accesses", "--help"]),
    ("bench-accesses", &["bench", "accesses"]),
    ("help-top", &["top", "--help"]),
    ("help-stats", &["stats", "--help"]),
    ("help-schema", &["schema", "--help"]),
    ("schema", &["schema"]),
    ("help-metrics", &["metrics", "--help"]),
    ("help-pipe", &["pipe", "--help"]),
    ("help-image", &["image", "--help"]),
    ("help-image-inspect", &["image", "inspect", "--help"]),
    ("help-image-load", &["image", "load", "--help"]),
    ("help-image-recover", &["image", "recover", "--help"]),
    ("help-mock-image", &["mock", "image", "--help"]),
    ("image-inspect", &["image", "inspect", "../driver/image/tests/data/signed.xclbin"]),
    ("image-inspect-json", &["image", "inspect", "../driver/image/tests/data/plain.xclbin", "--json"]),
    ("image-inspect-partition", &["image", "inspect", "../driver/image/tests/data/partition.xclbin"]),
    ("image-inspect-partition-json", &["image", "inspect", "../driver/image/tests/data/partition.xclbin", "--json"]),
    ("info-control", &["info", "--cards", "mock:s10-dfl:2/0.control"]),
    ("info-control-json", &["info", "--cards", "mock:s10-dfl:2/0.control", "--json"]),
    ("help-topo", &["topo", "--help"]),
    ("help-completions", &["completions", "--help"]),
    ("list", &["list"]),
    ("list-json", &["list", "--json", "--cards", "mock:optweb:2"]),
    ("info", &["info"]),
    ("info-json", &["info", "--json"]),
    ("doctor", &["doctor"]),
    ("doctor-json", &["doctor", "mock:optweb:8", "--json"]),
    ("reset", &["reset", "mock:optweb:2"]),
    ("reset-json", &["reset", "mock:optweb:2", "--json"]),
    ("reg-read", &["reg", "mock:optweb:4/2", "NODE"]),
    ("reg-read-json", &["reg", "mock:optweb:4/3", "node", "--json"]),
    ("reg-write", &["reg", "mock:optweb:4", "SCRATCH", "0x2a"]),
    ("reg-write-json", &["reg", "mock:optweb:4/1", "0x1114", "42", "--json"]),
    ("reg-doorbell", &["reg", "mock:optweb:4", "queue0.SUBMISSION_TAIL", "0"]),
    ("topo", &["topo"]),
    ("topo-json", &["topo", "--json"]),
    ("topo-dragonfly", &["topo", "--cards", "mock:optweb:4x4"]),
    ("topo-dragonfly-large", &["topo", "--cards", "mock:optweb:22x44"]),
    ("topo-dragonfly-sizes", &["topo", "--dragonfly", "6"]),
    ("plan-allgather", &["plan", "allgather", "--bytes", "64"]),
    ("plan-send-explain", &["plan", "send", "--bytes", "64KiB", "--explain"]),
    ("plan-scatter-json", &["plan", "scatter", "--bytes", "4095", "--group", "3,1", "--explain", "--json"]),
    ("coll-allgather", &["coll", "allgather", "--bytes", "1MiB"]),
    ("coll-allgather-json", &["coll", "allgather", "--bytes", "1MiB", "--json"]),
    ("coll-gatherv", &["coll", "gatherv", "--counts", "1KiB,0,3KiB,7", "--root", "2"]),
    ("coll-alltoallv-json", &["coll", "alltoallv", "--counts", "1,2/3,4", "--cards", "mock:optweb:2", "--json"]),
    ("plan-alltoallv", &["plan", "alltoallv", "--counts", "1,2; 3,4", "--cards", "mock:optweb:2"]),
    ("plan-gatherv-json", &["plan", "gatherv", "--counts", "64,0", "--cards", "mock:optweb:2", "--json"]),
    (
        "plan-gatherv-dragonfly",
        &["plan", "gatherv", "--counts", "1KiB,0,3KiB,7", "--root", "1", "--cards", "mock:optweb:2x2", "--explain"],
    ),
    ("coll-barrier", &["coll", "barrier", "--start-delay", "0,0,1000,2000", "--repeat", "4"]),
    ("coll-barrier-json", &["coll", "barrier", "--json"]),
    ("bench-barrier", &["bench", "optweb", "--row", "barrier"]),
    ("bench-barrier-json", &["bench", "optweb", "--row", "barrier", "--json"]),
    ("bench-circus", &["bench", "circus", "--row", "router"]),
    ("bench-circus-json", &["bench", "circus", "--row", "router", "--json"]),
    (
        "bench-bluelink",
        &["bench", "bluelink", "--check", "--row", "crossing", "--row", "latency", "--row", "unplugged"],
    ),
    ("bench-bluelink-json", &["bench", "bluelink", "--row", "latency", "--json"]),
    (
        "bench-mpi-fpga",
        &[
            "bench",
            "mpi-fpga",
            "--check",
            "--row",
            "link",
            "--row",
            "table",
            "--row",
            "units",
            "--row",
            "fifo/equation-2",
            "--row",
            "loggp",
            "--row",
            "without-units",
            "--row",
            "indirect/allreduce/32",
        ],
    ),
    ("bench-mpi-fpga-json", &["bench", "mpi-fpga", "--row", "indirect/allreduce/32", "--json"]),
    ("bench-novo-g", &["bench", "novo-g", "--check", "--row", "link", "--row", "router"]),
    ("bench-planner", &["bench", "planner", "--cards", "mock:optweb:2x3"]),
    (
        "plan-allreduce-switch",
        &[
            "plan",
            "allreduce",
            "--cards",
            "mock:mpi-fpga:fat:8",
            "--bytes",
            "8",
            "--dtype",
            "f32",
            "--op",
            "sum",
            "--explain",
        ],
    ),
];

#[test]
fn is_as_expected() {
    are_as_expected(PRINTED.iter().map(|(name, arguments)| (*name, stdout(arguments))));
}

/// Compares what was printed with the files of these names.
pub(crate) fn are_as_expected<'a>(printed: impl Iterator<Item = (&'a str, String)>) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected");
    let mut wrong = Vec::new();
    for (name, found) in printed {
        let path = directory.join(format!("{name}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, found).unwrap();
        } else if std::fs::read_to_string(&path).ok().as_deref() != Some(&found) {
            wrong.push(format!("{} is not what is printed:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nUPDATE=1 writes the files anew", wrong.join("\n"));
}

/// Scripts rely on these keys and their types.
#[test]
fn json_has_the_keys_that_are_promised() {
    let coll = json(&["coll", "barrier"]);
    assert_eq!(coll["schema"], "fpgactl.coll/1");
    for key in
        ["ranks", "bytes", "t1_us", "t2_us", "arrival_us", "gbps_per_link", "goodput_gbps", "predicted_us", "seed"]
    {
        assert!(coll[key].is_number(), "{key}");
    }
    for key in ["op", "algorithm", "kind"] {
        assert!(coll[key].is_string(), "{key}");
    }
    assert_eq!(coll["verified"], true);
    assert!(coll["skew_us"].is_array());
    assert_eq!((&coll["bytes"], &json(&["plan", "barrier"])["bytes"]), (&0.into(), &0.into()));
    let bench = json(&["bench", "optweb", "--row", "multipath-start-up"]);
    assert_eq!((&bench["schema"], &bench["profile"]), (&"fpgactl.bench/1".into(), &"optweb".into()));
    for row in bench["rows"].as_array().unwrap() {
        assert!(row["id"].is_string() && row["what"].is_string() && row["unit"].is_string(), "{row}");
        assert!(row["ours"].is_number() && row["within"].is_boolean(), "{row}");
        assert!(row["published"].is_number() || row["published"].is_null(), "{row}");
        assert!(["predicted", "derived", "fitted", "computed"].contains(&row["basis"].as_str().unwrap()), "{row}");
    }
}

#[test]
fn start_up_rows_are_within_their_tolerance() {
    for row in ["barrier", "eager-start-up", "eager-t2", "rendezvous-start-up", "rendezvous-excess", "skew"] {
        stdout(&["bench", "optweb", "--check", "--row", row]);
    }
    for row in ["multipath-start-up", "striping", "dragonfly", "cards-spread"] {
        stdout(&["bench", "optweb", "--check", "--row", row]);
    }
}

#[test]
fn rows_of_circus_are_within_their_tolerance() {
    stdout(&["bench", "circus", "--check"]);
}

#[test]
fn figures_are_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("figures");
    let arguments = ["bench", "optweb", "--row", "barrier", "--figure", "12", "--svg", path.to_str().unwrap()];
    stdout(&arguments);
    let figure = std::fs::read_to_string(path.join("figure-12.svg")).unwrap();
    for word in ["rendezvous", "configuration (T1)", ">us<"] {
        assert!(figure.replace('\n', "").contains(word), "{word}");
    }
}

#[test]
fn the_same_seed_prints_the_same() {
    let arguments = ["coll", "alltoall", "--bytes", "4095", "--seed", "9", "--json"];
    let first = stdout(&arguments);
    for _ in 1..10 {
        assert_eq!(stdout(&arguments), first);
    }
}

#[test]
fn cards_may_come_from_the_environment() {
    let output = command(&["list"]).env("FPGACTL_CARDS", "mock:optweb:3").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 4);
}

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(&["completions", shell]).contains("fpgactl"), "{shell}");
    }
}

/// `fpgactl topo | head -1` is no error.
#[test]
fn a_reader_may_leave() {
    let mut child = command(&["topo", "--json", "--cards", "mock:optweb:64"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}
