//! A forked child does not disturb its parent's connection. Alone in its file: the child inherits only the thread that
//! forked it.
#![allow(dead_code, unreachable_pub, reason = "shared with other tests, and this test uses only part")]

#[path = "vfio_user/card.rs"]
mod card;
#[path = "vfio_user/setting.rs"]
mod setting;

use fpga_hal::vfio_user::connect;
use fpga_hal::{BarIndex, Domain, Error};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use setting::Served;

#[test]
fn a_forked_child_gets_errors_and_changes_nothing() {
    let served = Served::new();
    let domain = Domain::vfio_user();
    let function = connect(served.path(), &domain).unwrap();
    let (registers, lent) =
        (function.window(BarIndex::new(0).unwrap()).unwrap(), function.window(BarIndex::new(2).unwrap()).unwrap());
    let buffer = domain.allocate(4096, 1).unwrap();
    registers.write_u32(card::SCRATCH, 77).unwrap();
    for _ in 0..5 {
        // SAFETY: the child only makes calls that check the owner before they lock or allocate, and then exits. So it takes no
        // lock that another thread held at the fork.
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
                drop((registers, lent, buffer, function, domain));
                // SAFETY: `_exit` ends the child without running the test harness's exit handlers.
                unsafe { nix::libc::_exit(i32::from(!told)) }
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
