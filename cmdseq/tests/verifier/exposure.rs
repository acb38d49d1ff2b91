//! The windows of programs that name none, against sets of bytes.

use std::collections::{BTreeMap, BTreeSet};

use cmdseq::instruction::Rights;
use cmdseq::plan::{Communicator, ProgramSet};
use cmdseq::verify::{Exposure, exposure};
use cmdseq::{Instruction, Operand, Operation, Reason};
use proptest::prelude::*;

use crate::cards::connected;

const RANKS: u16 = 3;
const GROUP: [u32; 3] = [0, 1, 2];

/// Rank whose memory is reached, and what is done there.
type Kind = (usize, Rights);

/// By kind, all bytes reached. A signal without data reaches none.
type Bytes = BTreeMap<Kind, BTreeSet<u64>>;

fn instruction() -> impl Strategy<Value = (u16, Instruction)> {
    let sizes = prop::sample::select(vec![0_u64, 1, 8, 30]);
    (0..RANKS, 1..RANKS, 0..4_u8, 0..300_u64, sizes).prop_map(|(rank, next, operation, address, bytes)| {
        let (peer, here, there) = ((rank + next) % RANKS, Operand::card(0), Operand::card(address));
        let instruction = match operation {
            0 => Instruction::rdma_read(peer, there, here, bytes),
            1 => Instruction::rdma_write(peer, here, there, bytes),
            2 => Instruction::put_signal(peer, here, there, bytes, 0, 1),
            _ => Instruction::copy(here, there, bytes),
        };
        (rank, instruction)
    })
}

fn reached(instruction: &Instruction) -> Option<(Kind, std::ops::Range<u64>)> {
    let range = |address: u64| address..address + instruction.bytes;
    let peer = usize::from(instruction.peer);
    match instruction.operation {
        Operation::RdmaRead if instruction.bytes > 0 => Some(((peer, Rights::READ), range(instruction.source.address))),
        Operation::RdmaWrite if instruction.bytes > 0 => {
            Some(((peer, Rights::WRITE), range(instruction.destination.address)))
        }
        Operation::PutSignal if instruction.bytes > 0 => {
            Some(((peer, Rights::WRITE | Rights::SIGNAL), range(instruction.destination.address)))
        }
        Operation::PutSignal => Some(((peer, Rights::SIGNAL), 0..0)),
        _ => None,
    }
}

fn programs(all: &[(u16, Instruction)]) -> ProgramSet {
    let of_rank = |rank: u16| all.iter().filter(move |(own, _)| *own == rank).map(|(_, instruction)| *instruction);
    ProgramSet::new(GROUP, (0..RANKS).map(|rank| of_rank(rank).collect::<Vec<_>>()))
}

/// Gaps between the bytes of a kind.
fn gaps(bytes: &BTreeSet<u64>) -> Vec<u64> {
    let all: Vec<u64> = bytes.iter().copied().collect();
    all.windows(2).map(|two| two[1] - two[0] - 1).filter(|gap| *gap > 0).collect()
}

fn opened(exposure: &Exposure) -> Bytes {
    let mut all = Bytes::new();
    for one in &exposure.windows {
        assert_eq!(one.communicator, 0);
        all.entry((one.rank, one.rights)).or_default().extend(one.range.address..one.range.end());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// With room, exactly what is reached is opened; with less, the smallest gaps are opened too.
    #[test]
    fn exactly_what_is_reached_is_opened(all in prop::collection::vec(instruction(), 0..14), room in 0..6_usize) {
        let set = programs(&all);
        let capabilities = connected(3);
        let mut expected = Bytes::new();
        for (_, one) in &all {
            if let Some((kind, range)) = reached(one) {
                expected.entry(kind).or_default().extend(range);
            }
        }
        let exact = exposure(&set, None, &capabilities, &[100; 3]).unwrap();
        prop_assert_eq!(&opened(&exact), &expected);
        // What touches is one window.
        prop_assert_eq!(exact.windows.len(), expected.values().map(|bytes| gaps(bytes).len() + 1).sum::<usize>());

        let kinds = |rank: usize| expected.keys().filter(|kind| kind.0 == rank).count();
        let found = exposure(&set, None, &capabilities, &[room; 3]);
        let full = (0..3).find(|rank| kinds(*rank) > room);
        if let Some(full) = full {
            let refusal = found.unwrap_err();
            prop_assert_eq!((refusal.rank, refusal.reason), (Some(full as u32), Reason::Window));
            return Ok(());
        }
        let found = found.unwrap();
        for (rank, one) in GROUP.iter().enumerate() {
            prop_assert_eq!(*one as usize, rank);
            prop_assert!(found.windows.iter().filter(|one| one.rank == rank).count() <= room);
            let mut all: Vec<u64> = expected.iter().filter(|(kind, _)| kind.0 == rank).flat_map(|(_, it)| gaps(it)).collect();
            all.sort_unstable();
            let joined: u64 = all.iter().take((all.len() + kinds(rank)).saturating_sub(room)).sum();
            let size = |bytes: &Bytes| -> usize {
                bytes.iter().filter(|(kind, _)| kind.0 == rank).map(|(_, it)| it.len()).sum()
            };
            prop_assert_eq!(size(&opened(&found)), size(&expected) + joined as usize);
        }
        // Each goes through one window that has all of it.
        for exposure in [&exact, &found] {
            let mut through = exposure.through.iter();
            for (rank, program) in set.programs.iter().enumerate() {
                for (index, one) in program.instructions.iter().enumerate() {
                    let Some((kind, range)) = reached(one) else { continue };
                    let window = exposure.through.iter().find(|it| (it.0, it.1) == (rank, index)).unwrap().2;
                    let window = exposure.windows[window];
                    prop_assert_eq!((window.rank, window.rights), kind);
                    let is_inside = window.range.address <= range.start && range.end <= window.range.end();
                    prop_assert!(is_inside || range.is_empty());
                    through.next().unwrap();
                }
            }
            prop_assert_eq!(through.next(), None);
        }
    }
}

fn windows(exposure: &Exposure) -> Vec<(usize, u16, u64, u64)> {
    exposure.windows.iter().map(|one| (one.rank, one.communicator, one.range.address, one.range.bytes)).collect()
}

#[test]
fn what_cannot_be_reached_is_not_opened() {
    let capabilities = connected(3);
    let stripe = capabilities.stripe_bytes();
    let at = Operand::card;
    let communicators = [Communicator { id: 4, members: vec![2, 0] }];
    let of = |instructions: Vec<Instruction>| {
        let set = ProgramSet::new(GROUP, [instructions, vec![], vec![]]).with(communicators.clone());
        exposure(&set, None, &capabilities, &[16; 3]).unwrap()
    };
    let named = cmdseq::instruction::Window { slot: 0, key: 1 };
    for nothing in [
        Instruction::rdma_write(0, at(0), at(0), 8),
        Instruction::rdma_write(3, at(0), at(0), 8),
        Instruction::rdma_write(1, at(0), at(0), 8).on(9),
        Instruction::rdma_write(1, at(0), at(8 << 30), 8),
        Instruction::rdma_write(1, at(0), at(u64::MAX - 3), 8),
        Instruction::rdma_write(1, at(0), at(0), 8).through(named),
        Instruction::send(1, at(0), 8),
    ] {
        assert_eq!(of(vec![nothing]), Exposure::default(), "{nothing:?}");
    }
    let end = Instruction::rdma_write(1, at(0), at((8 << 30) - 8), 8);
    assert_eq!(windows(&of(vec![end])), [(1, 0, (8 << 30) - 8, 8)]);
    // By rank of the communicator, and where a stripe places it.
    let exposed = of(vec![Instruction::rdma_write(0, at(0), at(64).striped(), 8).on(4)]);
    assert_eq!(windows(&exposed), [(2, 4, 64 + stripe, 8)]);
    // Two communicators are two windows of the same bytes.
    let write = Instruction::rdma_write(2, at(0), at(64), 8);
    let exposed = of(vec![write, Instruction { peer: 0, ..write }.on(4)]);
    assert_eq!(windows(&exposed), [(2, 0, 64, 8), (2, 4, 64, 8)]);
    assert_eq!(exposed.through, [(0, 0, 0), (0, 1, 1)]);
}

/// What the driver could not open is refused before.
#[test]
fn the_verifier_counts_windows() {
    let at = Operand::card;
    let kinds = [
        Instruction::rdma_read(1, at(64), at(0), 8),
        Instruction::rdma_write(1, at(0), at(128), 8),
        Instruction::rdma_write(1, at(0), at(256), 8),
        Instruction::rdma_write(1, at(0), at(0), 0),
    ];
    let own = cmdseq::instruction::Window { slot: 0, key: 1 };
    let (open, close) = (Instruction::open(own, Rights::READ, at(0), 8), Instruction::close(own));
    let check = |windows, other: Vec<Instruction>| {
        let set = ProgramSet::new([0, 1], [kinds.to_vec(), other]);
        cmdseq::verify(&set, &cmdseq::Capabilities { windows, ..connected(2) })
    };
    check(2, vec![]).unwrap();
    check(3, vec![open, close]).unwrap();
    // A card without windows needs none.
    check(0, vec![]).unwrap();
    for (windows, other) in [(1, vec![]), (2, vec![open, close, open, close])] {
        let refusal = check(windows, other).unwrap_err();
        assert_eq!((refusal.rank, refusal.reason), (Some(1), Reason::Window), "{refusal}");
        assert!(refusal.cause.contains("need 2 windows") && refusal.cause.contains("only 1 are free"), "{refusal}");
    }
}

/// No bytes need no window; a signal needs one even without bytes.
#[test]
fn signals_need_windows_and_empty_writes_do_not() {
    let at = Operand::card;
    let own = cmdseq::instruction::Window { slot: 0, key: 1 };
    let (open, close) = (Instruction::open(own, Rights::READ, at(0), 8), Instruction::close(own));
    let capabilities = cmdseq::Capabilities { windows: 1, ..connected(2) };
    let check = |first: Instruction, second: &[Instruction]| {
        let set = ProgramSet::new([0, 1], [vec![first], [&[open, close], second].concat()]);
        cmdseq::verify(&set, &capabilities)
    };
    check(Instruction::rdma_write(1, at(0), at(64), 0), &[]).unwrap();
    check(Instruction::rdma_read(1, at(0), at(64), 0), &[]).unwrap();
    let signal = Instruction::put_signal(1, at(0), at(64), 0, 3, 1);
    let refusal = check(signal, &[Instruction::wait_signal(3, 1)]).unwrap_err();
    assert_eq!((refusal.rank, refusal.reason), (Some(1), Reason::Window), "{refusal}");
    assert!(refusal.cause.contains("need 1 windows") && refusal.cause.contains("only 0 are free"), "{refusal}");
}

#[test]
fn the_rounds_of_a_loop_share_a_window() {
    let capabilities = connected(2);
    let step = Instruction { extent: 256, extent_argument: Some(1), ..Instruction::repeat(4, 2) };
    let write = Instruction::rdma_write(1, Operand::card(0), Operand::card(0x1000).plus_argument(1), 64);
    let set = ProgramSet::new([0, 1], [vec![step, Instruction::nop(), write, write], vec![]]);
    let exposed = exposure(&set, Some(&[[0, 0x100, 0]; 2]), &capabilities, &[16; 2]).unwrap();
    // The last write is after the last round.
    assert_eq!(windows(&exposed), [(1, 0, 0x1100, 3 * 256 + 64), (1, 0, 0x1100 + 4 * 256, 64)]);
    assert_eq!(exposed.through, [(0, 2, 0), (0, 3, 1)]);
}
