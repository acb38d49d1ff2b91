//! Clients that reply to requests for their memory late or never.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::card;
use crate::protocol::copy;
use crate::raw::*;
use crate::setting::{Served, memory};

/// Memory that is accessed by messages, and memory that the client has passed as a file.
const ASKED: u64 = 0x4000_0000;
const PASSED: u64 = 0x1000;
/// The card's status if it has no host.
const HOST_GONE: u32 = 4;

fn open(served: &Served) -> Raw {
    let mut raw = Raw::open(served.path());
    raw.enable();
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, ASKED, 4 << 20)).errno(), 0);
    raw
}

#[test]
fn all_replies_to_one_transfer_share_a_limit() {
    const MESSAGES: usize = 16;
    let served = Served::with(|server| server.with_dma_patience(Duration::from_millis(400)));
    let mut raw = open(&served);
    copy(&mut raw, ASKED, ASKED + (1 << 20), 512 << 10);
    let mut answered = 0;
    // Each reply alone is in time.
    while let Some(request) = raw.receive() {
        thread::sleep(Duration::from_millis(60));
        let data = vec![1; request.u64(8) as usize];
        let reply = body().u64(request.u64(0)).u64(request.u64(8)).bytes(&data).0;
        if raw.send(&message(request.id, DMA_READ, 1, &reply)).is_err() {
            break;
        }
        answered += 1;
        assert!(answered < MESSAGES, "the transfer has no limit");
    }
    served.wait_for_end(1);
    assert_eq!(served.card.outstanding(), 0);
}

/// By VFIO_USER_DEVICE_RESET, and by the bus master bit alone.
#[test]
fn a_function_that_was_reset_goes_on_with_nothing() {
    for is_reset in [true, false] {
        let served = Served::new();
        let mut raw = open(&served);
        copy(&mut raw, ASKED, ASKED + (1 << 20), 512 << 10);
        let asked = [raw.receive().unwrap(), raw.receive().unwrap()];
        if is_reset {
            assert_eq!(raw.call(RESET, &[]).errno(), 0);
        } else {
            raw.write(7, 4, &[0x02, 0x00]);
        }
        // It is bus master again before the client answers what it was asked before.
        raw.enable();
        for request in asked {
            let data = vec![1; request.u64(8) as usize];
            let reply = body().u64(request.u64(0)).u64(request.u64(8)).bytes(&data).0;
            raw.send(&message(request.id, DMA_READ, 1, &reply)).unwrap();
        }
        // The next message is the reply to this.
        raw.read_u32(0, card::STATUS);
        assert_eq!(served.card.outstanding(), 0);
    }
}

/// Starts a copy, and returns whether the client is asked for its memory.
fn is_asked(raw: &Raw) -> bool {
    for (offset, bytes) in [(card::SOURCE, 8), (card::TARGET, 8), (card::BYTES, 4), (card::DOORBELL, 4)] {
        let value = if bytes == 8 { ASKED } else { u64::from(offset == card::BYTES) * 16 };
        let write = access(0, offset, bytes as u32, &value.to_le_bytes()[..bytes]);
        raw.send(&message(1, REGION_WRITE, NO_REPLY, &write)).unwrap();
    }
    raw.send(&message(2, REGION_READ, 0, &access(0, card::STATUS, 4, &[]))).unwrap();
    let first = raw.receive().expect("a request for memory, or the status");
    if first.flags & 0xf == 0 {
        assert_eq!((first.command, first.u64(0), first.u64(8)), (DMA_READ, ASKED, 16));
        return true;
    }
    assert_eq!((first.id, first.u32(16)), (2, HOST_GONE));
    false
}

#[test]
fn clients_that_never_reply_are_not_asked_for_a_while() {
    let served = Served::with(|server| server.with_dma_patience(Duration::from_millis(100)));
    let mut visits = 0;
    let mut raw = loop {
        let raw = open(&served);
        if !is_asked(&raw) {
            break raw;
        }
        // The sum continues over connections, whichever side has ended them.
        if visits == 1 {
            thread::sleep(Duration::from_millis(60));
            raw.stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
        while raw.receive().is_some() {}
        visits += 1;
        assert!(visits < 10, "the client is always asked");
        served.wait_for_end(visits);
    };
    assert!(visits >= 3, "it was asked {visits} times");
    // Copies to passed memory continue.
    let file = memory(0x1000, true);
    assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, PASSED, 0x1000), &[file.as_fd()]).errno(), 0);
    copy(&mut raw, PASSED, PASSED + 0x800, 16);
    assert_eq!(raw.read_u32(0, card::STATUS), 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_asked(&raw) {
        assert!(Instant::now() < deadline, "the client is never asked again");
        thread::sleep(Duration::from_millis(50));
    }
}
