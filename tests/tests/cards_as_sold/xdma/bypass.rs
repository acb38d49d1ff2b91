//! A sequencer that masters the bus through channels of the engine: descriptor bypass.

use std::sync::Arc;

use cmdseq::{Instruction, Operand, Status};
use fpga_driver::xdma::{Completion, Direction, Engine};
use fpga_driver::{Bound, Card, Error, Feed};
use fpga_mock::Shell;
use fpga_mock::xdma::{Misanswer, Shape};

use super::sequencer::{Rig, nop, window};
use super::{PATIENCE, pattern};

/// STATUS and COMPLETED of the channels of the sequencer, retyped from PG195: H2C 1 and C2H 1.
const STATUS: [u64; 2] = [0x0140, 0x1140];
const COMPLETED: [u64; 2] = [0x0148, 0x1148];
/// CONTROL of H2C 1, and what clears its bits.
const CONTROL: u64 = 0x0104;
const CONTROL_CLEAR: u64 = 0x010c;

fn with(shape: Shape) -> Rig {
    Rig::with(Shell::AlveoBypass, shape)
}

/// What the registers at these offsets of the DMA BAR read.
fn dma(card: &Card, offsets: [u64; 2]) -> [u32; 2] {
    let bar = window(card.function(), 2);
    offsets.map(|offset| bar.read_u32(offset).unwrap())
}

/// Typed by hand from docs/registers.md and docs/boards.md.
#[test]
fn the_feature_list_names_the_channels() {
    let rig = with(Shape { h2c: 3, c2h: 2, ..Shape::default() });
    let function = rig.function(1);
    let user = window(&function, 0);
    for (offset, expected) in [
        (0x1000, 0x2000_0000_2800_0001),
        (0x3800, 0x2000_0100_0000_0003),
        (0x3808, 0x9d84_27e5_b6c0_f19a),
        (0x3810, 0x8f3a_61d7_0b52_4c1e),
        // BYPS, version 1.0; H2C 2 and C2H 1; user interrupt 0.
        (0x3818, 0x0001_0000_5350_5942),
        (0x3820, 0x0000_0001_0000_0002),
        (0x3828, 0),
        // There is no memory for rings.
        (0x4000, 0),
        (0xfff8, 0),
    ] {
        assert_eq!(user.read_u64(offset).unwrap(), expected, "{offset:#x}");
        user.write_u64(offset, !expected).unwrap();
        assert_eq!(user.read_u64(offset).unwrap(), expected, "{offset:#x} is read-only");
    }
    assert_eq!(user.read_u32(0x102c).unwrap() & 0b111, 0b001, "rings in host memory");
}

/// Data goes by the channels that are left; by copy instructions if there are none. Every length of one beat, and a long one.
#[test]
fn data_and_instructions_arrive_with_and_without_other_channels() {
    for (h2c, c2h) in [(2, 2), (1, 1), (1, 4), (4, 1)] {
        let rig = with(Shape { h2c, c2h, ..Shape::default() });
        let mut card = rig.card(0);
        assert_eq!((card.feed(), card.capabilities().host_memory), (Feed::HostRing, true));
        for bytes in (1..65).chain([300_000]) {
            let data = pattern(bytes as u64, bytes);
            card.write_memory(7, &data).unwrap();
            card.run([Instruction::copy(Operand::card(7), Operand::card(1 << 20), bytes as u64)], PATIENCE).unwrap();
            let mut back = vec![0; bytes];
            card.read_memory(1 << 20, &mut back).unwrap();
            assert!(back == data, "{bytes} bytes by {h2c} and {c2h} channels");
        }
        assert_eq!(rig.cards.violations(0), []);
    }
}

/// Each request of the sequencer is a descriptor of its channel. The other channels do not move.
#[test]
fn channels_count_what_the_sequencer_asks_for() {
    let rig = with(Shape::default());
    let mut card = rig.card(0);
    let before = dma(&card, COMPLETED);
    for _ in 0..5 {
        nop(&mut card).unwrap();
    }
    let after = dma(&card, COMPLETED);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [5, 5], "a fetch and a completion each");
    assert_eq!(dma(&card, [0x0048, 0x1048]), [0, 0]);
    assert_eq!(dma(&card, STATUS), [0, 0]);
}

#[test]
fn a_read_that_fails_is_told_and_the_next_instruction_runs() {
    let rig = with(Shape::default());
    let mut card = rig.card(0);
    let gone = card.allocate(4096).unwrap().iova().0;
    let copy = Instruction::copy(Operand::host(gone), Operand::card(0), 4096);
    for _ in 0..3 {
        let failed = card.run([Bound::dangerously_unowned(copy)], PATIENCE).unwrap_err();
        assert!(matches!(failed, Error::Failed { status: Status::HostReadFault, .. }), "{failed}");
        assert_eq!(dma(&card, STATUS), [0, 0], "started again");
        nop(&mut card).unwrap();
    }
}

/// As the engine's own writes: a bus that refuses one has nobody to tell.
#[test]
fn a_write_that_is_lost_is_not_told() {
    let rig = with(Shape::default());
    let mut card = rig.card(0);
    let gone = card.allocate(4096).unwrap().iova().0;
    let copy = Instruction::copy(Operand::card(0), Operand::host(gone), 4096);
    card.run([Bound::dangerously_unowned(copy)], PATIENCE).unwrap();
    assert_eq!(dma(&card, STATUS), [0, 0]);
    nop(&mut card).unwrap();
}

/// Every error of a read, of data and of an instruction: STATUS has its bit, and the card works again after an abort.
#[test]
fn every_error_of_a_read_is_noted_by_its_bit() {
    for (misanswer, bit) in [
        (Misanswer::Unsupported, 9),
        (Misanswer::Aborted, 10),
        (Misanswer::Parity, 11),
        (Misanswer::Poisoned, 12),
        (Misanswer::Unexpected, 13),
    ] {
        let rig = with(Shape::default());
        let mut card = rig.card(0);
        let buffer = card.allocate(4096).unwrap();
        // The fetch is answered, its data is not.
        rig.cards.misanswer_sequencer(0, 1, misanswer);
        let copy = Instruction::copy(Operand::host(buffer.iova().0), Operand::card(0), 4096);
        let failed = card.run([Bound::from(copy).holding(Arc::clone(&buffer))], PATIENCE).unwrap_err();
        assert!(matches!(failed, Error::Failed { status: Status::HostReadFault, .. }), "{misanswer:?}: {failed}");
        nop(&mut card).unwrap();
        // The fetch is not answered: the sequencer halts.
        rig.cards.misanswer_sequencer(0, 0, misanswer);
        let failed = nop(&mut card).unwrap_err();
        assert!(matches!(failed, Error::Halted { .. }), "{misanswer:?}: {failed}");
        assert_eq!(dma(&card, STATUS), [1 << bit, 0], "{misanswer:?}");
        card.abort().unwrap();
        nop(&mut card).unwrap();
        assert_eq!(dma(&card, STATUS), [0, 0], "started again");
    }
}

#[test]
fn a_sequencer_whose_channel_does_not_run_reaches_nothing() {
    let rig = with(Shape::default());
    let mut card = rig.card(0);
    window(card.function(), 2).write_u32(CONTROL_CLEAR, 1).unwrap();
    let failed = nop(&mut card).unwrap_err();
    assert!(matches!(failed, Error::Halted { .. }), "{failed}");
    card.abort().unwrap();
    nop(&mut card).unwrap();
    // RUN that stays set starts nothing over; a write of the same word is no rising edge.
    let bar = window(card.function(), 2);
    let control = bar.read_u32(CONTROL).unwrap();
    assert_eq!(control & 1, 1);
    rig.cards.misanswer_sequencer(0, 0, Misanswer::Aborted);
    nop(&mut card).unwrap_err();
    bar.write_u32(CONTROL, control).unwrap();
    assert_eq!(dma(&card, STATUS)[0], 1 << 10);
    card.reset().unwrap();
    nop(&mut card).unwrap();
}

/// An engine that is opened beside the sequencer, as before a card is taken into use: it leaves the sequencer's channels alone, and its
/// own channels have their own interrupts.
#[test]
fn an_engine_leaves_the_channels_of_the_sequencer_alone() {
    let rig = with(Shape { h2c: 3, c2h: 2, ..Shape::default() });
    for completion in [Completion::Poll, Completion::Interrupt] {
        let mut engine = Engine::open(rig.function(0), completion).unwrap();
        assert_eq!((engine.channels(Direction::H2c), engine.channels(Direction::C2h)), (2, 1));
        let data = pattern(5, 40_000);
        engine.write(0x1003, &data).unwrap();
        let mut back = vec![0; data.len()];
        engine.read(0x1003, &mut back).unwrap();
        assert!(back == data);
        // C2H 0 is behind three channels from the host, so its interrupt is the fourth.
        let registers = window(engine.function(), 2);
        let enabled = if completion == Completion::Poll { 0 } else { 0b1_1111 };
        assert_eq!(registers.read_u32(0x2010).unwrap(), enabled);
        assert_eq!(registers.read_u32(0x20a0).unwrap(), if enabled == 0 { 0 } else { 0x0302_0100 });
    }
}
