//! Steps of one shape take as long, and those that share nothing take as long together as one by one.

use proptest::prelude::*;

use super::*;
use crate::capability::Timing;
use crate::program::Program;
use crate::table::{Entry, Table};
use crate::verify::sample::{card, members, programs};
use crate::{Combine, Element, Instruction, Operand, Reduction, Tables};

const RANKS: u32 = 4;
/// Pseudo channels, and bytes of each.
const CHANNELS: u64 = 8;
const CHANNEL: u64 = 512;
/// Number of the step with two tables.
const ALLTOALLV: usize = 14;

/// Source, destination and own contribution of a rank.
type Places = [u64; 3];
/// Displacements of the blocks in two tables, by rank.
type Lists = [Vec<u64>; 2];

fn cards() -> Capabilities {
    let timing = Timing {
        dispatch_cycles: 7,
        memory_read_cycles: 54,
        handover_cycles: 12,
        switch_cycles: 10,
        control_ps: 360,
        data_ps: 390,
        acknowledge_ps: 391,
        hop_ps: 0,
        link_mbps: 450,
        channel_mbps: 512,
        host_mbps: 1000,
        beat_bytes: 4,
        reduce_beat_cycles: 1,
        reduce_unit_cycles: 8,
    };
    Capabilities { clock_khz: 200_000, memory_channels: CHANNELS as u32, timing, ..card(RANKS) }
}

/// One instruction of each rank, which run together. The last four have tables.
fn step(
    number: usize,
    root: u16,
    bytes: u64,
    are_striped: [bool; 2],
    places: &[Places],
    lists: &Lists,
) -> Vec<Program> {
    let of_rank = |rank: u16| if number == ALLTOALLV { bytes } else { bytes * (1 + u64::from(rank)) / 2 };
    let entry = |(rank, displacement): (u16, &u64)| Entry { displacement: *displacement, bytes: of_rank(rank) };
    let table = |list: &Vec<u64>| Table { entries: (0..).zip(list).map(entry).collect() };
    let tables: Tables = (0..).zip(lists.iter().map(table)).collect();
    let sum = Combine::new(Reduction::Sum, Element::U8);
    let each = |(rank, [source, destination, own]): (u16, &Places)| {
        let (next, last) = ((rank + 1) % RANKS as u16, (rank + RANKS as u16 - 1) % RANKS as u16);
        let at = |address: u64, is_striped: bool| match is_striped {
            true => Operand::card(address).striped(),
            false => Operand::card(address),
        };
        let (a, b) = (at(*source, are_striped[0]), at(*destination, are_striped[1]));
        match number {
            0 => Instruction::scatter(root, a, b, bytes),
            1 => Instruction::gather(root, a, b, bytes),
            2 => Instruction::broadcast(root, a, b, bytes),
            3 => Instruction::alltoall(a, b, bytes),
            4 => Instruction::allgather(a, b, bytes),
            5 => Instruction::allgather(a, b, bytes).dividing(bytes * 3 / 2),
            6 => Instruction::reduce(sum, root, a, b, bytes),
            7 => Instruction::allreduce(sum, a, b, bytes),
            8 => Instruction::reduce_scatter(sum, a, b, bytes),
            9 => Instruction::scan(sum, a, b, bytes),
            10 => Instruction::alltoall_scan(sum, a, b, bytes),
            11 => Instruction::sendrecv(rank, rank, a, b, bytes),
            12 => Instruction::sendrecv_reduce(sum, (next, last), a, Operand::card(*own), b, bytes),
            ALLTOALLV => Instruction::alltoallv(Operand::card(*source), Operand::card(*destination), 0, 1),
            15 => Instruction::allgatherv(a, Operand::card(*destination), of_rank(rank), 1),
            16 => Instruction::gatherv(root, a, Operand::card(*destination), of_rank(rank), 1),
            17 => Instruction::scatterv(root, Operand::card(*source), b, of_rank(rank), 0),
            _ => Instruction::sendrecv(next, last, a, b, bytes),
        }
    };
    programs((0..).zip(places).map(|one| (vec![each(one)], tables.clone())))
}

/// Addresses of each rank in the first four channels, and others in the same channels.
fn any_places() -> impl Strategy<Value = [Vec<Places>; 2]> {
    let address = || {
        (0..CHANNELS / 2, 0..3_u64, 0..3_u64)
            .prop_map(|(channel, one, other)| [one, other].map(|it| channel * CHANNEL + it * 64))
    };
    let places =
        (address(), address(), address()).prop_map(|(a, b, c)| [0, 1].map(|side: usize| [a[side], b[side], c[side]]));
    prop::collection::vec(places, RANKS as usize)
        .prop_map(|all| [0, 1].map(|side: usize| all.iter().map(|places| places[side]).collect()))
}

/// Blocks in the first four channels, some of which reach the next one from some places.
fn any_lists() -> impl Strategy<Value = Lists> {
    let list = || {
        let displacement = (0..CHANNELS / 2, 0..7_u64).prop_map(|(channel, at)| channel * CHANNEL + at * 64);
        prop::collection::vec(displacement, RANKS as usize)
    };
    [list(), list()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn steps_of_one_shape_take_as_long(
        number in 0..18_usize,
        root in 0..RANKS as u16,
        bytes in 0..150_u64,
        are_striped in any::<[bool; 2]>(),
        places in any_places(),
        lists in any_lists(),
    ) {
        let (capabilities, model) = (cards(), CostModel::stated(&cards()));
        let clock = Clock { capabilities: &capabilities, model: &model };
        let members = members(&capabilities, &[]);
        let found = places.map(|places| {
            let programs = step(number, root, bytes, are_striped, &places, &lists);
            let mut ends = Vec::new();
            let job = Job { programs: &programs, members: &members, capabilities: &capabilities };
            each_step(job, &model, |rank, times| {
                ends.push((rank, times.t1, times.t2, times.arrival));
            }).unwrap();
            let mut matching = Matching::new(job);
            let mut alike = Alike::new(job, &clock);
            let mut shapes = Vec::new();
            while let Some(together) = matching.step().unwrap() {
                shapes.push(alike.shape(&together, &vec![Moment::default(); together.len()]));
            }
            (shapes, ends)
        });
        let [one, other] = &found;
        prop_assert!(one.0.iter().all(Option::is_some));
        // What is exchanged with one other card is never in place.
        if number == 13 && are_striped == [false; 2] {
            prop_assert!(one.0 == other.0);
        }
        if one.0 == other.0 {
            prop_assert_eq!(&one.1, &other.1);
        }
    }

    #[test]
    fn steps_that_share_nothing_take_as_long_together(
        steps in prop::collection::vec((0..14_usize, 0..RANKS as u16, 0..300_u64, any::<[bool; 2]>(), any_places()), 1..4),
        delays in prop::collection::vec(0..60_u64, RANKS as usize),
        eager_limit in prop::sample::select(&[0, 100, 10_000][..]),
    ) {
        let capabilities = Capabilities { eager_limit, ..cards() };
        let model = CostModel::stated(&capabilities);
        let clock = Clock { capabilities: &capabilities, model: &model };
        let members = members(&capabilities, &[]);
        let delay = |cycles: &u64| vec![Instruction::delay(*cycles)];
        let mut all: Vec<Vec<Instruction>> = delays.iter().map(delay).collect();
        for (number, root, bytes, are_striped, [places, _]) in steps {
            for (all, one) in all.iter_mut().zip(step(number, root, bytes, are_striped, &places, &Lists::default())) {
                all.extend(one.instructions);
            }
        }
        let programs = programs(all.into_iter().map(|instructions| (instructions, Tables::new())));
        let job = Job { programs: &programs, members: &members, capabilities: &capabilities };
        let mut ends = [Vec::new(), Vec::new()];
        let [one_by_one, together] = &mut ends;
        let note = |ends: &mut Vec<_>, rank: usize, times: &Times| {
            ends.push((rank, times.t2.ps, times.t1.ps, times.arrival.map(|arrival| arrival.ps)));
        };
        each_step(job, &model, |rank, times| note(one_by_one, rank, times)).unwrap();
        together::each_step(job, &clock, |rank, times| note(together, rank, times)).unwrap();
        ends.iter_mut().for_each(|ends| ends.sort_unstable());
        prop_assert_eq!(&ends[0], &ends[1]);
    }
}
