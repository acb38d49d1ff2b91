//! What only rings in card memory do.

use std::time::Duration;

use cmdseq::Instruction;
use fpga_driver::{Card, Error, Token};
use fpga_fake::{BLOCK, Fake};

use crate::cards::Open as _;
use crate::{RING_BYTES, board};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn each_access_to_the_rings_is_counted() {
    let fake = Fake::new(64);
    let mut card = fake.open().unwrap();
    fake.ring_counts();
    let queue = card.queue_mut();
    let tokens = [0, 1].map(|_| queue.push(Instruction::nop()).unwrap());
    assert_eq!(fake.ring_counts(), (0, 2 * 16), "64 bytes are stored by 16 writes, and none is waited for");
    queue.ring().unwrap();
    assert_eq!(fake.ring_counts(), (1, 0), "the doorbell makes sure that they have arrived");
    assert_eq!(queue.poll().unwrap(), 2);
    assert_eq!(fake.ring_counts(), (2 * (1 + 8) + 1, 0), "a look for each, 32 bytes, and a look for one more");
    tokens.into_iter().for_each(Token::abandon);
}

#[test]
fn rings_are_where_the_board_file_has_them_and_as_deep_as_there_is_room() {
    // 128 KiB hold 1365 entries of 96 bytes.
    for (offset, bytes, depth_max, depth) in [
        (0, RING_BYTES, 4096, 1024),
        (64 << 10, 64 << 10, 4096, 512),
        (64 << 10, 6144, 4096, 64),
        (RING_BYTES - 192, 192, 64, 2),
    ] {
        let fake = Fake::new(depth_max);
        let mut card = Card::open_on_board(fake.function(), &board(offset, bytes)).unwrap();
        assert_eq!(card.queue().depth(), depth);
        card.run([Instruction::nop(); 9], SECOND).unwrap();
        let base = |low| fake.state().registers[&(BLOCK + low)];
        assert_eq!((u64::from(base(0x400)), base(0x404)), (offset, 0x4000_0000));
        assert_eq!((base(0x408), base(0x40c)), (offset as u32 + depth * 64, 0x4000_0000));
    }
}

#[test]
fn memory_without_room_for_two_entries_is_refused() {
    for bytes in [64, 128, 191] {
        let error = Card::open_on_board(Fake::new(64).function(), &board(0, bytes)).unwrap_err();
        assert!(matches!(error, Error::BadCapability { register: "BYTES of the ring memory", .. }), "{error}");
    }
}

#[test]
fn a_card_is_fed_only_in_a_way_that_it_announces() {
    for (features, is_host, is_card) in [(0x101, true, false), (0x102, false, true), (0x103, true, true)] {
        let fake = || {
            let fake = Fake::new(4);
            fake.set(BLOCK + 0x2c, features);
            fake.function()
        };
        for (opened, is_possible) in
            [(Card::open(fake()), is_host), (Card::open_on_board(fake(), &board(0, RING_BYTES)), is_card)]
        {
            match opened {
                Ok(mut card) => {
                    assert!(is_possible, "{features:#x}");
                    card.reset().unwrap();
                    card.run([Instruction::nop()], SECOND).unwrap();
                }
                Err(Error::BadCapability { register: "FEATURES", .. }) => assert!(!is_possible, "{features:#x}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Adds a description of memory for rings at 0x2000 of BAR0 to the feature list, with `registers` of it other than they should be.
fn describe(fake: &Fake, registers: &[(u32, u32)]) {
    const AT: u32 = BLOCK + 0x1000;
    fake.set(BLOCK, 0x1000_0002);
    fake.set(BLOCK + 4, 0x2000_0000);
    fake.set(BLOCK + 0x2c, 0x102);
    let right = [
        (0x00, 3),
        (0x04, 0x2000_0100),
        (0x08, 0xe917_b35d),
        (0x0c, 0x8a72_60c4),
        (0x10, 0x3c59_4e8e),
        (0x14, 0xd1f0_b6a4),
        (0x18, 0x474e_4952),
        (0x1c, 0x0002_0000),
        (0x20, 0x4000),
        (0x24, 0x4000),
        (0x38, 0xff),
    ];
    right.iter().chain(registers).for_each(|(register, value)| fake.set(AT + register, *value));
}

#[test]
fn a_description_of_rings_on_the_card_is_checked() {
    for (registers, why) in [
        (&[(0x18_u32, 0_u32)] as &[(u32, u32)], "MAGIC of the ring memory reads 0x0"),
        (&[(0x1c, 0x0001_0000)], "version of the description"),
        (&[(0x3c, 6)], "BAR of the ring memory reads 0x6"),
        (&[(0x3c, 5)], "BAR of the ring memory reads 0x5"),
        (&[(0x20, 0x4020)], "OFFSET of the ring memory"),
        (&[(0x24, 0)], "BYTES of the ring memory"),
        (&[(0x24, 0xc001)], "BYTES of the ring memory"),
        (&[(0x20, 0xffff_ffc0), (0x24, u32::MAX)], "BYTES of the ring memory"),
        (&[(0x28, 32)], "SEQUENCER of the ring memory"),
        (&[(0x2c, u32::MAX), (0x28, 0xffff_ffc0)], "SEQUENCER of the ring memory"),
        (&[(0x30, 1)], "ENGINE of the ring memory"),
        (&[(0x38, 16)], "INTERRUPT of the ring memory"),
        // Without the GUID there is no description.
        (&[(0x08, 0)], "FEATURES"),
    ] {
        let fake = Fake::new(64);
        describe(&fake, registers);
        let error = Card::open(fake.function()).unwrap_err();
        assert!(matches!(error, Error::BadCapability { .. } | Error::Version { .. }), "{error}");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    // What is right leads to an engine, of which this card has none.
    let fake = Fake::new(64);
    describe(&fake, &[]);
    let error = Card::open(fake.function()).unwrap_err();
    let Error::Engine(engine) = &error else { panic!("{error}") };
    assert!(engine.to_string().starts_with("fake has no XDMA engine"), "{engine}");
}
