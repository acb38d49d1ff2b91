//! Sixteen clients connect and leave on four cards, while a fifth card works without a fault. Afterwards this process holds as
//! many descriptors, mappings, threads and heap bytes as before. Alone in its file, since it counts for the process. It takes
//! some seconds, or a minute with
//!
//! ```sh
//! FPGA_TESTS_FULL=1 cargo test -p fpga-hal --test vfio_user_clients -- --nocapture
//! ```
#![allow(dead_code, unreachable_pub, reason = "shared with other tests, and this test uses only part")]

#[path = "vfio_user/card.rs"]
mod card;
#[path = "vfio_user/raw.rs"]
mod raw;
#[path = "vfio_user/setting.rs"]
mod setting;

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use fpga_hal::vfio_user::{Options, connect_with};
use fpga_hal::{BarIndex, Domain, Error, Function};
use raw::{DMA_MAP, Raw, VERSION, access, map, message, version};
use setting::{Served, counter, memory, pattern};

/// The heap, and how many of its bytes are in use. Resident bytes are too coarse for this: they are pages, and include what
/// allocators keep.
struct Heap {
    used: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap { used: AtomicUsize::new(0) };

// SAFETY: every method forwards to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.used.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Heap bytes that each served visit may leave, and that all visits may: for tables and lists that have grown.
const HEAP_PER_VISIT: usize = 64;
const HEAP_AT_ALL: usize = 128 << 10;
/// Resident bytes that all visits may leave.
const RESIDENT_AT_ALL: usize = 64 << 20;

/// Returns descriptors, mappings, threads, resident bytes, and heap bytes.
fn held() -> (usize, usize, usize, usize, usize) {
    let entries = |path| fs::read_dir(path).unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let memory = maps.lines().filter(|line| line.contains("memfd:")).count();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
    (entries("/proc/self/fd"), memory, entries("/proc/self/task"), kib << 10, HEAP.used.load(Ordering::Relaxed))
}

fn bar(index: u8) -> BarIndex {
    BarIndex::new(index).unwrap()
}

/// Makes the card copy within a buffer, and checks the result.
fn copy(function: &Function, seed: u64) -> fpga_hal::Result<()> {
    let (domain, registers) = (function.domain(), function.window(bar(0))?);
    let bytes = 1 + (seed as usize * 7919) % 100_000;
    let buffer = domain.allocate(2 * bytes, 1)?;
    let data = pattern(seed, bytes);
    buffer.write(0, &data)?;
    function.set_bus_master(true)?;
    let interrupts = function.enable_interrupts(1 + (seed % 40) as u16)?;
    let vector = (seed as usize) % interrupts.len();
    let iova = buffer.iova().0;
    registers.write_u64(card::SOURCE, iova)?;
    registers.write_u64(card::TARGET, iova + bytes as u64)?;
    registers.write_u32(card::BYTES, bytes as u32)?;
    registers.write_u32(card::DOORBELL, vector as u32)?;
    assert!(interrupts[vector].wait(Duration::from_secs(30))?, "no interrupt");
    let mut read = vec![0; bytes];
    buffer.read(bytes, &mut read)?;
    assert!(read == data);
    Ok(())
}

/// Connects, does something, and leaves. Returns whether the card was free.
fn visit(path: &Path, seed: u64) -> bool {
    let kind = seed % 5;
    if kind < 3 {
        let mut options = Options::default();
        (options.share_memory, options.map_bars) = (kind != 1, kind != 2);
        return match connect_with(path, &Domain::vfio_user(), &options) {
            Ok(function) => {
                copy(&function, seed).unwrap();
                true
            }
            Err(Error::Busy { .. }) => false,
            // Beyond the number of clients being refused, the server disconnects without a reply.
            Err(Error::Socket { .. }) => false,
            Err(error) => panic!("{error:?}"),
        };
    }
    let mut raw = Raw::connect(path);
    if kind == 4 {
        let _ = raw.send(&pattern(seed, 1 + (seed as usize % 200)));
        return false;
    }
    let served = raw.try_call(VERSION, &version(), &[]).is_some_and(|reply| reply.errno() == 0);
    if served {
        raw.enable();
        raw.connect_vectors(0, &[counter(), counter()]);
        let file = memory(1 << 20, seed % 2 == 0);
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x10_0000, 1 << 20), &[file.as_fd()]).errno(), 0);
        assert_eq!(raw.call(DMA_MAP, &map(3, 0, 0x40_0000, 1 << 20)).errno(), 0);
        raw.write(0, card::SOURCE, &0x40_0000u64.to_le_bytes());
        raw.write(0, card::TARGET, &0x10_0000u64.to_le_bytes());
        raw.write_u32(0, card::BYTES, 300_000);
        raw.write_u32(0, card::DOORBELL, 1);
        // Leaves with requests for its memory out, and half a message in.
        let _ = raw.send(&message(1, raw::REGION_WRITE, 0, &access(0, 0, 64, &[0; 64]))[..33]);
    }
    served
}

fn crowd(cards: &[Served], neighbour: &Served, duration: Duration) -> (u64, u64, u64) {
    let (stop, visits, served, rounds) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let stop = &stop;
        for client in 0..16u64 {
            let (visits, served) = (&visits, &served);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let visit_number = visits.fetch_add(1, Ordering::Relaxed);
                    let seed = visit_number * 31 + client;
                    if visit(cards[seed as usize % cards.len()].path(), seed) {
                        served.fetch_add(1, Ordering::Relaxed);
                    } else {
                        thread::sleep(Duration::from_micros(300));
                    }
                }
            });
        }
        let rounds = &rounds;
        scope.spawn(move || {
            let function = connect_with(neighbour.path(), &Domain::vfio_user(), &Options::default()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                copy(&function, rounds.fetch_add(1, Ordering::Relaxed)).unwrap();
            }
            assert!(!function.is_removed());
        });
        thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
    });
    (visits.into_inner(), served.into_inner(), rounds.into_inner())
}

#[test]
fn clients_that_connect_and_leave_leave_nothing_behind() {
    let full = std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0");
    let cards: Vec<_> = (0..4).map(|_| Served::new()).collect();
    let neighbour = Served::new();
    let settled = || {
        // Once each card is free again, the last clients are cleaned up.
        for served in cards.iter().chain([&neighbour]) {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !visit(served.path(), 0) {
                assert!(Instant::now() < deadline, "a card stays busy");
                thread::sleep(Duration::from_millis(5));
            }
        }
        // Threads end shortly after their sessions.
        let mut before = held();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            thread::sleep(Duration::from_millis(300));
            let now = held();
            if (now.0, now.1, now.2) == (before.0, before.1, before.2) || Instant::now() > deadline {
                return now;
            }
            before = now;
        }
    };
    // What allocators take once, they take now.
    crowd(&cards, &neighbour, Duration::from_millis(1500));
    let before = settled();
    let duration = if full { Duration::from_secs(60) } else { Duration::from_secs(4) };
    let (visits, served, rounds) = crowd(&cards, &neighbour, duration);
    let after = settled();
    println!("{visits} visits, {served} served, {rounds} copies beside them; held {before:?}, then {after:?}");
    assert!(served > 20 && rounds > 0);
    assert_eq!((before.0, before.1, before.2), (after.0, after.1, after.2), "descriptors, mappings, threads");
    assert!(after.3 < before.3 + RESIDENT_AT_ALL, "{} bytes more are resident", after.3 - before.3);
    let left = after.4.saturating_sub(before.4);
    assert!(left < HEAP_AT_ALL + HEAP_PER_VISIT * served as usize, "{left} bytes are left by {visits} visits");
}
