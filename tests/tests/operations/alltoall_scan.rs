//! alltoall_scan on mock cards: every partial result bit for bit, its time, and what cards refuse; exscan in two steps.

use std::time::Duration;

use cmdseq::plan::{Algorithm, Collective, Communicator, ProgramSet, Request, plan, predict};
use cmdseq::{Combine, Flags, Instruction, Operand, Status, verify};
use fpga_driver::{Cluster, Error, Execution, Report};
use fpga_mock::Profile;
use fpga_tests::reduction::{combinations, element_bytes, fold, input};
use fpga_tests::run::{self, open};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const MIB: u64 = 1 << 20;
/// K of up to 16 cards.
const HALF: u64 = 256 * MIB;
/// Blocks in the lower halves of stripes, in the upper halves, and one after another behind 8 stripes.
const LOWER: Operand = Operand::card(0).striped();
const UPPER: Operand = Operand::card(HALF).striped();
const BEHIND: Operand = Operand::card(16 * HALF);

fn how(reduction: &str, element: &str) -> Combine {
    Combine::new(reduction.parse().unwrap(), element.parse().unwrap())
}

/// An alltoall_scan of blocks of `bytes`.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    reduction: &'a str,
    element: &'a str,
    bytes: u64,
    source: Operand,
    destination: Operand,
    flags: Flags,
}

impl Case<'_> {
    fn instruction(&self) -> Instruction {
        let Case { reduction, element, bytes, source, destination, flags } = *self;
        Instruction::alltoall_scan(how(reduction, element), source, destination, bytes).with_flags(flags)
    }

    /// This instruction alone, for each rank of `group`.
    fn set(&self, cluster: &Cluster, group: &[u32]) -> ProgramSet {
        let all = Communicator { id: 1, members: group.to_vec() };
        let set = ProgramSet::new(group, vec![vec![self.instruction().on(all.id)]; group.len()]).with([all]);
        verify(&set, cluster.capabilities()).unwrap();
        set
    }

    fn at(&self, operand: Operand, number: usize) -> u64 {
        let is_striped = operand == operand.striped();
        operand.address + number as u64 * if is_striped { 2 * HALF } else { self.bytes }
    }

    /// Runs it on data of `seed`, and compares the results with the oracle's.
    fn check(&self, cluster: &mut Cluster, group: &[u32], seed: u64) -> Result<Report, String> {
        let ranks = group.len();
        let bytes = self.bytes as usize;
        let inputs: Vec<Vec<u8>> =
            (0..ranks as u32).map(|rank| input(seed, rank, self.element, self.bytes * ranks as u64)).collect();
        for (node, input) in group.iter().zip(&inputs) {
            let card = cluster.card_mut(*node as usize);
            for number in 0..ranks {
                card.write_memory(self.at(self.source, number), &input[number * bytes..][..bytes]).unwrap();
            }
        }
        let report =
            cluster.execute(&self.set(cluster, group), &Execution::default()).map_err(|error| error.to_string())?;
        for (rank, node) in group.iter().enumerate() {
            let blocks: Vec<&[u8]> = inputs.iter().map(|input| &input[rank * bytes..][..bytes]).collect();
            for last in 0..ranks {
                let mut found = vec![0; bytes];
                cluster.card_mut(*node as usize).read_memory(self.at(self.destination, last), &mut found).unwrap();
                if found != fold(self.reduction, self.element, &blocks[..=last]) {
                    return Err(format!("rank {rank}, the fold up to rank {last}: {self:?}"));
                }
            }
        }
        Ok(report)
    }
}

#[test]
fn every_partial_result_of_every_type_and_reduction() {
    let (_fabric, mut cluster) = open(Profile::optweb(5));
    let group: Vec<u32> = (0..5).collect();
    for (number, (reduction, element)) in combinations().into_iter().enumerate() {
        for (place, flags) in [Flags::EAGER, Flags::RENDEZVOUS].into_iter().enumerate() {
            let bytes = [1, 77, 999][(number + place) % 3] * element_bytes(element) as u64;
            let (source, destination) = [(LOWER, UPPER), (BEHIND, LOWER)][number % 2];
            let case = Case { reduction, element, bytes, source, destination, flags };
            case.check(&mut cluster, &group, number as u64).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

/// 2048 + 1 is between two f16 and rounds to 2048, but 2048 + 1 + 1 is 2050.
#[test]
fn partial_results_of_f16_are_rounded_once_each() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let case =
        Case { reduction: "sum", element: "f16", bytes: 2, source: BEHIND, destination: LOWER, flags: Flags::empty() };
    // 2048, 1, 1 and 1.
    for (node, half) in [0x6800_u16, 0x3c00, 0x3c00, 0x3c00].into_iter().enumerate() {
        (0..4).for_each(|number| {
            cluster.card_mut(node).write_memory(case.at(BEHIND, number), &half.to_le_bytes()).unwrap();
        });
    }
    let set = case.set(&cluster, &[0, 1, 2, 3]);
    cluster.execute(&set, &Execution::default()).unwrap();
    for node in 0..4 {
        // The third is 2050; 2051 is between 2050 and 2052, of which the last is even.
        for (stage, expected) in [0x6800_u16, 0x6800, 0x6801, 0x6802].into_iter().enumerate() {
            let mut found = [0; 2];
            cluster.card_mut(node).read_memory(case.at(LOWER, stage), &mut found).unwrap();
            assert_eq!(u16::from_le_bytes(found), expected, "node {node}, up to rank {stage}");
        }
    }
}

#[test]
fn any_blocks_of_any_group_are_folded_and_predicted() {
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let (_fabric, cluster) = open(Profile::optweb(8));
    let cluster = std::cell::RefCell::new(cluster);
    let strategy = (
        Just((0..8).collect::<Vec<u32>>()).prop_shuffle(),
        1_usize..9,
        prop::sample::select(combinations()),
        prop_oneof![1_u64..200, 200_u64..5000],
        prop::sample::select(vec![Flags::EAGER, Flags::RENDEZVOUS, Flags::empty()]),
        prop::sample::select(vec![(LOWER, UPPER), (UPPER, LOWER), (BEHIND, UPPER), (LOWER, BEHIND)]),
        any::<u64>(),
    );
    runner
        .run(&strategy, |(mut group, ranks, (reduction, element), elements, flags, (source, destination), seed)| {
            group.truncate(ranks);
            let cluster = &mut cluster.borrow_mut();
            let bytes = elements * element_bytes(element) as u64;
            let is_long = bytes > cluster.capabilities().eager_bytes && flags == Flags::EAGER;
            let flags = if is_long { Flags::RENDEZVOUS } else { flags };
            let case = Case { reduction, element, bytes, source, destination, flags };
            let report = case.check(cluster, &group, seed).map_err(TestCaseError::fail)?;
            let predicted = predict(&case.set(cluster, &group), cluster.capabilities()).unwrap();
            // Cards count whole cycles.
            let simulated = report.arrival_cycles * 5000;
            let difference = predicted.arrival_ps.abs_diff(simulated);
            prop_assert!(difference < 5000, "{:?}: {:?} and {} ps", case, predicted, simulated);
            Ok(())
        })
        .unwrap();
}

/// As long as an alltoall, and the cycles of the units once.
#[test]
fn the_last_result_follows_the_last_contribution_by_the_units_of_the_chain() {
    for limit in [None, Some(0)] {
        for (nodes, bytes) in [(4, 64), (8, 64), (8, MIB)] {
            let (_fabric, mut cluster) = open(Profile::optweb(nodes));
            let group: Vec<u32> = (0..nodes).collect();
            let exchanged = run::run(&mut cluster, "alltoall", bytes, None, limit).arrival_cycles;
            let flags = if limit.is_some() { Flags::RENDEZVOUS } else { Flags::empty() };
            let (source, destination) = (LOWER, UPPER);
            let case = Case { reduction: "sum", element: "f32", bytes, source, destination, flags };
            let folded = case.check(&mut cluster, &group, 1).unwrap().arrival_cycles;
            assert_eq!(folded, exchanged + 8 * (u64::from(nodes) - 1), "{bytes} B on {nodes} cards");
        }
    }
}

/// Results in one pseudo channel share it, as the blocks of an alltoall do: seven contributions and the own one.
#[test]
fn results_in_one_channel_share_it() {
    let (_fabric, mut cluster) = open(Profile::optweb(8));
    let group: Vec<u32> = (0..8).collect();
    let (source, flags, bytes) = (LOWER, Flags::empty(), MIB);
    let case = Case { reduction: "sum", element: "f32", bytes, source, destination: BEHIND, flags };
    let report = case.check(&mut cluster, &group, 1).unwrap();
    let us = report.microseconds(report.arrival_cycles);
    let expected = 8.0 * bytes as f64 * 8.0 / 51_200.0;
    assert!(us > expected && us < expected + 2.0, "{us} us, {expected} us in the channel");
}

/// Rank 0 of an exscan keeps what is where the others have their results.
#[test]
fn rank_0_of_an_exscan_keeps_its_memory() {
    for (nodes, bytes) in [(3, 100), (8, 200_000)] {
        let (_fabric, mut cluster) = open(Profile::optweb(nodes));
        let group: Vec<u32> = (0..nodes).collect();
        let request = Request {
            combine: Some(how("sum", "f32")),
            algorithm: Some(Algorithm::Multipath),
            ..Request::new(Collective::Exscan, group, bytes)
        };
        let plan = plan(&request, cluster.capabilities()).unwrap();
        assert!(plan.set.programs[0].output.is_empty());
        for rank in 0..nodes {
            cluster.write_input(&plan.set, rank, 0, &input(5, rank, "f32", bytes)).unwrap();
        }
        let places = plan.set.programs[1].output.clone();
        let mark = |bytes: u64| vec![0x5a; bytes as usize];
        for place in &places {
            cluster.card_mut(0).write_memory(place.address, &mark(place.bytes)).unwrap();
        }
        cluster.execute(&plan.set, &Execution::default()).unwrap();
        for place in &places {
            let mut found = vec![0; place.bytes as usize];
            cluster.card_mut(0).read_memory(place.address, &mut found).unwrap();
            assert!(found == mark(place.bytes), "rank 0 wrote {place:?}");
        }
    }
}

#[test]
fn cards_refuse_results_that_overlap_contributions_or_exceed_memory() {
    let (_fabric, mut cluster) = open(Profile::optweb(4));
    let sum = how("sum", "f32");
    let at = Operand::card;
    for (wrong, status) in [
        (Instruction::alltoall_scan(sum, at(0), at(0), 64), Status::Overlap),
        (Instruction::alltoall_scan(sum, at(0), at(255), 64), Status::Overlap),
        // Nothing but the own result is where the own contribution is.
        (Instruction::alltoall_scan(sum, at(4096).striped(), at(4096), 64), Status::Overlap),
        (Instruction::alltoall_scan(sum, at(0).striped(), at(4096), HALF + 4), Status::OutOfRange),
        (Instruction::alltoall_scan(sum, at(0), at((8 << 30) - 128), 64), Status::OutOfRange),
        (Instruction::alltoall_scan(sum, at(0), at(4096), 63), Status::BadField),
        (Instruction { extent: 64, ..Instruction::alltoall_scan(sum, at(0), at(4096), 64) }, Status::BadField),
        (Instruction { root: 1, ..Instruction::alltoall_scan(sum, at(0), at(4096), 64) }, Status::BadField),
    ] {
        match cluster.card_mut(0).run(std::slice::from_ref(&wrong), Duration::from_secs(10)) {
            Err(Error::Failed { status: found, .. }) => assert_eq!(found, status, "{wrong:?}"),
            other => panic!("{wrong:?}: {other:?}"),
        }
    }
}
