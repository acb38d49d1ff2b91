//! Two hosts on one fabric, each with cards of its own: neither reaches the memory of the other, in this process and over sockets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::Communicator;
use cmdseq::{Instruction, Status};
use fpga_driver::{Bound, Card, Cluster};
use fpga_hal::vfio_user::{Server, connect};
use fpga_hal::{Domain, Function, in_process};
use fpga_mock::{Fabric, Profile};
use fpga_tests::dice::{Dice, seed};

use super::*;

/// Cards of the victim: the attacker has card 0.
const VICTIMS: [u32; 2] = [1, 2];

/// Attacks card 1: nothing may be done. Returns how many attacks there were.
fn attack(attacker: &mut Card, stop: &AtomicBool) -> u64 {
    let mut dice = Dice(seed());
    let mut attacks = 0;
    while !stop.load(Ordering::Relaxed) || attacks < 200 {
        let bytes = dice.of(&[1, 8, 64, 4096]);
        let address = dice.of(&[0, AT, AT + 8, 2 * AT]);
        let instruction = match dice.below(4) {
            0 => Instruction::rdma_read(1, card(address), card(4 * AT), bytes),
            1 => Instruction::rdma_write(1, card(0), card(address), bytes),
            2 => Instruction::put_signal(1, card(0), card(address), bytes, 1, 1),
            _ => Instruction::put_signal(1, card(0), card(0), 0, 1, 1),
        };
        // All slots, with keys that were not told; the window of the victims too, which is not for this card.
        let window = match dice.below(3) {
            0 => None,
            1 => Some(Window { slot: dice.below(16) as u16, key: 1 + dice.below(1 << 16) as u32 }),
            _ => Some(WINDOW),
        };
        let instruction = window.map_or(instruction, |window| instruction.through(window));
        assert_eq!(status(attacker, instruction), (Status::BadWindow, 1), "{instruction:?}");
        attacks += 1;
    }
    let mut stolen = [0; 4096];
    attacker.read_memory(4 * AT, &mut stolen).unwrap();
    assert_eq!(stolen, [0; 4096], "what was read");
    attacks
}

/// Runs the victims' own programs, with one-sided operations among them, and then looks at their memory.
fn work(victims: &mut Cluster) {
    let window = Instruction::open(WINDOW, Rights::all(), card(AT), BYTES).on(1);
    victims.define(&Communicator { id: 1, members: VICTIMS.to_vec() }).unwrap();
    let canary = vec![0x5a; 4096];
    for (index, node) in VICTIMS.iter().enumerate() {
        victims.card_mut(index).write_memory(0, &canary).unwrap();
        victims.card_mut(index).write_memory(AT, &canary).unwrap();
        victims.card_mut(index).write_memory(2 * AT, &canary).unwrap();
        victims.card_mut(index).write_memory(8 * AT, &[*node as u8; 64]).unwrap();
    }
    done(victims.card_mut(0), window);
    for _ in 0..20 {
        let programs = [(1, 2), (2, 1)].map(|(_, peer): (u16, u16)| {
            let put = Instruction::put_signal(peer - 1, card(8 * AT), card(9 * AT), 64, 1, 1).on(1);
            vec![Bound::from(put), Instruction::wait_signal(1, 1).into()]
        });
        victims.run(&VICTIMS, &programs, LONG).unwrap().result.unwrap();
        for (index, node) in VICTIMS.iter().enumerate() {
            let mut found = [0; 64];
            victims.card_mut(index).read_memory(9 * AT, &mut found).unwrap();
            assert_eq!(found, [3 - *node as u8; 64]);
            victims.card_mut(index).fill(9 * AT, 64, 0).unwrap();
        }
    }
    for (index, node) in VICTIMS.iter().enumerate() {
        for address in [0, AT, 2 * AT] {
            let mut found = vec![0; 4096];
            victims.card_mut(index).read_memory(address, &mut found).unwrap();
            assert!(found == canary, "card {node} at {address:#x}");
        }
    }
    // No signal came from outside.
    assert_eq!(take_signal(victims.card_mut(0), 1), 0);
}

fn run_both(attacker: Function, victims: Vec<Function>) {
    let mut attacker = Card::open(attacker).unwrap();
    let mut victims = Cluster::open(victims).unwrap();
    attacker.write_memory(0, &[0xee; 4096]).unwrap();
    let stop = AtomicBool::new(false);
    let attacks = thread::scope(|scope| {
        let hostile = scope.spawn(|| attack(&mut attacker, &stop));
        let outcome = scope.spawn(|| work(&mut victims)).join();
        stop.store(true, Ordering::Relaxed);
        let attacks = hostile.join().unwrap();
        outcome.unwrap();
        attacks
    });
    println!("{attacks} attacks");
}

#[test]
fn a_neighbour_in_this_process_is_not_reached() {
    let fabric = Fabric::new(Profile::optweb(3)).unwrap();
    let _clock = fabric.start_clock().unwrap();
    let attach = |node: u32, domain: &Domain| in_process::attach(fabric.endpoint(node), domain, "card").unwrap();
    let (own, other) = (Domain::in_process(), Domain::in_process());
    run_both(attach(0, &own), VICTIMS.map(|node| attach(node, &other)).into());
}

#[test]
fn a_neighbour_on_a_served_fabric_is_not_reached() {
    let fabric = Fabric::new(Profile::optweb(3)).unwrap();
    let _clock = fabric.start_clock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let socket = |node: u32| directory.path().join(format!("{node}.sock"));
    let _servers: Vec<_> =
        (0..3).map(|node| Server::bind(socket(node), fabric.endpoint(node)).unwrap().spawn().unwrap()).collect();
    let (own, other) = (Domain::vfio_user(), Domain::vfio_user());
    let victims = VICTIMS.map(|node| connect(&socket(node), &other).unwrap()).into();
    run_both(connect(&socket(0), &own).unwrap(), victims);
}
