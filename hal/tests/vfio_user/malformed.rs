//! What no client should send. Whatever arrives, the server answers with an errno or hangs up, and the card beside it
//! works on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{iter, thread};

use fpga_hal::vfio_user::{Options, connect};
use fpga_hal::{BarIndex, Domain};
use nix::sys::socket::{SockaddrStorage, getsockname};
use nix::unistd::ftruncate;

use crate::card;
use crate::functions::Used;
use crate::raw::*;
use crate::setting::{Served, counter, memory, peek, poke, raised};

/// A card and its neighbour, which is used throughout and must not notice.
fn beside_a_neighbour(test: impl FnOnce(&Served)) {
    let (served, neighbour) = (Served::new(), Served::new());
    let used = Used::new(neighbour.path(), &Options::default()).unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // Stops the neighbour's user, were it by a panic.
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
    // And the card itself is as good as new.
    let used = Used::new(served.path(), &Options::default()).unwrap();
    used.check(1, 50_000).unwrap();
}

/// A well-formed body of every command a client sends, and how many descriptors go with it.
fn good() -> Vec<(u16, Vec<u8>, usize)> {
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

/// Sends a message on a connection that is open, and sees that what comes is an answer to it or the end. `None`: the
/// server has hung up.
fn answer(raw: &mut Raw, command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Option<u32> {
    raw.try_call(command, body, descriptors).map(|reply| reply.errno())
}

struct Tally(BTreeMap<Option<u32>, usize>);

impl Tally {
    fn new() -> Self {
        Tally(BTreeMap::new())
    }
    fn count(&mut self, outcome: Option<u32>) {
        *self.0.entry(outcome).or_default() += 1;
    }
    fn print(&self, what: &str) {
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

/// Keeps a connection open: another whenever the server has hung up.
struct Client<'a> {
    served: &'a Served,
    raw: Option<Raw>,
}

impl Client<'_> {
    fn raw(&mut self) -> &mut Raw {
        self.raw.get_or_insert_with(|| Raw::open(self.served.path()))
    }

    fn answer(&mut self, command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Option<u32> {
        let outcome = answer(self.raw(), command, body, descriptors);
        if outcome.is_none() {
            self.raw = None;
        } else {
            // The stream is where it should be.
            let raw = self.raw();
            assert_eq!(raw.call(GET_INFO, &four(16, 0, 0, 0)).u32(8), 9);
        }
        outcome
    }
}

#[test]
fn every_field_of_every_message_wrong() {
    const WRONG: [u32; 14] = [0, 1, 2, 3, 5, 7, 15, 21, 0x24, 0x1000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    beside_a_neighbour(|served| {
        let mut tally = Tally::new();
        let mut client = Client { served, raw: None };
        let (file, event) = (memory(0x10_0000, true), counter());
        for (command, good, descriptors) in good() {
            let descriptor = if command == DMA_MAP { file.as_fd() } else { event.as_fd() };
            let descriptors = vec![descriptor; descriptors];
            // Each aligned word of the body, and each half of it.
            for at in (0..good.len()).step_by(4) {
                for wrong in WRONG {
                    for width in [2, 4] {
                        let mut body = good.clone();
                        let bytes = &wrong.to_ne_bytes()[..width.min(good.len() - at)];
                        body[at..at + bytes.len()].copy_from_slice(bytes);
                        tally.count(client.answer(command, &body, &descriptors));
                    }
                }
            }
            // Every length but the right one.
            for len in (0..good.len()).chain([good.len() + 1, good.len() + 4, good.len() + 100]) {
                let body: Vec<u8> = good.iter().copied().chain(iter::repeat(0)).take(len).collect();
                let outcome = client.answer(command, &body, &descriptors);
                // A second version is refused whatever it says.
                assert_ne!(outcome, Some(0), "{command} of {len} bytes");
                tally.count(outcome);
            }
        }
        // Commands that there are not, or that only a server sends, with bodies.
        for command in [0, DMA_READ, DMA_WRITE, 14, 15, 16, 17, 18, 19, 0xff, 0x100, 0xffff] {
            for body in [vec![], vec![0; 16], vec![0xff; 333]] {
                let outcome = client.answer(command, &body, &[]);
                assert!(matches!(outcome, Some(EINVAL | ENOTSUP)), "{command}: {outcome:?}");
                tally.count(outcome);
            }
        }
        tally.print("fields");
        assert!(tally.0.values().sum::<usize>() > 2000);
    });
}

#[test]
fn every_field_of_the_header_wrong() {
    beside_a_neighbour(|served| {
        let mut tally = Tally::new();
        for (command, body, _) in good() {
            let good = message(9, command, 0, &body);
            for (at, wrong) in [(4, 0u32), (4, 1), (4, 15), (4, 16 + 33 + (1 << 20)), (4, u32::MAX), (4, 0x8000_0010)]
                .into_iter()
                .chain((0..16).map(|kind| (8, kind)))
                .chain([(8, 0x20), (8, 0xffff_ffc0), (12, 5), (12, u32::MAX)])
            {
                let raw = Raw::open(served.path());
                let mut bytes = good.clone();
                bytes[at..at + 4].copy_from_slice(&wrong.to_ne_bytes());
                raw.send(&bytes).unwrap();
                if at == 4 {
                    raw.expect_end();
                    tally.count(None);
                    continue;
                }
                let kind = if at == 8 { wrong & 0xf } else { 0 };
                let reply = raw.receive();
                // A reply to nothing and what is neither command nor reply have no answer.
                assert_eq!(reply.is_some(), kind == 0, "{command} with {wrong:#x} at {at}");
                tally.count(reply.map(|reply| {
                    assert_eq!((reply.id, reply.command, reply.flags & 0xf), (9, command, 1));
                    reply.errno()
                }));
            }
        }
        tally.print("headers");
    });
}

#[test]
fn every_message_split_at_every_byte() {
    beside_a_neighbour(|served| {
        let (file, event) = (memory(0x10_0000, true), counter());
        let mut cases = 0;
        let mut raw = Raw::open(served.path());
        for (command, body, descriptors) in good().into_iter().skip(1) {
            let bytes = message(0x77, command, 0, &body);
            let descriptor = if command == DMA_MAP { file.as_fd() } else { event.as_fd() };
            for at in 1..bytes.len() {
                // What must be there before.
                if command == DMA_MAP {
                    assert_eq!(raw.call(DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0);
                }
                raw.send_with(&bytes[..at], &vec![descriptor; descriptors]).unwrap();
                if at % 8 == 1 {
                    thread::sleep(Duration::from_micros(200));
                }
                raw.send(&bytes[at..]).unwrap();
                let reply = raw.receive().unwrap();
                assert_eq!((reply.id, reply.command), (0x77, command));
                let expected = if command == GET_REGION_IO_FDS { ENOTSUP } else { 0 };
                assert_eq!(reply.errno(), expected, "{command} split at {at}");
                cases += 1;
            }
            // Byte by byte, and two messages in one.
            if command == DMA_MAP {
                assert_eq!(raw.call(DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0);
            }
            for (index, byte) in bytes.iter().enumerate() {
                let with = if index == 0 { descriptors } else { 0 };
                raw.send_with(&[*byte], &vec![descriptor; with]).unwrap();
            }
            assert_eq!(raw.receive().unwrap().id, 0x77);
            let two = [message(1, GET_INFO, 0, &four(16, 0, 0, 0)), message(2, REGION_READ, 0, &access(0, 0, 4, &[]))];
            raw.send(&two.concat()).unwrap();
            assert_eq!((raw.receive().unwrap().id, raw.receive().unwrap().id), (1, 2));
            cases += 2;
        }
        // A descriptor with the last byte is as good as one with the first.
        assert_eq!(raw.call(DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0);
        let bytes = message(5, DMA_MAP, 0, &map(3, 0, 0x10_0000, 0x1000));
        raw.send(&bytes[..47]).unwrap();
        raw.send_with(&bytes[47..], &[file.as_fd()]).unwrap();
        assert_eq!(raw.receive().unwrap().errno(), 0);
        println!("{cases} splits");
    });
}

#[test]
fn a_version_split_at_every_byte_and_the_end_after_it() {
    let served = Served::new();
    let bytes = message(3, VERSION, 0, &version());
    for at in 0..=bytes.len() {
        let raw = Raw::connect(served.path());
        raw.send(&bytes[..at]).unwrap();
        // The client is gone amid its first message.
        drop(raw);
        let mut raw = Raw::connect(served.path());
        raw.send(&bytes[..at]).unwrap();
        raw.send(&bytes[at..]).unwrap();
        assert_eq!(raw.receive().unwrap().errno(), 0);
        assert_eq!(raw.read_u32(0, 0), card::ID_VALUE);
    }
}

#[test]
fn messages_in_every_order() {
    beside_a_neighbour(|served| {
        let (file, event) = (memory(0x10_0000, true), counter());
        let good: Vec<_> = good().into_iter().filter(|(_, body, _)| body.get(4) != Some(&0x22)).collect();
        let send = |raw: &Raw, choice: usize, id: u16| {
            let (command, body, descriptors) = &good[choice];
            let descriptor = if *command == DMA_MAP { file.as_fd() } else { event.as_fd() };
            raw.send_with(&message(id, *command, 0, body), &vec![descriptor; *descriptors])
        };
        let mut cases = 0;
        // Before any version: one is answered, and then it is over; every first one, with every second one behind it.
        for first in 0..good.len() {
            for second in 0..good.len() {
                let raw = Raw::connect(served.path());
                send(&raw, first, 1).unwrap();
                let _ = send(&raw, second, 2);
                let reply = raw.receive().unwrap();
                assert_eq!(reply.errno() == 0, good[first].0 == VERSION);
                if reply.errno() != 0 {
                    raw.expect_end();
                } else {
                    let reply = raw.receive().unwrap();
                    assert_eq!(reply.id, 2);
                }
                cases += 1;
            }
        }
        // After it: every order of up to four, all sent before the first reply is read. The replies come in their order,
        // and say what a model of the few things that depend on each other says.
        let mut raw = Raw::open(served.path());
        let mut is_mapped = false;
        for len in 1..=4u32 {
            for order in 0..good.len().pow(len) {
                let choices: Vec<_> = (0..len).map(|place| order / good.len().pow(place) % good.len()).collect();
                for (id, choice) in (0..).zip(&choices) {
                    send(&raw, *choice, id).unwrap();
                }
                for (id, choice) in (0..).zip(&choices) {
                    let command = good[*choice].0;
                    let expected = match command {
                        VERSION => EINVAL,
                        GET_REGION_IO_FDS => ENOTSUP,
                        DMA_MAP if is_mapped => EEXIST,
                        _ => 0,
                    };
                    is_mapped = command == DMA_MAP || is_mapped && command != DMA_UNMAP;
                    let reply = raw.receive().unwrap();
                    assert_eq!((reply.id, reply.command, reply.errno()), (id, command, expected), "{choices:?}");
                }
                cases += 1;
            }
        }
        assert_eq!(raw.read_u32(0, 0), card::ID_VALUE);
        println!("{cases} orders");
    });
}

#[test]
fn descriptors_too_many_too_few_and_of_the_wrong_kind() {
    beside_a_neighbour(|served| {
        let mut client = Client { served, raw: None };
        let (file, event) = (memory(0x10_0000, true), counter());
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        let mut cases = 0;
        for (command, body, right) in good().into_iter().skip(1) {
            let descriptor = if command == DMA_MAP { file.as_fd() } else { event.as_fd() };
            for count in [0, 1, 2, 15, 16, 17, 32, 253] {
                if command == DMA_MAP {
                    let _ = client.answer(DMA_UNMAP, &unmap(2, 0, 0), &[]);
                }
                let outcome = client.answer(command, &body, &vec![descriptor; count]).expect("an answer");
                // Mapping without memory is right too, and none at all takes interrupts away.
                let is_right = count == right || count == 0 && matches!(command, DMA_MAP | SET_IRQS);
                let expected = match (is_right, command) {
                    (false, _) => EINVAL,
                    (true, GET_REGION_IO_FDS) => ENOTSUP,
                    (true, _) => 0,
                };
                assert_eq!(outcome, expected, "{command} with {count} descriptors");
                cases += 1;
            }
        }
        // Interrupts: as many as are named, no more than there are.
        for (start, count, sent, expected) in
            [(0, 16, 16, 0), (0, 15, 16, EINVAL), (0, 16, 15, EINVAL), (24, 16, 16, 0), (25, 16, 16, EINVAL)]
        {
            let body = set_irqs(0x24, 2, start, count, &[]);
            assert_eq!(client.answer(SET_IRQS, &body, &vec![event.as_fd(); sent]), Some(expected));
            cases += 1;
        }
        // What is no eventfd could make the server wait.
        let stdin = std::io::stdin();
        let kinds = [file.as_fd(), pipe.as_fd(), served_socket(client.raw()), stdin.as_fd()];
        for kind in kinds {
            for index in [0, 2, 3, 4] {
                let body = set_irqs(0x24, index, 0, 1, &[]);
                assert_eq!(answer(client.raw.as_mut().unwrap(), SET_IRQS, &body, &[kind]), Some(EINVAL));
                cases += 1;
            }
        }
        // And what is no memory is not mapped.
        for kind in [pipe.as_fd(), event.as_fd()] {
            assert_eq!(client.answer(DMA_MAP, &map(3, 0, 0x90_0000, 0x1000), &[kind]), Some(EINVAL));
            cases += 1;
        }
        println!("{cases} sets of descriptors");
    });
}

/// The socket itself, as a descriptor of the wrong kind.
fn served_socket(raw: &Raw) -> BorrowedFd<'static> {
    use std::os::fd::AsRawFd;
    let _: SockaddrStorage = getsockname(raw.stream.as_raw_fd()).unwrap();
    // SAFETY: the connection outlives what the test does with it.
    unsafe { BorrowedFd::borrow_raw(raw.stream.as_raw_fd()) }
}

#[test]
fn a_client_is_gone_after_every_step() {
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
fn memory_that_is_cut_away_does_not_kill_the_server() {
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
            // While it is copied, at random.
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
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..2u64 {
                let (card, stop) = (&served.card, &stop);
                scope.spawn(move || {
                    let mut went_well = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        let data = [0xa5; 4096];
                        went_well += u64::from(matches!(
                            card.dma_write(0x10_0000 + thread * 4096, &data),
                            fpga_hal::endpoint::DmaProgress::Done(Ok(()))
                        ));
                    }
                    println!("{went_well} writes found memory");
                });
            }
            for _ in 0..3000 {
                assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x10_0000, 0x2000), &[file.as_fd()]).errno(), 0);
                assert_eq!(raw.call(DMA_UNMAP, &unmap(0, 0x10_0000, 0x2000)).errno(), 0);
                // From the reply on, nothing is touched.
                poke(&file, 0, &[0; 0x2000]);
                assert!(peek(&file, 0, 0x2000) == [0; 0x2000]);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_descriptor_that_is_kept_full_stops_nobody_for_long() {
    beside_a_neighbour(|served| {
        let mut raw = Raw::open(served.path());
        raw.enable();
        // A blocking one: a write to it waits while it is full.
        let event = nix::sys::eventfd::EventFd::new().unwrap();
        raw.connect_vectors(0, &[&event]);
        assert_eq!(raw.call_with(SET_IRQS, &set_irqs(0x24, 0, 0, 1, &[]), &[event.as_fd()]).errno(), 0);
        event.write(u64::MAX - 1).unwrap();
        for _ in 0..100 {
            served.card.raise(0);
        }
        assert_eq!(raw.read_u32(0, 0), card::ID_VALUE, "a full vector is raised already");
        // The line's descriptor is written without a look: the server is freed, and hangs up on such a client.
        raw.write_u32(0, card::LINE, 1);
        raw.expect_end();
        served.wait_for_end(1);
    });
}

#[test]
fn bytes_without_meaning() {
    beside_a_neighbour(|served| {
        for seed in 0..300u64 {
            let bytes = crate::setting::pattern(seed, 1 + (seed as usize * 37) % 5000);
            let raw = if seed % 3 == 0 { Raw::connect(served.path()) } else { Raw::open(served.path()) };
            let _ = raw.send(&bytes);
            let _ = raw.stream.shutdown(std::net::Shutdown::Write);
            raw.expect_end();
        }
    });
}

#[test]
fn our_client_is_not_disturbed_by_those_who_knock() {
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
