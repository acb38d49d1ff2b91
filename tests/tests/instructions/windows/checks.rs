//! What the card whose memory it is refuses.

use cmdseq::instruction::{Rights, Window, offset};
use cmdseq::plan::Communicator;
use cmdseq::{Instruction, Status};
use fpga_driver::{Cluster, Error};
use fpga_mock::Profile;
use fpga_tests::run;

use super::*;

fn cluster(nodes: u32) -> (fpga_mock::Fabric, Cluster) {
    let (fabric, mut cluster) = run::open(Profile::optweb(nodes));
    for node in 0..nodes as usize {
        fill(cluster.card_mut(node), node as u8 + 1);
    }
    (fabric, cluster)
}

/// Runs `instruction` on card 0 and expects that card 1 refuses it: nothing is written on either card.
fn refused(cluster: &mut Cluster, instruction: Instruction) {
    let before = [0, 1].map(|node| memory(cluster.card_mut(node)));
    let outcome = cluster.card_mut(0).run([instruction], LONG);
    let error = outcome.expect_err("a refusal");
    let Error::Failed { node: 0, status: Status::BadWindow, detail: 1, .. } = error else { panic!("{error}") };
    assert!(error.to_string().ends_with("(node 1)"), "{error}");
    assert_eq!([0, 1].map(|node| memory(cluster.card_mut(node))), before, "{instruction:?}");
}

fn write(address: u64, bytes: u64) -> Instruction {
    Instruction::rdma_write(1, card(0), card(address), bytes)
}

fn read(address: u64, bytes: u64) -> Instruction {
    Instruction::rdma_read(1, card(address), card(0), bytes)
}

fn put(address: u64, bytes: u64) -> Instruction {
    Instruction::put_signal(1, card(0), card(address), bytes, 5, 1)
}

#[test]
fn a_range_ends_at_its_last_byte() {
    let (_fabric, mut cluster) = cluster(2);
    done(cluster.card_mut(1), open(Rights::all()));
    for one in [write, read, put] {
        for (address, bytes) in [
            (AT - 1, 1),
            (AT - 1, 2),
            (AT - 1, BYTES + 2),
            (AT + BYTES, 1),
            (AT + BYTES - 1, 2),
            (AT, BYTES + 1),
            (0, 8),
            (0, AT + BYTES),
            (AT + (1 << 32), 8),
        ] {
            refused(&mut cluster, one(address, bytes).through(WINDOW));
        }
    }
    // An address that overflows is refused too, by the card that issues it.
    for address in [u64::MAX, u64::MAX - 7, 1 << 63] {
        for one in [write(address, 8), read(address, 8), put(address, 8)] {
            let (status, _) = status(cluster.card_mut(0), one.through(WINDOW));
            assert!(matches!(status, Status::OutOfRange), "{status}");
        }
    }
    assert_eq!(take_signal(cluster.card_mut(1), 5), 0);
    for (address, bytes) in [(AT, BYTES), (AT, 1), (AT + BYTES - 1, 1), (AT + 3, 64)] {
        for one in [write, read, put] {
            done(cluster.card_mut(0), one(address, bytes).through(WINDOW));
        }
    }
    assert_eq!(take_signal(cluster.card_mut(1), 5), 4);
}

#[test]
fn what_is_not_open_is_not_reached() {
    let (_fabric, mut cluster) = cluster(2);
    let last = cluster.capabilities().windows as u16 - 1;
    let no_slot = [WINDOW.slot, last, last + 1, u16::MAX].map(|slot| Window { slot, ..WINDOW });
    for window in no_slot {
        refused(&mut cluster, write(AT, 8).through(window));
        refused(&mut cluster, read(AT, 8).through(window));
    }
    // A host of before windows names none: it is refused, whatever is open.
    refused(&mut cluster, write(AT, 8));
    done(cluster.card_mut(1), open(Rights::all()));
    for one in [write(AT, 8), read(AT, 8), put(AT, 8), put(AT, 0)] {
        refused(&mut cluster, one);
    }
    for slot in [WINDOW.slot - 1, WINDOW.slot + 1, last + 1, u16::MAX] {
        refused(&mut cluster, write(AT, 8).through(Window { slot, ..WINDOW }));
    }
    done(cluster.card_mut(0), write(AT, 8).through(WINDOW));
}

#[test]
fn a_stale_key_fails() {
    let (_fabric, mut cluster) = cluster(2);
    let anew = Window { key: WINDOW.key + 1, ..WINDOW };
    done(cluster.card_mut(1), open(Rights::all()));
    done(cluster.card_mut(0), write(AT, 8).through(WINDOW));
    refused(&mut cluster, write(AT, 8).through(anew));
    done(cluster.card_mut(1), Instruction::close(WINDOW));
    refused(&mut cluster, write(AT, 8).through(WINDOW));
    done(cluster.card_mut(1), Instruction::open(anew, Rights::all(), card(AT), BYTES));
    refused(&mut cluster, write(AT, 8).through(WINDOW));
    done(cluster.card_mut(0), write(AT, 8).through(anew));
    // A reset closes all.
    cluster.card_mut(1).reset().unwrap();
    refused(&mut cluster, write(AT, 8).through(anew));
}

#[test]
fn each_right_allows_what_it_says() {
    for rights in (1..8).filter_map(Rights::from_bits) {
        let (_fabric, mut cluster) = cluster(2);
        done(cluster.card_mut(1), open(rights));
        for (one, needed) in [
            (read(AT, 8), Rights::READ),
            (write(AT, 8), Rights::WRITE),
            (put(AT, 8), Rights::WRITE | Rights::SIGNAL),
            (put(AT, 0), Rights::SIGNAL),
            // Without bytes, the address is none.
            (put(0, 0), Rights::SIGNAL),
        ] {
            match rights.contains(needed) {
                true => done(cluster.card_mut(0), one.through(WINDOW)),
                false => refused(&mut cluster, one.through(WINDOW)),
            }
        }
        let signals = match (rights.contains(Rights::SIGNAL), rights.contains(Rights::WRITE)) {
            (false, _) => 0,
            (true, with_data) => 2 + u32::from(with_data),
        };
        assert_eq!(take_signal(cluster.card_mut(1), 5), signals, "{rights:?}");
    }
}

#[test]
fn a_window_is_for_the_members_of_its_communicator() {
    let (_fabric, mut cluster) = cluster(4);
    cluster.define(&Communicator { id: 1, members: vec![3, 1] }).unwrap();
    done(cluster.card_mut(1), open(Rights::all()).on(1));
    refused(&mut cluster, write(AT, 8).through(WINDOW));
    refused(&mut cluster, put(AT, 0).through(WINDOW));
    // The operation itself may name another communicator: it is the card that counts.
    done(cluster.card_mut(3), write(AT, 8).through(WINDOW));
    let by_rank = Instruction::rdma_write(1, card(0), card(AT), 8).on(1).through(WINDOW);
    done(cluster.card_mut(3), by_rank);
    // The members are those of when it was opened.
    done(cluster.card_mut(1), Instruction::free(1));
    done(cluster.card_mut(3), write(AT, 8).through(WINDOW));
    refused(&mut cluster, write(AT, 8).through(WINDOW));
}

#[test]
fn slots_are_opened_and_closed_once() {
    let (_fabric, mut cluster) = cluster(2);
    let windows = cluster.capabilities().windows as u16;
    let memory_bytes = cluster.capabilities().memory_bytes;
    let card_of_1 = cluster.card_mut(1);
    let other = Window { key: 1, ..WINDOW };
    let of = |window, address, bytes| Instruction::open(window, Rights::READ, card(address), bytes);
    assert_eq!(status(card_of_1, Instruction::close(WINDOW)), (Status::BadWindow, WINDOW.slot));
    assert_eq!(status(card_of_1, of(WINDOW, memory_bytes - 7, 8)), (Status::OutOfRange, 0));
    assert_eq!(status(card_of_1, of(WINDOW, 8, u64::MAX)), (Status::OutOfRange, 0));
    assert_eq!(status(card_of_1, of(WINDOW, 0, 8).on(7)).0, Status::BadCommunicator);
    let beyond = Window { slot: windows, ..WINDOW };
    assert_eq!(status(card_of_1, of(beyond, 0, 8)), (Status::BadWindow, windows));
    done(card_of_1, of(WINDOW, memory_bytes - 8, 8));
    assert_eq!(status(card_of_1, of(other, 0, 8)), (Status::BadWindow, WINDOW.slot));
    assert_eq!(status(card_of_1, Instruction::close(other)), (Status::BadWindow, WINDOW.slot));
    done(card_of_1, Instruction::close(WINDOW));
    done(card_of_1, of(other, 0, 0));
    done(card_of_1, Instruction::close(other));
    let error = card_of_1.run([Instruction::close(other)], LONG).unwrap_err();
    assert!(error.to_string().ends_with("(slot 2)"), "{error}");
}

#[test]
fn words_that_name_a_window_wrongly_are_refused() {
    let (_fabric, mut cluster) = cluster(2);
    let of_extent = |instruction: Instruction, extent| Instruction { extent, ..instruction };
    for (instruction, extent) in [
        // No key.
        (write(AT, 8), 2),
        (open(Rights::all()), 2 | 7 << 16),
        (Instruction::close(WINDOW), 2),
        // Rights of what has none, or none of what needs some, or more than there are.
        (write(AT, 8), 2 | 1 << 16 | 1 << 32),
        (Instruction::close(WINDOW), 2 | 1 << 16 | 1 << 32),
        (open(Rights::all()), 2 | 1 << 32),
        (open(Rights::all()), 2 | 8 << 16 | 1 << 32),
        (open(Rights::all()), 2 | 1 << 31 | 1 << 16 | 1 << 32),
    ] {
        let found = status(cluster.card_mut(0), of_extent(instruction, extent));
        assert_eq!(found, (Status::BadField, offset::EXTENT as u16), "{extent:#x} of {instruction:?}");
    }
}

/// A card of before version 1.5 of the registers.
#[test]
fn a_card_without_windows_is_as_before() {
    let (_fabric, mut cluster) = run::open(Profile { windows: 0, ..Profile::optweb(2) });
    fill(cluster.card_mut(0), 1);
    let capabilities = cluster.capabilities();
    assert_eq!(capabilities.windows, 0);
    let codes = |operation: cmdseq::Operation| (capabilities.runs(operation), operation as u16);
    let (open_code, close_code) = (codes(cmdseq::Operation::Open), codes(cmdseq::Operation::Close));
    assert_eq!((open_code, close_code), ((false, 38), (false, 39)));
    assert_eq!(status(cluster.card_mut(1), open(Rights::all())), (Status::BadOperation, 38));
    assert_eq!(status(cluster.card_mut(1), Instruction::close(WINDOW)), (Status::BadOperation, 39));
    let named = status(cluster.card_mut(0), write(AT, 8).through(WINDOW));
    assert_eq!(named, (Status::BadField, offset::EXTENT as u16));
    // Everything else is reached, by the host of today too.
    for one in [write(AT, 8), read(AT, 8), put(AT, 8)] {
        done(cluster.card_mut(0), one);
    }
    let programs = [vec![put(AT + 8, 8).into()], vec![Instruction::wait_signal(5, 2).into()]];
    cluster.run(&[0, 1], &programs, LONG).unwrap().result.unwrap();
    let mut found = [0; 16];
    cluster.card_mut(1).read_memory(AT, &mut found).unwrap();
    assert_eq!(found, [1; 16]);
}
