//! `mock serve SELECTOR -- COMMAND`: cards for the life of one command.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::command;

const BOUND: Duration = Duration::from_secs(60);

/// `fpgactl mock serve mock:optweb:2 -- WORDS`, with its temporary files in `directory`.
fn serving(directory: &TempDir, words: &[&str]) -> Command {
    let mut command = command(&[&["mock", "serve", "mock:optweb:2", "--"], words].concat());
    command.env("TMPDIR", directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let output = serving(&directory, words).output().unwrap();
    assert_empty(directory.path());
    output
}

fn assert_empty(directory: &Path) {
    let left: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "files are left: {left:?}");
}

fn wait(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if begin.elapsed() > BOUND => {
                let _ = child.kill();
                panic!("it does not end");
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Each card's server has a share of the mappings that a process may have.
#[test]
fn one_process_opens_many_served_cards() {
    let fpgactl = env!("CARGO_BIN_EXE_fpgactl");
    let directory = tempfile::tempdir().unwrap();
    let mut command = command(&["mock", "serve", "mock:optweb:8x16", "--", fpgactl, "coll", "barrier", "--json"]);
    let output = command.env("TMPDIR", directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(crate::parsed(&output.stdout)["ranks"], 128);
}

#[test]
fn the_command_has_cards_and_its_exit_code_is_fpgactls() {
    let fpgactl = env!("CARGO_BIN_EXE_fpgactl");
    let output = run(&[fpgactl, "coll", "allgather", "--bytes", "64", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = crate::parsed(&output.stdout);
    assert_eq!((&printed["ranks"], &printed["kind"]), (&2.into(), &"vfio-user".into()));
    for code in [0, 1, 3, 42, 255] {
        let output = run(&["sh", "-c", &format!("exit {code}")]);
        assert_eq!((output.status.code(), output.stdout.len(), output.stderr.len()), (Some(code), 0, 0));
    }
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]).status.code(), Some(128 + 9));
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).status.code(), Some(128 + 15));
    // The words after the first are the command's own, options too.
    assert_eq!(run(&["echo", "--json", "--cards", "x"]).stdout, b"--json --cards x\n");
}

#[test]
fn all_cards_and_no_other_functions_are_selected() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command(&["mock", "serve", "mock:s10-dfl:2", "--", "sh", "-c", "echo $FPGACTL_CARDS"]);
    let output = command.env("TMPDIR", directory.path()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = printed.trim().split(',').map(|card| card.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["0.sock", "1.sock"]);
}

#[test]
fn a_signal_reaches_the_command_whose_end_is_fpgactls() {
    for (signal, code) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)] {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("trap 'echo got; exit {code}' {signal}; echo ready; while :; do sleep 0.02; done");
        let mut child = serving(&directory, &["sh", "-c", &script]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(wait(&mut child).code(), Some(code), "{signal}");
        assert_eq!(lines.next().unwrap().unwrap(), "got", "{signal}");
        assert_empty(directory.path());
    }
}

/// The folder exists before the command: a signal in between is like one to the command.
#[test]
fn a_signal_before_the_command_starts_leaves_no_folder() {
    for _ in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let mut child = command(&["mock", "serve", "mock:optweb:64", "--", "sleep", "600"]);
        let mut child = child.env("TMPDIR", directory.path()).stderr(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        while fs::read_dir(directory.path()).unwrap().next().is_none() {
            assert!(begin.elapsed() < BOUND, "no folder is made");
        }
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        assert_eq!(wait(&mut child).code(), Some(130));
        assert_empty(directory.path());
    }
}

/// Clients could not name the sockets: a comma separates selectors, and those are UTF-8.
#[test]
fn a_folder_that_no_selector_can_name_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    for name in [&b"cm,ma"[..], b"m\xffa"] {
        let folder = parent.path().join(OsStr::from_bytes(name));
        let serve = ["mock", "serve", "mock:optweb:2", "--socket-dir"];
        let refused = command(&serve).arg(&folder).output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(7), 0), "{text}");
        assert!(text.contains("no selector can name sockets in"), "{text}");
        assert!(!folder.exists());

        fs::create_dir(&folder).unwrap();
        let refused =
            command(&["mock", "serve", "mock:optweb:2", "--", "true"]).env("TMPDIR", &folder).output().unwrap();
        assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
        assert_empty(&folder);
    }
}

#[test]
fn a_command_that_does_not_start_is_one_line() {
    let output = run(&["/nowhere/command"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("/nowhere/command") && text.lines().count() == 1, "{text}");
    let usage = |words: &[&str]| command(&[&["mock", "serve"], words].concat()).output().unwrap().status.code();
    assert_eq!(usage(&["--socket-dir", "/nowhere/x", "--", "true"]), Some(2), "both a folder and a command");
    let neither = command(&["mock", "serve"]).output().unwrap();
    let text = String::from_utf8_lossy(&neither.stderr).into_owned();
    assert_eq!(neither.status.code(), Some(2), "{text}");
    assert!(text.contains("--socket-dir <DIR>|COMMAND"), "{text}");
    let usage_line = "Usage: fpgactl mock serve [OPTIONS] [SELECTOR] <--socket-dir DIR|-- COMMAND...>";
    assert!(text.lines().any(|line| line == usage_line), "{text}");
    assert_eq!(usage(&["--json", "--", "true"]), Some(2), "--json has no effect");
}
