//! What the command promises beside its results: no option is ignored, no input is lost, and real cards are never passed over.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fpga_hal::{Domain, vfio_user};

use crate::tree::Tree;
use crate::{command, json, run, stdout};

fn error(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text)
}

/// As in shells and service files, where a variable cannot always be removed.
#[test]
fn an_empty_variable_counts_as_unset() {
    let names = ["CARDS", "BOARDS", "STATS_DIR", "SYSFS_ROOT", "CALIBRATION", "STATE_DIR"];
    for name in names.map(|name| format!("FPGACTL_{name}")) {
        for arguments in [&["schema"][..], &["plan", "barrier"], &["topo", "--cards", "mock:optweb:2"]] {
            let mut command = command(arguments);
            // Whatever cards the machine has.
            if name == "FPGACTL_SYSFS_ROOT" {
                command.args((arguments[0] == "plan").then_some("--cards=mock:optweb:2"));
            }
            let output = command.env(&name, "").output().unwrap();
            assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn options_without_effect_are_refused() {
    for arguments in [
        &["list", "--all", "--cards", "mock:optweb:2"] as &[&str],
        &["info", "0000:3b:00.0", "--cards", "mock:optweb:2"],
        &["doctor", "mock:optweb:2", "--cards", "mock:optweb:2"],
        &["bind", "0000:3b:00.0", "--cards", "mock:optweb:2"],
        &["--cards", "mock:optweb:2", "unbind", "0000:3b:00.0"],
        &["reset", "mock:optweb:2", "--force"],
        &["reset", "0000:3b:00.0", "--errors", "--force"],
        &["reset", "mock:optweb:2", "--cards", "mock:optweb:2"],
        &["reg", "mock:optweb:2", "NODE", "--cards", "mock:optweb:2"],
        &["coll", "barrier", "--bytes", "64"],
        &["coll", "barrier", "--output", "x.npy"],
        &["coll", "barrier", "--input", "x.npy"],
        &["coll", "barrier", "--seed", "1"],
        &["coll", "barrier", "--dtype", "f32"],
        &["coll", "barrier", "--eager-limit", "0"],
        &["coll", "allgather", "--peer", "1"],
        &["coll", "allgather", "--root", "0"],
        &["coll", "allgather", "--op", "sum"],
        &["coll", "allgather", "--order", "rank"],
        &["coll", "allgather", "--counts", "1,2,3,4"],
        &["coll", "scatter", "--peer", "1"],
        &["coll", "send", "--input", "x.npy", "--seed", "1"],
        &["plan", "barrier", "--bytes", "64"],
        &["plan", "alltoall", "--root", "1"],
        &["channel", "check", "x.xml", "--cards", "mock:optweb:2"],
        &["channel", "generate", "x.xml", "--output", "x", "--cards", "mock:optweb:2"],
        &["asm", "x.seq", "--cards", "mock:optweb:2"],
        &["disasm", "x.seqb", "--cards", "mock:optweb:2"],
        &["run", "x.seqb", "--root", "."],
        &["run", "x.seq", "--dtype", "f32", "--dump", "a=x"],
        &["run", "x.seq", "--repeat", "2"],
        &["bench", "optweb", "--cards", "mock:optweb:2"],
        &["bench", "optweb", "--figure", "12"],
        &["bench", "bluelink", "--cards", "mock:optweb:2"],
        &["topo", "--dragonfly", "6", "--cards", "mock:optweb:2"],
        &["mock", "serve", "--socket-dir", "x", "--cards", "mock:optweb:2"],
        &["image", "inspect", "x.gbs", "--cards", "mock:optweb:2"],
        &["image", "load", "x.gbs", "mock:s10-dfl:2/0.control", "--cards", "mock:optweb:2"],
        &["image", "load", "x.gbs", "mock:s10-dfl:2/0.control", "--state-dir", "x"],
        &["image", "recover", "mock:s10-dfl:2/0.control", "--state-dir", "x"],
        &["mock", "image", "--output", "x.gbs", "--cards", "mock:optweb:2"],
        &["completions", "bash", "--cards", "mock:optweb:2"],
        &["completions", "bash", "--json"],
        &["asm", "x.seq", "--sysfs-root", "/"],
    ] {
        let (code, text) = error(arguments);
        assert_eq!(code, 2, "{arguments:?}: {text}");
    }
    // What the environment says is for other commands too.
    let output = command(&["completions", "bash"]).env("FPGACTL_CARDS", "mock:optweb:2").output().unwrap();
    assert!(output.status.success());
}

/// Commands that need cards, on a machine with two that are bound: mock cards are not taken in silence.
#[test]
fn bound_cards_must_be_named() {
    let tree = Tree::new(&["machine"]);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/programs/ring.seq");
    let (file, program) = (tree.path("calibration"), program.to_str().unwrap().to_owned());
    for arguments in [
        &["coll", "barrier"] as &[&str],
        &["plan", "allgather"],
        &["calibrate", "--output", file.to_str().unwrap()],
        &["run", &program],
        &["info"],
        &["pipe"],
        &["topo"],
    ] {
        let output = command(arguments).env("FPGACTL_SYSFS_ROOT", tree.root()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty());
        for words in ["vfio:0000:3b:00.0 (free)", "vfio:0000:5e:00.1 (held by 4711 (train))", "--cards mock:optweb:4"] {
            assert!(text.contains(words), "{text}");
        }
        let named = [arguments, &["--cards", "mock:optweb:4"]].concat();
        let output = command(&named).env("FPGACTL_SYSFS_ROOT", tree.root()).output().unwrap();
        assert!(output.status.success(), "{named:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Cards that their kernel's driver has are no cards to use.
    let tree = Tree::new(&["machine", "wrong-driver"]);
    fs::remove_dir_all(tree.path("sys/bus/pci/devices/0000:5e:00.1"))
        .or_else(|_| fs::remove_file(tree.path("sys/bus/pci/devices/0000:5e:00.1")))
        .unwrap();
    let output = command(&["coll", "barrier"]).env("FPGACTL_SYSFS_ROOT", tree.root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn no_output_replaces_an_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    stdout(&[
        "coll",
        "broadcast",
        "--bytes",
        "64",
        "--cards",
        "mock:optweb:2",
        "--group",
        "1,0",
        "--output",
        &path("x.npy"),
    ]);
    fs::rename(path("x-0.npy"), path("in.npy")).unwrap();
    fs::hard_link(path("in.npy"), path("hard.npy")).unwrap();
    symlink("in.npy", path("soft.npy")).unwrap();
    let program = "ranks 2\nbuffer a = card size 4KiB\ninclude \"more.seq\"\n";
    fs::write(path("p.seq"), program).unwrap();
    fs::write(path("more.seq"), "nop\n").unwrap();
    let before = fs::read(path("in.npy")).unwrap();
    let two = ["--cards", "mock:optweb:2"];
    let calibration = path("calibration");
    stdout(&["calibrate", "--cards", "mock:optweb:2", "--output", &calibration]);
    let (load, dump) = (format!("a={}", path("in.npy")), |name: &str| format!("a@0={}", path(name)));
    for (arguments, on_cards) in [
        (&["coll", "send", "--input", &path("in.npy"), "--output", &path("in.npy")] as &[&str], true),
        (&["coll", "send", "--input", &path("in.npy"), "--output", &path("hard.npy")], true),
        (&["coll", "send", "--input", &path("in.npy"), "--output", &path("soft.npy")], true),
        (&["coll", "send", "--calibration", &calibration, "--output", &calibration], true),
        (&["plan", "send", "--calibration", &calibration, "--save", &calibration], true),
        (&["asm", &path("p.seq"), "-o", &path("p.seq")], false),
        (&["asm", &path("p.seq"), "-o", &path("more.seq")], false),
        (&["run", &path("p.seq"), "--load", &load, "--dump", &dump("hard.npy")], true),
        (&["run", &path("p.seq"), "--dump", &dump("p.seq")], true),
        (&["run", &path("p.seq"), "--dump", &dump("new"), "--dump", &dump("new")], true),
    ] {
        let (code, text) = error(&[arguments, if on_cards { &two } else { &[] }].concat());
        assert_eq!(code, 7, "{arguments:?}: {text}");
        assert!(text.contains("is also an input") || text.contains("are one file"), "{text}");
    }
    assert_eq!(fs::read(path("in.npy")).unwrap(), before);
    assert_eq!(fs::read_to_string(path("p.seq")).unwrap(), program);
}

/// One code for a file that is not there, whichever command looks for it.
#[test]
fn a_missing_file_is_4() {
    for arguments in [
        &["coll", "send", "--input", "/nowhere/x.npy"] as &[&str],
        &["coll", "send", "--output", "/nowhere/x.npy"],
        &["coll", "send", "--calibration", "/nowhere/x"],
        &["plan", "send", "--save", "/nowhere/x"],
        &["plan", "send", "--calibration", "/nowhere/x"],
        &["calibrate", "--output", "/nowhere/x"],
        &["asm", "/nowhere/x.seq"],
        &["asm", "tests/command/programs/ring.seq", "-o", "/nowhere/x"],
        &["disasm", "/nowhere/x"],
        &["lint", "/nowhere/x.seq"],
        &["channel", "check", "/nowhere/x.xml"],
        &["channel", "load", "/nowhere/x.xml"],
        &["channel", "generate", "/nowhere/x.xml", "--output", "/nowhere"],
        &["channel", "generate", "tests/command/programs/pingpong.xml", "--output", "/dev/null/x"],
        &["run", "/nowhere/x.seq"],
        &["run", "/nowhere/x"],
        &["tune", "/nowhere/x"],
        &["mock", "serve", "--socket-dir", "/nowhere/x"],
        &["bench", "optweb", "--row", "barrier/total", "--svg", "/dev/null/x"],
        &["bench", "bluelink", "--row", "latency/fifo", "--svg", "/dev/null/x"],
    ] {
        let output = run(&[arguments, &["--json"]].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {text}");
        let error = crate::parsed(&text);
        assert_eq!((&error["kind"], &error["exit"]), (&"no-file".into(), &4.into()), "{arguments:?}");
    }
}

/// clap would take `-1` for an option, and advise `-- -1`.
#[test]
fn negative_numbers_are_refused_as_values() {
    for (arguments, name) in [
        (&["coll", "broadcast", "--bytes", "-1"] as &[&str], "--bytes"),
        (&["coll", "broadcast", "--repeat", "-1"], "--repeat"),
        (&["coll", "broadcast", "--timeout", "-1"], "--timeout"),
        (&["bench", "coll", "broadcast", "-b", "-1"], "--begin"),
        (&["mem", "fill", "mock:optweb:4/0", "0", "8", "-1"], "<PATTERN>"),
        (&["reg", "mock:optweb:4", "SCRATCH", "-1"], "[VALUE]"),
    ] {
        let (code, text) = error(arguments);
        assert!(code == 2 && text.contains(name) && !text.contains("tip:"), "{arguments:?}: {text}");
    }
}

#[test]
fn data_beyond_the_memory_of_the_machine_is_refused() {
    let (code, text) = error(&["coll", "allgather", "--bytes", "100M", "--cards", "mock:optweb:64"]);
    assert_eq!(code, 7, "{text}");
    assert!(text.contains("the limit is half of the") && text.contains("reduce --bytes"), "{text}");
}

#[test]
fn bad_offsets_and_several_cards_are_2() {
    for register in ["0x3", "0x1001", "0x100000000", "0xfffffffffffffffc", "bar5:0"] {
        let (code, text) = error(&["reg", "mock:optweb:4", register]);
        assert_eq!(code, 2, "{register}: {text}");
        assert!(text.contains("mock:optweb:4/0"), "{text}");
    }
    assert_eq!(error(&["reg", "mock:optweb:4/0,mock:optweb:4/1", "NODE"]).0, 2);
    assert_eq!(json(&["reg", "mock:optweb:4/0", "NODE"])["mock"], true);
}

#[test]
fn a_delay_no_card_can_wait_is_refused() {
    let (code, text) = error(&["coll", "barrier", "--start-delay", "0,86400000000,0,0"]);
    assert_eq!(code, 7, "{text}");
    assert!(text.contains("rank 1"), "{text}");
}

#[test]
fn many_skews_are_counted() {
    let text = stdout(&["coll", "barrier", "--repeat", "40", "--cards", "mock:optweb:3"]);
    assert!(text.contains("max of 40") && text.lines().all(|line| line.len() < 250), "{text}");
}

/// Nobody reads stderr: the exit code is the same.
#[test]
fn errors_need_no_reader() {
    for arguments in [&["nothing"] as &[&str], &["coll", "nothing", "--json"], &["coll", "send", "--peer", "9"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let code = error(arguments).0;
        let status = command(arguments).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

/// Sockets that `mock serve` makes: `list` shows which are held, a directory selects them all, and Ctrl-C is 130.
#[test]
fn sockets_are_listed_and_selected_by_their_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut server = command(&["mock", "serve", "mock:optweb:3", "--socket-dir", path]);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut announced = Vec::new();
    while announced.len() < 3 {
        announced.extend(lines.next().unwrap().ok().filter(|line| line.starts_with("vfio-user:")));
    }
    let all = format!("vfio-user:{path}");
    let coll = json(&["coll", "allgather", "--bytes", "64", "--cards", &all]);
    assert_eq!((&coll["ranks"], &coll["mock"]), (&3.into(), &true.into()));
    // Of a fabric held by others, one card is no barrier, and two are said to be two.
    let (code, text) = error(&["coll", "barrier", "--cards", &announced[0]]);
    assert_eq!(code, 7, "{text}");
    assert!(text.contains("1 card of a fabric of 3"), "{text}");
    let two = json(&["coll", "barrier", "--cards", &announced[..2].join(",")]);
    assert_eq!((&two["ranks"], &two["notes"][0]), (&2.into(), &"2 of the fabric's 3 cards take part".into()));
    let states = || {
        let mut list = command(&["list", "--json", "--cards", &all]);
        let output = list.env("FPGACTL_SYSFS_ROOT", "/").output().unwrap();
        let printed = crate::parsed(&output.stdout);
        let cards = printed["cards"].as_array().unwrap();
        let selectors: Vec<_> = cards.iter().map(|card| card["selector"].as_str().unwrap()).collect();
        assert_eq!(selectors, announced);
        cards.iter().map(|card| card["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The server takes a moment to see that a client has gone.
    let deadline = Instant::now() + Duration::from_secs(60);
    let until = |expected: [&str; 3]| {
        while states() != expected {
            assert!(Instant::now() < deadline, "{:?}, and not {expected:?}", states());
            thread::sleep(Duration::from_millis(5));
        }
    };
    until(["free", "free", "free"]);
    let client = UnixStream::connect(directory.path().join("1.sock")).unwrap();
    until(["free", "held", "free"]);
    drop(client);
    until(["free", "free", "free"]);
    let interrupt = Command::new("kill").args(["-s", "INT", &server.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = server.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A server whose socket's directory is relative to its own, and which is then killed.
#[test]
fn a_socket_is_held_and_left_over_by_whatever_path_it_was_bound() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = command(&["mock", "serve", "mock:optweb:2", "--socket-dir", "cards"]);
    let mut server = server.current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let announced: Vec<_> =
        lines.by_ref().map(Result::unwrap).take_while(|line| !line.starts_with("serving")).collect();
    let folder = directory.path().join("cards");
    let card = |node: u32| format!("vfio-user:{}/{node}.sock", folder.display());
    assert_eq!(announced, [card(0), card(1)]);
    let on_machine = |arguments: &[&str]| {
        let output = command(arguments).env("FPGACTL_SYSFS_ROOT", "/").output().unwrap();
        (output.status.code(), crate::parsed(&output.stdout))
    };
    let state = || on_machine(&["list", "--json", "--cards", &card(1)]).1["cards"][0]["state"].clone();
    let socket = || {
        let (code, printed) = on_machine(&["doctor", "--json", "--cards", &card(1)]);
        (code, printed["checks"].as_array().unwrap().iter().find(|check| check["id"] == "socket").unwrap().clone())
    };
    assert_eq!(state(), "free");
    let client = vfio_user::connect(&folder.join("1.sock"), &Domain::vfio_user()).unwrap();
    assert_eq!(state(), "held");
    let (code, found) = socket();
    assert_eq!((code, &found["ok"]), (Some(0), &true.into()), "{found}");
    // Neither has taken its card away.
    assert!(!client.is_removed());

    server.kill().unwrap();
    server.wait().unwrap();
    drop(client);
    assert_eq!(state(), "silent");
    let (code, found) = socket();
    assert_eq!((code, &found["ok"], &found["found"]), (Some(1), &false.into(), &"no process listens".into()));
    assert_eq!(found["mend"], format!("fpgactl mock serve --socket-dir {}", folder.display()));
}

/// A served one, one that was left, and one that is named without a folder.
#[test]
fn a_socket_that_cannot_be_opened_by_its_path_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("f".repeat(100));
    fs::create_dir(&folder).unwrap();
    // The kernel's own path to the folder is short enough.
    let held = fs::File::open(&folder).unwrap();
    let server = UnixListener::bind(format!("/proc/self/fd/{}/0.sock", held.as_raw_fd())).unwrap();
    let other = directory.path().join("1.sock");
    let _other = UnixListener::bind(&other).unwrap();
    let card = format!("vfio-user:{}/0.sock", folder.display());
    let bytes = card.len() - "vfio-user:".len();
    let why = format!("the path has {bytes} bytes: a socket's has at most 107; use a shorter one");
    let check = || {
        let (code, text) = error(&["list", "--cards", &card]);
        assert!(code == 4 && text.contains(&format!("0.sock: {why}")), "{text}");
        let both = json(&["list", "--cards", &format!("{card},vfio-user:{}", other.display())]);
        let states: Vec<_> = both["cards"].as_array().unwrap().iter().map(|one| one["state"].as_str()).collect();
        assert_eq!(states, [Some("silent"), Some("free")]);
        let examined = run(&["doctor", &card]);
        let text = String::from_utf8(examined.stdout).unwrap();
        assert!(examined.status.code() == Some(1) && text.contains(&why), "{text}");
    };
    check();
    drop(server);
    check();
    let examined = command(&["doctor", "vfio-user:x.sock"]).current_dir(&folder).output().unwrap();
    let text = String::from_utf8(examined.stdout).unwrap();
    assert!(text.contains("fix: fpgactl mock serve --socket-dir .\n"), "{text}");
}

/// A process listens there, but no server of cards.
#[test]
fn a_datagram_socket_is_the_wrong_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let _datagrams = UnixDatagram::bind(&path).unwrap();
    let card = format!("vfio-user:{}", path.display());
    let output = command(&["doctor", "--json", "--cards", &card]).env("FPGACTL_SYSFS_ROOT", "/").output().unwrap();
    let printed = crate::parsed(&output.stdout);
    let found = printed["checks"].as_array().unwrap().iter().find(|check| check["id"] == "socket").unwrap();
    assert_eq!((output.status.code(), &found["ok"]), (Some(1), &false.into()), "{found}");
    assert_eq!(found["found"], "not a stream socket");
    assert_eq!(found["cause"], "the selector names the wrong file");
    assert_eq!(error(&["list", "--cards", &card]), (4, format!("fpgactl: {}: not a stream socket\n", path.display())));
}

/// Others are listed although one is no server's.
#[test]
fn a_directory_is_listed_whatever_sockets_are_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let _server = UnixListener::bind(path("0.sock")).unwrap();
    let _datagrams = UnixDatagram::bind(path("1.sock")).unwrap();
    let listed = json(&["list", "--cards", &format!("vfio-user:{}", directory.path().display())]);
    let states: Vec<&str> =
        listed["cards"].as_array().unwrap().iter().map(|card| card["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["free", "silent"]);
}

/// What `list` prints selects the same cards.
#[test]
fn listed_selectors_select() {
    let listed = json(&["list", "--cards", "mock:optweb:3"]);
    let cards: Vec<&str> =
        listed["cards"].as_array().unwrap().iter().map(|card| card["selector"].as_str().unwrap()).collect();
    for card in &cards {
        assert_eq!(json(&["list", "--cards", card])["cards"][0]["selector"], *card);
    }
    let coll = json(&["coll", "allgather", "--bytes", "64K", "--cards", &cards.join(",")]);
    assert_eq!((&coll["ranks"], &coll["bytes"]), (&3.into(), &65536.into()));
}

/// Checks the help of a command and of all its subcommands; returns the number of commands.
fn check_width_of_help(command: &[&str]) -> usize {
    let help = |option| stdout(&[command, &[option]].concat());
    let (long, short) = (help("--help"), help("-h"));
    let wide = long.lines().chain(short.lines()).find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "fpgactl {command:?}");
    let listed = long.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continued descriptions are indented further than names.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split_once(' ')).map(|(name, _)| name);
    let subcommands = names.filter(|name| !name.is_empty() && *name != "help");
    1 + subcommands.map(|name| check_width_of_help(&[command, &[name]].concat())).sum::<usize>()
}

#[test]
fn the_help_of_every_subcommand_fits_80_columns() {
    assert!(check_width_of_help(&[]) > 20, "the help lists all subcommands");
}

/// Each command is told the default cards that it has, and no option that it always refuses.
#[test]
fn help_is_of_the_command() {
    let help = |command: &[&str]| stdout(&[command, &["--help"]].concat());
    for command in [
        &["asm"][..],
        &["schema"],
        &["tune", "cube"],
        &["top"],
        &["metrics"],
        &["mock", "serve"],
        &["bench", "novo-g"],
        &["mem", "read"],
        &["selftest"],
    ] {
        assert!(!help(command).contains("--cards <"), "{command:?}");
        assert_eq!(error(&[command, &["--cards", "mock:optweb:2"]].concat()).0, 2, "{command:?}");
    }
    assert!(!help(&["top"]).contains("--json ") && help(&["stats"]).contains("--json "));
    let defaults = [
        (&["coll"][..], "mock:optweb:4"),
        (&["fft3d"], "mock:novo-g:4x4x4"),
        (&["route", "load"], "mock:novo-g:4x4x4"),
        (&["route", "show"], "mock:novo-g:4x4x4"),
        (&["channel", "load"], "mock:circus:8x8"),
        (&["lint"], "mock:optweb cards, one for each rank"),
        (&["bench", "planner"], "mock fabrics of 2 to 968 cards"),
        (&["bench", "accesses"], "mock cards behind each shell"),
        (&["list"], "all known cards"),
        (&["doctor"], "all known cards"),
    ];
    for (command, default) in defaults {
        let help = help(command).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&format!("(docs/cli.md) [default: {default}")), "{command:?}");
        assert_eq!(help.matches("Cards to use").count(), 1, "{command:?}");
    }
    // The block is laid out by hand: no line of it is wrapped.
    let help = help(&[]);
    let mut options = help.lines().skip_while(|line| !line.starts_with("Commands that open cards")).skip(1);
    assert!(
        options
            .by_ref()
            .take_while(|line| !line.is_empty())
            .all(|line| line.starts_with("      --") || line.starts_with(&" ".repeat(27))),
        "{help}"
    );
    assert_eq!(
        options.last(),
        Some("--stats-dir; stats, top and metrics read the counters (docs/stats.md)."),
        "{help}"
    );
    let (code, text) = error(&["metrics", "--listen", "localhost:9990"]);
    assert!(code == 2 && text.contains("expected an IP address and a port"), "{text}");
}

/// A card of a vendor's driver is not to be taken for nothing, and no card that cannot run `coll` passes.
#[test]
fn doctor_ends_with_the_sequencer() {
    let doctor = |tree: &Tree, card: &str| {
        let output = command(&["doctor", card, "--json"]).env("FPGACTL_SYSFS_ROOT", tree.root()).output().unwrap();
        let printed = crate::parsed(&output.stdout);
        (output.status.code().unwrap(), printed["checks"].as_array().unwrap().clone())
    };
    let check = |checks: &[serde_json::Value], id: &str| checks.iter().find(|one| one["id"] == id).unwrap().clone();
    let tree = Tree::new(&["machine"]);
    let (code, checks) = doctor(&tree, "0000:3b:00.0");
    let last = checks.last().unwrap();
    assert_eq!((code, &last["id"], &last["verdict"]), (0, &"sequencer".into(), &"unknown".into()));
    assert!(last["found"].as_str().unwrap().starts_with("unknown until opened"), "{last}");
    // A disk, on the same machine.
    let (code, checks) = doctor(&tree, "0000:01:00.0");
    let last = checks.last().unwrap();
    assert_eq!((code, &last["id"], &last["ok"]), (1, &"sequencer".into(), &false.into()));
    assert_eq!(last["found"], "no sequencer: unknown PCI ids", "{last}");
    // A card that OPAE has.
    let (_, checks) = doctor(&tree, "0000:5e:00.0");
    let driver = check(&checks, "driver");
    assert_eq!((&driver["ok"], &driver["by"]), (&false.into(), &"hand".into()), "{driver}");
    assert!(driver["mend"].as_str().unwrap().starts_with("keep dfl-pci unless"), "{driver}");
    assert!(driver["cost"].as_str().unwrap().contains("OPAE"), "{driver}");
}
