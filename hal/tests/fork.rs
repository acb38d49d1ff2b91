//! A forked child has neither the memory nor the functions of its parent. Alone in its file: the child inherits only the
//! thread that forked it.

#[path = "functions/fake/mod.rs"]
mod fake;

use std::sync::Arc;

use fake::{Fake, bar};
use fpga_hal::memory::{MmapMut, PublishedWords, read_words};
use fpga_hal::{Direction, Domain, Error, Ring, SharedMemory};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

#[test]
fn a_forked_child_is_told_and_changes_nothing() {
    let (fake, domain) = (Fake::new(), Domain::in_process());
    let function = fake.open(&domain, "card").unwrap();
    let [registers, window] = [0, 2].map(|index| function.window(bar(index)).unwrap());
    assert!(!registers.is_mapped());
    let buffer = domain.allocate(4096, 1).unwrap();
    buffer.write(0, b"ours").unwrap();
    let ring: Ring<64> = Ring::new(buffer.clone()).unwrap();
    let registered = domain.register(MmapMut::map_anon(1 << 16).unwrap(), Direction::Both).unwrap();
    let shared = Arc::new(SharedMemory::new("ours", 1 << 16).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("words");
    let words = PublishedWords::create(&path, &[1, 2]).unwrap();
    fake.take_events();

    // SAFETY: the child calls nothing that a lock of another thread could block: the harness only waits for this test.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let forked = |result: fpga_hal::Result<()>| matches!(result, Err(Error::Forked { .. }));
            let told = forked(buffer.read(0, &mut [0; 4]))
                && forked(buffer.write(0, &[0; 64]))
                && forked(ring.store(0, &[0; 64]))
                && forked(ring.load(0, &mut [0; 64]))
                && forked(ring.load_acquire::<0>(0).map(drop))
                && forked(window.read_u32(0).map(drop))
                && forked(registers.read_u32(0).map(drop))
                && forked(registers.write_u32(0, 5))
                && forked(function.config_read_u32(0).map(drop))
                && forked(function.reset().map(drop))
                && forked(domain.allocate(4096, 1).map(drop))
                && forked(registered.write(0, b"its"))
                && forked(registered.unregister().map(drop))
                && forked(
                    // Not even in a domain of its own.
                    Domain::in_process().register(Arc::clone(&shared), Direction::Both).map(drop).map_err(Error::from),
                )
                && MmapMut::map_anon(1 << 16).is_ok_and(|memory| {
                    forked(domain.register(memory, Direction::Both).map(drop).map_err(Error::from))
                });
            words.store(0, 99);
            drop((function, registers, window, ring, buffer));
            let quiet = fake.take_events().is_empty();
            // What it makes itself, it has.
            let own = Domain::in_process().allocate(4096, 1).and_then(|own| own.write(0, b"own"));
            let code = i32::from(!told) + 2 * i32::from(!quiet) + 4 * i32::from(own.is_err());
            // SAFETY: ends the child at once, without the harness's own end.
            unsafe { nix::libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            let mut data = [0; 4];
            buffer.read(0, &mut data).unwrap();
            assert_eq!(&data, b"ours");
            assert_eq!(read_words(&path, 2).unwrap(), [1, 2]);
            assert!(!function.is_removed());
            assert_eq!(domain.mappings(), 2);
            assert!(registered.unregister().unwrap().iter().all(|byte| *byte == 0));
        }
    }
}
