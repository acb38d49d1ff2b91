//! Replies to the server's requests for memory: correct ones in any parts, and incorrect ones.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::card;
use crate::protocol::copy;
use crate::raw::*;
use crate::setting::{Served, memory, peek, poke};

/// Memory that the client has passed as a file, and memory that is accessed by messages.
const PASSED: u64 = 0x10_0000;
const ASKED: u64 = 0x20_0000;
const BYTES: usize = 16;

/// A client whose card is copying.
struct Amid {
    raw: Raw,
    file: OwnedFd,
    /// The request of the server.
    request: Reply,
}

impl Amid {
    /// Makes the card read or write memory that is accessed by messages.
    fn new(served: &Served, command: u16) -> Self {
        let mut raw = Raw::open(served.path());
        raw.enable();
        let file = memory(0x1000, true);
        poke(&file, 0, &[3; BYTES]);
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, PASSED, 0x1000), &[file.as_fd()]).errno(), 0);
        assert_eq!(raw.call(DMA_MAP, &map(3, 0, ASKED, 0x10_0000)).errno(), 0);
        let request = Self::ask(&mut raw, command);
        Amid { raw, file, request }
    }

    fn ask(raw: &mut Raw, command: u16) -> Reply {
        let (source, target) = if command == DMA_READ { (ASKED, PASSED + 0x800) } else { (PASSED, ASKED) };
        copy(raw, source, target, BYTES as u32);
        let request = raw.receive().unwrap();
        assert_eq!((request.command, request.flags & 0xf), (command, 0));
        assert_eq!((request.u64(0), request.u64(8)), (ASKED, BYTES as u64));
        request
    }

    /// Waits for the end of the copy, with this in the card's status register.
    fn expect(&mut self, status: u32) {
        assert_eq!(self.raw.read_u32(0, card::STATUS), status);
    }
}

/// Makes a reply from the id of a request.
type Answer<'a> = dyn Fn(u16) -> Vec<u8> + 'a;

/// The correct body of a reply.
fn right(command: u16) -> Vec<u8> {
    let head = body().u64(ASKED).u64(BYTES as u64);
    if command == DMA_READ { head.bytes(&[5; BYTES]).0 } else { head.0 }
}

/// Checks that the server disconnects, and that the card is clean.
fn expect_end(served: &Served, raw: &Raw) {
    let lost = served.card.owners_lost.load(Ordering::Relaxed);
    raw.expect_end();
    // The end may have been counted before.
    served.card.wait("cleaning up", |card| {
        card.outstanding() == 0 && card.command() == 0 && card.owners_lost.load(Ordering::Relaxed) >= lost.max(1)
    });
}

#[test]
fn replies_to_no_request_end_the_connection() {
    let served = Served::new();
    for reply in [
        message(0, DMA_READ, 1, &right(DMA_READ)),
        message(0, DMA_WRITE, 1, &right(DMA_WRITE)),
        message(0, DMA_WRITE, 1, &[]),
        message(5, VERSION, 1, &[]),
        message(0xffff, 99, 1, &[]),
    ] {
        let raw = Raw::open(served.path());
        raw.send(&reply).unwrap();
        expect_end(&served, &raw);
    }
}

#[test]
fn replies_with_another_range_end_the_connection() {
    let served = Served::new();
    let head = |address: u64, count: u64| body().u64(address).u64(count);
    let read = |address, count, bytes: usize| head(address, count).bytes(&vec![1; bytes]).0;
    let bytes = BYTES as u64;
    let reads = [
        read(ASKED, bytes, BYTES - 1),
        read(ASKED, bytes, BYTES + 1),
        read(ASKED, bytes, 0),
        read(ASKED + 8, bytes, BYTES),
        read(ASKED | 1 << 63, bytes, BYTES),
        read(ASKED, bytes - 8, BYTES - 8),
        read(ASKED, bytes - 8, BYTES),
        read(ASKED, u64::MAX, BYTES),
        read(ASKED, bytes | 1 << 32, BYTES),
        vec![0; 7],
        Vec::new(),
    ];
    let short = |address: u64, count: u32| body().u64(address).u32(count).0;
    let writes = [
        head(ASKED + 8, bytes).0,
        head(ASKED, bytes - 1).0,
        head(ASKED, bytes + 1).0,
        head(ASKED, bytes | 1 << 32).0,
        head(0, 0).0,
        head(u64::MAX, u64::MAX).0,
        short(ASKED, BYTES as u32 + 1),
        short(ASKED, 0),
        short(0, BYTES as u32),
        head(ASKED, bytes).bytes(&[0; 1]).0,
        head(ASKED, bytes).bytes(&[3; BYTES]).0,
        vec![0; 1],
        vec![0; 8],
        vec![0; 11],
        vec![0; 13],
        vec![0; 15],
    ];
    let wrong = reads.into_iter().map(|it| (DMA_READ, it)).chain(writes.into_iter().map(|it| (DMA_WRITE, it)));
    for (command, wrong) in wrong {
        let amid = Amid::new(&served, command);
        amid.raw.send(&message(amid.request.id, command, 1, &wrong)).unwrap();
        expect_end(&served, &amid.raw);
        // None of its data was used.
        assert_eq!(peek(&amid.file, 0x800, BYTES), [0; BYTES], "{command}: {wrong:x?}");
    }
}

#[test]
fn replies_with_a_wrong_header_end_the_connection() {
    let served = Served::new();
    for command in [DMA_READ, DMA_WRITE] {
        let other = DMA_READ + DMA_WRITE - command;
        let good = |id| message(id, command, 1, &right(command));
        let change = |at: usize, value: u32| {
            move |id| {
                let mut bytes = good(id);
                bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                bytes
            }
        };
        let size = good(0).len() as u32;
        let wrong: [(&str, &Answer<'_>); 12] = [
            ("the other command", &|id| message(id, other, 1, &right(command))),
            ("the other command and its body", &|id| message(id, other, 1, &right(other))),
            ("an unknown command", &|id| message(id, 99, 1, &right(command))),
            ("another number", &|id| message(id.wrapping_add(1), command, 1, &right(command))),
            ("neither command nor reply", &change(8, 2)),
            ("an unknown type", &change(8, 0xf)),
            ("a size of 0", &change(4, 0)),
            ("a size of less than a header", &change(4, 15)),
            ("a size of the header alone, and more", &|id| {
                let mut bytes = good(id);
                bytes[4..8].copy_from_slice(&16u32.to_ne_bytes());
                // What follows is no message: its type is unknown.
                bytes.extend([0xff; 16]);
                bytes
            }),
            ("a size of more than any message", &change(4, u32::MAX)),
            ("a size of one more than allowed", &change(4, 16 + 33 + (1 << 20))),
            // The rest never arrives, since the client leaves.
            ("a size of one more", &change(4, size + 1)),
        ];
        for (what, wrong) in wrong {
            let amid = Amid::new(&served, command);
            amid.raw.send(&wrong(amid.request.id)).unwrap();
            if what == "a size of one more" {
                amid.raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
            }
            expect_end(&served, &amid.raw);
            assert_eq!(peek(&amid.file, 0x800, BYTES), [0; BYTES], "{command}: {what}");
        }
    }
}

#[test]
fn an_error_reply_is_a_fault_whatever_its_errno() {
    let served = Served::new();
    for command in [DMA_READ, DMA_WRITE] {
        // The errno "may be zero even if the Error bit is set".
        for errno in [14, 0, 1, u32::MAX] {
            for with in [Vec::new(), right(command), vec![7; 5]] {
                let mut amid = Amid::new(&served, command);
                let mut bytes = message(amid.request.id, command, 0x21, &with);
                bytes[12..16].copy_from_slice(&errno.to_ne_bytes());
                amid.raw.send(&bytes).unwrap();
                amid.expect(2);
                assert_eq!(peek(&amid.file, 0x800, BYTES), [0; BYTES]);
            }
        }
    }
}

#[test]
fn a_command_is_no_reply() {
    let served = Served::new();
    for command in [DMA_READ, DMA_WRITE] {
        let mut amid = Amid::new(&served, command);
        // Correct except for its type: clients send no such command, and the request still waits.
        amid.raw.send(&message(amid.request.id, command, 0, &right(command))).unwrap();
        assert_eq!(amid.raw.receive().unwrap().errno(), EINVAL);
        assert_eq!((amid.raw.read_u32(0, card::DONE), served.card.outstanding()), (0, 1));
        amid.raw.send(&message(amid.request.id, command, 1, &right(command))).unwrap();
        amid.expect(1);
    }
}

#[test]
fn a_second_reply_ends_the_connection() {
    let served = Served::new();
    for command in [DMA_READ, DMA_WRITE] {
        for refused_first in [false, true] {
            // At once, or late, during the next copy.
            for late in [false, true] {
                let mut amid = Amid::new(&served, command);
                let answer = message(amid.request.id, command, 1, &right(command));
                let refusal = body().u16(amid.request.id).u16(command).u32(16).u32(0x21).u32(14).0;
                amid.raw.send(if refused_first { &refusal } else { &answer }).unwrap();
                if late {
                    amid.expect(if refused_first { 2 } else { 1 });
                    let next = Amid::ask(&mut amid.raw, command);
                    assert_ne!(next.id, amid.request.id);
                }
                // The server may disconnect before this is sent.
                let _ = amid.raw.send(&answer);
                expect_end(&served, &amid.raw);
            }
        }
    }
}

#[test]
fn exchanged_replies_end_the_connection() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    raw.enable();
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, ASKED, 0x10_0000)).errno(), 0);
    // Two requests are out at a time.
    copy(&mut raw, ASKED, ASKED + 0x8_0000, 64 << 10);
    let [first, second] = [raw.receive().unwrap(), raw.receive().unwrap()];
    assert_eq!((first.command, second.command), (DMA_READ, DMA_READ));
    assert_ne!((first.id, first.u64(0)), (second.id, second.u64(0)));
    let answer = body().u64(first.u64(0)).u64(first.u64(8)).bytes(&vec![1; first.u64(8) as usize]).0;
    raw.send(&message(second.id, DMA_READ, 1, &answer)).unwrap();
    expect_end(&served, &raw);
}

#[test]
fn replies_may_arrive_in_any_parts() {
    let served = Served::new();
    let mut cases = 0;
    for command in [DMA_READ, DMA_WRITE] {
        let mut amid = Amid::new(&served, command);
        // The three forms of a reply to a write, and the one form of a reply to a read.
        let short = body().u64(ASKED).u32(BYTES as u32).0;
        let forms = if command == DMA_READ { vec![right(command)] } else { vec![right(command), short, Vec::new()] };
        for form in forms {
            for at in 1..=16 + form.len() {
                let bytes = message(amid.request.id, command, 1, &form);
                amid.raw.send(&bytes[..at]).unwrap();
                if at % 4 == 1 {
                    thread::sleep(Duration::from_micros(300));
                }
                amid.raw.send(&bytes[at..]).unwrap();
                amid.expect(1);
                cases += 1;
                amid.request = Amid::ask(&mut amid.raw, command);
            }
            // Byte by byte.
            for byte in message(amid.request.id, command, 1, &form) {
                amid.raw.send(&[byte]).unwrap();
            }
            amid.expect(1);
            cases += 1;
            amid.request = Amid::ask(&mut amid.raw, command);
        }
        if command == DMA_READ {
            assert_eq!(peek(&amid.file, 0x800, BYTES), [5; BYTES]);
        }
    }
    println!("{cases} replies in parts");
}
