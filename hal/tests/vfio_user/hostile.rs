//! Clients that leave at any moment, take their memory away, or keep their descriptors full.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fpga_hal::endpoint::DmaProgress;
use fpga_hal::vfio_user::connect;
use fpga_hal::{BarIndex, Domain, Endpoint};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::eventfd::EventFd;
use nix::unistd::ftruncate;

use crate::card::{self, Card};
use crate::neighbour::beside_a_neighbour;
use crate::raw::*;
use crate::setting::{Served, counter, memory, peek, poke, raised};

#[test]
fn a_client_may_leave_after_every_step() {
    beside_a_neighbour(|served| {
        let file = memory(0x10_0000, true);
        let steps: [&dyn Fn(&mut Raw); 9] = [
            &|_| (),
            &|raw| assert_eq!(raw.call(VERSION, &version()).errno(), 0),
            &|raw| raw.enable(),
            &|raw| raw.connect_vectors(0, &[counter(), counter()]),
            &|raw| {
                assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x10_0000, 0x10_0000), &[file.as_fd()]).errno(), 0);
            },
            &|raw| assert_eq!(raw.call(DMA_MAP, &map(3, 0, 0x40_0000, 0x10_0000)).errno(), 0),
            &|raw| crate::protocol::copy(raw, 0x10_0000, 0x18_0000, 0x8_0000),
            &|raw| crate::protocol::copy(raw, 0x40_0000, 0x10_0000, 0x8_0000),
            &|raw| raw.send(&message(1, REGION_WRITE, 0, &access(0, 0, 64, &[0; 64]))[..50]).unwrap(),
        ];
        let mut lost = 0;
        for round in 0..10 {
            for last in 0..steps.len() {
                let mut raw = Raw::connect(served.path());
                steps[..=last].iter().for_each(|step| step(&mut raw));
                if round % 2 == 0 {
                    let _ = raw.stream.shutdown(std::net::Shutdown::Both);
                }
                drop(raw);
                lost += u64::from(last > 0);
                served.wait_for_end(lost);
                assert_eq!((served.card.outstanding(), served.card.command()), (0, 0));
            }
        }
    });
}

#[test]
fn memory_that_shrinks_does_not_end_the_server() {
    beside_a_neighbour(|served| {
        let mut raw = Raw::open(served.path());
        raw.enable();
        let done = counter();
        raw.connect_vectors(0, &[&done]);
        let file = memory(0x20_0000, false);
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x10_0000, 0x20_0000), &[file.as_fd()]).errno(), 0);
        for round in 0..50u64 {
            ftruncate(&file, 0x20_0000).unwrap();
            poke(&file, 0, &round.to_ne_bytes());
            crate::protocol::copy(&mut raw, 0x10_0000, 0x20_0000, 0x1000);
            assert_eq!(raised(&done), 1);
            assert_eq!(raw.read_u32(0, card::STATUS), 1);
            assert_eq!(peek(&file, 0x10_0000, 8), round.to_ne_bytes());
            // Shrinks at random while the card copies.
            thread::scope(|scope| {
                scope.spawn(|| {
                    for len in [0, 0x1000, 0x18_0000, 0x20_0000, 0] {
                        ftruncate(&file, len).unwrap();
                    }
                });
                crate::protocol::copy(&mut raw, 0x10_0000, 0x20_0000, 0x10_0000);
            });
            assert_eq!(raised(&done), 1);
            assert!(matches!(raw.read_u32(0, card::STATUS), 1 | 2));
            // The server checks a file's length and then writes, so a write may have extended a file that shrank in between.
            ftruncate(&file, 0).unwrap();
            crate::protocol::copy(&mut raw, 0x10_0000, 0x20_0000, 0x1000);
            assert_eq!(raised(&done), 1);
            assert_eq!(raw.read_u32(0, card::STATUS), 2, "there is nothing left");
        }
    });
}

#[test]
fn mapping_unmapping_and_access_race() {
    beside_a_neighbour(|served| {
        let mut raw = Raw::open(served.path());
        raw.enable();
        let file = memory(0x10_0000, true);
        let (stop, found) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..2u64 {
                let (card, stop, found) = (&served.card, &stop, &found);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let written = card.dma_write(0x10_0000 + thread * 4096, &[0xa5; 4096]);
                        if matches!(written, DmaProgress::Done(Ok(()))) {
                            found.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..3000 {
                assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x10_0000, 0x2000), &[file.as_fd()]).errno(), 0);
                assert_eq!(raw.call(DMA_UNMAP, &unmap(0, 0x10_0000, 0x2000)).errno(), 0);
                // After the reply, the memory is not accessed.
                poke(&file, 0, &[0; 0x2000]);
                assert!(peek(&file, 0, 0x2000) == [0; 0x2000]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(found.into_inner() > 0, "no write found memory");
    });
}

/// The interrupt whose descriptor is hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Line,
    Vector,
}

impl Source {
    fn index(self) -> u32 {
        if self == Source::Line { 0 } else { 2 }
    }

    /// Raises it from any thread, as a fabric with other cards does.
    fn raise(self, card: &Card) {
        match self {
            Source::Line => {
                card.bar_write(BarIndex::new(0).unwrap(), card::LINE, &[0]);
                card.bar_write(BarIndex::new(0).unwrap(), card::LINE, &[1]);
            }
            Source::Vector => card.raise(0),
        }
    }
}

/// What a client does while its descriptor is in use.
#[derive(Debug, Clone, Copy)]
enum Then {
    HangUp,
    Replace,
    Disable,
}

/// A full descriptor that blocks writers.
fn full() -> EventFd {
    let event = EventFd::new().unwrap();
    event.write(u64::MAX - 1).unwrap();
    event
}

/// Empties and fills a descriptor, so that a writer that has found room may block.
fn tease(event: &EventFd) {
    let block = |block: bool| {
        let flags = if block { OFlag::empty() } else { OFlag::O_NONBLOCK };
        fcntl(event, FcntlArg::F_SETFL(flags)).unwrap();
    };
    block(false);
    let _ = event.read();
    block(true);
    block(false);
    let _ = event.write(u64::MAX - 1);
    block(true);
}

#[test]
fn full_descriptors_block_no_other_thread() {
    let cases = [Source::Line, Source::Vector].into_iter().flat_map(|source| {
        [Then::HangUp, Then::Replace, Then::Disable]
            .into_iter()
            .flat_map(move |then| [false, true].into_iter().map(move |teased| (source, then, teased)))
    });
    beside_a_neighbour(|served| {
        let (mut lost, mut hung_up) = (0, 0);
        for case in cases {
            let (source, then, teased) = case;
            let event = full();
            let mut raw = Raw::open(served.path());
            raw.enable();
            let connect = set_irqs(0x24, source.index(), 0, 1, &[]);
            assert_eq!(raw.call_with(SET_IRQS, &connect, &[event.as_fd()]).errno(), 0);
            let stop = AtomicBool::new(false);
            let (ended, done) = mpsc::channel();
            thread::scope(|scope| {
                let (stop, event) = (&stop, &event);
                scope.spawn(move || {
                    for _ in 0..300 {
                        source.raise(&served.card);
                        thread::yield_now();
                    }
                    ended.send(()).unwrap();
                });
                if teased {
                    scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            tease(event);
                        }
                    });
                }
                // Meanwhile the client is served, unless the server disconnects it.
                let mut goes_on = true;
                for _ in 0..20 {
                    let unmask = set_irqs(0x11, source.index(), 0, 1, &[]);
                    goes_on = goes_on && raw.try_call(SET_IRQS, &unmask, &[]).is_some();
                }
                assert!(goes_on || teased, "{case:?}");
                let other = full();
                match then {
                    Then::HangUp => drop(raw.stream.shutdown(std::net::Shutdown::Both)),
                    Then::Replace => goes_on &= raw.try_call(SET_IRQS, &connect, &[other.as_fd()]).is_some(),
                    Then::Disable => {
                        let disable = set_irqs(0x21, source.index(), 0, 0, &[]);
                        goes_on &= raw.try_call(SET_IRQS, &disable, &[]).is_some();
                    }
                }
                assert!(goes_on || teased, "{case:?}");
                hung_up += u32::from(!goes_on);
                let raised = done.recv_timeout(Duration::from_secs(20));
                stop.store(true, Ordering::Relaxed);
                if raised.is_err() {
                    // The thread would block for ever, and the test with it.
                    eprintln!("{case:?}: raising has blocked");
                    std::process::abort();
                }
                // The server has no descriptor any more.
                drop(raw);
                lost += 1;
                served.wait_for_end(lost);
            });
        }
        println!("{lost} clients, {hung_up} of them disconnected");
    });
}

#[test]
fn a_client_is_not_disturbed_by_others_that_connect() {
    let served = Served::new();
    let domain = Domain::vfio_user();
    let function = connect(served.path(), &domain).unwrap();
    let registers = function.window(BarIndex::new(0).unwrap()).unwrap();
    thread::scope(|scope| {
        for thread in 0..3 {
            let path = served.path();
            scope.spawn(move || {
                for round in 0..60 {
                    let raw = Raw::connect(path);
                    if (thread + round) % 2 == 0 {
                        let _ = raw.send(&crate::setting::pattern(round, 64));
                        let _ = raw.send(&message(1, VERSION, 0, &version()));
                    }
                }
            });
        }
        for value in 0..2000 {
            registers.write_u32(card::SCRATCH, value).unwrap();
            assert_eq!(registers.read_u32(card::SCRATCH).unwrap(), value);
        }
    });
    assert!(!function.is_removed());
}
