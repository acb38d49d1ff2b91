//! Faults: the right error, no hang, and the next transfer is right.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fpga_driver::Error as CardError;
use fpga_driver::msgdma::{Completion, Direction, Engine, Error, Piece};
use fpga_hal::{BarIndex, Domain};
use fpga_mock::LateDma;
use fpga_mock::msgdma::Fault;
use fpga_regs::msgdma::{Control, Status};

use super::raw::{BLOCK, CONTROL};
use super::{BOTH, PATIENCE, Pac, SHORT, attach, pattern, round_trip};

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

#[test]
fn errors_of_accesses_and_early_ends_are_told() {
    for completion in BOTH {
        for direction in Direction::ALL {
            let pac = Pac::new();
            let mut engine = pac.open(completion);
            let cases = [
                (Fault::Error, Status::STOPPED_ON_ERROR, "answered with an error"),
                (Fault::EarlyTermination, Status::STOPPED_EARLY, "ended early"),
            ];
            for (fault, bit, word) in cases {
                let pieces = pieces(&engine, 0x8000);
                pac.card.plant_engine_fault(fault);
                let error = engine.transfer(direction, &pieces).unwrap_err();
                assert!(error.to_string().contains(word), "{error}");
                let Error::Failed { descriptor: 1, descriptors: 11, address: 0x8000, status, .. } = error else {
                    panic!("{error:?}")
                };
                assert_eq!(status, bit);
                round_trip(&mut engine, &pac, 0x5001, 70_000);
            }
        }
    }
}

/// The descriptor at which the engine stopped is told, in the middle of a list.
#[test]
fn card_memory_that_is_not_there() {
    for completion in BOTH {
        for direction in Direction::ALL {
            let pac = Pac::new();
            let mut engine = pac.open(completion);
            let mut pieces = pieces(&engine, 0);
            pieces[3].address = 1 << 46;
            let error = engine.transfer(direction, &pieces).unwrap_err();
            let Error::Failed { descriptor: 4, address, status, .. } = error else { panic!("{error:?}") };
            assert_eq!((address, status), (1 << 46, Status::STOPPED_ON_ERROR));
            assert!(matches!(engine.write(1 << 46, &[1; 64]), Err(Error::Failed { .. })));
            assert!(matches!(engine.read(1 << 46, &mut [1; 3]), Err(Error::Failed { .. })));
            round_trip(&mut engine, &pac, 0x5001, 70_000);
        }
    }
}

/// The host refuses the engine's reads, because the function may not master the bus.
#[test]
fn reads_that_the_bus_refuses() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        engine.function().set_bus_master(false).unwrap();
        let error = engine.write(0, &[1; 4096]).unwrap_err();
        assert!(matches!(error, Error::Failed { status: Status::STOPPED_ON_ERROR, .. }), "{error:?}");
        engine.function().set_bus_master(true).unwrap();
        round_trip(&mut engine, &pac, 0x5001, 70_000);
    }
}

#[test]
fn a_hang_keeps_the_buffers_until_the_function_is_reset() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        engine.set_timeout(SHORT);
        let pieces = pieces(&engine, 0);
        let domain = engine.function().domain().clone();
        pac.card.plant_engine_fault(Fault::Unanswered);
        let error = engine.transfer(Direction::ToCard, &pieces).unwrap_err();
        let Error::Stuck { status, .. } = error else { panic!("{error:?}") };
        assert!(status.contains(Status::BUSY | Status::RESETTING), "{status:?}");
        let held = Arc::downgrade(&pieces[0].buffer);
        let mapped = domain.mappings();
        drop(pieces);
        assert!(held.upgrade().is_some(), "the engine may still read the buffer");
        assert_eq!(domain.mappings(), mapped);
        for result in [engine.write(0, &[1; 64]), engine.write(0, &[1]), engine.read(0, &mut [0; 10])] {
            assert!(matches!(result, Err(Error::Stuck { .. })), "{result:?}");
        }
        engine.set_timeout(PATIENCE);
        engine.reset().unwrap();
        assert!(held.upgrade().is_none(), "nothing uses the buffer after the reset");
        round_trip(&mut engine, &pac, 0x5001, 70_000);
    }
}

#[test]
fn a_stuck_engine_that_is_dropped_is_reset_first() {
    let pac = Pac::new();
    let mut engine = pac.open(Completion::Poll);
    engine.set_timeout(SHORT);
    pac.card.plant_engine_fault(Fault::Unanswered);
    engine.write(0, &[1; 100]).unwrap_err();
    let function = engine.function().clone();
    drop(engine);
    let mut engine = Engine::open(function, Completion::Interrupt).unwrap();
    round_trip(&mut engine, &pac, 1, 100);
}

/// Other users of the function, a sequencer beside the engine, go on. The engine's interrupt is off.
#[test]
fn an_idle_engine_that_is_dropped_resets_nothing() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        round_trip(&mut engine, &pac, 64, 100);
        let function = engine.function().clone();
        let command = function.config_read_u16(4).unwrap();
        assert!(command & 1 << 2 != 0, "bus mastering is on: {command:#x}");
        drop(engine);
        assert_eq!(function.config_read_u16(4).unwrap(), command);
        let control = function.window(BarIndex::new(2).unwrap()).unwrap().read_u32(BLOCK + CONTROL).unwrap();
        assert_eq!(Control::from_bits_retain(control), Control::STOP_ON_ERROR | Control::STOP_EARLY);
    }
}

/// More descriptors than the queue takes, each of which takes its time: the driver waits for room.
#[test]
fn a_queue_that_is_full_is_waited_for() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        pac.card.plant_engine_fault(Fault::Slow(3));
        let buffer = engine.allocate(300 * 64).unwrap();
        buffer.write(0, &pattern(5, 300 * 64)).unwrap();
        let piece = |n: usize| Piece { buffer: Arc::clone(&buffer), offset: n * 64, address: n as u64 * 64, bytes: 64 };
        // Interrupts come only from what is read meanwhile: with them, the engine is slow until all is queued.
        let pieces: Vec<Piece> = (0..300).map(piece).collect();
        match completion {
            Completion::Poll => engine.transfer(Direction::ToCard, &pieces).unwrap(),
            Completion::Interrupt => {
                let second = thread::scope(|scope| {
                    let waits = scope.spawn(|| engine.transfer(Direction::ToCard, &pieces));
                    thread::sleep(Duration::from_millis(20));
                    pac.card.plant_engine_fault(Fault::Slow(0));
                    waits.join().unwrap()
                });
                second.unwrap();
            }
        }
        assert!(pac.fabric.read_memory(0, 0, 300 * 64).unwrap() == pattern(5, 300 * 64));
        assert_eq!(pac.card.engine_violations(), []);
    }
}

/// The engine does not end in time, whether the queue has room or not: it is reset, and the next transfer is right.
#[test]
fn a_slow_transfer_times_out_and_is_stopped() {
    for completion in BOTH {
        for count in [10, 300] {
            let pac = Pac::new();
            let mut engine = pac.open(completion);
            engine.set_timeout(SHORT);
            pac.card.plant_engine_fault(Fault::Slow(u32::MAX));
            let buffer = engine.allocate(4096).unwrap();
            let piece = Piece { buffer, offset: 0, address: 0, bytes: 64 };
            let error = engine.transfer(Direction::ToHost, &vec![piece; count]).unwrap_err();
            let Error::TimedOut { descriptor: 0, descriptors, waited, .. } = error else { panic!("{error:?}") };
            assert_eq!(descriptors, count as u32 + 1);
            assert!(waited >= SHORT);
            pac.card.plant_engine_fault(Fault::Slow(0));
            engine.set_timeout(PATIENCE);
            round_trip(&mut engine, &pac, 0x5001, 70_000);
        }
    }
}

/// Host memory answers after the deadline: the reset waits for the answer, and no buffer is given back before.
#[test]
fn an_answer_that_comes_late_finds_its_buffer() {
    for completion in BOTH {
        let pac = Pac::new();
        let late = LateDma::new(pac.endpoint(), 5, Duration::from_millis(5));
        let mut engine = super::open(attach(late), completion);
        engine.set_timeout(Duration::from_millis(1));
        let mut outcomes = Vec::new();
        for _ in 0..10 {
            let pieces = pieces(&engine, 0);
            outcomes.push(engine.transfer(Direction::ToCard, &pieces));
        }
        assert!(outcomes.iter().any(|outcome| matches!(outcome, Err(Error::TimedOut { .. }))), "{outcomes:?}");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(()) | Err(Error::TimedOut { .. }))), "{outcomes:?}");
        engine.set_timeout(PATIENCE);
        round_trip(&mut engine, &pac, 0x5001, 70_000);
    }
}

/// The word that ends a list is lost on its way, as posted writes may be.
#[test]
fn a_completion_that_is_lost_is_a_timeout() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        engine.set_timeout(SHORT);
        pac.card.plant_engine_fault(Fault::LostWrite);
        let error = engine.write(0, &[1; 128]).unwrap_err();
        assert!(matches!(error, Error::TimedOut { descriptor: 2, descriptors: 2, .. }), "{error:?}");
        engine.set_timeout(PATIENCE);
        round_trip(&mut engine, &pac, 0x5001, 70_000);
    }
}

/// The port's reset takes the engine away: an error, and not a hang.
#[test]
fn a_reset_of_the_port_in_the_middle_is_an_error_and_not_a_hang() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        pac.card.plant_engine_fault(Fault::Slow(u32::MAX));
        let port = engine.function().window(BarIndex::new(2).unwrap()).unwrap();
        let error = thread::scope(|scope| {
            let waits = scope.spawn(|| engine.write(0, &[1; 4096]));
            thread::sleep(Duration::from_millis(20));
            port.write_u64(0x38, 5).unwrap();
            waits.join().unwrap().unwrap_err()
        });
        assert!(matches!(error, Error::Card(CardError::AllOnes { .. })), "{error:?}");
        pac.card.release();
        engine.reset().unwrap();
        round_trip(&mut engine, &pac, 0x5001, 70_000);
    }
}

#[test]
fn a_removed_card_is_gone() {
    for completion in BOTH {
        let pac = Pac::new();
        let mut engine = pac.open(completion);
        pac.fabric.plant(fpga_mock::Fault::Vanish { node: 0 });
        for result in [engine.write(0, &[1; 100]), engine.write(3, &[1]), engine.read(0, &mut [0; 3])] {
            assert!(matches!(result, Err(Error::Card(CardError::Removed { .. }) | Error::Stuck { .. })), "{result:?}");
        }
    }
}

#[test]
fn what_the_engine_cannot_move_is_refused_before_it_starts() {
    let pac = Pac::new();
    let mut engine = pac.open(Completion::Poll);
    let buffer = engine.allocate(8192).unwrap();
    let other = Domain::in_process().allocate(4096, 4096).unwrap();
    let good = Piece { buffer: Arc::clone(&buffer), offset: 0, address: 0, bytes: 64 };
    let cases = [
        (Piece { bytes: 0, ..good.clone() }, "expected 1 or more"),
        (Piece { bytes: 8256, ..good.clone() }, "inside of it"),
        (Piece { offset: usize::MAX, ..good.clone() }, "inside of it"),
        (Piece { bytes: 63, ..good.clone() }, "multiples of 64"),
        (Piece { offset: 32, ..good.clone() }, "multiples of 64"),
        (Piece { address: 1, ..good.clone() }, "multiples of 64"),
        (Piece { address: 1 << 48, ..good.clone() }, "48 address bits"),
        (Piece { address: u64::MAX - 63, ..good.clone() }, "48 address bits"),
        (Piece { buffer: other, ..good.clone() }, "other functions"),
    ];
    for (piece, why) in cases {
        let error = engine.transfer(Direction::ToCard, &[good.clone(), piece]).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }) && error.to_string().contains(why), "{error}");
    }
    let long = vec![good; 65_535];
    assert!(matches!(engine.transfer(Direction::ToCard, &long), Err(Error::Refused { .. })));
    for result in [engine.write(u64::MAX, &[1]), engine.read((1 << 48) - 1, &mut [0; 2])] {
        assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
    }
    let used = Engine::open(engine.function().clone(), Completion::Poll).unwrap_err();
    assert!(matches!(used, Error::Card(CardError::Bus { .. })), "{used:?}");
    engine.transfer(Direction::ToCard, &[]).unwrap();
    assert_eq!(pac.card.engine_violations(), []);
    round_trip(&mut engine, &pac, 0x5001, 70_000);
}
