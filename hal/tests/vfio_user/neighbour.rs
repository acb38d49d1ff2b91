//! Tests of a card beside another card, whose client must not notice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use fpga_hal::vfio_user::Options;

use crate::card;
use crate::functions::Used;
use crate::raw::*;
use crate::setting::{Directory, Served};

#[test]
#[ignore = "run by the test below, since it ends its process"]
fn a_card_that_panics() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    served.card.panics.store(true, Ordering::Relaxed);
    // The client only sees the end of the connection.
    assert!(raw.try_call(REGION_READ, &access(0, 0, 4, &[]), &[]).is_none());
}

/// A panic of a server's thread looks like a disconnection, which many tests expect. So it must fail the test.
#[test]
fn a_panic_of_a_servers_thread_fails_the_test() {
    let test = ["--exact", "neighbour::a_card_that_panics", "--ignored"];
    // The process that aborts leaves its directories.
    let directory = Directory::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(test).env("TMPDIR", &directory.0).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{said}");
    assert!(said.contains("a thread of the library has panicked"), "{said}");
}

/// Runs a test of a card while a neighbour is used, which must not be affected.
pub fn beside_a_neighbour(test: impl FnOnce(&Served)) {
    let (served, neighbour) = (Served::new(), Served::new());
    let used = Used::new(neighbour.path(), &Options::default()).unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // Stops the neighbour's user, also after a panic.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let round = rounds.fetch_add(1, Ordering::Relaxed);
                used.check(round, 1 + (round as usize * 7919) % 60_000).unwrap();
            }
        });
        let _stop = Stop(&stop);
        test(&served);
    });
    assert!(rounds.load(Ordering::Relaxed) > 0);
    // And the card itself works.
    let used = Used::new(served.path(), &Options::default()).unwrap();
    used.check(1, 50_000).unwrap();
}

/// Returns a well-formed body of every command that a client sends, and its number of descriptors.
pub fn good() -> Vec<(u16, Vec<u8>, usize)> {
    vec![
        (VERSION, version(), 0),
        (DMA_MAP, map(3, 0, 0x10_0000, 0x1000), 1),
        (DMA_UNMAP, unmap(0, 0x10_0000, 0x1000), 0),
        (GET_INFO, four(16, 0, 0, 0), 0),
        (GET_REGION_INFO, region_info(32, 2), 0),
        (GET_REGION_IO_FDS, four(16, 0, 0, 0), 0),
        (GET_IRQ_INFO, four(16, 0, 2, 0), 0),
        (SET_IRQS, set_irqs(0x24, 2, 0, 1, &[]), 1),
        (SET_IRQS, set_irqs(0x22, 2, 0, 2, &[1, 0]), 0),
        (REGION_READ, access(0, 0, 4, &[]), 0),
        (REGION_WRITE, access(0, card::SCRATCH, 4, &[1, 2, 3, 4]), 0),
        (RESET, Vec::new(), 0),
    ]
}

/// Sends a message, and returns the errno of its reply. `None`: the server has disconnected.
pub fn answer(raw: &mut Raw, command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Option<u32> {
    raw.try_call(command, body, descriptors).map(|reply| reply.errno())
}

pub struct Tally(pub BTreeMap<Option<u32>, usize>);

impl Tally {
    pub fn new() -> Self {
        Tally(BTreeMap::new())
    }
    pub fn count(&mut self, outcome: Option<u32>) {
        *self.0.entry(outcome).or_default() += 1;
    }
    pub fn print(&self, what: &str) {
        let mut text = String::new();
        for (outcome, count) in &self.0 {
            let name = match outcome {
                None => "hung up".to_owned(),
                Some(0) => "fine".to_owned(),
                Some(errno) => format!("errno {errno}"),
            };
            write!(text, "  {name}: {count}").unwrap();
        }
        println!("{what}: {} cases:{text}", self.0.values().sum::<usize>());
    }
}
