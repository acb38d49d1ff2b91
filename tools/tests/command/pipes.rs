//! `fpgactl pipe`: between two processes, and with both ends in one.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::served::Served;
use crate::{command, run};

/// The data of the tests: longer than the slots of a pipe hold.
fn data() -> Vec<u8> {
    (0..1_500_000u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// A pipe with its stdin, stdout and stderr at hand.
fn pipe(arguments: &[&str]) -> Child {
    let mut pipe = command(&[&["pipe"], arguments].concat());
    pipe.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Writes `data` to a pipe's stdin, and closes it.
fn feed(pipe: &mut Child, data: Vec<u8>) -> thread::JoinHandle<bool> {
    let mut stdin = pipe.stdin.take().unwrap();
    thread::spawn(move || stdin.write_all(&data).is_ok())
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap().success());
}

/// Feeds a pipe until it is full, because nobody reads its `output` after the first bytes. They have come through when this returns.
fn fill(mut stdin: ChildStdin, output: &mut ChildStdout) -> thread::JoinHandle<()> {
    let fed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fed);
    let feeding = thread::spawn(move || {
        while stdin.write_all(&[b'y'; 4096]).is_ok() {
            count.fetch_add(1, Relaxed);
        }
    });
    output.read_exact(&mut [0; 10]).unwrap();
    // It is full when it takes nothing more for long.
    let mut before = usize::MAX;
    while std::mem::replace(&mut before, fed.load(Relaxed)) != fed.load(Relaxed) {
        thread::sleep(Duration::from_secs(2));
    }
    feeding
}

/// Exit code and stderr of a pipe that ends although nobody reads its output.
fn end_unread(mut child: Child) -> (i32, String) {
    let _output = child.stdout.take();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("the pipe does not end: {:?}", end(child));
        }
        thread::sleep(Duration::from_millis(10));
    }
    end(child)
}

/// Exit code and stderr.
fn end(child: Child) -> (i32, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The end that writes, and the end that reads.
fn ends(served: &Served) -> (Child, Child) {
    (pipe(&["--cards", &served.card(0), "--from", "0"]), pipe(&["--cards", &served.card(1), "--from", "0"]))
}

/// Both ends, once some data has come through, and the stdin of the one that writes.
fn begun(served: &Served) -> (Child, Child, ChildStdin) {
    let (mut writer, mut reader) = ends(served);
    let mut stdin = writer.stdin.take().unwrap();
    stdin.write_all(b"until here").unwrap();
    reader.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    (writer, reader, stdin)
}

#[test]
fn one_process_has_both_ends() {
    for arguments in [
        &[] as &[&str],
        &["--cards", "mock:optweb:2", "--from", "1", "--to", "0", "--address", "0x10000", "--key", "7"],
        &["--cards", "mock:circus:3x3"],
        &["--cards", "mock:bluelink:4", "--timeout", "60"],
    ] {
        let mut child = pipe(arguments);
        let fed = feed(&mut child, data());
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
        assert!(output.stdout == data(), "{arguments:?}");
        assert!(fed.join().unwrap());
    }
}

#[test]
fn a_node_that_the_fabric_does_not_have_is_no_card() {
    for arguments in [["--from", "9"], ["--to", "4"]] {
        let child = pipe(&[&["--cards", "mock:bluelink:4"][..], &arguments].concat());
        let (code, error) = end(child);
        let node = arguments[1];
        assert_eq!((code, error), (4, format!("fpgactl: no node {node} (available: 0 to 3)\n")));
    }
}

#[test]
fn two_processes_have_one_end_each() {
    let served = Served::new(&["mock:bluelink:2"]);
    // The second pipe finds nothing of the first.
    for data in [data(), b"one line\n".to_vec(), Vec::new()] {
        let (mut writer, reader) = ends(&served);
        let fed = feed(&mut writer, data.clone());
        let output = reader.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == data);
        assert_eq!(end(writer), (0, String::new()));
        assert!(fed.join().unwrap());
    }
}

/// Whichever end is interrupted, the other learns of it and ends by itself.
#[test]
fn an_interrupted_end_closes_the_pipe() {
    let served = Served::new(&["mock:bluelink:2"]);
    let (writer, reader, _stdin) = begun(&served);
    interrupt(&writer);
    assert_eq!(end(writer), (130, "fpgactl: interrupted; destinations are undefined\n".to_owned()));
    assert_eq!(end(reader), (0, String::new()));

    let (mut writer, mut reader) = ends(&served);
    // More than ever comes: the reader always has something to read.
    let mut endless = writer.stdin.take().unwrap();
    let feeding = thread::spawn(move || while endless.write_all(&[b'y'; 4096]).is_ok() {});
    reader.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    interrupt(&reader);
    assert_eq!(end_unread(reader).0, 130);
    assert_eq!(end(writer), (1, "fpgactl: The reader has closed the pipe\n".to_owned()));
    feeding.join().unwrap();
}

/// What the writer gets when the reader has closed is refused, even if it is the last.
#[test]
fn a_writer_whose_last_data_is_refused_fails() {
    let served = Served::new(&["mock:bluelink:2"]);
    let (writer, reader, mut stdin) = begun(&served);
    interrupt(&reader);
    assert_eq!(end(reader), (130, "fpgactl: interrupted; destinations are undefined\n".to_owned()));
    // The server has seen that the reader is gone.
    thread::sleep(Duration::from_millis(300));
    stdin.write_all(b"hello\n").unwrap();
    drop(stdin);
    assert_eq!(end(writer), (1, "fpgactl: The reader has closed the pipe\n".to_owned()));
}

/// A writer that is interrupted while the pipe is full does not leave the reader waiting, nor with a part that passes for all.
#[test]
fn a_writer_that_is_interrupted_while_the_pipe_is_full_tells_the_reader() {
    let served = Served::new(&["mock:bluelink:2"]);
    let (mut writer, mut reader) = ends(&served);
    let mut output = reader.stdout.take().unwrap();
    let feeding = fill(writer.stdin.take().unwrap(), &mut output);
    interrupt(&writer);
    assert_eq!(end(writer), (130, "fpgactl: interrupted; destinations are undefined\n".to_owned()));
    feeding.join().unwrap();
    let mut rest = Vec::new();
    let _ = output.read_to_end(&mut rest).unwrap();
    assert!(rest.iter().all(|byte| *byte == b'y'));
    assert_eq!(end(reader), (1, "fpgactl: The writer has ended before all its data had left\n".to_owned()));
}

/// With both ends in one process, the reader does not wait for a writer that has failed, and the failure is told.
#[test]
fn one_process_ends_with_the_first_failure() {
    // Once the writer's card moves the first data.
    let mut child = pipe(&["--cards", "mock:bluelink:2x2+cut=0-1@0.0.1000", "--from", "0", "--to", "1"]);
    let fed = feed(&mut child, data());
    let (code, errors) = end(child);
    assert_eq!(code, 6, "{errors}");
    assert!(errors.contains("(put_signal): the link to the peer is missing or down (node 1)"), "{errors}");
    assert!(!fed.join().unwrap());
    // The reader fails, while the writer waits for its input.
    let mut command = command(&["pipe", "--cards", "mock:bluelink:2"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello\n").unwrap();
    let (code, errors) = end(child);
    assert!(code == 1 && errors.starts_with("fpgactl: stdout: "), "{code}: {errors}");
    drop(stdin);
}

/// With both ends in one process, a failure or a signal ends it although nobody reads its output.
#[test]
fn one_process_ends_although_nobody_reads_its_output() {
    for limit in [&[] as &[&str], &["--timeout", "5"]] {
        let mut child = pipe(&[&["--cards", "mock:bluelink:2"], limit].concat());
        let stdin = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let feeding = fill(stdin, &mut output);
        if limit.is_empty() {
            interrupt(&child);
        }
        let (code, errors) = end_unread(child);
        match limit.is_empty() {
            true => assert_eq!((code, &*errors), (130, "fpgactl: interrupted; destinations are undefined\n")),
            false => assert!(code == 5 && errors.contains("the reader to make room in the pipe"), "{code}: {errors}"),
        }
        feeding.join().unwrap();
    }
}

/// A stdout that never waits (O_NONBLOCK) is waited for.
#[test]
fn output_may_be_to_a_pipe_that_does_not_wait() {
    let (mut there, here) = std::io::pipe().unwrap();
    fcntl(&here, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut command = command(&["pipe", "--cards", "mock:bluelink:2"]);
    let mut child = command.stdin(Stdio::piped()).stdout(here).stderr(Stdio::piped()).spawn().unwrap();
    // It has an end of the pipe too.
    drop(command);
    let fed = feed(&mut child, data());
    // It has more by now than the pipe takes.
    thread::sleep(Duration::from_millis(500));
    let mut came = Vec::new();
    there.read_to_end(&mut came).unwrap();
    assert_eq!(end(child), (0, String::new()));
    assert!(came == data() && fed.join().unwrap());
}

#[test]
fn a_reader_that_has_enough_breaks_the_pipe() {
    let mut child = pipe(&[]);
    let fed = feed(&mut child, vec![b'y'; 1 << 22]);
    drop(child.stdout.take());
    assert_eq!(end(child), (1, "fpgactl: The reader has closed the pipe\n".to_owned()));
    let _ = fed.join().unwrap();
}

#[test]
fn ends_that_cannot_be_are_refused() {
    let served = Served::new(&["mock:bluelink:2"]);
    let output = run(&["pipe", "--cards", &served.card(0), "--timeout", "0.2", "--json"]);
    let error = crate::parsed(&output.stderr);
    assert_eq!((output.status.code(), &error["kind"]), (Some(5), &"timeout".into()), "{error}");
    for (arguments, code, message) in [
        (["--to", "9"], 4, "no node 9 (available: 0 to 3)"),
        (["--to", "0"], 7, "Invalid ends of a pipe (0 and 0): two different nodes below 4"),
        (
            ["--cards", "mock:optweb:4/1"],
            7,
            "mock:optweb:4/1 selects neither node 0, which writes, nor node 3, which reads",
        ),
        (["--address", "0xffffffffffffffff"], 7, "Invalid address of a pipe"),
        (["--key", "0"], 7, "Invalid key of a pipe (0): not 0"),
        (["--timeout", "0"], 2, "invalid time limit"),
        (
            ["--cards=mock:optweb:4+cut=0-3", "--timeout=0.5"],
            6,
            "for node 3 to open the other end of the pipe: the link to the peer is missing or down",
        ),
    ] {
        let output = run(&[&["pipe"] as &[&str], &arguments].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
}
