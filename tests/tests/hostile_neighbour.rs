//! One fabric served on sockets: whatever the clients of one card do, the other cards run collectives correctly.
//!
//! Takes seconds; a minute with `FPGA_TESTS_FULL=1`.

#[path = "../../hal/tests/vfio_user/raw.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of the server, and not all of it is used here")]
mod raw;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, panic, process, thread};

use cmdseq::plan::{Collective, Request, plan};
use cmdseq::{Instruction, Operand};
use fpga_driver::Cluster;
use fpga_hal::Domain;
use fpga_hal::vfio_user::{Server, connect};
use fpga_mock::{Fabric, Profile};
use fpga_tests::oracle::{Case, Moving, OPERATIONS};
use fpga_tests::sweep;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::uio::pwrite;
use nix::unistd::ftruncate;
use raw::*;

const CARDS: u32 = 4;
/// The queue's registers, retyped from docs/registers.md.
const QUEUE: u64 = 0x1400;
const SEQUENCER_CONTROL: u64 = 0x1100;
const SEQUENCER_ABORT: u64 = 0x1110;
/// Where a client has its rings, and how much memory.
const RINGS: u64 = 0x10_0000;
const RING_BYTES: u64 = 0x2000;
/// The same mebibyte of a client, mapped over and over: so much for the card to copy.
const DATA: u64 = 0x1000_0000;
const DATA_BYTES: u64 = 64 << 20;
const MIB: u64 = 1 << 20;
/// Bytes that the clock moves at most before hosts get their turn: a mebibyte and the last piece.
const MOST_HELD: u64 = 4 * MIB;

/// Numbers that nobody foresees, the same for a seed.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 24
    }

    fn bytes(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.next() as u8).collect()
    }
}

fn memory(bytes: u64) -> OwnedFd {
    let file = memfd_create("hostile", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes as i64).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    file
}

/// Sends a command; whether it was done.
fn does(raw: &mut Raw, command: u16, body: &[u8], descriptors: &[&dyn AsFd]) -> bool {
    let descriptors: Vec<_> = descriptors.iter().map(|it| it.as_fd()).collect();
    raw.try_call(command, body, &descriptors).is_some_and(|reply| reply.errno() == 0)
}

fn write(raw: &mut Raw, offset: u64, value: u32) -> bool {
    does(raw, REGION_WRITE, &access(0, offset, 4, &value.to_le_bytes()), &[])
}

/// Has the card fetch its instructions from this client, passed to the server or to be asked for.
fn start(raw: &mut Raw, file: Option<&OwnedFd>) -> bool {
    let map = map(3, 0, RINGS, RING_BYTES);
    let mapped = match file {
        Some(file) => does(raw, DMA_MAP, &map, &[file]),
        None => does(raw, DMA_MAP, &map, &[]),
    };
    mapped
        && does(raw, REGION_WRITE, &access(7, 4, 2, &[6, 0]), &[])
        && [(0x00, RINGS as u32), (0x04, 0), (0x08, RINGS as u32 + 0x1000), (0x0c, 0), (0x10, 16), (0x14, 1)]
            .into_iter()
            .all(|(offset, value)| write(raw, QUEUE + offset, value))
        && write(raw, SEQUENCER_CONTROL, 1)
}

/// Keeps a descriptor full that the card interrupts by, and that blocks who writes to it.
fn interrupts(raw: &mut Raw, index: u32, noise: &mut Noise) {
    let (file, event) = (memory(RING_BYTES), EventFd::new().unwrap());
    let connect = set_irqs(0x24, index, 0, 1, &[]);
    if !start(raw, Some(&file)) || !does(raw, SET_IRQS, &connect, &[&event]) {
        return;
    }
    let set = |flags| fcntl(&event, FcntlArg::F_SETFL(flags)).unwrap();
    let fill = || {
        set(OFlag::O_NONBLOCK);
        let _ = event.write(u64::MAX - 1);
        set(OFlag::empty());
    };
    let empty = || {
        set(OFlag::O_NONBLOCK);
        let _ = event.read();
        set(OFlag::empty());
    };
    fill();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        if noise.next() % 2 == 0 {
            // Room is made and taken, so that who has looked for it may find none.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    empty();
                    fill();
                }
            });
        }
        for stored in 1..=12u32 {
            let word = Instruction::nop().with_tag(stored as u16 - 1).encode();
            pwrite(&file, &word, i64::from(stored - 1) * 64).unwrap();
            // Asks for an interrupt once this one is done, and rings the doorbell.
            let goes_on = write(raw, QUEUE + 0x20, stored - 1)
                && write(raw, QUEUE + 0x18, stored)
                && (index != 0 || does(raw, SET_IRQS, &set_irqs(0x11, 0, 0, 1, &[]), &[]));
            if !goes_on {
                break;
            }
        }
        match noise.next() % 3 {
            0 => drop(raw.stream.shutdown(std::net::Shutdown::Both)),
            1 => drop(does(raw, SET_IRQS, &connect, &[&EventFd::new().unwrap()])),
            _ => drop(does(raw, SET_IRQS, &set_irqs(0x21, index, 0, 0, &[]), &[])),
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Has the card run what takes long: its own time, the machine's, or more memory than there is.
fn long_instructions(raw: &mut Raw, noise: &mut Noise) {
    let (rings, data) = (memory(RING_BYTES), memory(MIB));
    let map_again = |raw: &mut Raw, at| does(raw, DMA_MAP, &map(3, 0, DATA + at, MIB), &[&data]);
    if !start(raw, Some(&rings)) || !(0..DATA_BYTES).step_by(MIB as usize).all(|at| map_again(raw, at)) {
        return;
    }
    let (card, host) = (|address| Operand::card(address), |at| Operand::host(DATA + at));
    let pattern = noise.next() | 1;
    let all = [
        Instruction::delay(1 << 36),
        Instruction::delay(1 << 36 | 1),
        Instruction::barrier(),
        Instruction::fill(card(0), 8 << 30, pattern),
        Instruction::fill(card(0), 8 << 30, 0),
        Instruction::copy(card(0), card(4 << 30), 4 << 30),
        Instruction::copy(host(0), card(noise.next() % MIB), DATA_BYTES),
        Instruction::copy(card(noise.next() % MIB), host(0), DATA_BYTES),
        Instruction::copy(host(0), host(DATA_BYTES / 2), DATA_BYTES / 2),
        Instruction::copy(host(1), card(0), u64::MAX),
    ];
    let only_delays = noise.next() % 4 == 0;
    for place in 0..14 {
        let chosen = if only_delays { all[0] } else { all[noise.next() as usize % all.len()] };
        pwrite(&rings, &chosen.with_tag(place).encode(), i64::from(place) * 64).unwrap();
    }
    let mut goes_on = write(raw, QUEUE + 0x18, 14);
    for _ in 0..noise.next() % 10 {
        // The card is looked at, stopped or reset amid whatever it does.
        goes_on = goes_on
            && match noise.next() % 16 {
                0 => write(raw, SEQUENCER_ABORT, u32::from_le_bytes(*b"STOP")),
                1 => does(raw, RESET, &[], &[]),
                _ => does(raw, REGION_READ, &access(0, SEQUENCER_CONTROL, 4, &[]), &[]),
            };
        thread::sleep(Duration::from_millis(3));
    }
}

/// Waits for a moment until the server sends something, or hangs up.
fn is_asked(raw: &Raw) -> bool {
    poll(&mut [PollFd::new(raw.stream.as_fd(), PollFlags::POLLIN)], 200u16) == Ok(1)
}

/// Comes, does its worst, and goes; whether it was served.
fn visit(path: &Path, seed: u64) -> bool {
    let mut noise = Noise(seed);
    let mut raw = Raw::connect(path);
    if noise.next() % 8 == 0 {
        let bytes = noise.bytes(300);
        return raw.send(&bytes[..1 + seed as usize % 299]).is_err();
    }
    if !does(&mut raw, VERSION, &version(), &[]) {
        return false;
    }
    match noise.next() % 9 {
        0 => interrupts(&mut raw, 2, &mut noise),
        1 => interrupts(&mut raw, 0, &mut noise),
        // Messages of every kind with anything in them, but for the stream's framing.
        2 => {
            for _ in 0..200 {
                let command = noise.next() as u16 % 16;
                let bytes = [0, 16, 20, 24, 32, 100][noise.next() as usize % 6];
                let mut body = noise.bytes(bytes);
                // Small numbers get further.
                body.chunks_mut(4).for_each(|word| word[1..].iter_mut().for_each(|byte| *byte &= 0x10));
                if raw.try_call(command, &body, &[]).is_none() {
                    break;
                }
            }
        }
        // Goes amid a message.
        3 => drop(raw.send(&message(1, REGION_WRITE, 0, &access(0, 0, 64, &[0; 64]))[..40])),
        // Is asked for its memory, and never answers, or answers anything.
        4 => {
            if start(&mut raw, None) {
                let _ = raw.send(&message(9, REGION_WRITE, NO_REPLY, &access(0, QUEUE + 0x18, 4, &[1, 0, 0, 0])));
                // It is not asked where clients before it were too slow.
                if let Some(asked) = is_asked(&raw).then(|| raw.receive()).flatten() {
                    let _ = raw.send(&message(asked.id, asked.command, 1, &noise.bytes(40)));
                }
            }
        }
        // Is asked, and waits to be hung up on.
        5 => {
            if start(&mut raw, None) {
                let _ = raw.send(&message(9, REGION_WRITE, NO_REPLY, &access(0, QUEUE + 0x18, 4, &[1, 0, 0, 0])));
                if is_asked(&raw) {
                    while raw.receive().is_some() {}
                }
            }
        }
        6 | 7 => long_instructions(&mut raw, &mut noise),
        _ => {
            let bytes = noise.bytes(2000);
            let _ = raw.send(&bytes);
        }
    }
    true
}

/// Collectives of the other cards until `stop`; how many.
fn collectives(sockets: &[std::path::PathBuf], stop: &AtomicBool) -> u64 {
    let domain = Domain::vfio_user();
    let functions = sockets[1..].iter().map(|path| connect(path, &domain).unwrap()).collect();
    let mut cluster = Cluster::open(functions).unwrap();
    let ranks = CARDS - 1;
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) || round < OPERATIONS.len() as u64 {
        let operation = OPERATIONS[round as usize % OPERATIONS.len()];
        let root = round as u32 % ranks;
        let case = Case { operation, ranks, bytes: 1 + round * 997 % 40_000, root, peer: (root + 1) % ranks };
        let collective: Collective = operation.parse().unwrap();
        let request = Request { root, peer: case.peer, ..Request::new(collective, (1..CARDS).collect(), case.bytes) };
        let plan = plan(&request, cluster.capabilities()).unwrap();
        if let Err(why) = sweep::run(&mut cluster, &plan, &Moving { case, seed: round }, false) {
            panic!("{operation}, round {round}: {why}");
        }
        round += 1;
    }
    round
}

#[test]
fn collectives_beside_a_hostile_client() {
    // A panic of a thread of the library would look like a hang-up.
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        before(info);
        if thread::current().name().is_some_and(|name| name.starts_with("vfio-user") || name == "fabric") {
            let _ = writeln!(io::stderr(), "a thread of the library has panicked: {info}");
            process::abort();
        }
    }));
    let fabric = Fabric::new(Profile::optweb(CARDS)).unwrap();
    // Less than one card asks for.
    fabric.limit_memory(256 * MIB);
    let _clock = fabric.start_clock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let sockets: Vec<_> = (0..CARDS).map(|node| directory.path().join(format!("{node}.sock"))).collect();
    let serve = |(node, path)| {
        let server = Server::bind(path, fabric.endpoint(node)).unwrap();
        server.with_dma_patience(Duration::from_millis(200)).spawn().unwrap()
    };
    let _servers: Vec<_> = (0..CARDS).zip(&sockets).map(serve).collect();
    let (stop, visits, served) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let rounds = thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if visit(&sockets[0], visits.fetch_add(1, Ordering::Relaxed)) {
                        served.fetch_add(1, Ordering::Relaxed);
                    } else {
                        thread::sleep(Duration::from_micros(300));
                    }
                }
            });
        }
        let neighbour = scope.spawn(|| collectives(&sockets, &stop));
        let begin = Instant::now();
        let duration = Duration::from_secs(if sweep::is_full() { 60 } else { 5 });
        let has_seen_enough = || begin.elapsed() >= duration && served.load(Ordering::Relaxed) > 20;
        while !has_seen_enough() && begin.elapsed() < 24 * duration && !neighbour.is_finished() {
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        neighbour.join().unwrap()
    });
    let statistics = fabric.statistics();
    println!("{rounds} collectives beside {visits:?} visits, {served:?} of them served; {statistics:?}");
    assert!(served.into_inner() > 20);
    assert_eq!(fabric.failure(), None);
    assert!(statistics.most_held_bytes <= MOST_HELD);
    // And the card itself is as good as new: all four run one together.
    let deadline = Instant::now() + Duration::from_secs(30);
    let domain = Domain::vfio_user();
    let open = |path: &Path| loop {
        match connect(path, &domain) {
            Ok(function) => break function,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut cluster = Cluster::open(sockets.iter().map(|path| open(path)).collect()).unwrap();
    let case = Case { operation: "allgather", ranks: CARDS, bytes: 30_000, root: 0, peer: 1 };
    let plan = plan(&Request::new(Collective::Allgather, (0..CARDS).collect(), case.bytes), cluster.capabilities());
    sweep::run(&mut cluster, &plan.unwrap(), &Moving { case, seed: 1 }, false).unwrap();
}

/// A client that maps memory it has to be asked for, has its card ask, and never answers; again and again. Counts in `visits`.
fn stay_silent(path: &Path, stop: &AtomicBool, visits: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let mut raw = Raw::connect(path);
        let is_served = does(&mut raw, VERSION, &version(), &[]) && start(&mut raw, None);
        if is_served && write(&mut raw, QUEUE + 0x18, 1) && is_asked(&raw) {
            visits.fetch_add(1, Ordering::Relaxed);
            // Until it is hung up on.
            while !stop.load(Ordering::Relaxed) && (!is_asked(&raw) || raw.receive().is_some()) {}
        }
    }
}

#[test]
fn collectives_beside_a_client_that_never_answers() {
    /// A collective takes milliseconds, and may wait a few times for the limit of a request, which is a second.
    const BOUND: Duration = Duration::from_secs(60);
    let fabric = Fabric::new(Profile::optweb(CARDS)).unwrap();
    let _clock = fabric.start_clock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let sockets: Vec<_> = (0..CARDS).map(|node| directory.path().join(format!("{node}.sock"))).collect();
    let serve = |(node, path)| Server::bind(path, fabric.endpoint(node)).and_then(Server::spawn).unwrap();
    let _servers: Vec<_> = (0..CARDS).zip(&sockets).map(serve).collect();
    let (stop, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| stay_silent(&sockets[0], &stop, &visits));
        // The others run collectives until the client was silent three times.
        let neighbour = scope.spawn(|| {
            let domain = Domain::vfio_user();
            let functions = sockets[1..].iter().map(|path| connect(path, &domain).unwrap()).collect();
            let mut cluster = Cluster::open(functions).unwrap();
            let deadline = Instant::now() + BOUND;
            for round in 0.. {
                let case = Case { operation: "allgather", ranks: CARDS - 1, bytes: 30_000, root: 0, peer: 1 };
                let request = Request::new(Collective::Allgather, (1..CARDS).collect(), case.bytes);
                let plan = plan(&request, cluster.capabilities()).unwrap();
                let begin = Instant::now();
                sweep::run(&mut cluster, &plan, &Moving { case, seed: round }, false).unwrap();
                assert!(begin.elapsed() < BOUND, "round {round} took {:?}", begin.elapsed());
                if visits.load(Ordering::Relaxed) >= 3 {
                    break;
                }
                assert!(begin < deadline, "{visits:?} visits without an answer");
            }
        });
        let ended = neighbour.join();
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}
