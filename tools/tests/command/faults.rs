//! Faults of cards that another process serves: the command says which, with its exit code, and the next one passes.

use std::path::Path;

use fpga_hal::vfio_user::Server;
use fpga_mock::dfl::D5005;
use fpga_mock::xdma::{Misanswer, Shape, XdmaCards};
use fpga_mock::{Fabric, Profile, Shell};
use serde_json::Value;

use crate::run;

/// Runs the self-test of the card on `socket`. Returns its exit code, and what the checks say that failed.
fn selftest(socket: &Path) -> (Option<i32>, String) {
    let output = run(&["selftest", "--json", &format!("vfio-user:{}", socket.display())]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = printed["checks"].as_array().unwrap().iter();
    let failed = checks.filter(|check| check["ok"] == false).map(|check| check["found"].as_str().unwrap());
    (output.status.code(), failed.collect::<Vec<_>>().join("; "))
}

const PASSED: (Option<i32>, String) = (Some(0), String::new());

#[test]
fn what_the_bus_misanswers_ends_a_test_of_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.sock");
    let cards = XdmaCards::new(1, Shape { h2c: 1, c2h: 1, ..Shape::default() });
    let _server = Server::bind(&socket, cards.endpoint(0)).unwrap().spawn().unwrap();
    for (misanswer, of_data, of_descriptors) in [
        (Misanswer::Unsupported, "the bus refused a read", "the bus refused a fetch"),
        (Misanswer::Aborted, "the host aborted a read", "the host aborted a fetch"),
        (Misanswer::Parity, "parity error in host data", "parity error in descriptors"),
        (Misanswer::Poisoned, "host data was poisoned", "descriptors were poisoned"),
        (Misanswer::Unexpected, "unexpected completion of a read", "unexpected completion of a fetch"),
    ] {
        let mut left = vec![of_data, of_descriptors];
        for before in 0.. {
            cards.misanswer(0, before, misanswer);
            let (code, failed) = selftest(&socket);
            assert_eq!(code, Some(1), "{misanswer:?} after {before} reads: {failed}");
            left.retain(|text| !failed.contains(text));
            if left.is_empty() {
                break;
            }
            assert!(before < 16, "{misanswer:?} was never told as {left:?}");
        }
        assert_eq!(selftest(&socket), PASSED);
    }
    cards.fail_memory(0, 0x1000..0x1001);
    let (code, failed) = selftest(&socket);
    assert!(code == Some(1) && failed.contains("card memory answered with an error"), "{failed}");
    cards.mend_memory(0);
    assert_eq!(selftest(&socket), PASSED);
}

/// Error registers of a control function: offset, and the bits with a public meaning.
const ERRORS: [(u32, u64); 4] = [(0x4020, 0x1ef), (0x4030, 0x1ef), (0x2_0020, 0x1ef), (0xa_0010, 0x87fe_799e)];

#[test]
fn each_error_bit_of_a_shell_ends_a_test_of_its_control_function() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.control.sock");
    let fabric = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) }).unwrap();
    let card = D5005::new(&fabric, 0);
    let _server = Server::bind(&socket, card.control()).unwrap().spawn().unwrap();
    let selector = format!("vfio-user:{}", socket.display());
    for (register, bits) in ERRORS {
        for bit in (0..64).map(|bit| 1_u64 << bit).filter(|bit| bits & bit != 0) {
            card.set_errors(register, bit);
            let (code, failed) = selftest(&socket);
            let told = format!("ERROR {bit:#x}: ");
            assert!(code == Some(1) && failed.contains(&told), "{register:#x} {bit:#x}: {failed}");
            let cleared = run(&["reset", "--errors", &selector]);
            assert_eq!(cleared.status.code(), Some(0), "{cleared:?}");
        }
    }
    assert_eq!(selftest(&socket), PASSED);
}
