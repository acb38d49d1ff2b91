//! Any request to any windows, against a model typed by hand from `docs/isa.md`.

use cmdseq::instruction::{Rights, Window};
use cmdseq::plan::Communicator;
use cmdseq::{Instruction, Status};
use fpga_driver::Cluster;
use fpga_mock::Profile;
use fpga_tests::dice::{Dice, seed};
use fpga_tests::run;
use fpga_tests::sweep::is_full;

use super::*;

const NODES: u32 = 4;
/// The card with the windows. Communicator 1 is the cards 1 and 3.
const TARGET: u32 = 3;
const PAIR: [u32; 2] = [1, TARGET];

/// An open window.
#[derive(Debug, Clone, Copy)]
struct Opened {
    key: u32,
    rights: u16,
    is_for_pair: bool,
    address: u64,
    bytes: u64,
}

/// What a card asks for: 1 reads, 2 writes, 4 adds to a signal.
#[derive(Debug, Clone, Copy)]
struct Asked {
    from: u32,
    window: Option<Window>,
    rights: u16,
    address: u64,
    bytes: u64,
}

fn is_allowed(opened: &[Option<Opened>], asked: &Asked) -> bool {
    let Some(window) = asked.window else { return false };
    let Some(open) = opened.get(usize::from(window.slot)).copied().flatten() else { return false };
    let (first, end) = (u128::from(open.address), u128::from(open.address) + u128::from(open.bytes));
    let (from, to) = (u128::from(asked.address), u128::from(asked.address) + u128::from(asked.bytes));
    open.key == window.key
        && asked.rights & !open.rights == 0
        && (!open.is_for_pair || PAIR.contains(&asked.from))
        && (asked.bytes == 0 || (from >= first && to <= end))
}

fn instruction(asked: &Asked) -> Instruction {
    let peer = TARGET as u16;
    let instruction = match asked.rights {
        1 => Instruction::rdma_read(peer, card(asked.address), card(AT), asked.bytes),
        2 => Instruction::rdma_write(peer, card(AT), card(asked.address), asked.bytes),
        _ => Instruction::put_signal(peer, card(AT), card(asked.address), asked.bytes, 9, 1),
    };
    asked.window.map_or(instruction, |window| instruction.through(window))
}

fn draw(dice: &mut Dice, opened: &[Option<Opened>]) -> Asked {
    let slot = dice.below(5) as u16;
    let known = opened.get(usize::from(slot)).copied().flatten();
    let near = |dice: &mut Dice, at: u64| at.wrapping_add(dice.below(4)).wrapping_sub(1);
    let (address, end) = known.map_or((AT, AT + 64), |open| (open.address, open.address + open.bytes));
    let from = near(dice, address);
    let bytes = if dice.one_in(4) { 0 } else { near(dice, end).saturating_sub(from).max(1) };
    let key = if dice.one_in(5) { 1 + dice.below(3) as u32 } else { known.map_or(1, |open| open.key) };
    let kind = dice.of(&[1, 2, 4]);
    Asked {
        from: dice.of(&[0, 1, 2]),
        window: (!dice.one_in(8)).then_some(Window { slot, key }),
        rights: if kind == 4 && bytes > 0 { 6 } else { kind },
        address: if dice.one_in(10) { dice.below(1 << 20) } else { from },
        bytes: bytes.min(1024),
    }
}

/// Opens or closes a window, by the driver's card and by the model.
fn change(dice: &mut Dice, cluster: &mut Cluster, opened: &mut [Option<Opened>]) {
    let slot = dice.below(4) as u16;
    let target = cluster.card_mut(TARGET as usize);
    if let Some(open) = opened[usize::from(slot)].take() {
        return done(target, Instruction::close(Window { slot, key: open.key }));
    }
    let open = Opened {
        key: 1 + dice.below(3) as u32,
        rights: 1 + dice.below(7) as u16,
        is_for_pair: dice.one_in(2),
        address: AT + dice.below(4) * 60,
        bytes: dice.of(&[0, 1, 60, 64, 300]),
    };
    let (window, rights) = (Window { slot, key: open.key }, Rights::from_bits(open.rights).unwrap());
    let instruction = Instruction::open(window, rights, card(open.address), open.bytes);
    done(target, instruction.on(u16::from(open.is_for_pair)));
    opened[usize::from(slot)] = Some(open);
}

#[test]
fn a_request_is_served_exactly_if_the_model_allows_it() {
    let (_fabric, mut cluster) = run::open(Profile { windows: 4, ..Profile::optweb(NODES) });
    cluster.define(&Communicator { id: 1, members: PAIR.to_vec() }).unwrap();
    let mut dice = Dice(seed());
    let mut opened = [None; 4];
    let (mut allowed, mut refused, mut signals) = (0, 0, 0);
    for round in 0..if is_full() { 20_000 } else { 500 } {
        if dice.one_in(4) {
            change(&mut dice, &mut cluster, &mut opened);
        }
        let asked = draw(&mut dice, &opened);
        let from = asked.from as usize;
        fill(cluster.card_mut(from), round as u8);
        fill(cluster.card_mut(TARGET as usize), !round as u8);
        let mut expected = [from, TARGET as usize].map(|node| memory(cluster.card_mut(node)));
        // Without bytes nothing is asked of anyone, but for a signal.
        let is_idle = asked.bytes == 0 && asked.rights != 4;
        let found = status(cluster.card_mut(from), instruction(&asked));
        let is_served = is_idle || is_allowed(&opened, &asked);
        let named = if is_served { (Status::Done, 0) } else { (Status::BadWindow, TARGET as u16) };
        assert_eq!(found, named, "round {round}: {asked:?} of {opened:?}");
        if is_served {
            // The reader has it at AT; the writer has it from AT.
            let (side, at) = if asked.rights == 1 { (0, AT) } else { (1, asked.address) };
            let other = expected[1 - side][0];
            if asked.bytes > 0 {
                let first = (at - (AT - 1024)) as usize;
                expected[side][first..first + asked.bytes as usize].fill(other);
            }
            allowed += 1;
        } else {
            refused += 1;
        }
        signals += u32::from(is_served && asked.rights & 4 != 0);
        assert_eq!(
            [from, TARGET as usize].map(|node| memory(cluster.card_mut(node))),
            expected,
            "round {round}: {asked:?}"
        );
    }
    assert!(allowed * 10 > refused && refused * 10 > allowed, "{allowed} served, {refused} refused");
    assert_eq!(take_signal(cluster.card_mut(TARGET as usize), 9), signals);
}
