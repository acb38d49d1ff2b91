//! Rings in the bypass window: words and doorbell go through masters that keep no order with each other.

use std::sync::Arc;

use cmdseq::{Instruction, Operand, Status};
use fpga_driver::{Card, Error, Feed, State, xdma};
use fpga_hal::endpoint::Interposer;
use fpga_hal::{BarIndex, Endpoint, in_process};
use fpga_mock::Shell;
use fpga_mock::xdma::Shape;
use fpga_tests::run::domain;

use super::PATIENCE;
use super::sequencer::{Rig, nop, window};

/// Where the rings are in BAR 4, and how long: typed by hand from docs/boards.md.
const RINGS: std::ops::Range<u64> = 0x3ff_0000..0x3ff_c000;

fn rig() -> Rig {
    Rig::with(Shell::AlveoBar4, Shape::default())
}

/// Typed by hand from docs/registers.md and docs/boards.md.
#[test]
fn the_feature_list_says_that_rings_are_in_the_bypass_window() {
    let rig = rig();
    let function = rig.function(1);
    let (user, bypass) = (window(&function, 0), window(&function, 4));
    for (offset, expected) in [
        (0x3800, 0x2000_0100_0000_0002),
        (0x3818, 0x0002_0000_474e_4952),
        (0x3820, 0x0000_c000_03ff_0000),
        (0x3828, 0x0000_0002_0000_0000),
        (0x3830, 0x0000_0100_0000_0000),
        // User interrupt 0; BAR 4.
        (0x3838, 0x0000_0004_0000_0000),
        // Nothing where rings in the user BAR are.
        (0x4000, 0),
        (0xfff8, 0),
    ] {
        assert_eq!(user.read_u64(offset).unwrap(), expected, "{offset:#x}");
        user.write_u64(offset, !expected).unwrap();
        assert_eq!(user.read_u64(offset).unwrap(), expected, "{offset:#x} is read-only");
    }
    assert_eq!(user.read_u32(0x102c).unwrap() & 0b111, 0b010, "rings on the card");
    // The host, the engine and card memory below.
    rig.cards.write_memory(1, RINGS.start, &[7; 8]).unwrap();
    bypass.write_u32(RINGS.start, 0xfeed).unwrap();
    bypass.write_u32(RINGS.end - 4, 0xbeef).unwrap();
    assert_eq!((bypass.read_u32(RINGS.start).unwrap(), bypass.read_u32(RINGS.end - 4).unwrap()), (0xfeed, 0xbeef));
    let mut engine = xdma::Engine::open(function, xdma::Completion::Interrupt).unwrap();
    let mut back = [0; 4];
    engine.read(1 << 40, &mut back).unwrap();
    assert_eq!(u32::from_le_bytes(back), 0xfeed);
    engine.read(RINGS.start, &mut back).unwrap();
    assert_eq!(back, [7; 4], "the engine reaches all of card memory");
}

/// The read-back before the doorbell keeps every word before its doorbell, whatever arrives when.
#[test]
fn words_arrive_before_their_doorbells_whatever_the_bus_does() {
    for seed in 0..20 {
        let rig = rig();
        rig.cards.reorder_words(0, seed);
        let mut card = rig.card(0);
        assert_eq!((card.feed(), card.capabilities().host_memory), (Feed::CardRing, false));
        for round in 0..40_u64 {
            let fill = Instruction::fill(Operand::card(64 * round), 64, seed << 8 | round);
            let nops = std::iter::repeat_n(Instruction::nop(), round as usize);
            card.run(nops.chain([fill]).collect::<Vec<_>>(), PATIENCE).unwrap();
            assert_eq!(rig.cards.read_memory(0, 64 * round, 8).unwrap(), (seed << 8 | round).to_le_bytes());
        }
        // Beside the rings, and after the rings were emptied.
        let program = vec![Instruction::fill(Operand::card(0), 64, 5 + seed)];
        let resident = card.store(0, program).unwrap();
        card.run_resident(&resident, [0; 3]).unwrap();
        assert_eq!(rig.cards.read_memory(0, 0, 8).unwrap(), (5 + seed).to_le_bytes());
        card.abort().unwrap();
        nop(&mut card).unwrap();
    }
}

/// A card whose host forgets to read words back: reads of the rings never reach the card.
struct Forgetful(Arc<dyn Endpoint>);

impl Interposer for Forgetful {
    fn behind(&self) -> &dyn Endpoint {
        &*self.0
    }

    fn bar_read(&self, bar: BarIndex, offset: u64, data: &mut [u8]) {
        match bar.index() == 4 && RINGS.contains(&offset) {
            true => data.fill(0),
            false => self.0.bar_read(bar, offset, data),
        }
    }
}

/// Without the read-back a doorbell overtakes its word: the checksum, or the tag, tells, and nothing else is run instead.
#[test]
fn a_read_back_that_is_missing_is_an_error_and_never_another_instruction() {
    let mut told = [0; 2];
    for seed in 0..20 {
        let rig = rig();
        rig.cards.reorder_words(0, seed);
        let function =
            in_process::attach(Arc::new(Forgetful(rig.cards.endpoint(0))), &domain(), "a host that reads nothing back");
        let mut card = Card::open(function.unwrap()).unwrap();
        card.set_timeout(PATIENCE);
        // Twice around the ring of 128, so that old words are valid ones.
        for round in 0..300_u64 {
            let address = 64 * (round % 16);
            let before = rig.cards.read_memory(0, 0, 1024).unwrap();
            let outcome = card.run([Instruction::fill(Operand::card(address), 64, round)], PATIENCE);
            let after = rig.cards.read_memory(0, 0, 1024).unwrap();
            let Err(failed) = outcome else {
                let mut expected = before;
                expected[address as usize..][..64].copy_from_slice(&round.to_le_bytes().repeat(8));
                assert_eq!(after, expected, "seed {seed}, round {round}: done, and right");
                continue;
            };
            match &failed {
                Error::Failed { status: Status::BadChecksum, .. } => told[0] += 1,
                Error::BadCompletion { .. } => told[1] += 1,
                other => panic!("seed {seed}, round {round}: {other}"),
            }
            if card.state() != State::Running {
                card.abort().unwrap();
            }
        }
    }
    println!("{} by the checksum, {} by the tag", told[0], told[1]);
    assert!(told[0] > 0, "no doorbell has overtaken a word: {told:?}");
}
