//! Random exchanges in several lanes: the cycle of each issue, and the data.

use cmdseq::plan::Communicator;
use cmdseq::{Combine, Element, Flags, Instruction, Operand, Reduction};
use fpga_mock::Profile;
use fpga_tests::pattern;
use fpga_tests::run::open;
use fpga_tests::sweep::is_full;
use proptest::prelude::*;

use super::{BYTES, Cycles, K, MIB, cycles, run, with_lanes};

/// An exchange of some cards of a fully connected fabric.
#[derive(Debug, Clone)]
struct Exchange {
    lane: u8,
    is_fenced: bool,
    what: What,
    bytes: u64,
}

#[derive(Debug, Clone)]
enum What {
    /// Both send to each other.
    Swap(u16, u16),
    /// The first sends to the second.
    Send(u16, u16),
    /// An allgather on one of the communicators.
    Gather(u16),
    /// A barrier on one of the communicators.
    Barrier(u16),
    /// All cards wait, without an exchange.
    Delay(u64),
    /// All cards fold the same bytes with themselves to their maximum: the same bytes.
    Fold,
}

const RANKS: u16 = 6;
const LANES: u32 = 3;

/// The communicators of the cards, by id.
fn members(id: u16) -> Vec<u32> {
    match id {
        0 => (0..u32::from(RANKS)).collect(),
        1 => vec![0, 1, 2],
        2 => vec![3, 4, 5],
        3 => vec![1, 4],
        _ => vec![5, 2, 0],
    }
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let what = prop_oneof![
        4 => (0..RANKS, 1..RANKS).prop_map(|(one, step)| What::Swap(one, (one + step) % RANKS)),
        4 => (0..RANKS, 1..RANKS).prop_map(|(one, step)| What::Send(one, (one + step) % RANKS)),
        3 => (0_u16..5).prop_map(What::Gather),
        1 => (0_u16..5).prop_map(What::Barrier),
        1 => (0_u64..5000).prop_map(What::Delay),
        2 => Just(What::Fold),
    ];
    let bytes = prop_oneof![Just(0_u64), Just(64), 1_u64..20_000, Just(BYTES)];
    (0..LANES as u8, prop::bool::weighted(0.1), what, bytes).prop_map(|(lane, is_fenced, what, bytes)| Exchange {
        lane,
        is_fenced,
        what,
        bytes,
    })
}

/// The instruction of exchange `number` for a card: each writes a place of its own.
fn instruction(number: usize, exchange: &Exchange, node: u16) -> Option<Instruction> {
    let (from, to) = (Operand::card(u64::from(exchange.lane) * MIB), Operand::card(K + number as u64 * MIB));
    let one = match exchange.what {
        What::Swap(one, other) if node == one || node == other => {
            Instruction::sendrecv(one + other - node, one + other - node, from, to, exchange.bytes)
        }
        What::Send(from_node, to_node) if node == from_node => Instruction::send(to_node, from, exchange.bytes),
        What::Send(from_node, to_node) if node == to_node => Instruction::recv(from_node, to, exchange.bytes),
        What::Barrier(id) if members(id).contains(&node.into()) => Instruction::barrier().on(id),
        What::Gather(id) if members(id).contains(&node.into()) => {
            Instruction::allgather(from, to, exchange.bytes).on(id)
        }
        What::Delay(cycles) => return Some(Instruction::delay(cycles)),
        What::Fold => Instruction::fold(Combine::new(Reduction::Max, Element::U8), from, from, to, exchange.bytes),
        _ => return None,
    };
    Some(one.in_lane(exchange.lane).with_flags(if exchange.is_fenced { Flags::FENCE } else { Flags::empty() }))
}

/// The cards to which `node` sends, and from which it receives.
fn peers(exchange: &Exchange, node: u16) -> [Vec<u32>; 2] {
    match exchange.what {
        _ if exchange.bytes == 0 => [vec![], vec![]],
        What::Swap(one, other) => [vec![(one + other - node).into()], vec![(one + other - node).into()]],
        What::Send(from, to) if node == from => [vec![to.into()], vec![]],
        What::Send(from, _) => [vec![], vec![from.into()]],
        What::Gather(id) => {
            let others: Vec<u32> = members(id).into_iter().filter(|member| *member != u32::from(node)).collect();
            [others.clone(), others]
        }
        What::Barrier(_) | What::Delay(_) | What::Fold => [vec![], vec![]],
    }
}

/// Whether an instruction of `node` waits for an earlier one.
fn waits(later: &Exchange, earlier: &Exchange, node: u16) -> bool {
    let is_alone = |exchange: &Exchange| matches!(exchange.what, What::Delay(_));
    let mut directions = peers(later, node).into_iter().zip(peers(earlier, node));
    later.is_fenced
        || is_alone(later)
        || is_alone(earlier)
        || later.lane == earlier.lane
        || directions.any(|(later, earlier)| later.iter().any(|peer| earlier.contains(peer)))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if is_full() { 2000 } else { 60 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Exchanges in one order on all cards: each is issued in the cycle that the rule says, and moves what it should.
    #[test]
    fn any_exchanges_are_issued_by_the_rule(exchanges in prop::collection::vec(exchange(), 2..24)) {
        let (_fabric, mut cluster) = open(with_lanes(LANES, Profile::optweb(RANKS.into())));
        let Cycles { dispatch, handover } = cycles(&cluster);
        for id in 1..5 {
            cluster.define(&Communicator { id, members: members(id) }).unwrap();
        }
        let mut data = vec![0; LANES as usize * MIB as usize];
        for node in 0..u32::from(RANKS) {
            pattern::fill(1, node, 0, &mut data);
            cluster.card_mut(node as usize).write_memory(0, &data).unwrap();
        }
        let of = |node: u16| {
            let one = |(number, one): (usize, &Exchange)| Some((number, instruction(number, one, node)?));
            exchanges.iter().enumerate().filter_map(one).collect::<Vec<_>>()
        };
        let programs: Vec<Vec<Instruction>> =
            (0..RANKS).map(|node| of(node).into_iter().map(|(_, instruction)| instruction).collect()).collect();
        let completions = run(&mut cluster, &programs);
        for (node, completions) in (0..RANKS).zip(completions) {
            let program: Vec<_> = of(node).into_iter().map(|(number, _)| &exchanges[number]).zip(completions).collect();
            for (place, (exchange, completion)) in program.iter().enumerate().skip(1) {
                let earlier = program[..place].iter().filter(|(earlier, _)| waits(exchange, earlier, node));
                let ends = earlier.map(|(_, one)| one.issued + one.t2 + handover);
                let due = ends.fold(program[place - 1].1.issued + dispatch, u64::max);
                // An end within a cycle counts as the next cycle, and t2 says the cycle before.
                prop_assert!(
                    (due..=due + 1).contains(&completion.issued),
                    "node {}, exchange {}: issued {} and not {}", node, place, completion.issued, due
                );
            }
            for (number, _) in of(node) {
                let Exchange { lane, bytes, ref what, .. } = exchanges[number];
                let from = match what {
                    What::Gather(id) => members(*id),
                    What::Fold => vec![node.into()],
                    _ => peers(&exchanges[number], node)[1].clone(),
                };
                for (block, from) in (0..).zip(from) {
                    let mut found = vec![0; bytes as usize];
                    let address = K + number as u64 * MIB + block * bytes;
                    cluster.card_mut(node.into()).read_memory(address, &mut found).unwrap();
                    prop_assert_eq!(pattern::first_difference(1, from, u64::from(lane) * MIB, &found), None);
                }
            }
        }
    }
}
