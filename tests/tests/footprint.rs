//! Memory that fabrics take before their cards are used, and after a reset. A process of its own: all of it is counted.
#![forbid(unsafe_code)]

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fpga_driver::Card;
use fpga_hal::{Domain, in_process};
use fpga_mock::{Fabric, Profile};
use fpga_tests::run::open;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// One test at a time: each counts what the whole process takes.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns a line of `/proc/self/status` in bytes (proc(5)).
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("the kernel's account of this process");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a line of this name");
    line.trim().strip_suffix(" kB").expect("kibibytes").parse::<u64>().expect("a number") * KIB
}

#[test]
fn a_thousand_cards_take_little_before_they_are_used() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = status("VmRSS");
    let fabric = Fabric::new(Profile::optweb_dragonfly(22, 44)).unwrap();
    // The allocator may have returned what the other test has freed.
    let resident = status("VmRSS").saturating_sub(before);
    println!("a fabric of 968 cards: {} MiB resident", resident / MIB);
    assert!(resident < 100 * MIB, "{} MiB resident", resident / MIB);
    drop(fabric);

    // With their hosts, whose rings are in memory that cards may access.
    let (_fabric, cluster) = open(Profile::optweb_dragonfly(22, 44));
    assert_eq!(cluster.cards().len(), 968);
    let (resident, addresses) = (status("VmRSS"), status("VmSize"));
    println!("968 open cards: {} MiB resident, {} MiB of address space", resident / MIB, addresses / MIB);
    assert!(resident < 100 * MIB, "{} MiB resident", resident / MIB);
    assert!(addresses < 16 * GIB, "{} MiB of address space", addresses / MIB);
}

#[test]
fn what_a_card_held_before_a_reset_is_the_machines_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    let function = in_process::attach(fabric.endpoint(0), &Domain::in_process(), "card 0").unwrap();
    let mut card = Card::open(function).unwrap();
    // A busy machine is not what this tests.
    card.set_timeout(Duration::from_secs(60));
    let before = status("VmRSS");
    for round in 0..2 {
        card.fill(0, 256 * MIB, 7).unwrap();
        let full = status("VmRSS").saturating_sub(before);
        card.reset().unwrap();
        let empty = status("VmRSS").saturating_sub(before);
        println!("round {round}: {} MiB resident when full, {} MiB when empty", full / MIB, empty / MIB);
        // What earlier tests have freed is filled first.
        assert!(full > 128 * MIB, "{} MiB resident", full / MIB);
        assert!(empty < 64 * MIB, "{} MiB resident", empty / MIB);
    }
}
