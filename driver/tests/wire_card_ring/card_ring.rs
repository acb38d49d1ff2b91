//! What only rings in card memory do.

use std::time::Duration;

use cmdseq::Instruction;
use fpga_driver::{Card, Error, RingWindow, Token};
use fpga_fake::{BLOCK, Fake, RING_ADDRESS, RING_BAR};
use fpga_hal::BarIndex;

use crate::cards::Open as _;

const SECOND: Duration = Duration::from_secs(1);

fn window(offset: u64) -> RingWindow {
    RingWindow { bar: BarIndex::new(RING_BAR).unwrap(), offset, address: RING_ADDRESS + offset }
}

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
fn rings_are_where_the_window_is_and_as_deep_as_it_is_long() {
    // 128 KiB hold 1365 entries of 96 bytes.
    for (offset, depth_max, depth) in
        [(0, 4096, 1024), (64 << 10, 4096, 512), ((128 << 10) - 6144, 4096, 64), ((128 << 10) - 192, 64, 2)]
    {
        let fake = Fake::new(depth_max);
        let mut card = Card::open_with_card_ring(fake.function(), window(offset)).unwrap();
        assert_eq!(card.queue().depth(), depth);
        card.run([Instruction::nop(); 9], SECOND).unwrap();
        let base = |low| fake.state().registers[&(BLOCK + low)];
        assert_eq!((u64::from(base(0x400)), base(0x404)), (offset, 0x4000_0000));
        assert_eq!((base(0x408), base(0x40c)), (offset as u32 + depth * 64, 0x4000_0000));
    }
}

#[test]
fn windows_without_room_or_alignment_are_refused() {
    let open = |window| Card::open_with_card_ring(Fake::new(64).function(), window).unwrap_err();
    for offset in [(128 << 10) - 128, 128 << 10, !63] {
        let error = open(RingWindow { offset, ..window(0) });
        assert!(matches!(error, Error::Bus(fpga_hal::Error::OutOfBounds { .. })), "{error}");
    }
    for wrong in [RingWindow { offset: 4, ..window(0) }, RingWindow { address: 32, ..window(0) }] {
        let error = open(wrong);
        assert!(matches!(error, Error::BadArgument { what: "ring window", .. }), "{error}");
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
            [(Card::open(fake()), is_host), (Card::open_with_card_ring(fake(), window(0)), is_card)]
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
