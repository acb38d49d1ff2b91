use proptest::prelude::*;

use super::*;
use crate::net::payload::TABLE;

const GIB: u64 = 1 << 30;
const FRAME_BYTES: u64 = FRAME as u64;

fn memory(bytes: u64) -> CardMemory {
    CardMemory::new(bytes, 0, &Budget::new(GIB, 1))
}

/// Frames of the card, and those that it shares with nobody.
fn frames(memory: &CardMemory) -> (usize, usize) {
    let all = memory.contents.tables.iter().flatten().flat_map(|table| table.iter().flatten());
    let (own, shared): (Vec<_>, Vec<_>) = all.partition(|frame| Arc::strong_count(frame) == 1);
    (own.len() + shared.len(), own.len())
}

/// Carries bytes from one memory to another, or within one.
fn carry(memories: &mut [CardMemory; 2], from: (usize, u64), to: (usize, u64), bytes: u64) -> Result<(), MemoryError> {
    let payload = memories[from.0].payload(from.1, bytes)?;
    memories[to.0].write_payload(to.1, &payload, 0..bytes)
}

#[test]
fn reads_zero_until_written_and_after_clear() {
    let mut memory = memory(8 * GIB);
    assert_eq!(memory.read(8 * GIB - 3, 3).unwrap(), [0, 0, 0]);
    memory.write(5 * GIB, &[7, 8]).unwrap();
    assert_eq!(memory.read(5 * GIB - 1, 4).unwrap(), [0, 7, 8, 0]);
    memory.clear();
    assert_eq!(memory.read(5 * GIB, 2).unwrap(), [0, 0]);
}

#[test]
fn bounds_do_not_wrap() {
    let mut memory = memory(1 << 20);
    assert!(memory.contains(0, 1 << 20));
    assert!(!memory.contains(1, 1 << 20));
    assert!(!memory.contains(u64::MAX, 2));
    let outside = MemoryError::OutOfRange { address: u64::MAX, bytes: 2 };
    assert_eq!(memory.read(u64::MAX, 2).unwrap_err(), outside);
    assert_eq!(memory.write(u64::MAX, &[1, 2]).unwrap_err(), outside);
    assert_eq!(memory.fill(u64::MAX, 2, 0).unwrap_err(), outside);
    assert_eq!(memory.reserve(u64::MAX, 2).unwrap_err(), outside);
    assert_eq!(memory.payload(u64::MAX, 2).unwrap_err(), outside);
    let payload = memory.payload(0, 2).unwrap();
    assert_eq!(memory.write_payload(u64::MAX, &payload, 0..2).unwrap_err(), outside);
}

/// Of a block of many frames, tables of frames are shared.
#[test]
fn a_long_block_stays_as_it_was_when_it_left() {
    let bytes = 5 * (TABLE as u64) * FRAME_BYTES / 2 + 77;
    for address in [0, 5, FRAME_BYTES, GIB - 3 * FRAME_BYTES - 1, 7 * GIB] {
        let mut memory = memory(8 * GIB);
        memory.fill(address, bytes / 3, 0x0807_0605_0403_0201).unwrap();
        memory.write(address + bytes - 5, &[9; 4]).unwrap();
        let before = memory.read(address, bytes).unwrap();
        let payload = memory.payload(address, bytes).unwrap();
        memory.fill(address.saturating_sub(9), bytes + 20, 3).unwrap();
        let mut carried = Vec::new();
        payload.append_to(0..bytes, &mut carried);
        assert!(carried == before, "{address:#x}");
        memory.write_payload(address + 1, &payload, 0..bytes).unwrap();
        assert!(memory.read(address + 1, bytes).unwrap() == before, "{address:#x}");
    }
}

#[test]
fn zeros_where_nothing_was_written_cost_nothing() {
    let budget = Budget::new(GIB, 2);
    let mut both = [0, 1].map(|node| CardMemory::new(8 * GIB, node, &budget));
    both[0].fill(0, 8 * GIB, 0).unwrap();
    carry(&mut both, (0, 0), (0, 4 * GIB), 4 * GIB).unwrap();
    carry(&mut both, (1, 0), (0, GIB), GIB).unwrap();
    carry(&mut both, (1, 0), (0, GIB), 100).unwrap();
    assert_eq!(frames(&both[0]).0, 0);
    both[0].fill(GIB, FRAME_BYTES + 3, 0x0807_0605_0403_0201).unwrap();
    assert_eq!(both[0].read(GIB + FRAME_BYTES, 4).unwrap(), [1, 2, 3, 0]);
    assert_eq!(frames(&both[0]).0, 2);
    // But over what was written they are written.
    both[0].fill(GIB + 8, 8, 0).unwrap();
    assert_eq!(both[0].read(GIB + 7, 10).unwrap(), [8, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    carry(&mut both, (1, 0), (0, GIB), GIB).unwrap();
    assert_eq!(both[0].read(GIB, FRAME_BYTES).unwrap(), vec![0; FRAME]);
    assert_eq!(frames(&both[1]).0, 0);
}

#[test]
fn what_the_budget_does_not_hold_is_an_error_and_leaves_the_rest() {
    let budget = Budget::new(4 * FRAME_BYTES, 1);
    let mut memory = CardMemory::new(8 * GIB, 0, &budget);
    memory.fill(0, 3 * FRAME_BYTES, 1).unwrap();
    let none_left = |address, bytes| Err(MemoryError::Exhausted { address, bytes });
    assert_eq!(memory.fill(2 * FRAME_BYTES, 3 * FRAME_BYTES, 2), none_left(2 * FRAME_BYTES, 3 * FRAME_BYTES));
    assert_eq!(memory.read(2 * FRAME_BYTES, 2).unwrap(), [1, 0]);
    assert_eq!(memory.reserve(GIB - 1, 2), none_left(GIB - 1, 2));
    // What is reserved is charged once.
    memory.reserve(2 * FRAME_BYTES, 2 * FRAME_BYTES).unwrap();
    memory.reserve(2 * FRAME_BYTES, 2 * FRAME_BYTES).unwrap();
    memory.fill(2 * FRAME_BYTES, 2 * FRAME_BYTES, 2).unwrap();
    // Until the frames are back, so is nothing of the budget.
    let contents = memory.clear();
    assert!(memory.fill(0, 1, 1).is_err());
    drop(contents);
    memory.fill(0, 4 * FRAME_BYTES, 1).unwrap();
}

#[test]
fn whole_frames_are_shared_until_one_card_writes() {
    let budget = Budget::new(GIB, 2);
    let mut both = [0, 1].map(|node| CardMemory::new(8 * GIB, node, &budget));
    both[0].fill(0, 4 * FRAME_BYTES, 1).unwrap();
    carry(&mut both, (0, 0), (1, GIB), 4 * FRAME_BYTES).unwrap();
    assert_eq!((frames(&both[0]), frames(&both[1])), ((4, 0), (4, 0)));
    both[0].write(FRAME_BYTES, &[2]).unwrap();
    both[1].write(GIB + 2 * FRAME_BYTES, &[3]).unwrap();
    assert_eq!((frames(&both[0]), frames(&both[1])), ((4, 2), (4, 2)));
    assert_eq!(both[1].read(GIB + FRAME_BYTES, 1).unwrap(), [1]);
    assert_eq!(both[0].read(2 * FRAME_BYTES, 1).unwrap(), [1]);
}

/// One change of the memories, and the same of their models.
#[derive(Debug, Clone)]
enum Change {
    Write { card: usize, address: u64, data: Vec<u8> },
    Fill { card: usize, address: u64, bytes: u64, pattern: u64 },
    Carry { from: (usize, u64), to: (usize, u64), bytes: u64 },
}

const MODEL: u64 = 5 * FRAME_BYTES;

/// An address, often that of a frame, and bytes after it, often whole frames.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let address = prop_oneof![(0..5_u64).prop_map(|frame| frame * FRAME_BYTES), 0..MODEL];
    (address, prop_oneof![0..100_u64, 0..MODEL, (0..5_u64).prop_map(|frames| frames * FRAME_BYTES)])
        .prop_map(|(address, bytes)| (address, bytes.min(MODEL - address)))
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..2_usize, range(), any::<u8>()).prop_map(|(card, (address, bytes), seed)| {
            let data = (0..bytes).map(|at| seed.wrapping_mul(31).wrapping_add(at as u8)).collect();
            Change::Write { card, address, data }
        }),
        (0..2_usize, range(), prop_oneof![Just(0), any::<u64>()])
            .prop_map(|(card, (address, bytes), pattern)| Change::Fill { card, address, bytes, pattern }),
        (0..2_usize, 0..2_usize, range(), range()).prop_map(|(one, other, (from, bytes), (to, room))| {
            Change::Carry { from: (one, from), to: (other, to), bytes: bytes.min(room) }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two memories hold what two arrays hold, whatever frames they share, and so does a payload taken before.
    #[test]
    fn memories_hold_what_arrays_hold(changes in prop::collection::vec(change(), 1..30), (kept, bytes) in range()) {
        let budget = Budget::new(GIB, 2);
        let mut both = [0, 1].map(|node| CardMemory::new(MODEL, node, &budget));
        let mut models = [vec![0_u8; MODEL as usize], vec![0; MODEL as usize]];
        let of = |address: u64, bytes: u64| address as usize..(address + bytes) as usize;
        let mut payload = None;
        for (number, change) in changes.iter().enumerate() {
            match change {
                Change::Write { card, address, data } => {
                    both[*card].write(*address, data).unwrap();
                    models[*card][of(*address, data.len() as u64)].copy_from_slice(data);
                }
                Change::Fill { card, address, bytes, pattern } => {
                    both[*card].fill(*address, *bytes, *pattern).unwrap();
                    let pattern = pattern.to_le_bytes().into_iter().cycle();
                    models[*card][of(*address, *bytes)].iter_mut().zip(pattern).for_each(|(to, from)| *to = from);
                }
                Change::Carry { from, to, bytes } => {
                    carry(&mut both, *from, *to, *bytes).unwrap();
                    let data = models[from.0][of(from.1, *bytes)].to_vec();
                    models[to.0][of(to.1, *bytes)].copy_from_slice(&data);
                }
            }
            if number == changes.len() / 2 {
                payload = Some((both[0].payload(kept, bytes).unwrap(), models[0][of(kept, bytes)].to_vec()));
            }
        }
        for (memory, model) in both.iter().zip(&models) {
            prop_assert!(memory.read(0, MODEL).unwrap() == *model);
        }
        let (payload, model) = payload.unwrap();
        let mut scratch = Vec::new();
        prop_assert!(payload.view(0..bytes, &mut scratch) == model);
    }
}
