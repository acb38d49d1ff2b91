//! Processes without free descriptors. Each test runs in a process of its own, since it lowers the limit of its process.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use fpga_hal::Error;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::described::with_changed;
use crate::logged::lines;
use crate::raw::*;
use crate::setting::{QUICK, Served, counter, memory};

const EMFILE: u32 = 24;

/// Set in the process of one test.
const ALONE: &str = "FPGA_TESTS_ALONE";

/// Runs the test `name` of this module in a process of its own, unless this is that process.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let name = format!("exhausted::{name}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let run = command.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&run.stderr));
    false
}

/// The limit that leaves none free: more than one `poll` of the library has, which must not exceed it either.
const LOW: u64 = 32;

/// Takes all numbers below [`LOW`]. Called before the library has any of them, which could become free again.
fn occupy() -> Vec<OwnedFd> {
    let mut held: Vec<OwnedFd> = vec![counter().into()];
    // A copy gets the lowest number that is free.
    while held[held.len() - 1].as_raw_fd() < LOW as i32 {
        held.push(held[0].try_clone().unwrap());
    }
    held
}

/// As long as this lives, no descriptor is free, even if others are closed.
struct Exhausted {
    soft: u64,
    hard: u64,
}

impl Exhausted {
    /// `held` are those of [`occupy`].
    fn new(held: &[OwnedFd]) -> Self {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, LOW, hard).unwrap();
        assert_eq!(held[0].try_clone().unwrap_err().raw_os_error(), Some(EMFILE as i32));
        Exhausted { soft, hard }
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard).unwrap();
    }
}

#[test]
fn a_server_without_free_descriptors_says_so_and_recovers() {
    if !is_alone("a_server_without_free_descriptors_says_so_and_recovers") {
        return;
    }
    let held = occupy();
    let lines = lines(|one| one.level() <= log::Level::Warn);
    let told = |begin: &str| lines.take(|_, line| line.starts_with(begin));
    let served = Served::new();
    let name = served.path().display().to_string();
    let mut raw = Raw::open(served.path());
    let event = counter();
    let set = set_irqs(0x24, 2, 0, 1, &[]);
    for round in 0..2 {
        // Connecting needs no other descriptor.
        let client = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let exhausted = Exhausted::new(&held);
        for _ in 0..3 {
            assert_eq!(raw.call_with(SET_IRQS, &set, &[event.as_fd()]).errno(), EMFILE);
        }
        assert_eq!(raw.call_with(GET_INFO, &four(16, 0, 0, 0), &[event.as_fd()]).errno(), EINVAL);
        assert_eq!(raw.call(GET_INFO, &four(16, 0, 0, 0)).errno(), 0);
        connect(client.as_raw_fd(), &UnixAddr::new(served.path()).unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut failed = told("Accepting");
        while failed.is_empty() {
            assert!(Instant::now() < deadline, "the server does not say that it cannot accept");
            thread::sleep(Duration::from_millis(1));
            failed = told("Accepting");
        }
        // Meanwhile the server tries again.
        thread::sleep(QUICK);
        failed.extend(told("Accepting"));
        assert!(failed.len() == 1 && failed[0].contains("`ulimit -n`"), "round {round}: {failed:?}");
        drop(exhausted);
        let mut second = Raw::over(UnixStream::from(client));
        assert_eq!(second.call(VERSION, &version()).errno(), EBUSY, "it was accepted now");
        assert_eq!(raw.call_with(SET_IRQS, &set, &[event.as_fd()]).errno(), 0);
    }
    let lost = told(&name);
    assert!(lost.len() == 1 && lost[0].contains("`ulimit -n`"), "once for this client: {lost:?}");
}

#[test]
fn a_client_without_free_descriptors_says_why_it_cannot_open() {
    if !is_alone("a_client_without_free_descriptors_says_why_it_cannot_open") {
        return;
    }
    let (held, exhausted) = (occupy(), Mutex::new(None));
    let changed = |command: &Reply, reply: &mut Reply| {
        if command.command == GET_REGION_INFO {
            reply.descriptors = vec![memory(4096, true)];
            *exhausted.lock().unwrap() = Some(Exhausted::new(&held));
        }
    };
    with_changed(false, changed, |opened, _| {
        drop(exhausted.lock().unwrap().take());
        let error = opened.expect_err("the client cannot receive a descriptor");
        assert!(error.to_string().contains("`ulimit -n`"), "{error}");
        let Error::Kernel { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.raw_os_error(), Some(EMFILE as i32));
    });
}
