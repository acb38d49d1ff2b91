//! XDMA engines, driver and card: every byte moves, every fault is told, and no rule of the product guide is broken.

mod bar4;
mod bypass;
mod faults;
mod fetches;
mod images;
mod registers;
mod sequencer;

use std::sync::Arc;
use std::time::Duration;

use fpga_driver::xdma::{Completion, Direction, Engine, Piece};
use fpga_hal::vfio_user::{self, Server};
use fpga_hal::{Domain, Endpoint, Function, in_process};
use fpga_mock::LateDma;
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_tests::run::domain;
use fpga_tests::sweep::is_full;
use proptest::prelude::*;

/// For waits that are to time out.
const SHORT: Duration = Duration::from_millis(50);
/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// Card memory for random transfers.
const MEMORY: u64 = 64 << 20;

fn shape(h2c: u32, c2h: u32) -> Shape {
    Shape { h2c, c2h, memory_bytes: MEMORY }
}

fn attach(card: Arc<dyn Endpoint>) -> Function {
    in_process::attach(card, &domain(), "card 0").unwrap()
}

fn open(cards: &XdmaCards, completion: Completion) -> Engine {
    let mut engine = Engine::open(attach(cards.endpoint(0)), completion).unwrap();
    engine.set_timeout(PATIENCE);
    engine
}

/// Bytes that tell where they belong.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_add(seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..bytes as u64).map(byte).collect()
}

/// Both ways through staging buffers, with what lies around left alone.
fn round_trip(engine: &mut Engine, cards: &XdmaCards, address: u64, bytes: usize) {
    let before = address.min(64) as usize;
    let around = pattern(7, before + bytes + 64);
    cards.write_memory(0, address - before as u64, &around).unwrap();
    let data = pattern(address ^ bytes as u64, bytes);
    engine.write(address, &data).unwrap();
    let found = cards.read_memory(0, address - before as u64, around.len() as u64).unwrap();
    assert!(found[before..before + bytes] == data, "{bytes} bytes at {address:#x} in card memory");
    assert_eq!(found[..before], around[..before]);
    assert_eq!(found[before + bytes..], around[before + bytes..]);
    let mut back = vec![0; bytes];
    engine.read(address, &mut back).unwrap();
    assert!(back == data, "{bytes} bytes at {address:#x} read back");
    assert_eq!(cards.violations(0), []);
}

const LENGTHS: [usize; 16] =
    [1, 2, 3, 31, 63, 64, 65, 4095, 4096, 4097, 65_535, 65_537, MIB - 1, MIB, 2 * MIB + 1, 9 * MIB + 5];

#[test]
fn every_length_and_alignment_arrives() {
    for (h2c, c2h) in [(1, 1), (2, 2), (4, 4), (1, 4)] {
        for completion in [Completion::Poll, Completion::Interrupt] {
            let cards = XdmaCards::new(1, shape(h2c, c2h));
            let mut engine = open(&cards, completion);
            assert_eq!(
                (engine.channels(Direction::H2c), engine.channels(Direction::C2h)),
                (h2c as usize, c2h as usize)
            );
            for (number, bytes) in LENGTHS.into_iter().enumerate() {
                round_trip(&mut engine, &cards, 0x10_0000 + number as u64 * 3, bytes);
            }
        }
    }
}

/// Descriptors of their greatest length, and the cut behind it: 1 GiB in the long form.
#[test]
fn transfers_longer_than_a_descriptor_are_cut() {
    let bytes = if is_full() { 1 << 30 } else { (1 << 28) + 12_345 };
    let cards = XdmaCards::new(1, Shape { h2c: 1, c2h: 1, memory_bytes: 4 << 30 });
    let mut engine = open(&cards, Completion::Poll);
    cards.fetches(0);
    let buffer = engine.allocate(bytes).unwrap();
    let marks: Vec<usize> = (0..bytes - 8).step_by(bytes / 1000).chain([bytes - 8]).collect();
    for mark in &marks {
        buffer.write(*mark, &(*mark as u64).to_le_bytes()).unwrap();
    }
    engine.transfer(Direction::H2c, &[Piece { buffer: Arc::clone(&buffer), offset: 0, address: 77, bytes }]).unwrap();
    assert_eq!(
        cards.fetches(0).iter().map(|fetch| fetch.count as usize).sum::<usize>(),
        bytes.div_ceil((1 << 28) - 4096)
    );
    for mark in marks {
        let found = cards.read_memory(0, 77 + mark as u64, 8).unwrap();
        assert_eq!(found, (mark as u64).to_le_bytes(), "at {mark}");
    }
}

#[test]
fn lists_of_ten_thousand_pieces_in_both_directions_at_once() {
    for (count, completion) in
        [(1, Completion::Poll), (64, Completion::Interrupt), (10_000, Completion::Poll), (9_999, Completion::Interrupt)]
    {
        let cards = XdmaCards::new(1, shape(2, 2));
        let mut engine = open(&cards, completion);
        let each = 52;
        let (up, down) = (engine.allocate(count * 64).unwrap(), engine.allocate(count * 64).unwrap());
        let data = pattern(3, count * 64);
        up.write(0, &data).unwrap();
        let there = pattern(4, count * 64);
        cards.write_memory(0, 32 << 20, &there).unwrap();
        // Scattered: piece n of the buffer goes to another place, and there is a gap between two.
        let place = |n: usize| (n * 7919) % count;
        let piece = |buffer: &Arc<_>, base: u64, n: usize| Piece {
            buffer: Arc::clone(buffer),
            offset: n * 64 + 5,
            address: base + place(n) as u64 * 64 + 3,
            bytes: each,
        };
        let pieces = |buffer, base| (0..count).map(|n| piece(buffer, base, n)).collect::<Vec<_>>();
        engine.transfer_both(&pieces(&up, 0), &pieces(&down, 32 << 20)).unwrap();
        let mut back = vec![0; count * 64];
        down.read(0, &mut back).unwrap();
        let written = cards.read_memory(0, 0, (count * 64) as u64).unwrap();
        for n in 0..count {
            let (from, to) = (n * 64 + 5, place(n) * 64 + 3);
            assert_eq!(written[to..to + each], data[from..from + each], "piece {n} to the card");
            assert_eq!(back[from..from + each], there[to..to + each], "piece {n} to the host");
        }
        assert!(back.chunks(64).all(|gap| gap[..5] == [0; 5] && gap[5 + each..] == [0; 7]));
        assert_eq!(cards.violations(0), []);
    }
}

/// A piece at random, and which way it goes.
type Drawn = (bool, u64, usize, usize);

/// Runs transfers on an engine and on arrays, and compares all of card memory that they can touch.
fn compare(cards: &XdmaCards, engine: &mut Engine, transfers: &[Vec<Drawn>]) -> Result<(), TestCaseError> {
    const REACH: usize = 300_000;
    let mut card = pattern(1, REACH);
    let mut host = pattern(2, REACH);
    cards.write_memory(0, 0, &card).unwrap();
    let buffer = engine.allocate(REACH).unwrap();
    buffer.write(0, &host).unwrap();
    for transfer in transfers {
        for direction in Direction::ALL {
            let chosen = transfer.iter().filter(|(is_up, ..)| *is_up == (direction == Direction::H2c));
            // Pieces of one transfer go in no order among channels: none may touch what another does.
            let mut free = 0;
            let mut pieces = Vec::new();
            for (_, address, skip, bytes) in chosen {
                let (address, offset) = (*address as usize % 100 + free, free + skip % 100);
                if address.max(offset) + bytes > REACH {
                    break;
                }
                free = address.max(offset) + bytes;
                pieces.push(Piece { buffer: Arc::clone(&buffer), offset, address: address as u64, bytes: *bytes });
                let (up, down) = (offset..offset + bytes, address..address + bytes);
                match direction {
                    Direction::H2c => card[down].copy_from_slice(&host[up]),
                    Direction::C2h => host[up].copy_from_slice(&card[down]),
                }
            }
            if !pieces.is_empty() {
                engine.transfer(direction, &pieces).unwrap();
            }
        }
    }
    let mut found = vec![0; REACH];
    buffer.read(0, &mut found).unwrap();
    prop_assert!(found == host, "host memory differs");
    prop_assert!(cards.read_memory(0, 0, REACH as u64).unwrap() == card, "card memory differs");
    prop_assert_eq!(cards.violations(0), []);
    Ok(())
}

fn drawn() -> impl Strategy<Value = Vec<Vec<Drawn>>> {
    let bytes = prop_oneof![1..200_usize, 1..90_000_usize];
    let piece = (any::<bool>(), any::<u64>(), any::<usize>(), bytes);
    prop::collection::vec(prop::collection::vec(piece, 1..12), 1..5)
}

fn completion() -> impl Strategy<Value = Completion> {
    prop::sample::select(vec![Completion::Poll, Completion::Interrupt])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn transfers_are_those_of_arrays(channels in (1..5_u32, 1..5_u32), completion in completion(), transfers in drawn()) {
        let cards = XdmaCards::new(1, shape(channels.0, channels.1));
        compare(&cards, &mut open(&cards, completion), &transfers)?;
    }

    #[test]
    fn host_memory_that_answers_late_changes_nothing(seed: u64, completion in completion(), transfers in drawn()) {
        let cards = XdmaCards::new(1, shape(2, 2));
        let late = LateDma::new(cards.endpoint(0), seed, Duration::from_micros(200));
        let mut engine = Engine::open(attach(late), completion).unwrap();
        engine.set_timeout(PATIENCE);
        compare(&cards, &mut engine, &transfers)?;
    }
}

#[test]
fn over_vfio_user() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.sock");
    let cards = XdmaCards::new(1, shape(2, 2));
    let _server = Server::bind(&socket, cards.endpoint(0)).unwrap().spawn().unwrap();
    for completion in [Completion::Poll, Completion::Interrupt] {
        let function = vfio_user::connect(&socket, &Domain::vfio_user()).unwrap();
        let mut engine = Engine::open(function, completion).unwrap();
        engine.set_timeout(PATIENCE);
        for bytes in [1, 4097, 3 * MIB + 1] {
            round_trip(&mut engine, &cards, 0x2003, bytes);
        }
    }
}
