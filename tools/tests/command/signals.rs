//! Ctrl-C, SIGTERM and SIGHUP: every command ends with exit code 130, says so, and leaves nothing behind.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use crate::command;
use crate::served::Served;
use crate::tree::Tree;

/// What a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for a command to come to what it waits for. It ends as well if that is too short.
const MOMENT: Duration = Duration::from_millis(500);
/// SIGINT and SIGTERM in `SigCgt` of `/proc/PID/status`. SIGHUP comes before them, unless it is ignored.
const CAUGHT: u64 = 1 << 1 | 1 << 14;
const HANGUP: u64 = 1;

fn until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_reached() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn names(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir(directory).unwrap().map(name).collect()
}

/// A command that gets a signal.
struct Signalled(Child);

impl Signalled {
    /// Starts a command that publishes its cards in `stats`.
    fn start(arguments: &[&str], stats: &Path) -> Self {
        Self::spawn(command(arguments), stats)
    }

    /// As `start`, by way of coreutils' `env`, which has an option about SIGHUP.
    fn start_by_env(option: &str, arguments: &[&str], stats: &Path) -> Self {
        let inner = command(arguments);
        let mut command = Command::new("env");
        command.arg(option).arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Self::spawn(command, stats)
    }

    fn spawn(command: Command, stats: &Path) -> Self {
        Self::spawn_to(Stdio::piped(), command, stats)
    }

    fn spawn_to(stdout: impl Into<Stdio>, command: Command, stats: &Path) -> Self {
        Self::spawn_to_both(stdout, Stdio::piped(), command, stats)
    }

    fn spawn_to_both(stdout: impl Into<Stdio>, stderr: impl Into<Stdio>, mut command: Command, stats: &Path) -> Self {
        command.env("FPGACTL_STATS_DIR", stats).stdout(stdout).stderr(stderr);
        let started = Signalled(command.spawn().unwrap());
        until("it handles signals", || started.caught() & CAUGHT == CAUGHT);
        started
    }

    /// The signals that it handles.
    fn caught(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    /// Whether its first thread waits in a write to stdout. Where the kernel does not tell, it is given time for that.
    fn waits_for_reader(&self) -> bool {
        match fs::read_to_string(format!("/proc/{}/syscall", self.0.id())) {
            Ok(call) => call.starts_with(&format!("{} 0x1 ", nix::libc::SYS_write)),
            Err(_) => {
                thread::sleep(4 * MOMENT);
                true
            }
        }
    }

    fn send(mut self, signal: Signal) -> Output {
        assert_eq!(self.0.try_wait().unwrap(), None, "it has ended before");
        self.raise(signal);
        self.end()
    }

    /// Sends a signal. Nobody has waited for the process: no other has its id.
    fn raise(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    fn end(mut self) -> Output {
        let begin = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            if begin.elapsed() > PATIENCE {
                let _ = self.0.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.0.wait_with_output().unwrap()
    }

    /// Sends a signal, and checks exit code and output of the command, which has `--json`.
    fn ends(self, signal: Signal) {
        let output = self.send(signal);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let error = crate::parsed(&output.stderr);
        assert_eq!((&error["kind"], &error["exit"]), (&"interrupted".into(), &130.into()));
    }
}

#[test]
fn a_computation_ends() {
    let stats = tempfile::tempdir().unwrap();
    let tune = ["tune", "all-to-all", "--shape", "16x16x16", "--packets", "1000"];
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let output = Signalled::start(&tune, stats.path()).send(signal);
        assert_eq!(output.status.code(), Some(130), "{signal}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "fpgactl: interrupted\n");
    }
    for arguments in [&tune[..], &["bench", "mpi-fpga"], &["bench", "novo-g"]] {
        Signalled::start(&[arguments, &["--json"]].concat(), stats.path()).ends(Signal::SIGINT);
    }
}

/// A packet that does not arrive holds the transform up; a card that has stopped, the others.
#[test]
fn a_command_that_waits_for_cards_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (trace, calibration, output) = (path("trace"), path("calibration"), path("output.npy"));
    let dropping = "mock:novo-g:2x2x2+drop=0-1@5";
    let fft = ["fft3d", "--n", "16", "--cards", dropping, "--timeout", "600", "--output", &output];
    let stopped = ["--cards", "mock:optweb:4+stop=2"];
    let coll = [&["coll", "barrier", "--timeout", "600", "--trace", &trace], &stopped[..]].concat();
    let calibrate = [&["calibrate", "--output", &calibration], &stopped[..]].concat();
    for (arguments, cards, temporary) in [(&fft[..], 8, 0), (&coll, 4, 1), (&calibrate, 4, 1)] {
        let stats = tempfile::tempdir().unwrap();
        let waiting = Signalled::start(&[arguments, &["--json"]].concat(), stats.path());
        let published = || names(stats.path()).iter().filter(|name| !name.ends_with(".part")).count();
        until("it publishes its cards", || published() == cards);
        until("it makes its file", || names(directory.path()).len() == temporary);
        thread::sleep(MOMENT);
        waiting.ends(Signal::SIGINT);
        assert_eq!(names(stats.path()), [""; 0], "{arguments:?}");
        // A command that was not yet waiting has written its trace.
        let left = names(directory.path());
        assert!(left.iter().all(|name| name == "trace"), "{arguments:?}: {left:?}");
        let _ = fs::remove_file(&trace);
    }
}

/// As of a terminal that is closed; under `nohup` nothing happens.
#[test]
fn a_hangup_ends_a_command_unless_it_is_ignored() {
    let (directory, stats) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let trace = directory.path().join("trace");
    let repeated = ["coll", "barrier", "--cards", "mock:optweb:4", "--repeat", "1000000000", "--timeout", "3600"];
    let coll = [&repeated[..], &["--json", "--trace", trace.to_str().unwrap()]].concat();
    let running = Signalled::start_by_env("--default-signal=HUP", &coll, stats.path());
    let published = || names(stats.path()).iter().filter(|name| !name.ends_with(".part")).count();
    until("it publishes its cards", || published() == 4);
    until("it makes its file", || !names(directory.path()).is_empty());
    running.ends(Signal::SIGHUP);
    assert_eq!(names(stats.path()), [""; 0]);
    let left = names(directory.path());
    assert!(left.iter().all(|name| name == "trace"), "{left:?}");

    let running = Signalled::start_by_env("--ignore-signal=HUP", &[&repeated[..], &["--json"]].concat(), stats.path());
    assert_eq!(running.caught() & HANGUP, 0);
    kill(Pid::from_raw(running.0.id() as i32), Signal::SIGHUP).unwrap();
    thread::sleep(MOMENT);
    running.ends(Signal::SIGTERM);
}

/// A command that only watches has no destinations that would be undefined.
#[test]
fn a_command_that_watches_is_plainly_interrupted() {
    let stats = tempfile::tempdir().unwrap();
    for arguments in [&["metrics", "--listen", "127.0.0.1:0"][..], &["top", "--once", "--interval", "3600"]] {
        let watching = Signalled::start(arguments, stats.path());
        thread::sleep(MOMENT);
        let output = watching.send(Signal::SIGTERM);
        assert_eq!(output.status.code(), Some(130), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "fpgactl: interrupted\n", "{arguments:?}");
    }
}

/// Nobody reads what the command is to write.
#[test]
fn a_command_that_waits_for_a_reader_ends() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let coll = ["coll", "barrier", "--cards", "mock:optweb:2", "--json", "--trace", pipe.to_str().unwrap()];
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let waiting = Signalled::start(&coll, directory.path());
        thread::sleep(MOMENT);
        waiting.ends(signal);
    }
    assert_eq!(names(directory.path()), ["pipe"]);
}

/// A server that accepts a connection and never answers.
#[test]
fn a_command_that_waits_for_a_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.sock");
    let server = UnixListener::bind(&socket).unwrap();
    let card = format!("vfio-user:{}", socket.display());
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/programs/ring.seq");
    for arguments in [
        &["mem", "read", &card, "0", "64"][..],
        &["mem", "test", &card, "0", "64"],
        &["selftest", &card],
        &["coll", "barrier", "--cards", &card],
        &["run", program, "--cards", &card],
        &["pipe", "--cards", &card],
    ] {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let arguments = [arguments, &["--json"]].concat();
            let waiting = Signalled::start_by_env("--default-signal=HUP", &arguments, directory.path());
            let _connection = server.accept().unwrap();
            waiting.ends(signal);
        }
    }
}

/// Nobody reads its output, or the card has stopped.
#[test]
fn a_command_that_moves_memory_ends_with_one_signal() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let read = ["mem", "read", "mock:optweb:2/0", "0", "8MiB", "--json", "--output", pipe.to_str().unwrap()];
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let waiting = Signalled::start_by_env("--default-signal=HUP", &read, directory.path());
        let mut reader = File::open(&pipe).unwrap();
        reader.read_exact(&mut [0]).unwrap();
        waiting.ends(signal);
    }
    for arguments in [&["read", "mock:optweb:2/0", "0", "64KiB"][..], &["test", "mock:optweb:2/0", "0", "64"]] {
        let (_reader, stdout) = full_pipe();
        let waiting = Signalled::spawn_to(stdout, command(&[&["mem"], arguments].concat()), directory.path());
        thread::sleep(MOMENT);
        let output = waiting.send(Signal::SIGTERM);
        assert_eq!(output.status.code(), Some(130), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "fpgactl: interrupted\n", "{arguments:?}");
    }
    let fill = ["mem", "fill", "mock:optweb:2/0+stop=0", "0", "64", "5", "--json"];
    let waiting = Signalled::start(&fill, directory.path());
    thread::sleep(MOMENT);
    waiting.ends(Signal::SIGINT);
}

/// However many signals come, and of whatever kind.
#[test]
fn a_test_of_memory_restores_it_first() {
    let served = Served::new(&["mock:alveo-xdma:1"]);
    let (card, stats) = (served.card(0), tempfile::tempdir().unwrap());
    let hex = || crate::json(&["mem", "read", &card, "0", "64KiB"])["hex"].as_str().unwrap().to_owned();
    crate::stdout(&["mem", "fill", &card, "0", "64KiB", "0x123456789abcdef"]);
    let before = hex();
    for signal in [Signal::SIGHUP, Signal::SIGTERM] {
        let test = ["mem", "test", &card, "0", "1GiB"];
        let testing = Signalled::start_by_env("--default-signal=HUP", &test, stats.path());
        thread::sleep(MOMENT);
        testing.raise(Signal::SIGINT);
        testing.raise(signal);
        let output = testing.end();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(130), "fpgactl: interrupted\n"), "{signal}");
        assert_eq!(hex(), before, "{signal}");
    }
}

/// A pipe that is full of empty lines.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    // To the last byte, though less than a page fits between.
    while nix::unistd::write(&writer, b"\n").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

/// Nobody reads what the command has done.
#[test]
fn a_command_that_has_restored_everything_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (image, state, tree) = (path("image.gbs"), path("state"), Tree::new(&["machine"]));
    crate::stdout(&["mock", "image", "--output", &image, "--bytes", "4KiB"]);
    let (served, sysfs) = (Served::new(&["mock:s10-dfl:2"]), tree.root().to_str().unwrap());
    let control = served.control(0);
    let loaded = "fpgactl: interrupted; the image is loaded\n";
    for (arguments, message) in [
        (&["image", "load", &image, "mock:s10-dfl:2/0.control"][..], loaded),
        (&["image", "load", &image, &control, "--state-dir", &state], loaded),
        (&["image", "recover", &control, "--state-dir", &state], "fpgactl: interrupted\n"),
        (&["top", "--once", "--interval", "0.1"], "fpgactl: interrupted\n"),
        (&["bind", "0000:3b:00.0", "--sysfs-root", sysfs], "fpgactl: interrupted; the functions are bound\n"),
    ] {
        let (mut reader, stdout) = full_pipe();
        let waiting = Signalled::spawn_to(stdout, command(arguments), directory.path());
        // Everything is restored: it waits to print, and a signal ends it at once.
        until("it waits for a reader", || waiting.waits_for_reader());
        let output = waiting.send(Signal::SIGTERM);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{arguments:?}: {error}");
        assert!(error.ends_with(message), "{arguments:?}: {error}");
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text.trim(), "", "{arguments:?}");
    }
}

/// Nobody reads what the server prints.
#[test]
fn a_server_that_waits_for_a_reader_ends_and_removes_its_sockets() {
    let stats = tempfile::tempdir().unwrap();
    for (signal, format) in [(Signal::SIGINT, None), (Signal::SIGTERM, Some("--json"))] {
        let directory = tempfile::tempdir().unwrap();
        let mut serve =
            command(&["mock", "serve", "mock:optweb:2", "--socket-dir", directory.path().to_str().unwrap()]);
        serve.args(format);
        let (_reader, stdout) = full_pipe();
        let serving = Signalled::spawn_to(stdout, serve, stats.path());
        until("it makes its sockets", || names(directory.path()).len() == 2);
        thread::sleep(MOMENT);
        let output = serving.send(signal);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{error}");
        assert!(error.contains("interrupted; the sockets are removed"), "{error}");
        assert_eq!(names(directory.path()), [""; 0]);
    }
}

/// Nobody reads what it says at its end, whatever that is.
#[test]
fn a_command_ends_though_nobody_reads_its_errors() {
    let stats = tempfile::tempdir().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (_reader, stderr) = full_pipe();
    let serve = command(&["mock", "serve", "mock:optweb:2", "--socket-dir", directory.path().to_str().unwrap()]);
    let serving = Signalled::spawn_to_both(Stdio::null(), stderr.try_clone().unwrap(), serve, stats.path());
    until("it makes its sockets", || names(directory.path()).len() == 2);
    assert_eq!(serving.send(Signal::SIGTERM).status.code(), Some(130));
    assert_eq!(names(directory.path()), [""; 0]);
    // A failure waits for its reader, and a signal ends that.
    let failing =
        Signalled::spawn_to_both(Stdio::null(), stderr, command(&["coll", "send", "--peer", "9"]), stats.path());
    thread::sleep(MOMENT);
    assert_eq!(failing.send(Signal::SIGTERM).status.code(), Some(130));
}

/// It reads when the server has waited for a while, and gets more than a pipe takes at once.
#[test]
fn a_server_tells_a_late_reader_all_its_sockets() {
    let stats = tempfile::tempdir().unwrap();
    let directory = tempfile::tempdir().unwrap();
    // 64 paths of at least 64 bytes.
    let folder = directory.path().join("s".repeat(48));
    let serve = command(&["mock", "serve", "mock:optweb:64", "--socket-dir", folder.to_str().unwrap()]);
    let (reader, stdout) = full_pipe();
    let serving = Signalled::spawn_to(stdout, serve, stats.path());
    until("it makes its sockets", || folder.exists() && names(&folder).len() == 64);
    thread::sleep(MOMENT);
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap).filter(|line| !line.is_empty());
    for node in 0..64 {
        assert_eq!(lines.next().unwrap(), format!("vfio-user:{}/{node}.sock", folder.display()));
    }
    assert!(lines.next().unwrap().starts_with("serving until interrupted"));
    let output = serving.send(Signal::SIGINT);
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(&folder), [""; 0]);
}

/// As of `timeout`, which signals a process and its group.
#[test]
fn a_server_removes_its_sockets_however_many_signals_come() {
    let stats = tempfile::tempdir().unwrap();
    for (first, second) in [(Signal::SIGINT, Signal::SIGTERM), (Signal::SIGTERM, Signal::SIGHUP)] {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().to_str().unwrap();
        let serve = ["mock", "serve", "mock:optweb:4", "--socket-dir", folder];
        let mut serving = Signalled::start_by_env("--default-signal=HUP", &serve, stats.path());
        let mut lines = BufReader::new(serving.0.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().starts_with("serving") {}
        assert_eq!(names(directory.path()).len(), 4);
        serving.raise(first);
        serving.raise(second);
        let output = serving.end();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(130), "fpgactl: interrupted; the sockets are removed\n"));
        assert_eq!(names(directory.path()), [""; 0]);
    }
}

/// The measurement ends first, with a failure that the signal did not cause.
#[test]
fn a_sweep_over_a_stopped_card_was_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("sweep.csv");
    let sweep = ["bench", "coll", "barrier", "--cards", "mock:optweb:4+stop=2", "--timeout", "5", "--json", "--csv"];
    let sweep = Signalled::start(&[&sweep[..], &[csv.to_str().unwrap()]].concat(), directory.path());
    until("it begins", || csv.exists());
    thread::sleep(MOMENT);
    sweep.ends(Signal::SIGINT);
}
