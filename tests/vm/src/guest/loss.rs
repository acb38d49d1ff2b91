//! Processes that die and devices that go, in the middle of transfers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use fpga_vm::{Request, SCENARIO};

use crate::command::{Output, Running, User, run, start};
use crate::pci::{self, PciFunction};
use crate::{Guest, cards, devices, kernel, tests};

tests! {
    ["devices"] => [
        killed_a_hundred_times_in_the_middle_of_transfers,
        pulled_in_the_middle_of_transfers,
        cards_pulled_in_the_middle_of_transfers,
    ],
    ["cards", "private"] => [
        cards_whose_process_is_killed_many_times,
        a_card_taken_away_in_the_middle_of_a_collective,
        cards_whose_server_is_killed,
    ],
}

/// Processes killed on each bus. Where cards reach memory by messages, opening one takes long.
const KILLS: usize = 100;
const KILLS_BY_MESSAGES: usize = 20;
const BOUND: Duration = Duration::from_secs(60);
/// Long enough for what is on the wire to be answered, and for the end of a line to be seen.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

/// Launches that are queued on each card.
const QUEUED: &str = "100";

/// Whether cards reach memory by messages.
fn by_messages() -> bool {
    kernel::parameter(SCENARIO).is_some_and(|scenario| scenario == "private")
}

/// How processes are killed on some devices.
struct Killing<'a> {
    devices: &'a [PciFunction],
    /// Words before the address, and after it.
    words: (&'a [&'a str], &'a [&'a str]),
    /// What a process says when its transfers begin.
    at_work: &'a str,
    /// How long after that, at the least, it is killed.
    after: Duration,
    /// Longer than a transfer that a dead process may have left behind.
    transfer: Duration,
    kills: usize,
}

/// `kill -9` while DMA is out: what the process held of memory, and somebody else still holds, is not written to after
/// it is gone, and the device opens again.
fn kill_many_times(guest: &Guest, killing: &Killing<'_>) {
    let Killing { devices, words, at_work, after, transfer, kills } = killing;
    let (mut killed, mut changed, mut watched) = (0, 0, 0);
    while killed < *kills {
        let batch = &devices[..devices.len().min(kills - killed)];
        let command = |device| [words.0, &[device], words.1].concat();
        let mut running: Vec<Running> =
            batch.iter().map(|device| start(User::Worker, &command(device.address.as_str()))).collect();
        running.iter_mut().for_each(|process| process.until_it_says(at_work, BOUND));
        let memory: Vec<Vec<File>> = running.iter().map(Running::memory).collect();
        let early: Vec<_> = memory.iter().map(|files| contents(files)).collect();
        // Some moment of their transfers, another one each time.
        thread::sleep(*after + Duration::from_millis((killed as u64 * 37) % 100));
        running.iter_mut().for_each(Running::kill);
        let before: Vec<_> = memory.iter().map(|files| contents(files)).collect();
        thread::sleep(*transfer);
        for (device, (files, before)) in batch.iter().zip(memory.iter().zip(&before)) {
            assert!(contents(files) == *before, "{} wrote to memory of a process that is gone", device.address);
        }
        changed += early.iter().zip(&before).filter(|(early, before)| early != before).count();
        watched += memory.iter().map(Vec::len).sum::<usize>();
        killed += batch.len();
        guest.log(format!("{killed} processes killed; {watched} memory files watched; {changed} were at work"));
    }
    assert!(watched >= killed && changed > killed / 2);
}

fn killed_a_hundred_times_in_the_middle_of_transfers(guest: &Guest) {
    let devices = devices::edu_devices();
    let killing = Killing {
        devices: &devices,
        words: (&["edu"], &["msi", "1000"]),
        at_work: "buffer at",
        after: Duration::from_millis(120),
        transfer: Duration::from_millis(250),
        kills: KILLS,
    };
    kill_many_times(guest, &killing);
    // And all devices open once more, and work.
    let running: Vec<_> =
        devices.iter().map(|device| start(User::Worker, &["edu", &device.address, "msi", "1"])).collect();
    for process in running {
        process.finish(BOUND).good();
    }
}

fn cards_whose_process_is_killed_many_times(guest: &Guest) {
    let cards = cards::cards();
    let killing = Killing {
        devices: &cards,
        words: (&["fpga-cards", "copy"], &[]),
        at_work: "at work",
        after: Duration::from_millis(5),
        transfer: Duration::from_millis(100),
        kills: if by_messages() { KILLS_BY_MESSAGES } else { KILLS },
    };
    kill_many_times(guest, &killing);
    cards::run_case("every operation, bit for bit, in the same cycles");
}

/// Checks that a process ended because its card is gone, in good time, and not of a signal.
pub(crate) fn assert_gone(guest: &Guest, output: &Output, took: Duration) {
    guest.log(format!("it ended after {} ms: {}", took.as_millis(), output.stderr.trim()));
    assert_eq!(output.status.code(), Some(6), "{output}");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// The kernel takes a card away as it does in an unplug: it asks for the card back, and waits until it is closed. The plug
/// stays in: why, [`cards_pulled_in_the_middle_of_transfers`] says.
fn a_card_taken_away_in_the_middle_of_a_collective(guest: &Guest) {
    let cards = cards::cards();
    let mut process = start(User::Worker, &cards::with_cards(&["fpga-cards", "gather"], &cards));
    process.until_it_says("at work", BOUND);
    let begin = Instant::now();
    let taken = cards[2].clone();
    let taking = thread::spawn(move || taken.take_away());
    assert_gone(guest, &process.finish(BOUND), begin.elapsed());
    taking.join().expect("the kernel takes it away");
    guest.log(format!("the card was away after {} ms", begin.elapsed().as_millis()));
    assert!(!cards[2].exists());
    // Its neighbours do not care, and it comes back as if nothing had been.
    let mut process = start(User::Worker, &["fpga-cards", "copy", &cards[1].address]);
    process.until_it_says("at work", BOUND);
    pci::rescan();
    assert!(cards[2].exists() && process.is_running());
    process.kill();
    cards::cards();
    cards::run_case("opened again and again, nothing is left");
}

/// The server is killed while its cards work on what was queued. Each process learns of it, and ends.
///
/// QEMU 11.1.3 dies of an assertion of its own when a server goes while there is something to answer between the two:
///
/// ```text
/// qemu-system-x86_64: failed to read header: EOF
/// qemu-system-x86_64: util/error.c:62: error_setv: Assertion `*errp == NULL' failed.
/// ```
///
/// So nobody looks at a card just then: processes are paused until the server is gone and QEMU has seen it. What cards do by
/// themselves goes on, unless each of their requests is a message to QEMU; then they are in the middle of an instruction only.
/// Servers that die at any moment, without QEMU between, are in `tools/tests/served/server_killed.rs`.
fn cards_whose_server_is_killed(guest: &Guest) {
    let cards = cards::cards();
    let count = if by_messages() { "0" } else { QUEUED };
    let queue = |card: &PciFunction| start(User::Worker, &["fpga-cards", "queue", count, &card.address]);
    let mut running: Vec<Running> = cards.iter().map(queue).collect();
    running.iter_mut().for_each(|process| process.until_it_says("at work", BOUND));
    running.iter().for_each(|process| process.pause(true));
    thread::sleep(QUIET);
    guest.log(guest.ask(Request::KillServer).expect("the server can be killed"));
    thread::sleep(QUIET);
    cards.iter().for_each(PciFunction::forbid_reset);
    let begin = Instant::now();
    running.iter().for_each(|process| process.pause(false));
    let mut cut_off = 0;
    for process in running {
        let output = process.finish(BOUND);
        guest.log(&output.stdout);
        assert_gone(guest, &output, begin.elapsed());
        let left = output.stdout.lines().find_map(|line| line.strip_prefix("launches cut off: "));
        cut_off += left.and_then(|left| left.parse::<u32>().ok()).expect("it says what was left of its launches");
    }
    assert!(by_messages() || cut_off > 0, "all launches were over before the server was killed");
}

fn contents(files: &[File]) -> Vec<Vec<u8>> {
    let read = |file: &File| {
        let mut data = vec![0; file.metadata().map_or(0, |file| file.len() as usize)];
        file.read_exact_at(&mut data, 0).expect("memory files are read");
        data
    };
    files.iter().map(read).collect()
}

/// An orderly unplug waits for the process that has the device open: it must end by itself, with the right reason.
fn pulled_in_the_middle_of_transfers(guest: &Guest) {
    let device = devices::pulled_device();
    let mut process = start(User::Worker, &["nvme", &device.address, "9"]);
    process.until_it_says("namespace of", BOUND);
    thread::sleep(Duration::from_millis(700));
    assert!(process.is_running());
    let begin = Instant::now();
    guest.log(guest.ask(Request::Unplug { device: "nvme1".to_owned() }).expect("the device can be pulled"));
    let output = process.finish(BOUND);
    guest.log(format!("it ended after {} ms at most: {}", begin.elapsed().as_millis(), output.stderr.trim()));
    assert_eq!(output.status.code(), Some(1), "{output}");
    assert!(output.stderr.contains("gone") && !device.exists(), "{output}");
    // Its neighbours do not care.
    let other = &devices::edu_devices()[0];
    run(User::Worker, &["edu", &other.address, "msi", "1"], BOUND).good();
}

/// The same of mock cards, in a collective of all and in copies of one.
///
/// They are cards without MSI-X. With it, QEMU aborts after every `device_del` of a vfio-user-pci device, whatever the card
/// does meanwhile; seen with QEMU 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1), in its thread `call_rcu`:
///
/// ```text
/// qemu-system-x86_64: system/memory.c:2617: memory_region_del_subregion: Assertion `subregion->container == mr' failed.
/// ```
///
/// It takes the region of the pending bits out of the BAR when the device is finalized (`vfio_user_msix_teardown`, called by
/// `vfio_user_instance_finalize`, hw/vfio-user/pci.c), and by then the region has no container any more.
fn cards_pulled_in_the_middle_of_transfers(guest: &Guest) {
    let cards = cards::cards();
    let pull = |place: usize, mut process: Running| {
        process.until_it_says("at work", BOUND);
        assert!(process.is_running());
        let begin = Instant::now();
        guest.log(guest.ask(Request::Unplug { device: format!("card{place}") }).expect("the card can be pulled"));
        assert_gone(guest, &process.finish(BOUND), begin.elapsed());
        assert!(!cards[place].exists());
    };
    pull(2, start(User::Worker, &cards::with_cards(&["fpga-cards", "gather"], &cards)));
    pull(3, start(User::Worker, &["fpga-cards", "copy", &cards[3].address]));
    // Those that are left go on without.
    let left = format!("{},{}", cards[0].address, cards[1].address);
    run(User::Worker, &["fpgactl", "coll", "allgather", "--cards", &left], BOUND).good();
}
