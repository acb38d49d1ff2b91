//! Messages that no client should send: the server replies with an errno or disconnects, and the card beside it works on.

use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{SockaddrStorage, getsockname};

use crate::card;
use crate::neighbour::{Tally, answer, beside_a_neighbour, good};
use crate::raw::*;
use crate::setting::{Served, counter, memory};

/// Keeps a connection open: connects again when the server has disconnected.
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
            // The next message is understood.
            let raw = self.raw();
            assert_eq!(raw.call(GET_INFO, &four(16, 0, 0, 0)).u32(8), 9);
        }
        outcome
    }
}

/// The outcome that the protocol wants for a message: no error, this errno, or any errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Fine,
    Errno(u32),
    Refused,
}

impl Expected {
    fn holds(self, outcome: Option<u32>) -> bool {
        match self {
            Expected::Fine => outcome == Some(0),
            Expected::Errno(errno) => outcome == Some(errno),
            Expected::Refused => outcome.is_some_and(|errno| errno != 0),
        }
    }
}

/// Bytes of the file that is passed with mappings.
const FILE_BYTES: u64 = 0x10_0000;

/// The protocol as a table: the outcome of each message with a body of the right length, for the card in `card.rs`.
///
/// From the sections of the specification with the names of the commands; what they leave open is as in the kernel
/// (`vfio_set_irqs_validate_and_prepare`, `vfio_dma_do_map`, `vfio_dma_do_unmap`). Nothing is mapped before, all vectors are
/// connected, and the descriptors are those of [`good`].
fn expected(command: u16, body: &[u8]) -> Expected {
    use Expected::{Errno, Fine, Refused};
    let u32_at = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
    // "argsz": at least the structure.
    let argsz = |bytes: u32| u32_at(0) >= bytes;
    let region_bytes = |index: u32| match index {
        0 => card::BAR0_BYTES,
        2 => card::BAR2_BYTES,
        7 => 4096,
        _ => 0,
    };
    let is_right = match command {
        // Only as the first message.
        VERSION => false,
        DMA_MAP => {
            let (flags, offset, address, size) = (u32_at(4), u64_at(8), u64_at(16), u64_at(24));
            let is_page = |value: u64| value.is_multiple_of(4096);
            let ends = size > 0 && address.checked_add(size - 1).is_some();
            let end = offset.checked_add(size);
            let is_right = argsz(32) && matches!(flags, 1..=3) && is_page(address) && is_page(size) && ends;
            if is_right && end.is_some_and(|end| end > FILE_BYTES) {
                return Refused;
            }
            is_right && end.is_some()
        }
        DMA_UNMAP => {
            let (flags, address, size) = (u32_at(4), u64_at(8), u64_at(16));
            if argsz(24) && flags == 1 {
                // Dirty pages need a capability that was not agreed on.
                return Errno(ENOTSUP);
            }
            argsz(24) && flags == 0 && size > 0 && address.checked_add(size - 1).is_some()
        }
        GET_INFO => argsz(16),
        // The index "is the only field that is required to be set".
        GET_REGION_INFO => argsz(32) && u32_at(8) < 9,
        // Not supported, whatever the body.
        GET_REGION_IO_FDS => return Errno(ENOTSUP),
        GET_IRQ_INFO => argsz(16) && u32_at(8) < 5,
        SET_IRQS => {
            let (flags, index, start, count) = (u32_at(4), u32_at(8), u32_at(12), u32_at(16));
            let is_bool = body.len() > 20;
            let there = [1, 0, u32::from(card::VECTORS), 1, 1].get(index as usize).copied().unwrap_or(0);
            // One flag of each kind, and its data: bytes, or one descriptor.
            let is_kind = if is_bool { flags == 0x22 && count == 2 } else { flags == 0x24 && count == 1 };
            argsz(body.len() as u32) && is_kind && start.checked_add(count).is_some_and(|end| end <= there)
        }
        REGION_READ | REGION_WRITE => {
            let (offset, region, count) = (u64_at(0), u32_at(8), u32_at(12));
            let data = (body.len() - 16) as u32;
            let bytes = region_bytes(region);
            let is_inside = offset.checked_add(u64::from(count)).is_some_and(|end| end <= bytes) && bytes > 0;
            is_inside && (command == REGION_READ || count == data)
        }
        RESET => body.is_empty(),
        other => panic!("command {other}"),
    };
    if is_right { Fine } else { Errno(EINVAL) }
}

#[test]
fn every_wrong_field_of_a_message_is_an_error() {
    const DESCRIBE: [u16; 3] = [GET_INFO, GET_REGION_INFO, GET_IRQ_INFO];
    const WRONG: [u32; 14] = [0, 1, 2, 3, 5, 7, 15, 21, 0x24, 0x1000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    beside_a_neighbour(|served| {
        let mut tally = Tally::new();
        let (file, event) = (memory(FILE_BYTES, true), counter());
        let mut raw = Raw::open(served.path());
        let mut check = |command: u16, body: &[u8], descriptors: &[BorrowedFd<'_>], expected: Expected| {
            match command {
                DMA_MAP | DMA_UNMAP => assert_eq!(raw.call(DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0),
                SET_IRQS => raw.connect_vectors(0, &[&event]),
                _ => {}
            }
            let outcome = answer(&mut raw, command, body, descriptors);
            assert!(expected.holds(outcome), "{command} {body:x?}: {outcome:?}, not {expected:?}");
            // The next message is understood.
            assert_eq!(raw.call(GET_INFO, &four(16, 0, 0, 0)).u32(8), 9);
            tally.count(outcome);
        };
        for (command, good, descriptors) in good() {
            let descriptor = if command == DMA_MAP { file.as_fd() } else { event.as_fd() };
            let descriptors = vec![descriptor; descriptors];
            // Each aligned word of the body, and its first half.
            for at in (0..good.len()).step_by(4) {
                for wrong in WRONG {
                    for width in [2, 4] {
                        let mut body = good.clone();
                        let bytes = &wrong.to_ne_bytes()[..width.min(good.len() - at)];
                        body[at..at + bytes.len()].copy_from_slice(bytes);
                        check(command, &body, &descriptors, expected(command, &body));
                    }
                }
            }
            // Every wrong length.
            for len in (0..good.len()).chain([good.len() + 1, good.len() + 4, good.len() + 100]) {
                let body: Vec<u8> = good.iter().copied().chain(iter::repeat(0)).take(len).collect();
                // What follows the structure that asks for a description is ignored, and the body of what is not supported.
                let is_ignored = DESCRIBE.contains(&command) && len > good.len() || command == GET_REGION_IO_FDS;
                let outcome = if is_ignored { expected(command, &body) } else { Expected::Errno(EINVAL) };
                check(command, &body, &descriptors, outcome);
            }
        }
        // Unknown commands, and commands that only a server sends.
        for command in [0, DMA_READ, DMA_WRITE, 14, 15, 16, 17, 18, 19, 0xff, 0x100, 0xffff] {
            let expected = if matches!(command, DMA_READ | DMA_WRITE) { EINVAL } else { ENOTSUP };
            for body in [vec![], vec![0; 16], vec![0xff; 333]] {
                check(command, &body, &[], Expected::Errno(expected));
            }
        }
        tally.print("fields");
        let of = |outcome| tally.0.get(&outcome).copied().unwrap_or(0);
        assert!(of(Some(0)) > 300 && of(Some(EINVAL)) > 800 && of(Some(ENOTSUP)) > 30);
    });
}

#[test]
fn every_wrong_field_of_a_version_is_an_error() {
    beside_a_neighbour(|served| {
        for (major, minor) in [(0, 0), (0, 1), (0, 2), (0, 0xffff), (1, 0), (1, 1), (9, 0), (0x100, 1), (0xffff, 0)] {
            let mut raw = Raw::connect(served.path());
            let reply = raw.call(VERSION, &body().u16(major).u16(minor).bytes(JSON).0);
            // "The major version in the reply must be the same as proposed", "the minor equal to or less".
            let expected = if major == 0 { 0 } else { EPROTONOSUPPORT };
            assert_eq!(reply.errno(), expected, "{major}.{minor}");
            if expected == 0 {
                assert_eq!(reply.u32(0), u32::from(minor.min(1)) << 16, "{major}.{minor}");
                assert_eq!(raw.read_u32(0, 0), card::ID_VALUE);
            } else {
                raw.expect_end();
            }
        }
    });
}

#[test]
fn every_wrong_field_of_a_header_is_ignored_or_ends_the_connection() {
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
                // Replies to no command and messages of unknown type get no reply.
                assert_eq!(reply.is_some(), kind == 0, "{command} with {wrong:#x} at {at}");
                // The other bits of a command's header are reserved, and ignored.
                let expected = match command {
                    VERSION => EINVAL,
                    GET_REGION_IO_FDS => ENOTSUP,
                    // No vector is connected to trigger.
                    SET_IRQS if body[4] == 0x22 => EINVAL,
                    _ => 0,
                };
                tally.count(reply.map(|reply| {
                    assert_eq!((reply.id, reply.command, reply.flags & 0xf), (9, command, 1));
                    assert_eq!(reply.errno(), expected, "{command} with {wrong:#x} at {at}");
                    expected
                }));
            }
        }
        tally.print("headers");
    });
}

#[test]
fn a_message_may_be_split_at_every_byte() {
    beside_a_neighbour(|served| {
        let (file, event) = (memory(0x10_0000, true), counter());
        let mut cases = 0;
        let mut raw = Raw::open(served.path());
        for (command, body, descriptors) in good().into_iter().skip(1) {
            let bytes = message(0x77, command, 0, &body);
            let descriptor = if command == DMA_MAP { file.as_fd() } else { event.as_fd() };
            for at in 1..bytes.len() {
                // So that the message succeeds.
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
            // Single bytes, and two messages in one.
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
        // A descriptor may come with the last bytes.
        assert_eq!(raw.call(DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0);
        let bytes = message(5, DMA_MAP, 0, &map(3, 0, 0x10_0000, 0x1000));
        raw.send(&bytes[..47]).unwrap();
        raw.send_with(&bytes[47..], &[file.as_fd()]).unwrap();
        assert_eq!(raw.receive().unwrap().errno(), 0);
        println!("{cases} splits");
    });
}

#[test]
fn a_version_may_be_split_or_end_at_every_byte() {
    let served = Served::new();
    let bytes = message(3, VERSION, 0, &version());
    for at in 0..=bytes.len() {
        let raw = Raw::connect(served.path());
        raw.send(&bytes[..at]).unwrap();
        // The client leaves during its first message.
        drop(raw);
        let mut raw = Raw::connect(served.path());
        raw.send(&bytes[..at]).unwrap();
        raw.send(&bytes[at..]).unwrap();
        assert_eq!(raw.receive().unwrap().errno(), 0);
        assert_eq!(raw.read_u32(0, 0), card::ID_VALUE);
    }
}

#[test]
fn messages_may_come_in_every_order() {
    beside_a_neighbour(|served| {
        let (file, event) = (memory(0x10_0000, true), counter());
        let good: Vec<_> = good().into_iter().filter(|(_, body, _)| body.get(4) != Some(&0x22)).collect();
        let send = |raw: &Raw, choice: usize, id: u16| {
            let (command, body, descriptors) = &good[choice];
            let descriptor = if *command == DMA_MAP { file.as_fd() } else { event.as_fd() };
            raw.send_with(&message(id, *command, 0, body), &vec![descriptor; *descriptors])
        };
        let mut cases = 0;
        // Before a version: every first message, with every second one after it. Only the first gets a reply.
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
        // After the version: every order of up to four messages, all sent before the first reply is read. The replies come
        // in this order, and agree with a model of the mapping, on which some depend.
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
fn too_many_too_few_and_wrong_descriptors_are_errors() {
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
                // A mapping needs no descriptor, and no descriptor disconnects interrupts.
                // Those of an unmapping are not used.
                let is_right = match command {
                    DMA_MAP | SET_IRQS => count == right || count == 0,
                    DMA_UNMAP => count <= 16,
                    _ => count == right,
                };
                let expected = match (is_right, command) {
                    (false, _) => EINVAL,
                    (true, GET_REGION_IO_FDS) => ENOTSUP,
                    (true, _) => 0,
                };
                assert_eq!(outcome, expected, "{command} with {count} descriptors");
                cases += 1;
            }
        }
        // Interrupts: as many descriptors as the count, within the vectors.
        for (start, count, sent, expected) in
            [(0, 16, 16, 0), (0, 15, 16, EINVAL), (0, 16, 15, EINVAL), (24, 16, 16, 0), (25, 16, 16, EINVAL)]
        {
            let body = set_irqs(0x24, 2, start, count, &[]);
            assert_eq!(client.answer(SET_IRQS, &body, &vec![event.as_fd(); sent]), Some(expected));
            cases += 1;
        }
        // A descriptor that is no eventfd could block the server.
        let stdin = std::io::stdin();
        let kinds = [file.as_fd(), pipe.as_fd(), served_socket(client.raw()), stdin.as_fd()];
        for kind in kinds {
            for index in [0, 2, 3, 4] {
                let body = set_irqs(0x24, index, 0, 1, &[]);
                assert_eq!(answer(client.raw.as_mut().unwrap(), SET_IRQS, &body, &[kind]), Some(EINVAL));
                cases += 1;
            }
        }
        // Files that are not in memory are not mapped.
        for kind in [pipe.as_fd(), event.as_fd()] {
            assert_eq!(client.answer(DMA_MAP, &map(3, 0, 0x90_0000, 0x1000), &[kind]), Some(EINVAL));
            cases += 1;
        }
        println!("{cases} sets of descriptors");
        // The server may still hold a copy of this socket, and would not see the end when this one is closed.
        client.raw().stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
}

/// The socket itself, as a descriptor of the wrong kind.
fn served_socket(raw: &Raw) -> BorrowedFd<'static> {
    use std::os::fd::AsRawFd;
    let _: SockaddrStorage = getsockname(raw.stream.as_raw_fd()).unwrap();
    // SAFETY: the callers keep `raw` and its socket open as long as they use the result.
    unsafe { BorrowedFd::borrow_raw(raw.stream.as_raw_fd()) }
}

#[test]
fn random_bytes_end_the_connection() {
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
