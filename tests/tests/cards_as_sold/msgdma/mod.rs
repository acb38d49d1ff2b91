//! Intel's mSGDMA, driver and model: every byte moves, every fault is told, and no rule of the documents is broken.

mod alterations;
mod faults;
mod raw;
mod registers;

use std::sync::Arc;
use std::time::Duration;

use fpga_driver::Card;
use fpga_driver::msgdma::{Completion, Direction, Engine, Piece};
use fpga_hal::vfio_user::{self, Server};
use fpga_hal::{Domain, Endpoint, Function, in_process};
use fpga_mock::dfl::D5005;
use fpga_mock::{Fabric, LateDma, Profile, Shell};
use fpga_tests::run::domain;
use proptest::prelude::*;

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// For waits that are to time out.
const SHORT: Duration = Duration::from_millis(50);
const MIB: usize = 1 << 20;
const BOTH: [Completion; 2] = [Completion::Poll, Completion::Interrupt];

/// A PAC on a fabric, whose port has released its accelerator.
struct Pac {
    fabric: Fabric,
    card: D5005,
}

impl Pac {
    fn new() -> Self {
        let fabric = Fabric::new(Profile { shell: Shell::S10Pac, ..Profile::optweb(2) }).unwrap();
        let card = D5005::new(&fabric, 0);
        card.release();
        Pac { fabric, card }
    }

    fn endpoint(&self) -> Arc<dyn Endpoint> {
        self.card.accelerator()
    }

    fn open(&self, completion: Completion) -> Engine {
        open(attach(self.endpoint()), completion)
    }
}

fn attach(card: Arc<dyn Endpoint>) -> Function {
    in_process::attach(card, &domain(), "card 0").unwrap()
}

fn open(function: Function, completion: Completion) -> Engine {
    let mut engine = Engine::open(function, completion).unwrap();
    engine.set_timeout(PATIENCE);
    engine
}

/// Bytes that tell where they belong.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_add(seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..bytes as u64).map(byte).collect()
}

/// Both ways through staging buffers, with what lies around left alone.
fn round_trip(engine: &mut Engine, pac: &Pac, address: u64, bytes: usize) {
    let before = address.min(64) as usize;
    let around = pattern(7, before + bytes + 64);
    pac.fabric.write_memory(0, address - before as u64, &around).unwrap();
    let data = pattern(address ^ bytes as u64, bytes);
    engine.write(address, &data).unwrap();
    let found = pac.fabric.read_memory(0, address - before as u64, around.len() as u64).unwrap();
    assert!(found[before..before + bytes] == data, "{bytes} bytes at {address:#x} in card memory");
    assert_eq!(found[..before], around[..before]);
    assert_eq!(found[before + bytes..], around[before + bytes..]);
    let mut back = vec![0; bytes];
    engine.read(address, &mut back).unwrap();
    assert!(back == data, "{bytes} bytes at {address:#x} read back");
    assert_eq!(pac.card.engine_violations(), []);
}

const LENGTHS: [usize; 17] =
    [0, 1, 2, 3, 31, 63, 64, 65, 4095, 4096, 4097, 65_535, 65_537, MIB - 1, MIB, 2 * MIB + 1, 9 * MIB + 5];

#[test]
fn every_length_and_alignment_arrives() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        for (number, bytes) in LENGTHS.into_iter().enumerate() {
            round_trip(&mut engine, &pac, 0x10_0000 + number as u64 * 3, bytes);
            round_trip(&mut engine, &pac, 0x10_0000 + number as u64 * 64, bytes);
        }
        // The first and the last bytes of card memory.
        round_trip(&mut engine, &pac, 0, 100);
        let end = Card::open(attach(Pac::new().endpoint())).unwrap().capabilities().memory_bytes;
        engine.write(end - 65, &pattern(3, 65)).unwrap();
        let mut back = [0; 65];
        engine.read(end - 65, &mut back).unwrap();
        assert_eq!(back[..], pattern(3, 65));
    }
}

/// More pieces than the queue holds: the driver waits for room.
#[test]
fn lists_of_thousands_of_pieces() {
    for (count, completion) in [(1, Completion::Poll), (128, Completion::Interrupt), (5000, Completion::Poll)] {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        let buffer = engine.allocate(count * 128).unwrap();
        let data = pattern(3, count * 128);
        buffer.write(0, &data).unwrap();
        // Scattered: piece n of the buffer goes to another place, and there is a gap between two.
        let place = |n: usize| (n * 7919) % count;
        let pieces: Vec<Piece> = (0..count)
            .map(|n| Piece {
                buffer: Arc::clone(&buffer),
                offset: n * 128,
                address: place(n) as u64 * 128 + 64,
                bytes: 64,
            })
            .collect();
        engine.transfer(Direction::ToCard, &pieces).unwrap();
        let written = pac.fabric.read_memory(0, 0, count as u64 * 128).unwrap();
        for n in 0..count {
            let (from, to) = (n * 128, place(n) * 128 + 64);
            assert_eq!(written[to..to + 64], data[from..from + 64], "piece {n}");
            assert_eq!(written[to - 64..to], [0; 64]);
        }
        buffer.write(0, &vec![0; count * 128]).unwrap();
        engine.transfer(Direction::ToHost, &pieces).unwrap();
        let mut back = vec![0; count * 128];
        buffer.read(0, &mut back).unwrap();
        assert!(back.chunks(128).zip(data.chunks(128)).all(|(back, data)| back[..64] == data[..64]));
        assert!(back.chunks(128).all(|back| back[64..] == [0; 64]));
        assert_eq!(pac.card.engine_violations(), []);
    }
}

/// Lines of a buffer, lines of card memory, and which way they go; or bytes at any address.
#[derive(Debug, Clone)]
enum Drawn {
    Pieces(bool, Vec<(usize, usize, usize)>),
    Write(usize, usize),
    Read(usize, usize),
}

/// Runs transfers on an engine and on arrays, and compares all of card memory that they can touch.
fn compare(pac: &Pac, engine: &mut Engine, transfers: &[Drawn]) -> Result<(), TestCaseError> {
    const REACH: usize = 256 << 10;
    let mut card = pattern(1, REACH);
    let mut host = pattern(2, REACH);
    pac.fabric.write_memory(0, 0, &card).unwrap();
    let buffer = engine.allocate(REACH).unwrap();
    buffer.write(0, &host).unwrap();
    for (number, transfer) in transfers.iter().enumerate() {
        match transfer {
            Drawn::Pieces(is_up, drawn) => {
                let mut pieces = Vec::new();
                for (offset, address, lines) in drawn {
                    let bytes = lines * 64;
                    let [offset, address] = [offset, address].map(|at| at * 64 % (REACH - bytes));
                    // Pieces go in order, so each may overlap others.
                    pieces.push(Piece { buffer: Arc::clone(&buffer), offset, address: address as u64, bytes });
                    match is_up {
                        true => card[address..address + bytes].copy_from_slice(&host[offset..offset + bytes]),
                        false => host[offset..offset + bytes].copy_from_slice(&card[address..address + bytes]),
                    }
                }
                engine.transfer(if *is_up { Direction::ToCard } else { Direction::ToHost }, &pieces).unwrap();
            }
            Drawn::Write(address, bytes) => {
                let (address, data) = (address % (REACH - bytes), pattern(number as u64 + 9, *bytes));
                engine.write(address as u64, &data).unwrap();
                card[address..address + bytes].copy_from_slice(&data);
            }
            Drawn::Read(address, bytes) => {
                let (address, mut data) = (address % (REACH - bytes), vec![0; *bytes]);
                engine.read(address as u64, &mut data).unwrap();
                prop_assert!(data == card[address..address + bytes], "{} bytes at {:#x}", bytes, address);
            }
        }
    }
    let mut found = vec![0; REACH];
    buffer.read(0, &mut found).unwrap();
    prop_assert!(found == host, "host memory differs");
    prop_assert!(pac.fabric.read_memory(0, 0, REACH as u64).unwrap() == card, "card memory differs");
    prop_assert_eq!(pac.card.engine_violations(), []);
    Ok(())
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let lines = prop_oneof![1..8_usize, 1..2000_usize];
    let piece = (any::<u16>(), any::<u16>(), lines).prop_map(|(from, to, lines)| (from.into(), to.into(), lines));
    let bytes = || prop_oneof![0..200_usize, 1..90_000_usize];
    let one = prop_oneof![
        2 => (any::<bool>(), prop::collection::vec(piece, 1..12)).prop_map(|(up, pieces)| Drawn::Pieces(up, pieces)),
        1 => (0..1_usize << 20, bytes()).prop_map(|(at, bytes)| Drawn::Write(at, bytes)),
        1 => (0..1_usize << 20, bytes()).prop_map(|(at, bytes)| Drawn::Read(at, bytes)),
    ];
    prop::collection::vec(one, 1..8)
}

fn completion() -> impl Strategy<Value = Completion> {
    prop::sample::select(BOTH.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn transfers_are_those_of_arrays(completion in completion(), transfers in drawn()) {
        let pac = Pac::new();
        compare(&pac, &mut pac.open(completion), &transfers)?;
    }

    #[test]
    fn host_memory_that_answers_late_changes_nothing(seed: u64, completion in completion(), transfers in drawn()) {
        let pac = Pac::new();
        let late = LateDma::new(pac.endpoint(), seed, Duration::from_micros(200));
        compare(&pac, &mut open(attach(late), completion), &transfers)?;
    }
}

#[test]
fn over_vfio_user() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("0.sock");
    let pac = Pac::new();
    let _server = Server::bind(&socket, pac.endpoint()).unwrap().spawn().unwrap();
    for completion in BOTH {
        let mut engine = open(vfio_user::connect(&socket, &Domain::vfio_user()).unwrap(), completion);
        for bytes in [1, 4097, 3 * MIB + 1] {
            round_trip(&mut engine, &pac, 0x2003, bytes);
        }
    }
}

/// A card's own calls go through the engine beside its sequencer, whose copies see the same memory.
#[test]
fn a_card_moves_its_data_by_the_engine() {
    let pac = Pac::new();
    let mut card = Card::open(attach(pac.endpoint())).unwrap();
    assert_eq!(card.data_engine(), Some("msgdma"));
    let retired = card.retired().unwrap();
    for round in 0..2 {
        let data = pattern(round, 300_001);
        card.write_memory(77, &data).unwrap();
        let mut back = vec![0; data.len()];
        card.read_memory(77, &mut back).unwrap();
        assert!(back == data);
        assert_eq!(card.retired().unwrap(), retired, "no instruction was needed");
        card.fill(128, 64, 0x0101_0101_0101_0101).unwrap();
        card.read_memory(77, &mut back).unwrap();
        assert_eq!(back[128 - 77..192 - 77], [1; 64]);
        card.reset().unwrap();
    }
    assert_eq!(pac.card.engine_violations(), []);
    drop(card);
    // Two drivers do not share the function.
    let engine = pac.open(Completion::Poll);
    assert!(Card::open(engine.function().clone()).is_err());
    drop(engine);
    let ofs = Fabric::new(Profile { shell: Shell::S10Dfl, ..Profile::optweb(2) }).unwrap();
    let ofs = D5005::new(&ofs, 0);
    ofs.release();
    let mut card = Card::open(attach(ofs.accelerator())).unwrap();
    assert_eq!(card.data_engine(), None);
    card.write_memory(77, b"by copies").unwrap();
}
