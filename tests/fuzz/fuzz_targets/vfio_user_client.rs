//! A vfio-user client survives any replies, requests and descriptors of a server, within its patience.
//!
//! The server of a small card answers each command correctly, except where the input says otherwise. It refuses to connect
//! interrupts: the client would test one, and wait for it. The input is a list of steps. Each step counts the correct replies
//! before it, and then changes some bytes of a reply, sends bytes as they are, requests memory, or ends the connection. Each
//! may carry up to fifteen descriptors of some kind.
#![no_main]

use std::io::{IoSlice, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use fpga_hal::vfio_user::{Options, connect_with};
use fpga_hal::{BarIndex, Domain, Function};
use libfuzzer_sys::fuzz_target;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{ftruncate, pipe};

const MEMORY_BYTES: u32 = 1 << 16;

/// Sealed memory, memory that may shrink, an eventfd, and a pipe.
fn descriptors() -> &'static [OwnedFd; 4] {
    static KINDS: OnceLock<[OwnedFd; 4]> = OnceLock::new();
    KINDS.get_or_init(|| {
        let memory = |sealed| {
            let file = memfd_create("fuzz", MFdFlags::MFD_ALLOW_SEALING).unwrap();
            ftruncate(&file, i64::from(MEMORY_BYTES)).unwrap();
            if sealed {
                fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
            }
            file
        };
        [memory(true), memory(false), OwnedFd::from(EventFd::new().unwrap()), pipe().unwrap().1]
    })
}

/// The configuration space: MSI-X with 8 vectors, whose table is in BAR 0, and PCI Express.
fn config() -> [u8; 256] {
    let mut config = [0; 256];
    config[0..4].copy_from_slice(&[0xee, 0x10, 0x20, 0x50]);
    config[0x06] = 0x10;
    config[0x0b] = 0x12;
    config[0x18] = 0b1100; // BAR 2: 64 bits, prefetchable
    config[0x34] = 0x50;
    config[0x50..0x56].copy_from_slice(&[0x11, 0x60, 7, 0, 0, 8]);
    config[0x60] = 0x10;
    config
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn message(id: [u8; 2], command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = id.to_vec();
    bytes.extend(command.to_ne_bytes());
    bytes.extend(words(&[16 + body.len() as u32, flags, 0]));
    bytes.extend(body);
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_ne_bytes(word.try_into().unwrap()))
}

/// Returns the body of the correct reply, and whether memory belongs to it.
fn right(command: u16, body: &[u8]) -> (Vec<u8>, bool) {
    let index = u32_at(body, 8);
    match command {
        1 => (b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":16}}\0".to_vec(), false),
        4 => (words(&[16, 3, 9, 5]), false),
        5 => {
            let (flags, bytes) = match index {
                0 => (3, 4096),
                2 => (7, MEMORY_BYTES),
                7 => (3, 256),
                _ => (0, 0),
            };
            (words(&[32, flags, index, 0, bytes, 0, 0, 0]), index == 2)
        }
        7 => (words(&[16, 1, index, [1, 0, 8, 1, 1].get(index as usize).copied().unwrap_or(0)]), false),
        9 => {
            let (offset, count) = (u32_at(body, 0) as usize, u32_at(body, 12) as usize);
            let data = config().into_iter().chain(std::iter::repeat(0)).skip(offset).take(count.min(1 << 20));
            let data: Vec<_> = if index == 7 { data.collect() } else { vec![0; count.min(1 << 20)] };
            ([&body[..body.len().min(16)], &data].concat(), false)
        }
        3 => (body.to_vec(), false),
        10 => (body[..body.len().min(16)].to_vec(), false),
        _ => (Vec::new(), false),
    }
}

/// Serves one client with the steps of `rest`, until it leaves.
fn serve(mut client: UnixStream, mut rest: &[u8]) {
    let mut mapped = 0;
    let mut until_step = None;
    loop {
        let mut head = [0; 16];
        if client.read_exact(&mut head).is_err() {
            return;
        }
        let mut body = vec![0; u32_at(&head, 4) as usize - 16];
        if client.read_exact(&mut body).is_err() {
            return;
        }
        let (id, command, flags) = ([head[0], head[1]], u16::from_ne_bytes([head[2], head[3]]), u32_at(&head, 8));
        if flags & 0x1f != 0 {
            // A reply to a request for memory, or a command without a reply.
            continue;
        }
        if command == 2 {
            mapped = u32_at(&body, 16);
        }
        let (mut reply, has_memory) = right(command, &body);
        let mut passed = vec![descriptors()[0].as_raw_fd(); usize::from(has_memory)];
        reply = message(id, command, 1, &reply);
        if command == 8 && u32_at(&body, 4) == 0x24 {
            // An error reply, with EINVAL.
            (reply[8], reply[12]) = (0x21, 22);
        }
        if until_step.is_none() {
            let step = rest.split_first();
            until_step = step.map(|(count, _)| *count);
            rest = step.map_or(&[], |(_, tail)| tail);
        }
        until_step = match (until_step, rest.split_first_chunk::<2>()) {
            (Some(0), Some((step, tail))) => {
                rest = tail;
                match step[0] & 3 {
                    0 => {
                        for _ in 0..=step[0] >> 6 {
                            let Some((change, tail)) = rest.split_first_chunk::<2>() else { break };
                            rest = tail;
                            let at = usize::from(change[0]) % reply.len();
                            reply[at] = change[1];
                        }
                    }
                    1 => {
                        let taken = rest.len().min(usize::from(step[0] >> 2));
                        reply = rest[..taken].to_vec();
                        rest = &rest[taken..];
                    }
                    2 => {
                        let is_read = step[0] & 4 != 0;
                        let count = u32::from(step[0] >> 3) * 257;
                        let mut request = words(&[mapped, 0, count, 0]);
                        request.resize(request.len() + if is_read { 0 } else { count as usize }, 7);
                        reply = [message([9, 9], if is_read { 11 } else { 12 }, 0, &request), reply].concat();
                    }
                    _ => return,
                }
                if step[1] & 3 == 0 {
                    passed = vec![descriptors()[usize::from(step[1] >> 2) % 4].as_raw_fd(); usize::from(step[1] >> 4)];
                }
                None
            }
            (count, _) => count.and_then(|count| count.checked_sub(1)),
        };
        let rights = [ControlMessage::ScmRights(&passed)];
        let control = if passed.is_empty() { &[] } else { &rights[..] };
        let mut left = &reply[..];
        while !left.is_empty() {
            let control = if left.len() == reply.len() { control } else { &[] };
            let parts = [IoSlice::new(left)];
            match sendmsg::<()>(client.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None) {
                Ok(sent) => left = &left[sent..],
                Err(_) => return,
            }
        }
    }
}

/// Uses a function in all ways that its server hears of. Any call may fail.
fn try_all(function: Function, domain: &Domain) {
    let interrupts = function.enable_interrupts(2);
    let buffer = domain.allocate(8192, 1);
    for index in (0..6).filter_map(BarIndex::new) {
        let Ok(window) = function.window(index) else { continue };
        let _ = (window.read_u32(0), window.read_u64(8), window.write_u32(16, 1), window.read_u32(0xff8));
    }
    let _ = (function.config_read_u16(4), function.reset());
    if let Ok(buffer) = &buffer {
        let _ = (buffer.write(100, &[1; 50]), buffer.read(0, &mut [0; 200]));
    }
    drop((function, buffer));
    for interrupt in interrupts.into_iter().flatten() {
        let _ = interrupt.wait(Duration::ZERO);
    }
}

/// Number of threads of this process.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fuzz_target!(|data: &[u8]| {
    let threads_before = threads();
    let (first, rest) = data.split_first().unwrap_or((&3, &[]));
    let directory = env::temp_dir().join(format!("fpga-fuzz-client-{}", process::id()));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).unwrap();
    let path = directory.join("card");
    let listener = UnixListener::bind(&path).unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| serve(listener.accept().unwrap().0, rest));
        let mut options = Options::default();
        (options.share_memory, options.map_bars) = (first & 1 != 0, first & 2 != 0);
        options.patience = Duration::from_millis(200);
        let domain = Domain::vfio_user();
        match connect_with(&path, &domain, &options) {
            Ok(function) => try_all(function, &domain),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
    fs::remove_dir_all(&directory).unwrap();
    // Nobody joins the thread that closes descriptors. While it starts or ends, its memory looks like a leak.
    while threads() > threads_before {
        assert!(begin.elapsed() < Duration::from_secs(20), "a thread does not end");
        thread::sleep(Duration::from_micros(50));
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "it took {:?}", begin.elapsed());
});
