//! The client, with servers that are slow or gone.

use std::error::Error as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpga_hal::vfio_user::{Options, connect, connect_with};
use fpga_hal::{BarIndex, Domain, Error};
use nix::libc;
use nix::sys::socket::{Backlog, listen};
use nix::unistd::{getpid, gettid};

use crate::card;
use crate::described::with_changed;
use crate::logged::lines;
use crate::raw::*;
use crate::setting::{Directory, Served};

const LONG: Duration = Duration::from_secs(60);

fn options(patience: Duration) -> Options {
    let mut options = Options::default();
    (options.patience, options.share_memory, options.map_bars) = (patience, false, false);
    options
}

/// Relays one client's messages to a card's server: `watch` sees each command, and each reply is delayed by `delay`
/// milliseconds.
fn hold_back(listener: &UnixListener, card: &Path, delay: &AtomicU64, watch: impl Fn(&Reply)) {
    let (client, server) = (Raw::over(listener.accept().unwrap().0), Raw::over(UnixStream::connect(card).unwrap()));
    client.stream.set_read_timeout(None).unwrap();
    while let Some(command) = client.receive() {
        watch(&command);
        server.send(&message(command.id, command.command, command.flags, &command.body)).unwrap();
        if command.flags & NO_REPLY == 0 {
            let reply = server.receive().unwrap();
            thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
            let mut bytes = message(reply.id, reply.command, reply.flags, &reply.body);
            bytes[12..16].copy_from_slice(&reply.error.to_ne_bytes());
            if client.send(&bytes).is_err() {
                return;
            }
        }
    }
}

#[test]
fn opening_has_one_limit_for_all_replies() {
    let (served, directory) = (Served::new(), Directory::new());
    let front = directory.0.join("front");
    let listener = UnixListener::bind(&front).unwrap();
    // Each reply alone is in time.
    let delay = AtomicU64::new(150);
    thread::scope(|scope| {
        scope.spawn(|| hold_back(&listener, served.path(), &delay, |_| ()));
        let patience = Duration::from_secs(1);
        let opened = connect_with(&front, &Domain::vfio_user(), &options(patience));
        assert!(matches!(opened, Err(Error::Unresponsive { .. })), "{opened:?}");
    });
}

#[test]
fn a_server_that_never_accepts_is_unresponsive() {
    let directory = Directory::new();
    let path = directory.0.join("card");
    let _listener = UnixListener::bind(&path).unwrap();
    let opened = connect_with(&path, &Domain::vfio_user(), &options(Duration::from_millis(200)));
    assert!(matches!(opened, Err(Error::Unresponsive { .. })), "{opened:?}");
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
fn signals_do_not_extend_the_time_to_connect() {
    let directory = Directory::new();
    let path = directory.0.join("card");
    let listener = UnixListener::bind(&path).unwrap();
    // The next to connect waits for the server to accept this one.
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, ignore as *const () as libc::sighandler_t) };
    let (caller, is_done, begin) = (gettid().as_raw(), AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) && begin.elapsed() < LONG {
                // SAFETY: it takes integers only, and the signal has a handler.
                unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw(), caller, libc::SIGUSR1) };
                thread::sleep(Duration::from_millis(100));
            }
        });
        let opened = connect_with(&path, &Domain::vfio_user(), &options(Duration::from_secs(1)));
        is_done.store(true, Ordering::Relaxed);
        assert!(matches!(opened, Err(Error::Unresponsive { .. })), "{opened:?}");
    });
    assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
}

#[test]
fn slow_replies_of_an_open_function_share_a_limit() {
    let (served, directory) = (Served::new(), Directory::new());
    let front = directory.0.join("front");
    let listener = UnixListener::bind(&front).unwrap();
    let delay = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| hold_back(&listener, served.path(), &delay, |_| ()));
        let function = connect_with(&front, &Domain::vfio_user(), &options(Duration::from_secs(2))).unwrap();
        let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
        assert_eq!(registers.read_u32(card::ID).unwrap(), card::ID_VALUE);
        delay.store(400, Ordering::Relaxed);
        let mut reads = 0;
        while registers.read_u32(card::ID).unwrap() == card::ID_VALUE {
            reads += 1;
            assert!(reads < 20, "each answer is waited for");
        }
        assert!(function.is_removed());
        // The last reply is on its way when the client gives up.
        drop((registers, function));
    });
}

#[test]
fn a_server_that_breaks_the_protocol_is_named_with_the_reason() {
    let lines = lines(|one| one.level() <= log::Level::Warn);
    let reason = "the server sent a reply with the id 77, which no command waits for";
    let changed = |command: &Reply, reply: &mut Reply| {
        if command.command == GET_INFO {
            reply.id = 77;
        }
    };
    with_changed(false, changed, |opened, _| {
        let error = opened.unwrap_err();
        assert!(matches!(error, Error::Socket { .. }), "{error:?}");
        assert_eq!(error.source().unwrap().to_string(), reason);
    });
    // An open function is gone. The error has the reason, and the log for those that get another error.
    let is_open = AtomicBool::new(false);
    let changed = |_: &Reply, reply: &mut Reply| {
        if is_open.load(Ordering::Relaxed) {
            reply.id = 77;
        }
    };
    with_changed(false, changed, |opened, _| {
        let function = opened.unwrap();
        is_open.store(true, Ordering::Relaxed);
        let Err(Error::Removed { source: Some(ending) }) = function.reset() else { panic!("the function is not gone") };
        assert_eq!(ending.to_string(), reason);
        assert_eq!(function.ending(), Some(ending));
        let name = function.identity().name.clone();
        assert_eq!(lines.take(|_, line| line.starts_with(&name)), [format!("{name}: disconnected: {reason}")]);
    });
}

#[test]
fn mapped_memory_reads_all_ones_once_the_server_is_gone() {
    let mut served = Served::new();
    let domain = Domain::vfio_user();
    let function = connect(served.path(), &domain).unwrap();
    let memory = function.window(BarIndex::new(2).unwrap()).unwrap();
    assert!(memory.is_mapped());
    let offsets = [0, 0x100, 0x1000, card::BAR2_BYTES - 8];
    for offset in offsets {
        memory.write_u64(offset, 0x1122_3344_5566_7788).unwrap();
    }
    let buffer = domain.allocate(8192, 1).unwrap();
    buffer.write(100, b"kept").unwrap();
    drop(served.serving.take());
    let begin = Instant::now();
    // No call is made: the connection notices by itself.
    while memory.read_u32(0x100).unwrap() != u32::MAX {
        assert!(begin.elapsed() < LONG, "the memory of a server that is gone is still read");
        thread::sleep(Duration::from_millis(1));
    }
    for offset in offsets {
        assert_eq!((memory.read_u64(offset).unwrap(), memory.read_u32(offset + 4).unwrap()), (u64::MAX, u32::MAX));
    }
    assert!(matches!(function.check_alive(u32::MAX), Err(Error::Removed { .. })));
    memory.slice(0x2000, 64).unwrap().write_u32(0, 1).unwrap();
    // The server's memory has what was written before.
    let mut seen = [0; 8];
    served.card.memory().read(0x1000, &mut seen).unwrap();
    assert_eq!(u64::from_le_bytes(seen), 0x1122_3344_5566_7788);
    // Buffers belong to the domain, and stay.
    let mut kept = [0; 4];
    buffer.read(100, &mut kept).unwrap();
    assert_eq!(&kept, b"kept");
    assert_eq!(domain.allocate(4096, 1).unwrap().len(), 4096);
    drop((memory, function, buffer));
    assert_eq!(domain.mappings(), 0);
}

#[test]
fn a_trapped_access_is_one_message_of_its_width() {
    let (served, directory) = (Served::new(), Directory::new());
    let front = directory.0.join("front");
    let listener = UnixListener::bind(&front).unwrap();
    let (delay, seen) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let watch = |command: &Reply| {
        if matches!(command.command, REGION_READ | REGION_WRITE) && command.u32(8) == 0 {
            seen.lock().unwrap().push((command.command, command.u64(0), command.u32(12)));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| hold_back(&listener, served.path(), &delay, watch));
        let function = connect_with(&front, &Domain::vfio_user(), &options(LONG)).unwrap();
        let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
        assert!(!registers.is_mapped());
        registers.write_u64(card::SCRATCH, 0x1122_3344_5566_7788).unwrap();
        assert_eq!(registers.read_u64(card::SCRATCH).unwrap(), 0x1122_3344_5566_7788);
        registers.write_u32(card::SCRATCH, 7).unwrap();
        assert_eq!(registers.read_u32(card::SCRATCH).unwrap(), 7);
        // No single access crosses aligned words.
        for result in [registers.read_u64(card::SCRATCH + 4).map(drop), registers.write_u64(card::SCRATCH + 4, 1)] {
            assert!(matches!(result, Err(Error::Misaligned { bytes: 8, .. })), "{result:?}");
        }
        let at = card::SCRATCH;
        let expected = [(REGION_WRITE, at, 8), (REGION_READ, at, 8), (REGION_WRITE, at, 4), (REGION_READ, at, 4)];
        assert_eq!(*seen.lock().unwrap(), expected);
    });
    // The server also makes one access to the card.
    assert_eq!(served.card.widths(), [8, 8, 4, 4]);
}

#[test]
fn patience_may_be_unlimited() {
    let served = Served::with(|server| server.with_dma_patience(Duration::MAX));
    let function = connect_with(served.path(), &Domain::vfio_user(), &options(Duration::MAX)).unwrap();
    let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
    assert_eq!(registers.read_u32(card::ID).unwrap(), card::ID_VALUE);
}
