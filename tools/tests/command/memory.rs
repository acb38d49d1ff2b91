//! `fpgactl mem` and `fpgactl reg`: memory and registers of a card by hand.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use nix::sys::stat::Mode;

use crate::served::Served;
use crate::{command, json, run, stdout};

/// Every shell, a card of each in process and, last, one without a sequencer.
const CARDS: [&str; 6] = [
    "mock:optweb:2/1",
    "mock:s10-dfl:2/0",
    "mock:s10-pac:2/1",
    "mock:alveo-xdma:2/0",
    "mock:alveo-xdma:2/1+bypass",
    "mock:alveo-xdma:1",
];

#[test]
fn memory_is_tested_behind_every_shell() {
    for cards in CARDS {
        let printed = json(&["mem", "test", cards, "0x10003", "9MiB", "--seed", "7"]);
        assert_eq!((printed["action"].as_str(), printed["address"].as_u64()), (Some("test"), Some(0x1_0003)));
        assert_eq!((printed["bytes"].as_u64(), printed["mock"].as_bool()), (Some(9 << 20), Some(true)), "{cards}");
    }
    let text = stdout(&["mem", "test", "mock:optweb:2/0", "0", "0x40", "--seed", "0x7"]);
    assert_eq!(text, "64 bytes at 0x0: written, read back and restored\n");
}

/// The memory of this card outlives a reset, and so the commands.
#[test]
fn what_is_written_is_read() {
    let served = Served::new(&["mock:alveo-xdma:1"]);
    let card = served.card(0);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (input, output) = (path("in"), path("out"));
    let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&input, &data).unwrap();
    let text = stdout(&["mem", "write", &card, "0x7", &input]);
    assert_eq!(text, format!("5000000 bytes at 0x7: written from {input}\n"));
    let text = stdout(&["mem", "read", &card, "0x7", "5000000", "--output", &output]);
    assert_eq!(text, format!("5000000 bytes at 0x7: written to {output}\n"));
    assert!(fs::read(&output).unwrap() == data);
    assert_eq!(stdout(&["mem", "fill", &card, "0x100", "19", "0x6867666564636261"]), "19 bytes at 0x100: filled\n");
    assert_eq!(
        stdout(&["mem", "read", &card, "0x100", "18"]),
        "000000000100  61 62 63 64 65 66 67 68 61 62 63 64 65 66 67 68  abcdefghabcdefgh\n\
         000000000110  61 62                                            ab\n"
    );
    let read = json(&["mem", "read", &card, "0x110", "4"]);
    assert_eq!(read["hex"].as_str().unwrap(), format!("616263{:02x}", data[0x113 - 7]));
    stdout(&["mem", "test", &card, "0x0", "1MiB"]);
    assert_eq!(json(&["mem", "read", &card, "0x110", "4"])["hex"], read["hex"], "restored");
}

#[test]
fn what_is_not_there_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("nothing").to_str().unwrap().to_owned();
    for (arguments, code, why) in [
        (&["mem", "read", "mock:optweb:2", "0", "64"][..], 2, "mock:optweb:2 selects 2 cards: select one"),
        (&["mem", "read", "mock:optweb:2/0", "0", "65537"], 2, "65537 bytes are too many to print: at most 65536"),
        (&["mem", "read", "mock:optweb:2/0", "x", "1"], 2, "invalid address \"x\""),
        (&["mem", "fill", "mock:optweb:2/0", "0", "1", "y"], 2, "invalid pattern \"y\""),
        (&["mem", "fill", "mock:optweb:2/0", "0", "0xy", "1"], 2, "invalid number of bytes \"0xy\""),
        (&["mem", "test", "mock:optweb:2/0", "0", "1", "--seed", "y"], 2, "invalid seed \"y\""),
        // A file that says that it has 4096 bytes, and has a few.
        (&["mem", "write", "mock:optweb:2/0", "0", "/sys/kernel/uevent_seqnum"], 1, "became shorter than 4096 bytes"),
        // One that says that it has none.
        (&["mem", "write", "mock:optweb:2/0", "0", "/proc/version"], 1, "/proc/version: has more than 0 bytes"),
        (&["mem", "write", "mock:optweb:2/0", "0", &missing], 4, "nothing"),
        (&["mem", "read", "mock:optweb:2/0", "0xffffffffffffffff", "64"], 2, "end beyond 64-bit addresses"),
        (&["mem", "read", "mock:optweb:2/0", "0x4000000000", "64"], 7, "card memory range"),
        (&["mem", "read", "mock:alveo-xdma:1", "0x4000000000", "64"], 7, "no card memory at this address"),
        (&["mem", "write", "mock:alveo-xdma:1", "0x200000000", "/etc/passwd"], 7, "no card memory at this address"),
        (&["mem", "test", "mock:alveo-xdma:1", "0x200000000", "1"], 7, "no card memory at this address"),
        // Before anything is written, and so at once.
        (&["mem", "fill", "mock:alveo-xdma:2/0", "0", "1TiB", "7"], 7, "1099511627776 bytes at 0x0"),
        (&["mem", "fill", "mock:alveo-xdma:1", "64", "1TiB", "7"], 7, "no card memory at this address"),
        (&["mem", "fill", "mock:optweb:2/0", "64", "18446744073709551615", "7"], 2, "end beyond 64-bit addresses"),
        (&["mem", "read", "mock:s10-dfl:2/0.he-lb", "0", "64"], 1, "no command sequencer"),
        (&["mem", "test", "mock:optweb:2/0+flip=0@64", "0", "4KiB"], 1, "cannot be corrected"),
        (&["mem", "read", "mock:optweb:2/0", "0", "64", "--cards", "mock:optweb:2"], 2, "--cards has no effect"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
}

/// Whoever opens the control function would reset the card in the middle of the transfer.
#[test]
fn a_card_in_use_has_its_control_function() {
    let served = Served::new(&["mock:s10-dfl:2"]);
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let mut read = command(&["mem", "read", &served.card(0), "0", "1MiB", "--output", pipe.to_str().unwrap()]);
    let read = read.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut data = File::open(&pipe).unwrap();
    // The command has the card, and waits for its reader.
    data.read_exact(&mut [0]).unwrap();
    let info = run(&["info", "--cards", &served.control(0)]);
    assert_eq!(info.status.code(), Some(4), "{}", String::from_utf8_lossy(&info.stdout));
    assert_eq!(data.read_to_end(&mut Vec::new()).unwrap(), (1 << 20) - 1);
    let output = read.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The first failure is told, and what it left.
#[test]
fn a_test_that_fails_restores_memory_or_says_that_it_did_not() {
    // The card stops while it is written, and never again runs an instruction.
    let output = run(&["mem", "test", "mock:optweb:2/0+stop=0@500", "0x10000", "4MiB"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.starts_with("fpgactl: Waited ") && error.contains("for copy to complete"), "{error}");
    assert!(error.ends_with("; 4194304 bytes at 0x10000 are not restored\n"), "{error}");
    let output = run(&["selftest", "mock:optweb:2/0+stop=0@500"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let failed = text.lines().find(|line| line.contains("FAILED")).unwrap();
    assert!(
        failed.contains("FAILED  Waited ") && failed.ends_with("; 4194304 bytes at 0x0 are not restored"),
        "{text}"
    );
    // It halts, and runs instructions again.
    let output = run(&["mem", "test", "mock:optweb:2/0+poisoned=0@64", "0x10000", "4MiB"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the sequencer halted") && !error.contains("restored"), "{error}");
}

/// Neither results nor errors clear the terminal of who names a file so.
#[test]
fn names_of_files_steer_no_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(format!("\u{1b}[2J{name}")).to_str().unwrap().to_owned();
    let is_harmless = |text: &str| assert!(text.contains("\u{fffd}[2J") && !text.contains('\u{1b}'), "{text:?}");
    is_harmless(&stdout(&["mem", "read", "mock:optweb:2/0", "0", "16", "--output", &path("bytes")]));
    is_harmless(&stdout(&["mock", "image", "--output", &path("image.gbs")]));
    let socket = format!("vfio-user:{}", path("0.sock"));
    for arguments in [&["lint", &path("missing.seq")][..], &["info", "--cards", &socket]] {
        is_harmless(&String::from_utf8(run(arguments).stderr).unwrap());
    }
}

#[test]
fn an_output_keeps_its_mode_and_never_replaces_what_the_shell_has_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let read = ["mem", "read", "mock:optweb:2/0", "0", "16", "--output"];
    for mode in [0o600, 0o666, 0o751] {
        let (mine, link) = (path("mine"), path("link"));
        fs::write(&mine, "before").unwrap();
        fs::set_permissions(&mine, fs::Permissions::from_mode(mode)).unwrap();
        let _ = std::os::unix::fs::symlink("mine", &link);
        stdout(&[&read[..], &[&link]].concat());
        assert_eq!(
            (fs::read(&mine).unwrap(), mode),
            (vec![0; 16], fs::metadata(&mine).unwrap().permissions().mode() & 0o777)
        );
    }
    let log = path("log");
    for (output, code, after) in
        [("/dev/stdout", 7, ""), ("/dev/fd/1", 7, ""), (&log, 7, ""), ("/dev/stderr", 0, "\0\0\0\0")]
    {
        fs::write(&log, "before\n").unwrap();
        let appended = || File::options().append(true).open(&log).unwrap();
        let mut command = command(&["mem", "read", "mock:optweb:2/0", "0", "4", "--output", output]);
        let ended = match code {
            0 => command.stdout(Stdio::null()).stderr(appended()).output().unwrap(),
            _ => command.stdout(appended()).output().unwrap(),
        };
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{output}: {error}");
        assert!(code == 0 || error.contains("is stdout, where the result is printed"), "{output}: {error}");
        assert_eq!(fs::read_to_string(&log).unwrap(), format!("before\n{after}"), "{output}");
    }
    // Nothing else is printed there.
    let log = path("metrics");
    let text = "before\n";
    fs::write(&log, text).unwrap();
    let appended = File::options().append(true).open(&log).unwrap();
    let mut metrics = command(&["metrics", "--textfile", "/dev/stdout"]);
    let metrics = metrics.env("FPGACTL_STATS_DIR", directory.path()).stdout(appended).output().unwrap();
    assert!(metrics.status.success(), "{}", String::from_utf8_lossy(&metrics.stderr));
    let printed = fs::read_to_string(&log).unwrap();
    assert!(printed.starts_with(text) && printed.contains("# TYPE"), "{printed}");
    // A file that gets lines as they are measured.
    fs::write(&log, text).unwrap();
    let appended = File::options().append(true).open(&log).unwrap();
    let sweep = ["bench", "coll", "alltoall", "-b", "64", "-e", "64", "--cards", "mock:optweb:2", "--csv"];
    let mut sweep = command(&[&sweep[..], &["/dev/stderr"]].concat());
    assert!(sweep.stderr(appended).output().unwrap().status.success());
    let printed = fs::read_to_string(&log).unwrap();
    assert!(printed.starts_with(text) && printed.contains("alltoall"), "{printed}");
}

/// On cards that have stopped, work would end with another code.
#[test]
fn stdout_is_refused_before_any_work() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    fs::write(&log, "before\n").unwrap();
    let sum = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/seq/sum.seq");
    let sweep = ["bench", "coll", "broadcast", "-b", "64", "-e", "64"];
    for arguments in [
        &["run", sum, "--dump", "output@0=/dev/stdout"][..],
        &["coll", "gather", "--bytes", "64", "--output", "/dev/stdout"],
        &[&sweep[..], &["--svg", "/dev/stdout"]].concat(),
        &[&sweep[..], &["--csv", "/dev/fd/1"]].concat(),
    ] {
        let appended = File::options().append(true).open(&log).unwrap();
        let arguments = [arguments, &["--cards", "mock:optweb:4+stop=2", "--timeout", "1"]].concat();
        let output = command(&arguments).stdout(appended).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{arguments:?}: {error}");
        assert!(error.contains("is stdout, where the result is printed"), "{arguments:?}: {error}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "before\n", "{arguments:?}");
    }
}

#[test]
fn registers_that_a_card_has_are_named_as_the_table_names_them() {
    let depth = json(&["reg", "mock:optweb:2/1", "qUEUE00.depth"]);
    assert_eq!((&depth["register"], &depth["node"]), (&"queue0.DEPTH".into(), &1.into()));
    let output = run(&["reg", "mock:optweb:2", "queue5.SUBMISSION_TAIL", "1"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("invalid queue 5 of mock:optweb:2/0: expected a number below 1"), "{error}");
    // A socket does not name a node: the register does.
    let served = Served::new(&["mock:optweb:2"]);
    let node = json(&["reg", &served.card(1), "node"]);
    assert_eq!((node["value"].as_u64(), &node["node"]), (Some(1), &serde_json::Value::Null));
}

/// Accesses of an instruction, as docs/cost.md has them.
#[test]
fn each_way_to_feed_a_card_has_its_accesses() {
    let printed = json(&["bench", "accesses"]);
    let rows = printed["rows"].as_array().unwrap();
    let found: Vec<(&str, &str, f64, f64)> = rows
        .iter()
        .map(|row| {
            let of = |key: &str| row["instruction"][key].as_f64().unwrap();
            (row["cards"].as_str().unwrap(), row["feed"].as_str().unwrap(), of("writes"), of("reads"))
        })
        .collect();
    assert_eq!(
        found,
        [
            ("mock:optweb:2", "host ring", 1.0, 0.0),
            ("mock:s10-dfl:2", "host ring", 1.0, 0.0),
            ("mock:s10-pac:2", "host ring", 1.0, 0.0),
            ("mock:alveo-xdma:2+bypass", "host ring", 1.0, 0.0),
            ("mock:alveo-xdma:2", "card ring", 18.0, 0.0),
            ("mock:alveo-xdma:2+bar4", "card ring", 18.0, 1.0),
            ("mock:alveo-xdma:2", "registers", 17.0, 10.0),
        ]
    );
    // An engine, or copy instructions, need far fewer accesses than a BAR.
    for row in rows {
        let by_bar = row["by_bar"].as_f64().unwrap();
        for way in ["to_card", "from_card"] {
            let all = row[way]["writes"].as_f64().unwrap() + row[way]["reads"].as_f64().unwrap();
            assert!(all > 0.0 && all < by_bar / 100.0, "{row}");
        }
    }
    let one = json(&["bench", "accesses", "--cards", "mock:circus:2x2"]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    assert_eq!(run(&["bench", "accesses", "--cards", "vfio-user:/nowhere"]).status.code(), Some(2));
}
