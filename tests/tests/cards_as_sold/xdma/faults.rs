//! Faults: the right error, no hang, and the next transfer is right.

use std::sync::Arc;
use std::time::Duration;

use fpga_driver::Error as CardError;
use fpga_driver::xdma::{Completion, Direction, Engine, Error, Piece};
use fpga_hal::BarIndex;
use fpga_mock::LateDma;
use fpga_mock::xdma::{Misanswer, Shape, XdmaCards};
use fpga_regs::xdma::Status;

use super::registers::Raw;
use super::{MEMORY, MIB, PATIENCE, SHORT, attach, open, pattern, round_trip, shape};

/// COMMAND of configuration space, and its bit for memory accesses.
const COMMAND: u16 = 0x04;
const MEMORY_SPACE: u16 = 0b10;
/// STATUS of the first channel from the host, in the DMA BAR.
const H2C_STATUS: u64 = 0x40;

const BOTH: [Completion; 2] = [Completion::Poll, Completion::Interrupt];

/// Ten pieces of 4 KiB.
fn pieces(engine: &Engine, address: u64) -> Vec<Piece> {
    let buffer = engine.allocate(10 * 4096).unwrap();
    let piece = |n: u64| Piece {
        buffer: Arc::clone(&buffer),
        offset: n as usize * 4096,
        address: address + n * 4096,
        bytes: 4096,
    };
    (0..10).map(piece).collect()
}

#[track_caller]
fn failed(result: Result<(), Error>) -> (Direction, u32, u64, Status, String) {
    let error = result.unwrap_err();
    let text = error.to_string();
    match error {
        Error::Failed { channel, completed, address, status, .. } => {
            (channel.direction, completed, address.unwrap(), status, text)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_that_the_bus_does_not_answer_with_data() {
    let cases = [
        (Misanswer::Unsupported, Status::READ_ERROR_0, Status::DESCRIPTOR_ERROR_0, "refused"),
        (Misanswer::Aborted, Status::READ_ERROR_1, Status::DESCRIPTOR_ERROR_1, "aborted"),
        (Misanswer::Parity, Status::READ_ERROR_2, Status::DESCRIPTOR_ERROR_2, "parity"),
        (Misanswer::Poisoned, Status::READ_ERROR_3, Status::DESCRIPTOR_ERROR_3, "poisoned"),
        (Misanswer::Unexpected, Status::READ_ERROR_4, Status::DESCRIPTOR_ERROR_4, "unexpected"),
    ];
    for completion in BOTH {
        let cards = XdmaCards::new(1, shape(1, 1));
        let mut engine = open(&cards, completion);
        for (misanswer, of_data, of_descriptors, word) in cases {
            // The first read fetches all ten descriptors, the fourth is of the third piece.
            let pieces = pieces(&engine, 0);
            cards.misanswer(0, 3, misanswer);
            let (direction, completed, address, status, text) = failed(engine.transfer(Direction::H2c, &pieces));
            assert_eq!((direction, completed, address, status), (Direction::H2c, 2, 2 * 4096, of_data));
            assert!(text.contains(word) && text.contains("H2C channel 0 of card 0"), "{text}");
            for direction in Direction::ALL {
                cards.misanswer(0, 0, misanswer);
                let (_, completed, _, status, text) = failed(engine.transfer(direction, &pieces));
                assert_eq!((completed, status), (0, of_descriptors));
                assert!(text.contains(word), "{text}");
            }
            round_trip(&mut engine, &cards, 0x3001, 70_000);
        }
    }
}

#[test]
fn card_memory_that_is_not_there_or_answers_with_errors() {
    for completion in BOTH {
        let cards = XdmaCards::new(1, shape(1, 1));
        let mut engine = open(&cards, completion);
        for (direction, missing, broken) in [
            (Direction::H2c, Status::WRITE_ERROR_0, Status::WRITE_ERROR_1),
            (Direction::C2h, Status::READ_ERROR_0, Status::READ_ERROR_1),
        ] {
            let end = pieces(&engine, MEMORY - 7 * 4096);
            let (_, completed, address, status, text) = failed(engine.transfer(direction, &end));
            assert_eq!((completed, address, status), (7, MEMORY, missing));
            assert!(text.contains("no card memory at this address"), "{text}");
            cards.fail_memory(0, 0x2800..0x2801);
            let pieces = pieces(&engine, 0);
            let (_, completed, address, status, text) = failed(engine.transfer(direction, &pieces));
            assert_eq!((completed, address, status), (2, 0x2000, broken));
            assert!(text.contains("answered with an error"), "{text}");
            cards.mend_memory(0);
            round_trip(&mut engine, &cards, 0x2000, 70_000);
        }
    }
}

#[test]
fn a_hang_keeps_the_buffers_until_the_function_is_reset() {
    for completion in BOTH {
        let cards = XdmaCards::new(1, shape(1, 1));
        let mut engine = open(&cards, completion);
        engine.set_timeout(SHORT);
        let pieces = pieces(&engine, 0);
        let domain = engine.function().domain().clone();
        cards.hang(0);
        let error = engine.transfer(Direction::H2c, &pieces).unwrap_err();
        assert!(matches!(error, Error::Stuck { completed: 0, descriptors: 10, .. }), "{error}");
        let held = Arc::downgrade(&pieces[0].buffer);
        let mapped = domain.mappings();
        drop(pieces);
        assert!(held.upgrade().is_some(), "the channel may still read the buffer");
        assert_eq!(domain.mappings(), mapped);
        assert!(matches!(engine.write(0, &[1]), Err(Error::Stuck { .. })));
        // The other direction is another channel.
        engine.set_timeout(PATIENCE);
        engine.read(0, &mut [0; 10]).unwrap();
        engine.reset().unwrap();
        assert!(held.upgrade().is_none(), "nothing uses the buffer after the reset");
        round_trip(&mut engine, &cards, 0x5000, 70_000);
    }
}

#[test]
fn a_stuck_engine_that_is_dropped_is_reset_first() {
    let cards = XdmaCards::new(1, shape(2, 1));
    let mut engine = open(&cards, Completion::Poll);
    engine.set_timeout(SHORT);
    cards.hang(0);
    engine.write(0, &[1; 100]).unwrap_err();
    let status = || {
        let mut status = [0; 4];
        cards.endpoint(0).bar_read(BarIndex::new(2).unwrap(), H2C_STATUS, &mut status);
        u32::from_le_bytes(status)
    };
    assert_eq!(status(), Status::BUSY.bits());
    // The last handle of a function resets it too, behind the engine's memory.
    let function = engine.function().clone();
    drop(engine);
    assert_eq!(status(), 0, "nothing reads memory that others may get");
    drop(function);
    round_trip(&mut open(&cards, Completion::Interrupt), &cards, 0, 100);
}

#[test]
fn a_channel_that_does_not_stop_is_stuck_although_its_count_cannot_be_read() {
    let cards = XdmaCards::new(1, shape(1, 1));
    // COMPLETED of the first channel from the host.
    let mut engine = altered(&cards, &[(0x48, !0)]).unwrap();
    engine.set_timeout(SHORT);
    cards.hang(0);
    let error = engine.write(0, &[1; 100]).unwrap_err();
    assert!(matches!(error, Error::Card(CardError::AllOnes { .. })), "{error:?}");
    let pieces = pieces(&engine, 0);
    let error = engine.transfer(Direction::H2c, &pieces).unwrap_err();
    assert!(matches!(error, Error::Stuck { .. }), "{error:?}");
}

/// Descriptors are slower than the timeout: the channel is stopped behind the present one.
#[test]
fn a_slow_transfer_times_out_and_is_stopped() {
    for completion in BOTH {
        let cards = XdmaCards::new(1, shape(1, 1));
        let late = LateDma::new(cards.endpoint(0), 5, Duration::from_millis(2));
        let mut engine = Engine::open(attach(late), completion).unwrap();
        engine.set_timeout(SHORT);
        let buffer = engine.allocate(2000).unwrap();
        let piece = |n| Piece { buffer: Arc::clone(&buffer), offset: n, address: n as u64, bytes: 1 };
        let error = engine.transfer(Direction::H2c, &(0..2000).map(piece).collect::<Vec<_>>()).unwrap_err();
        assert!(matches!(error, Error::TimedOut { descriptors: 2000, completed, .. } if completed < 2000), "{error}");
        engine.set_timeout(PATIENCE);
        round_trip(&mut engine, &cards, 9, 5000);
    }
}

/// Reads are refused. Writes are posted: nobody tells the engine that one was lost, and nothing hangs.
#[test]
fn host_memory_that_is_not_mapped() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let raw = Raw::new(&cards);
    let gone = 0x7f_0000_0000;
    for (direction, base, status, completed) in [(Direction::H2c, 0, 1 << 9, 0), (Direction::C2h, 0x1000, 0b110, 1)] {
        let addresses = if direction == Direction::H2c { (gone, 0) } else { (0, gone) };
        raw.one(direction, 4096, addresses);
        assert_eq!((raw.read(base + 0x40), raw.read(base + 0x48)), (status, completed), "{direction}");
    }
    // Nor is the list.
    raw.start(Direction::H2c, gone, 0);
    assert_eq!(raw.read(0x40), 1 << 19);
}

#[test]
fn a_removed_card_is_gone() {
    for completion in BOTH {
        let cards = XdmaCards::new(2, shape(1, 1));
        let mut engine = open(&cards, completion);
        cards.remove(0);
        let error = engine.write(0, &[1; 100]).unwrap_err();
        assert!(matches!(error, Error::Card(CardError::Removed { .. })), "{error}");
    }
}

/// A core may fetch fewer descriptors than are adjacent.
#[test]
fn fetches_of_few_descriptors_change_nothing() {
    for completion in BOTH {
        for most in [1, 3, 17, 63] {
            let cards = XdmaCards::new(1, shape(2, 2));
            let mut engine = open(&cards, completion);
            cards.shorten_fetches(0, most);
            cards.fetches(0);
            let pieces: Vec<Piece> = (0..20).flat_map(|n| pieces(&engine, 40_960 * n)).collect();
            engine.transfer_both(&pieces, &pieces).unwrap();
            let fetches = cards.fetches(0);
            assert_eq!(fetches.iter().map(|fetch| fetch.count).max(), Some(most));
            assert_eq!(fetches.iter().map(|fetch| fetch.count).sum::<u32>(), 400);
            round_trip(&mut engine, &cards, 0x5001, 300_000);
        }
    }
}

/// Somebody turns the function's memory off: reads give all-ones, and nothing waits for them.
#[test]
fn a_function_that_decodes_no_memory_is_an_error_until_it_does() {
    for completion in BOTH {
        let cards = XdmaCards::new(1, shape(1, 1));
        let mut engine = open(&cards, completion);
        engine.set_timeout(SHORT);
        let command = engine.function().config_read_u16(COMMAND).unwrap();
        engine.function().config_write_u16(COMMAND, command & !MEMORY_SPACE).unwrap();
        let error = engine.write(0, &[1; 100]).unwrap_err();
        assert!(matches!(error, Error::Card(CardError::AllOnes { .. })), "{error:?}");
        engine.function().config_write_u16(COMMAND, command).unwrap();
        engine.set_timeout(PATIENCE);
        engine.reset().unwrap();
        round_trip(&mut engine, &cards, 0x5001, 70_000);
    }
}

/// A message that never comes costs time and nothing else.
#[test]
fn interrupts_that_are_lost_change_nothing() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let mut engine = open(&cards, Completion::Interrupt);
    let dma = engine.function().window(BarIndex::new(2).unwrap()).unwrap();
    // CHANNEL_ENABLE_CLEAR.
    dma.write_u32(0x2018, !0).unwrap();
    round_trip(&mut engine, &cards, 0x1003, 5000);
    // The vectors' masks, in the table of messages.
    dma.write_u32(0x2014, 0b11).unwrap();
    for vector in 0..32 {
        dma.write_u32(0x800c + 16 * vector, 1).unwrap();
    }
    round_trip(&mut engine, &cards, 0x1003, 5000);
}

#[test]
fn what_the_engine_cannot_move_is_refused_before_it_starts() {
    let cards = XdmaCards::new(1, Shape { h2c: 1, c2h: 1, memory_bytes: MEMORY });
    let mut engine = open(&cards, Completion::Poll);
    cards.fetches(0);
    let buffer = engine.allocate(8192).unwrap();
    let elsewhere = fpga_hal::Domain::in_process().allocate(4096, 4096).unwrap();
    let piece = |buffer: &Arc<_>, offset, address, bytes| Piece { buffer: Arc::clone(buffer), offset, address, bytes };
    for (bad, why) in [
        (piece(&buffer, 0, 0, 0), "0 bytes"),
        (piece(&buffer, 1, 0, 8192), "8192 bytes at 1 of a buffer of 8192"),
        (piece(&buffer, usize::MAX, 0, 2), "of a buffer of 8192"),
        (piece(&buffer, 0, u64::MAX - 5, 10), "64 address bits"),
        (piece(&elsewhere, 0, 0, 10), "other functions"),
    ] {
        let good = piece(&buffer, 0, 0, 10);
        let error = engine.transfer(Direction::H2c, &[good, bad]).unwrap_err();
        assert!(matches!(&error, Error::Refused { .. }) && error.to_string().contains(why), "{error}");
    }
    assert_eq!(cards.fetches(0), []);
    let data = pattern(0, 100);
    engine.write(3, &data).unwrap();
    let taken = Engine::open(engine.function().clone(), Completion::Poll).unwrap_err();
    assert!(taken.to_string().contains("in use by this process"), "{taken}");
}

#[test]
fn other_functions_have_no_engine() {
    let fabric = fpga_mock::Fabric::new(fpga_mock::Profile::optweb(2)).unwrap();
    let function = fpga_hal::in_process::attach(fabric.endpoint(0), &fpga_hal::Domain::in_process(), "node 0").unwrap();
    let error = Engine::open(function, Completion::Poll).unwrap_err().to_string();
    assert!(error.starts_with("node 0 has no XDMA engine: BAR0 reads 0x"), "{error}");
    assert!(error.ends_with("BAR4 has 4096 bytes"), "{error}");
}

/// A card on which some registers of the DMA BAR read otherwise.
fn altered(cards: &XdmaCards, values: &[(u64, u32)]) -> Result<Engine, Error> {
    let card = fpga_tests::altered::altered(cards.endpoint(0), 2, values);
    let mut engine = Engine::open(attach(card), Completion::Poll)?;
    engine.set_timeout(PATIENCE);
    Ok(engine)
}

/// Identifiers of PG195: H2C n at 100h times n, C2H n at 1000h and 100h times n.
#[test]
fn channels_with_a_gap_between_are_used_and_a_direction_without_one_is_refused() {
    let cards = XdmaCards::new(1, shape(3, 3));
    for gap in [0, 1, 2] {
        let mut engine = altered(&cards, &[(0x100 * gap, 0), (0x1000 + 0x100 * gap, 0)]).unwrap();
        assert_eq!([Direction::H2c, Direction::C2h].map(|direction| engine.channels(direction)), [2; 2]);
        round_trip(&mut engine, &cards, 0x1003, 300_000);
    }
    for none in [[0, 0x100, 0x200], [0x1000, 0x1100, 0x1200]] {
        let mut engine = match altered(&cards, &none.map(|at| (at, 0))) {
            Ok(engine) => engine,
            Err(error) => panic!("{error}"),
        };
        let mut data = [1; 100];
        let outcome = if none[0] == 0 { engine.write(0, &data) } else { engine.read(0, &mut data) };
        assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    }
}

/// ALIGNMENTS of PG195, at 4Ch of a channel: 23:16 of addresses, 15:8 of lengths, 7:0 address bits.
#[test]
fn alignments_are_checked_and_kept() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let all = |value| [(0x4c, value), (0x104c, value)];
    // 0 is what a core without the register reads: any address will do.
    for value in [0, 0x0001_0140, 0x0001_0130] {
        round_trip(&mut altered(&cards, &all(value)).unwrap(), &cards, 0x1003, 5000);
    }
    for value in [0x0000_0140, 0x0001_0040, 0x0003_0140, 0x0001_0541, 0x0001_0141, 0x0001_010b, 0x0001_01ff] {
        let error = altered(&cards, &all(value)).unwrap_err();
        assert!(matches!(error, Error::BadRegister { register: "ALIGNMENTS", .. }), "{value:#x}: {error:?}");
    }
    let mut engine = altered(&cards, &all(0x0040_0840)).unwrap();
    cards.fetches(0);
    let buffer = engine.allocate(4096).unwrap();
    for (offset, address, bytes, is_allowed) in
        [(0, 64, 8, true), (0, 32, 8, false), (32, 64, 8, false), (0, 64, 4, false)]
    {
        let piece = Piece { buffer: Arc::clone(&buffer), offset, address, bytes };
        let outcome = engine.transfer(Direction::H2c, &[piece]);
        assert_eq!(outcome.is_ok(), is_allowed, "{offset} {address} {bytes}: {outcome:?}");
    }
    assert_eq!(cards.fetches(0).len(), 1, "what is refused is not started");
}

/// A bad end of a range of several pieces, and a bad piece in the other direction.
#[test]
fn nothing_is_moved_if_the_end_is_refused() {
    let cards = XdmaCards::new(1, shape(1, 1));
    let mut engine = altered(&cards, &[(0x4c, 0x0001_0440), (0x104c, 0x0001_0440)]).unwrap();
    let refused = |outcome: Result<(), Error>| assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    let buffer = engine.allocate(4096).unwrap();
    let mut data = pattern(5, MIB + 1);
    cards.fetches(0);
    refused(engine.write(0, &data));
    refused(engine.read(0, &mut data));
    assert!(data == pattern(5, MIB + 1));
    // What is behind the last address is not at the first one.
    let data = &mut data[..MIB / 2];
    refused(engine.write(u64::MAX - 4 * MIB as u64 + 1, &vec![1; 5 * MIB]));
    refused(engine.read(u64::MAX - 3, &mut data[..8]));
    let piece = |bytes| Piece { buffer: Arc::clone(&buffer), offset: 0, address: 64, bytes };
    refused(engine.transfer_both(&[piece(8)], &[piece(9)]));
    assert_eq!(cards.fetches(0), []);
    engine.transfer_both(&[piece(8)], &[piece(12)]).unwrap();
}

/// The last byte that the engine can address may be moved, and none behind it. A piece may end where its buffer does.
#[test]
fn addresses_end_where_the_engine_says() {
    let cards = XdmaCards::new(1, shape(1, 1));
    // No alignment, and 40 address bits.
    let mut engine = altered(&cards, &[(0x4c, 0x0001_0128), (0x104c, 0x0001_0128)]).unwrap();
    let buffer = engine.allocate(4096).unwrap();
    for bytes in [1, 100, 4096] {
        let piece = |address| Piece { buffer: Arc::clone(&buffer), offset: 4096 - bytes, address, bytes };
        let last = (1 << 40) - bytes as u64;
        // There is no memory so far up.
        let outcome = engine.transfer(Direction::H2c, &[piece(last)]);
        assert!(matches!(outcome, Err(Error::Failed { .. })), "{bytes}: {outcome:?}");
        let outcome = engine.transfer(Direction::H2c, &[piece(last + 1)]);
        let is_refused =
            matches!(&outcome, Err(error @ Error::Refused { .. }) if error.to_string().contains("40 address bits"));
        assert!(is_refused, "{bytes}: {outcome:?}");
        engine.transfer(Direction::H2c, &[piece(0)]).unwrap();
    }
}
