//! Memory that a large fabric takes before its cards are used. A process of its own: all of it is counted.
#![forbid(unsafe_code)]

use std::fs;

use fpga_mock::{Fabric, Profile};
use fpga_tests::run::open;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns a line of `/proc/self/status` in bytes (proc(5)).
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("the kernel's account of this process");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a line of this name");
    line.trim().strip_suffix(" kB").expect("kibibytes").parse::<u64>().expect("a number") * KIB
}

#[test]
fn a_thousand_cards_take_little_before_they_are_used() {
    let before = status("VmRSS");
    let fabric = Fabric::new(Profile::optweb_dragonfly(22, 44)).unwrap();
    let resident = status("VmRSS") - before;
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
