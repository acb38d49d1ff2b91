//! A card's server that is never late by a single answer, but always slow: a command ends within its own bound.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::thread;
use std::time::{Duration, Instant};

use super::fpgactl::fpgactl;

/// How long each answer is held back: less than the client's patience.
const DELAY: Duration = Duration::from_millis(1500);
/// What a command may take that is given three seconds: it asks a card more than a hundred questions.
const BOUND: Duration = Duration::from_secs(60);
/// Exit code of a timeout (docs/cli.md).
const TIMEOUT: i32 = 5;

/// A server of mock cards, ended when dropped.
struct Served(Child);

impl Served {
    fn start(directory: &Path) -> Self {
        let mut served =
            Served(fpgactl(&["mock", "serve", "--socket-dir", directory.to_str().unwrap()]).spawn().unwrap());
        let mut lines = BufReader::new(served.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("serving")), "it does not serve");
        // What else it prints is read, or it could not go on.
        thread::spawn(move || lines.for_each(drop));
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Passes on what comes, each time after `delay`, until either side is gone. Descriptors stay behind.
fn pass_on(mut from: UnixStream, mut to: UnixStream, delay: Duration) {
    let mut bytes = vec![0; 1 << 20];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        thread::sleep(delay);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Sockets in front of those of `cards`, whose answers are slow.
fn hold_back(directory: &Path, cards: &Path, nodes: usize) -> String {
    let front = |node| {
        let (front, card): (PathBuf, _) = (directory.join(format!("slow{node}")), cards.join(format!("{node}.sock")));
        let listener = UnixListener::bind(&front).unwrap();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&card) else { return };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || pass_on(from, to, Duration::ZERO));
                thread::spawn(move || pass_on(server, client, DELAY));
            }
        });
        format!("vfio-user:{}", front.display())
    };
    (0..nodes).map(front).collect::<Vec<_>>().join(",")
}

#[test]
fn a_command_has_one_bound_however_slow_a_server_answers() {
    let directory = tempfile::tempdir().unwrap();
    let cards = directory.path().join("cards");
    let _served = Served::start(&cards);
    let slow = hold_back(directory.path(), &cards, 2);
    for words in [&["coll", "allreduce", "--timeout", "3", "--cards", &slow][..], &["info", "--cards", &slow]] {
        let begin = Instant::now();
        let Output { status, stderr, .. } = fpgactl(words).output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(TIMEOUT), "{words:?}: {said}");
        assert!(said.contains("slow0"), "it names the socket: {said}");
        assert!(begin.elapsed() < BOUND, "{words:?} took {:?}", begin.elapsed());
    }
}
