//! A forked child disturbs neither its parent's connection nor its parent's server. In a file of its own, whose tests run one at a
//! time: a child inherits only the thread that forked it.
#![allow(dead_code, unreachable_pub, reason = "shared with other tests, and this test uses only part")]

#[path = "vfio_user/card.rs"]
mod card;
#[path = "vfio_user/raw.rs"]
mod raw;
#[path = "vfio_user/setting.rs"]
mod setting;

use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fpga_hal::endpoint::{DmaFault, DmaProgress};
use fpga_hal::vfio_user::{Server, connect};
use fpga_hal::{BarIndex, Domain, Error};
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use raw::{DMA_MAP, Raw};
use setting::Served;

/// Held by the test that forks, so that no thread of another test runs then.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the ranges that a child does not inherit: first address and bytes.
fn not_inherited() -> Vec<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ranges = Vec::new();
    let mut range = (0, 0);
    for line in text.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            range = (start, end - start);
        }
        if line.starts_with("VmFlags:") && line.contains(" dc") {
            ranges.push(range);
        }
    }
    ranges
}

/// Maps memory of the child's own at exactly these ranges.
fn fill(ranges: &[(usize, usize)]) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    ranges.iter().all(|(start, bytes)| {
        let start = std::ptr::without_provenance_mut(*start);
        // SAFETY: the flags do not let it replace memory that is mapped.
        unsafe { libc::mmap(start, *bytes, libc::PROT_READ, flags, -1, 0) == start }
    })
}

fn is_mapped(ranges: &[(usize, usize)]) -> bool {
    ranges.iter().all(|(start, bytes)| {
        // SAFETY: accesses no memory; fails if a page of the range is not mapped.
        unsafe { libc::msync(std::ptr::without_provenance_mut(*start), *bytes, libc::MS_ASYNC) == 0 }
    })
}

#[test]
fn a_forked_child_gets_errors_and_changes_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let served = Served::new();
    let domain = Domain::vfio_user();
    let function = connect(served.path(), &domain).unwrap();
    let (registers, lent) =
        (function.window(BarIndex::new(0).unwrap()).unwrap(), function.window(BarIndex::new(2).unwrap()).unwrap());
    let buffer = domain.allocate(4096, 1).unwrap();
    registers.write_u32(card::SCRATCH, 77).unwrap();
    function.set_bus_master(true).unwrap();
    let iova = buffer.iova().0;
    assert_eq!(served.card.dma_write(iova, b"of ours."), DmaProgress::Done(Ok(())));
    let ranges = not_inherited();
    assert!(ranges.len() >= 2, "the server's memory and the buffer: {ranges:x?}");
    for _ in 0..5 {
        // SAFETY: the child calls only the library, which checks the owner before it takes a lock, and the card, whose locks no
        // thread holds: the only client is idle. The C library keeps its allocator usable in the child.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let forked = |result: fpga_hal::Result<()>| matches!(result, Err(Error::Forked { .. }));
                let told = forked(function.config_read_u32(0).map(drop))
                    && forked(function.reset().map(drop))
                    && forked(lent.read_u32(0).map(drop))
                    && forked(registers.write_u32(card::SCRATCH, 5))
                    && forked(registers.read_u32(card::SCRATCH).map(drop))
                    && forked(buffer.read(0, &mut [0; 4]))
                    && forked(domain.allocate(4096, 1).map(drop));
                // Where the parent has shared memory, the child has other memory, and keeps it.
                let filled = fill(&ranges);
                // Nor does the server reach the client's memory there.
                let dma = [served.card.dma_read(iova, &mut [0; 8]), served.card.dma_write(iova, b"clobber!")];
                let told = told && dma.iter().all(|progress| matches!(progress, DmaProgress::Done(Err(_))));
                drop((registers, lent, buffer, function, domain));
                let kept = is_mapped(&ranges);
                // SAFETY: `_exit` ends the child without running the test harness's exit handlers.
                unsafe { libc::_exit(i32::from(!told) + 2 * i32::from(!filled) + 4 * i32::from(!kept)) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
                assert_eq!(registers.read_u32(card::SCRATCH).unwrap(), 77);
                assert!(!function.is_removed());
            }
        }
    }
    drop((registers, lent, function));
    served.wait_for_end(1);
}

#[test]
fn a_forked_child_of_a_server_does_not_reach_the_client() {
    const UNSEALED: u64 = 0x10000;
    const BY_MESSAGE: u64 = 0x20000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let served = Served::new();
    let memory = setting::memory(4096, false);
    let mut raw = Raw::open(served.path());
    assert_eq!(raw.call_with(DMA_MAP, &raw::map(3, 0, UNSEALED, 4096), &[memory.as_fd()]).errno(), 0);
    assert_eq!(raw.call(DMA_MAP, &raw::map(3, 0, BY_MESSAGE, 4096)).errno(), 0);
    raw.enable();
    assert_eq!(served.card.dma_write(UNSEALED, b"of ours."), DmaProgress::Done(Ok(())));
    // SAFETY: the child calls only the server's port, which checks the owner before it takes a lock, and the card, whose locks
    // no thread holds: the only client is idle. The C library keeps its allocator usable in the child.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let gone = DmaProgress::Done(Err(DmaFault::HostGone));
            let told = [UNSEALED, BY_MESSAGE].map(|iova| {
                served.card.dma_write(iova, b"clobber!") == gone && served.card.dma_read(iova, &mut [0; 8]) == gone
            });
            // SAFETY: `_exit` ends the child without running the test harness's exit handlers.
            unsafe { libc::_exit(i32::from(!told[0]) + 2 * i32::from(!told[1])) }
        }
        ForkResult::Parent { child } => assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0)),
    }
    assert_eq!(setting::peek(&memory, 0, 8), b"of ours.");
    // The next message is the reply, so the child has sent none.
    assert_eq!(raw.read_u32(0, card::ID), card::ID_VALUE);
    drop(raw);
    served.wait_for_end(1);
}

#[test]
fn a_forked_child_does_not_end_its_parents_server() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut servers = [(); 3].map(|()| Served::new());
    // SAFETY: the child only drops its copies, which check the owner before they take a lock.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let begin = Instant::now();
            servers.iter_mut().for_each(|served| drop(served.serving.take()));
            // Waiting for the threads of a server takes 5 s.
            let slow = begin.elapsed() > Duration::from_secs(10);
            // SAFETY: `_exit` ends the child without running the test harness's exit handlers.
            unsafe { libc::_exit(i32::from(slow)) }
        }
        ForkResult::Parent { child } => assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0)),
    }
    for served in &mut servers {
        assert!(served.path().exists());
        assert_eq!(Raw::open(served.path()).read_u32(0, card::ID), card::ID_VALUE);
        drop(served.serving.take());
        assert!(!served.path().exists());
    }
}

#[test]
fn the_process_that_serves_removes_the_socket() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = setting::Directory::new();
    for child_serves in [false, true] {
        let path = directory.0.join("card");
        let server = Server::bind(&path, card::Card::new()).unwrap();
        // SAFETY: no thread of this process runs but this one and the harness's, which waits for it.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let is_served = !child_serves || server.spawn().map(drop).is_ok();
                let right = is_served && path.exists() != child_serves;
                // SAFETY: `_exit` ends the child without running the test harness's exit handlers.
                unsafe { libc::_exit(i32::from(!right)) }
            }
            ForkResult::Parent { child } => assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0)),
        }
        assert_eq!(path.exists(), !child_serves);
        drop(server);
        assert!(!path.exists());
    }
}
