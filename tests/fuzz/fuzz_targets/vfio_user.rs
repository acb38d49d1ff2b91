//! A vfio-user server survives any bytes and any descriptors of a client.
//!
//! The input is a list of steps: a well-formed message with some of its bytes changed, bytes as they are, a doorbell, or
//! a reply to a request for memory; each may carry up to twenty descriptors of some kind. The card's fabric runs with or
//! without its own clock.
#![no_main]

use std::io::{IoSlice, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use fpga_hal::vfio_user::Server;
use fpga_mock::{Fabric, Profile};
use libfuzzer_sys::fuzz_target;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{ftruncate, pipe};

/// Sealed memory, memory that may shrink, an eventfd, a pipe, and a full eventfd that blocks writers.
fn descriptors() -> &'static [OwnedFd; 5] {
    static KINDS: OnceLock<[OwnedFd; 5]> = OnceLock::new();
    KINDS.get_or_init(|| {
        let memory = |sealed| {
            let file = memfd_create("fuzz", MFdFlags::MFD_ALLOW_SEALING).unwrap();
            ftruncate(&file, 1 << 20).unwrap();
            if sealed {
                fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
            }
            file
        };
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        let full = EventFd::new().unwrap();
        full.write(u64::MAX - 1).unwrap();
        [memory(true), memory(false), OwnedFd::from(event), pipe().unwrap().1, OwnedFd::from(full)]
    })
}

fn message(command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![7, 0];
    bytes.extend(command.to_ne_bytes());
    bytes.extend((16 + body.len() as u32).to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `VFIO_USER_DEVICE_SET_IRQS`.
fn interrupts(flags: u32, index: u32, start: u32, count: u32, data: &[u8]) -> Vec<u8> {
    let mut body = words(&[20 + data.len() as u32, flags, index, start, count]);
    body.extend(data);
    message(8, 0, &body)
}

/// Writes a register of four bytes.
fn register(offset: u32, value: u32) -> Vec<u8> {
    message(10, 0, &words(&[offset, 0, 0, 4, value]))
}

/// Returns a well-formed message, chosen by `which`.
fn right(which: u8) -> Vec<u8> {
    match which % 32 {
        0 => message(1, 0, b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":16}}\0"),
        1 => message(2, 0, &words(&[32, 3, 0, 0, 0x10_0000, 0, 0x1_0000, 0])),
        2 => message(2, 0, &words(&[32, 3, 0x1_0000, 0, 0x20_0000, 0, 0x1_0000, 0])),
        3 => message(3, 0, &words(&[24, 0, 0x10_0000, 0, 0x1_0000, 0])),
        4 => message(4, 0, &words(&[16, 0, 0, 0])),
        5 => message(5, 0, &words(&[32, 0, 2, 0, 0, 0, 0, 0])),
        6 => message(7, 0, &words(&[16, 0, 2, 0])),
        // Interrupts of each index: connect, disconnect, mask, unmask and trigger.
        7 => interrupts(0x24, 2, 0, 1, &[]),
        8 => interrupts(0x24, 2, 4, 4, &[]),
        9 => interrupts(0x24, 0, 0, 1, &[]),
        10 => interrupts(0x24, 1, 0, 1, &[]),
        11 => interrupts(0x24, 3, 0, 1, &[]),
        12 => interrupts(0x24, 4, 0, 1, &[]),
        13 => interrupts(0x21, 2, 0, 1, &[]),
        14 => interrupts(0x22, 2, 0, 3, &[1, 0, 1]),
        15 => interrupts(0x21, 2, 0, 0, &[]),
        16 => interrupts(0x21, 0, 0, 1, &[]),
        17 => interrupts(0x21, 0, 0, 0, &[]),
        18 => interrupts(0x09, 0, 0, 1, &[]),
        19 => interrupts(0x12, 0, 0, 1, &[1]),
        20 => interrupts(0x21, 4, 0, 1, &[]),
        21 => message(9, 0, &words(&[0, 0, 0, 4])),
        22 => register(0x1000, 1),
        23 => message(10, 0, &words(&[4, 0, 7, 4, 6])),
        24 => message(13, 0, &[]),
        // Rings in the first mapping, an interrupt, and the doorbell.
        25 => register(0x1400, 0x10_0000),
        26 => register(0x1408, 0x10_8000),
        27 => register(0x1410, 16),
        28 => register(0x1414, 1),
        29 => register(0x1100, 1),
        30 => register(0x1418, 1),
        // A reply to the first request for memory.
        _ => message(11, 1, &words(&[0x10_0000, 0, 64, 0])),
    }
}

/// Number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fuzz_target!(|data: &[u8]| {
    let threads_before = threads();
    let profile = Profile { memory_bytes: 16 << 20, ..Profile::optweb(2) };
    let fabric = Fabric::new(profile).unwrap();
    let endpoint = fabric.endpoint(0);
    let clock = data.first().is_some_and(|byte| byte & 0x80 == 0).then(|| fabric.start_clock().unwrap());
    // A directory for this user only, as the server wants.
    let directory = env::temp_dir().join(format!("fpga-fuzz-{}", process::id()));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).unwrap();
    let begin = Instant::now();
    let serving = Server::bind(directory.join("card"), endpoint).unwrap().spawn().unwrap();
    let client = UnixStream::connect(serving.path()).unwrap();
    // Reads replies, so that the server does not keep them.
    let mut replies = client.try_clone().unwrap();
    let reading = thread::spawn(move || {
        let mut dropped = [0; 4096];
        while matches!(replies.read(&mut dropped), Ok(1..)) {}
    });
    let send = |bytes: &[u8], kind: u8, count: u8| {
        let numbers = vec![descriptors()[usize::from(kind % 5)].as_raw_fd(); usize::from(count % 21)];
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[] } else { &rights[..] };
        let _ = sendmsg::<()>(client.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None);
    };
    // Usually begins with a correct version.
    if data.first().is_none_or(|byte| byte % 8 != 0) {
        send(&right(0), 0, 0);
    }
    let mut rest = data;
    while let Some((head, tail)) = rest.split_first_chunk::<4>() {
        rest = tail;
        let mut bytes = right(head[0] >> 2);
        match head[0] & 3 {
            0 => {
                let taken = rest.len().min(usize::from(head[1]));
                bytes = rest[..taken].to_vec();
                rest = &rest[taken..];
            }
            1 => {}
            changes => {
                for _ in 0..changes {
                    let Some((change, tail)) = rest.split_first_chunk::<2>() else { break };
                    rest = tail;
                    let at = usize::from(change[0]) % bytes.len();
                    bytes[at] = change[1];
                }
            }
        }
        let count = if head[3] & 3 == 0 { head[3] >> 2 } else { head[3] & 1 };
        send(&bytes, head[2], count);
    }
    // The server handles all messages, and then ends the connection.
    let _ = client.shutdown(std::net::Shutdown::Write);
    reading.join().unwrap();
    drop(serving);
    fs::remove_dir(&directory).unwrap();
    drop(clock);
    // Nobody joins the thread that closes descriptors. While it starts or ends, its memory looks like a leak.
    while threads() > threads_before {
        assert!(begin.elapsed() < Duration::from_secs(20), "a thread does not end");
        thread::sleep(Duration::from_micros(50));
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "it took {:?}", begin.elapsed());
});
