//! Correct messages of a client, and their replies.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fs, thread};

use fpga_hal::Error;
use fpga_hal::endpoint::{DmaFault, DmaProgress};
use fpga_hal::vfio_user::Server;
use nix::sys::stat::fstat;

use crate::card::{self, Card};
use crate::raw::*;
use crate::setting::{Directory, QUICK, Served, counter, memory, pattern, peek, poke, raised, raised_within};

#[test]
fn versions_are_agreed_on() {
    let served = Served::new();
    let mut clients = 0;
    let mut answer = |data: Vec<u8>| {
        let mut raw = Raw::connect(served.path());
        let reply = raw.try_call(VERSION, &data, &[]);
        // So that the next client finds the card free.
        drop(raw);
        if reply.as_ref().is_some_and(|reply| reply.errno() == 0) {
            clients += 1;
            served.wait_for_end(clients);
        }
        reply.map(|reply| if reply.errno() == 0 { Ok(reply.body) } else { Err(reply.errno()) }).unwrap()
    };
    let numbers = |major, minor| body().u16(major).u16(minor);
    // No JSON, and then none in the reply.
    assert_eq!(answer(numbers(0, 1).0), Ok(numbers(0, 1).0));
    assert_eq!(answer(numbers(0, 0).0), Ok(numbers(0, 0).0));
    // A later minor version is answered with 1.
    assert_eq!(answer(numbers(0, 9).0), Ok(numbers(0, 1).0));
    for json in [&b"{\"capabilities\":{\"max_msg_fds\":8}}\0"[..], b"{\"capabilities\":{\"max_msg_fds\":8}}"] {
        let expected = b"{\"capabilities\":{\"max_msg_fds\":16}}\0";
        assert_eq!(answer(numbers(0, 0).bytes(json).0), Ok(numbers(0, 0).bytes(expected).0));
    }
    let reply = answer(numbers(0, 1).bytes(JSON).0).unwrap();
    let text = std::str::from_utf8(reply[4..].strip_suffix(b"\0").unwrap()).unwrap();
    for part in ["\"max_msg_fds\":16", "\"max_data_xfer_size\":1048576", "\"pgsizes\":4096"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(answer(numbers(9, 0).0), Err(EPROTONOSUPPORT));
    assert_eq!(answer(numbers(1, 0).bytes(JSON).0), Err(EPROTONOSUPPORT));
    assert_eq!(answer(numbers(0, 1).bytes(b"{\"capabilities\":7}\0").0), Err(EINVAL));
    assert_eq!(answer(vec![0, 0]), Err(EINVAL));
}

#[test]
fn the_device_is_described() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    let info = raw.call(GET_INFO, &four(16, 0, 0, 0));
    assert_eq!(info.body, four(16, 3, 9, 5));
    let bytes = [4096, 0, 1 << 16, 0, 0, 0, 0, 4096, 0];
    for (index, bytes) in (0..).zip(bytes) {
        let reply = raw.call(GET_REGION_INFO, &region_info(32, index));
        assert_eq!((reply.errno(), reply.body.len()), (0, 32));
        assert_eq!((reply.u32(0), reply.u32(8), reply.u32(12), reply.u64(16)), (32, index, 0, bytes));
        let expected = if index == 2 {
            7
        } else if bytes > 0 {
            3
        } else {
            0
        };
        assert_eq!(reply.u32(4), expected, "flags of region {index}");
        assert_eq!(reply.descriptors.len(), usize::from(index == 2));
        if let Some(memory) = reply.descriptors.first() {
            assert_eq!(fstat(memory).unwrap().st_size as u64, bytes);
            poke(memory, 0x123, b"seen by the card");
            let mut seen = [0; 16];
            served.card.memory().read(0x123, &mut seen).unwrap();
            assert_eq!(&seen, b"seen by the card");
            // And by message as well.
            assert_eq!(raw.read(2, 0x123, 16), b"seen by the card");
            // The reply to a write may precede its effect, but a later read sees it.
            raw.write(2, 0x123, b"sent");
            assert_eq!(raw.read(2, 0x123, 6), b"sent b");
            assert_eq!(peek(memory, 0x123, 6), b"sent b");
        }
    }
    assert_eq!(raw.call(GET_REGION_INFO, &region_info(32, 9)).errno(), EINVAL);
    let counts = [(1, 7), (0, 1), (u32::from(card::VECTORS), 1), (1, 1), (1, 1)];
    for (index, (count, flags)) in (0..).zip(counts) {
        assert_eq!(raw.call(GET_IRQ_INFO, &four(16, 0, index, 0)).body, four(16, flags, index, count));
    }
    assert_eq!(raw.call(GET_IRQ_INFO, &four(16, 0, 5, 0)).errno(), EINVAL);
    assert_eq!(raw.call(GET_REGION_IO_FDS, &four(16, 0, 0, 0)).errno(), ENOTSUP);
}

#[test]
fn a_client_that_accepts_no_descriptors_gets_none() {
    let served = Served::new();
    let mut raw = Raw::connect(served.path());
    let none = body().u16(0).u16(1).bytes(b"{\"capabilities\":{\"max_msg_fds\":0}}\0").0;
    assert_eq!(raw.call(VERSION, &none).errno(), 0);
    let reply = raw.call(GET_REGION_INFO, &region_info(32, 2));
    assert_eq!((reply.u32(4), reply.descriptors.len()), (3, 0));
}

#[test]
fn registers_are_read_and_written() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    assert_eq!(raw.read_u32(0, card::ID), card::ID_VALUE);
    raw.write(0, card::SCRATCH, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(raw.read(0, card::SCRATCH, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(raw.read(0, card::SCRATCH + 3, 3), [4, 5, 6]);
    assert_eq!(raw.read(0, 0, 4096).len(), 4096);
    assert_eq!(raw.read(7, 0, 4), [0xee, 0x10, 0x20, 0x50]);
    assert_eq!(raw.read(7, 0, 4096)[..4], [0xee, 0x10, 0x20, 0x50]);
    assert!(raw.read(7, 5, 0).is_empty());
    raw.enable();
    assert_eq!(served.card.command(), 6);
    for (region, offset, count) in
        [(0, 4096, 1), (0, 4093, 4), (0, u64::MAX, 4), (1, 0, 1), (6, 0, 4), (7, 4095, 2), (9, 0, 1), (u32::MAX, 0, 0)]
    {
        assert_eq!(raw.call(REGION_READ, &access(region, offset, count, &[])).errno(), EINVAL);
        let data = vec![0; count as usize];
        assert_eq!(raw.call(REGION_WRITE, &access(region, offset, count, &data)).errno(), EINVAL);
    }
    // A removed card reads as all-ones.
    served.card.is_gone.store(true, Ordering::Relaxed);
    assert_eq!(raw.read_u32(0, card::ID), u32::MAX);
    assert_eq!(raw.read(7, 0, 64), [0xff; 64]);
}

#[test]
fn a_command_with_no_reply_gets_none() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    for count in 1..100u32 {
        let write = access(0, card::SCRATCH, 4, &count.to_le_bytes());
        raw.send(&message(7, REGION_WRITE, NO_REPLY, &write)).unwrap();
        // A command that fails gets no reply, either.
        raw.send(&message(7, REGION_WRITE, NO_REPLY, &access(0, 1 << 40, 4, &[0; 4]))).unwrap();
        raw.send(&message(7, 77, NO_REPLY, &[1; 5])).unwrap();
        assert_eq!(raw.read_u32(0, card::SCRATCH), count, "a later read sees the write");
    }
}

/// Starts a copy of the card.
pub fn copy(raw: &mut Raw, source: u64, target: u64, bytes: u32) {
    raw.write(0, card::SOURCE, &source.to_le_bytes());
    raw.write(0, card::TARGET, &target.to_le_bytes());
    raw.write_u32(0, card::BYTES, bytes);
    raw.write_u32(0, card::DOORBELL, 0);
}

#[test]
fn dma_goes_to_passed_memory() {
    for sealed in [true, false] {
        let served = Served::new();
        let mut raw = Raw::open(served.path());
        raw.enable();
        let done = counter();
        raw.connect_vectors(0, &[&done]);
        let file = memory(1 << 20, sealed);
        let data = pattern(7, 70_000);
        poke(&file, 0x2000, &data);
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0x2000, 0x10_0000, 0x2_0000), &[file.as_fd()]).errno(), 0);
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0x8_0000, 0x20_0000, 0x2_0000), &[file.as_fd()]).errno(), 0);
        copy(&mut raw, 0x10_0000, 0x20_0003, 70_000);
        assert_eq!(raised(&done), 1);
        assert_eq!(raw.read_u32(0, card::STATUS), 1);
        assert!(peek(&file, 0x8_0003, 70_000) == data);
        // Past the end of a mapping, without bus mastering, and after unmapping.
        copy(&mut raw, 0x10_0000, 0x21_ffff, 2);
        assert_eq!(raised(&done), 1);
        assert_eq!(raw.read_u32(0, card::STATUS), 2);
        assert_eq!(raw.call(DMA_UNMAP, &unmap(0, 0x10_0000, 0x2_0000)).body, unmap(0, 0x10_0000, 0x2_0000));
        copy(&mut raw, 0x10_0000, 0x20_0000, 2);
        assert_eq!(raised(&done), 1);
        assert_eq!(raw.read_u32(0, card::STATUS), 2);
        assert_eq!(served.card.dma_read(0x20_0000, &mut [0; 4]), DmaProgress::Done(Ok(())));
        raw.write(7, 4, &[2, 0]);
        assert_eq!(served.card.dma_read(0x20_0000, &mut [0; 4]), DmaProgress::Done(Err(DmaFault::NotMaster)));
    }
}

#[test]
fn a_mapping_may_be_read_only() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    raw.enable();
    let file = memory(0x4000, true);
    for (flags, address) in [(1, 0x1000), (2, 0x2000), (3, 0x3000)] {
        assert_eq!(raw.call_with(DMA_MAP, &map(flags, 0, address, 0x1000), &[file.as_fd()]).errno(), 0);
    }
    let unmapped = |iova| DmaProgress::Done(Err(DmaFault::Unmapped { iova: fpga_hal::Iova(iova) }));
    let fine = DmaProgress::Done(Ok(()));
    let card = &served.card;
    assert_eq!((card.dma_read(0x1000, &mut [0; 8]), card.dma_write(0x1000, &[0; 8])), (fine, unmapped(0x1000)));
    assert_eq!((card.dma_read(0x2000, &mut [0; 8]), card.dma_write(0x2000, &[0; 8])), (unmapped(0x2000), fine));
    assert_eq!((card.dma_read(0x3000, &mut [0; 8]), card.dma_write(0x3000, &[0; 8])), (fine, fine));
    // The fault names the first address, and nothing was written.
    assert_eq!(card.dma_write(0x2ffc, &[7; 16]), fine);
    assert_eq!(card.dma_read(0x1ffc, &mut [0; 16]), unmapped(0x2000));
    assert_eq!(card.dma_write(0x3ff8, &[9; 16]), unmapped(0x4000));
    assert_eq!(peek(&file, 0xff8, 8), [0, 0, 0, 0, 7, 7, 7, 7]);
    // Beyond the addresses of the card.
    assert_eq!(card.dma_read(1 << 48, &mut [0; 1]), unmapped(1 << 48));
}

#[test]
fn unmapping_has_the_rules_of_the_kernel() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    let file = memory(0x10000, true);
    let mut errno = |command, body: Vec<u8>| raw.call(command, &body).errno();
    assert_eq!(errno(DMA_UNMAP, unmap(0, 0x5000, 0x1000)), 0, "never mapped");
    for page in 1..=8u64 {
        assert_eq!(errno(DMA_MAP, map(3, 0, page * 0x2000, 0x2000)), 0);
    }
    for (address, size) in [(0x2000, 0x2000), (0x1000, 0x2000), (0x3000, 0x1000), (0x0, 0x100_0000), (0x11000, 0x1000)]
    {
        assert_eq!(errno(DMA_MAP, map(3, 0, address, size)), EEXIST);
    }
    assert_eq!(errno(DMA_UNMAP, unmap(0, 0x2000, 0x1000)), EINVAL, "half a mapping");
    assert_eq!(errno(DMA_UNMAP, unmap(0, 0x3000, 0x3000)), EINVAL, "the other half, and one whole");
    assert_eq!(errno(DMA_UNMAP, unmap(0, 0x0, 0x6000)), 0, "all in the range");
    assert_eq!(errno(DMA_MAP, map(3, 0, 0x2000, 0x4000)), 0);
    assert_eq!(errno(DMA_MAP, map(3, 0, 0x6000, 0x1000)), EEXIST);
    assert_eq!(errno(DMA_UNMAP, unmap(2, 0, 0)), 0, "everything");
    assert_eq!(errno(DMA_MAP, map(3, 0, 0, 1 << 40)), 0);
    assert_eq!(errno(DMA_UNMAP, unmap(0, 0, u64::MAX)), 0);
    // The last page of all.
    assert_eq!(errno(DMA_MAP, map(3, 0, u64::MAX - 0xfff, 0x1000)), 0);
    assert_eq!(errno(DMA_UNMAP, unmap(0, u64::MAX - 0xfff, 0x1000)), 0);
    assert_eq!(errno(DMA_MAP, map(3, 0, u64::MAX - 0xfff, 0x1000)), 0);
    assert_eq!(errno(DMA_UNMAP, unmap(2, 0, 0)), 0);
    assert_eq!(errno(DMA_UNMAP, unmap(1, 0, 0x1000)), ENOTSUP, "no dirty pages are known");
    for (flags, address, size) in [(2, 0x1000, 0), (2, 0, 0x1000), (0, 0, 0), (4, 0, 0x1000), (0, u64::MAX, 0x1000)] {
        assert_eq!(errno(DMA_UNMAP, unmap(flags, address, size)), EINVAL);
    }
    drop(file);
}

#[test]
fn mappings_have_a_limit() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    // Many messages at a time.
    let page = |index: u64| message(index as u16, DMA_MAP, 0, &map(3, 0, index * 4096, 4096));
    for batch in 0..65535u64 / 257 {
        let messages: Vec<_> = (0..257).flat_map(|index| page(batch * 257 + index)).collect();
        raw.send(&messages).unwrap();
        for _ in 0..257 {
            assert_eq!(raw.receive().unwrap().errno(), 0);
        }
    }
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, 1 << 40, 4096)).errno(), 28);
    assert_eq!(raw.call(DMA_UNMAP, &unmap(0, 4096, 4096)).errno(), 0);
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, 1 << 40, 4096)).errno(), 0);
    assert_eq!(raw.call(DMA_UNMAP, &unmap(2, 0, 0)).errno(), 0);
}

#[test]
fn many_mappings_of_one_file_map_it_once() {
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    raw.enable();
    const PAGES: u64 = 16384;
    let file = memory(PAGES * 4096, true);
    let maps = || fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = (maps(), descriptors());
    for page in 0..PAGES {
        // Every page at another address.
        let body = map(3, page * 4096, 0x1_0000_0000 + (PAGES - 1 - page) * 4096, 4096);
        assert_eq!(raw.call_with(DMA_MAP, &body, &[file.as_fd()]).errno(), 0);
    }
    // Other tests run beside this one, and hold far fewer.
    assert!(maps() < before.0 + 1000, "{} mappings", maps() - before.0);
    assert!(descriptors() < before.1 + 1000);
    let data = pattern(3, 1 << 20);
    assert_eq!(served.card.dma_write(0x1_0000_0800, &data), DmaProgress::Done(Ok(())));
    let first = peek(&file, (PAGES - 1) * 4096 + 0x800, 0x800);
    assert!(first == data[..0x800]);
    let second = peek(&file, (PAGES - 2) * 4096, 4096);
    assert!(second == data[0x800..0x1800]);
    let mut read = vec![0; 1 << 20];
    assert_eq!(served.card.dma_read(0x1_0000_0800, &mut read), DmaProgress::Done(Ok(())));
    assert!(read == data);
}

/// Replies to requests for memory until `until`, at random intervals. No other messages may be in the socket.
fn serve_memory(raw: &Raw, memory: &mut [u8], base: u64, replies: usize, seed: u64) {
    let delays = pattern(seed, 4096);
    let mut done = 0;
    let mut held: Vec<Reply> = Vec::new();
    while done < replies {
        if held.is_empty() || delays[done % 4096] % 3 == 0 && held.len() < 3 {
            raw.stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
            let mut peeked = [0; 1];
            let number = raw.stream.as_raw_fd();
            let has_more = nix::sys::socket::recv(number, &mut peeked, nix::sys::socket::MsgFlags::MSG_PEEK).is_ok();
            raw.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            if has_more {
                held.push(raw.receive().expect("requests"));
                continue;
            }
        }
        if held.is_empty() {
            continue;
        }
        // In any order.
        let request = held.swap_remove(usize::from(delays[(done * 7) % 4096]) % held.len());
        assert_eq!(request.flags & 0xf, 0, "a command");
        let (address, count) = (request.u64(0), request.u64(8) as usize);
        let at = (address - base) as usize;
        thread::sleep(Duration::from_micros(u64::from(delays[(done * 13) % 4096]) * 4));
        let head = body().u64(address).u64(count as u64);
        let reply = match request.command {
            DMA_READ => head.bytes(&memory[at..at + count]).0,
            DMA_WRITE => {
                memory[at..at + count].copy_from_slice(&request.body[16..]);
                assert_eq!(request.body.len(), 16 + count);
                // The count has four bytes in the specification, and eight in QEMU.
                if done % 2 == 0 { body().u64(address).u32(count as u32).0 } else { head.0 }
            }
            other => panic!("command {other}"),
        };
        raw.send(&message(request.id, request.command, 1, &reply)).unwrap();
        done += 1;
    }
}

#[test]
fn dma_without_a_descriptor_is_done_by_messages() {
    const BASE: u64 = 0x4000_0000;
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    raw.enable();
    let done = counter();
    raw.connect_vectors(0, &[&done]);
    let mut host = pattern(11, 4 << 20);
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, BASE, 4 << 20)).errno(), 0);
    for (round, bytes) in [1usize, 64, 4096, 32_768, 32_769, 1 << 20, 1_500_000].into_iter().enumerate() {
        let source = BASE + 13 * round as u64;
        let target = BASE + (2 << 20) + round as u64;
        let expected = host[13 * round..][..bytes].to_vec();
        // The doorbell gets its reply although the copy waits for this client.
        copy(&mut raw, source, target, bytes as u32);
        let messages = 2 * bytes.div_ceil(32_768);
        serve_memory(&raw, &mut host, BASE, messages, round as u64);
        assert_eq!(raised(&done), 1);
        assert_eq!(raw.read_u32(0, card::STATUS), 1);
        assert!(host[(2 << 20) + round..][..bytes] == expected, "{bytes} bytes");
    }
}

#[test]
fn commands_are_served_while_memory_is_asked_for() {
    const BASE: u64 = 0x4000_0000;
    let served = Served::new();
    let mut raw = Raw::open(served.path());
    raw.enable();
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, BASE, 1 << 20)).errno(), 0);
    copy(&mut raw, BASE, BASE + 4096, 16);
    let request = raw.receive().unwrap();
    assert_eq!((request.command, request.u64(0), request.u64(8)), (DMA_READ, BASE, 16));
    for _ in 0..100 {
        assert_eq!(raw.read_u32(0, card::DONE), 0);
    }
    // A request that could be copied waits for the one before.
    let file = memory(4096, true);
    assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x1000, 4096), &[file.as_fd()]).errno(), 0);
    assert_eq!(served.card.dma_write(0x1000, b"later"), DmaProgress::Pending);
    assert_eq!(peek(&file, 0, 5), [0; 5]);
    let answer = body().u64(BASE).u64(16).bytes(&[5; 16]).0;
    raw.send(&message(request.id, DMA_READ, 1, &answer)).unwrap();
    served.card.wait("the write that waited", |_| peek(&file, 0, 5) == b"later");
    // The client refuses the rest of the copy, which the card reports.
    let request = raw.receive().unwrap();
    assert_eq!((request.command, request.u64(0)), (DMA_WRITE, BASE + 4096));
    assert_eq!(request.body[16..], [5; 16]);
    raw.send(&body().u16(request.id).u16(DMA_WRITE).u32(16).u32(0x21).u32(14).0).unwrap();
    assert_eq!(raw.read_u32(0, card::STATUS), 2);
    assert_eq!(raw.read_u32(0, card::DONE), 1);
}

#[test]
fn a_client_that_never_replies_for_its_memory_is_disconnected() {
    let served = Served::with(|server| server.with_dma_patience(Duration::from_millis(300)));
    let mut raw = Raw::open(served.path());
    raw.enable();
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, 0x1000, 0x1000)).errno(), 0);
    let begin = Instant::now();
    copy(&mut raw, 0x1000, 0x1000, 16);
    raw.expect_end();
    assert!(begin.elapsed() >= Duration::from_millis(300));
    served.wait_for_end(1);
    assert_eq!(served.card.outstanding(), 0);
    assert_eq!(served.card.dma_read(0x1000, &mut [0; 4]), DmaProgress::Done(Err(DmaFault::HostGone)));
    // And the card works for the next client.
    let mut raw = Raw::open(served.path());
    assert_eq!(raw.read_u32(0, card::DONE), 0);
}

#[test]
fn a_client_has_its_time_to_reply_beside_that_of_a_reset() {
    // Less than the server waits for the end of the reset.
    let served = Served::with(|server| server.with_dma_patience(Duration::from_millis(900)));
    *served.card.silence.lock().unwrap() = Duration::from_secs(2);
    let mut raw = Raw::open(served.path());
    raw.enable();
    assert_eq!(raw.call(DMA_MAP, &map(3, 0, 0x1000, 0x1000)).errno(), 0);
    raw.write(0, card::SOURCE, &0x1000u64.to_le_bytes());
    raw.write_u32(0, card::BYTES, 16);
    // The reply is there before the reset begins.
    let ring = message(1, REGION_WRITE, 0, &access(0, card::DOORBELL, 4, &[0; 4]));
    let reset = message(2, REGION_WRITE, 0, &access(7, card::EXPRESS + 8, 2, &[0, 0x80]));
    let answer = message(0, DMA_READ, 1, &body().u64(0x1000).u64(16).bytes(&[5; 16]).0);
    raw.send(&[ring, reset, answer].concat()).unwrap();
    for expected in [(1, REGION_WRITE), (0, DMA_READ), (2, REGION_WRITE)] {
        let found = raw.receive().unwrap();
        assert_eq!((found.id, found.command), expected);
    }
    assert_eq!(raw.call(GET_INFO, &four(16, 0, 0, 0)).errno(), 0);
}

#[test]
fn sockets_are_private_and_are_removed() {
    let directory = Directory::new();
    let path = directory.0.join("card");
    let server = Server::bind(&path, Card::new()).unwrap();
    let found = fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    // A second server does not replace the socket of the first.
    let error = Server::bind(&path, Card::new()).unwrap_err();
    assert!(matches!(&error, Error::Socket { source, .. } if source.raw_os_error() == Some(98)), "{error:?}");
    drop(server);
    assert!(!path.exists());
    // A killed server leaves its socket, which the next server replaces.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let serving = Server::bind(&path, Card::new()).unwrap().spawn().unwrap();
    assert_eq!(Raw::open(&path).read_u32(0, 0), card::ID_VALUE);
    drop(serving);
    assert!(!path.exists());
    // Other files are not replaced, and others must not be able to write to the directory.
    fs::write(&path, "precious").unwrap();
    assert!(Server::bind(&path, Card::new()).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
    fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(Server::bind(&path, Card::new()), Err(Error::Socket { .. })));
    fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o1777)).unwrap();
    drop(Server::bind(&path, Card::new()).unwrap());
    assert!(Server::bind(directory.0.join("no/such"), Card::new()).is_err());
}

#[test]
fn a_second_client_is_refused_at_once() {
    let served = Served::new();
    let mut first = Raw::open(served.path());
    first.write_u32(0, card::SCRATCH, 77);
    for _ in 0..50 {
        let mut second = Raw::connect(served.path());
        let begin = Instant::now();
        let reply = second.try_call(VERSION, &version(), &[]).expect("an answer");
        assert_eq!(reply.errno(), EBUSY);
        second.expect_end();
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert_eq!(first.read_u32(0, card::SCRATCH), 77, "the first is not affected");
    }
    // A silent client delays no others.
    let silent: Vec<_> = (0..40).map(|_| Raw::connect(served.path())).collect();
    let mut second = Raw::connect(served.path());
    assert!(second.try_call(VERSION, &version(), &[]).is_none_or(|reply| reply.errno() == EBUSY));
    for raw in &silent {
        raw.expect_end();
    }
    assert_eq!(first.read_u32(0, card::SCRATCH), 77);
    drop(first);
    // Once the first has left, the next is served, however soon it comes.
    for _ in 0..100 {
        let mut next = Raw::open(served.path());
        assert_eq!(next.read_u32(0, card::SCRATCH), 0);
        next.write_u32(0, card::SCRATCH, 5);
    }
}

#[test]
fn ending_a_server_is_prompt_whatever_its_client_does() {
    // No client; a silent one; half a message; many unread replies.
    for what in 0..4 {
        let mut served = Served::new();
        let raw = (what > 0).then(|| Raw::open(served.path()));
        if let Some(raw) = &raw {
            match what {
                2 => raw.send(&message(1, REGION_WRITE, 0, &access(0, 0, 64, &[0; 64]))[..40]).unwrap(),
                3 => {
                    raw.stream.set_nonblocking(true).unwrap();
                    let read = message(1, REGION_READ, 0, &access(2, 0, 1 << 16, &[]));
                    while raw.send(&read).is_ok() {}
                }
                _ => {}
            }
        }
        let begin = Instant::now();
        drop(served.serving.take());
        assert!(begin.elapsed() < Duration::from_secs(4), "{what}: {:?}", begin.elapsed());
        assert!(!served.path().exists());
        if let Some(raw) = raw {
            raw.stream.set_nonblocking(false).unwrap();
            raw.expect_end();
            assert_eq!(served.card.owners_lost.load(Ordering::Relaxed), 1);
        }
    }
}

#[test]
fn what_a_client_leaves_behind_is_cleaned_up() {
    let served = Served::new();
    let weak = {
        let mut raw = Raw::open(served.path());
        raw.enable();
        let (file, line, vector) = (memory(1 << 20, true), counter(), Arc::new(counter()));
        raw.connect_vectors(0, &[vector.as_fd()]);
        assert_eq!(raw.call_with(SET_IRQS, &set_irqs(0x24, 0, 0, 1, &[]), &[line.as_fd()]).errno(), 0);
        assert_eq!(raw.call_with(DMA_MAP, &map(3, 0, 0x10_0000, 1 << 20), &[file.as_fd()]).errno(), 0);
        assert_eq!(raw.call(DMA_MAP, &map(3, 0, 0x40_0000, 1 << 20)).errno(), 0);
        raw.write_u32(0, card::LINE, 1);
        copy(&mut raw, 0x40_0000, 0x10_0000, 4096);
        (file, vector)
    };
    served.wait_for_end(1);
    let (file, vector) = weak;
    assert_eq!((served.card.outstanding(), served.card.command(), served.card.msix_control() & 0x8000), (0, 0, 0));
    assert_eq!(served.card.dma_write(0x10_0000, &[1; 64]), DmaProgress::Done(Err(DmaFault::HostGone)));
    assert_eq!(peek(&file, 0, 64), [0; 64]);
    served.card.raise(0);
    assert_eq!(raised_within(&vector, QUICK), 0);
}
