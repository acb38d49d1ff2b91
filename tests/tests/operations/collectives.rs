//! Every operation on every number of ranks and size, over rings, DMA and registers of mock cards, checked bit for bit
//! against an oracle independent of planner and mock.
//!
//! The named subset always runs; `FPGA_TESTS_FULL=1` runs all cases (`tests/run --full`).

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::groups::{fabrics, groups};
use cmdseq::plan::{Algorithm, Collective, Plan, Request, candidates, plan};
use fpga_mock::Profile;
use fpga_tests::oracle::{Case, Moving, OPERATIONS};
use fpga_tests::run::open;
use fpga_tests::sweep::{Sweep, is_full, run};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const MIB: u64 = 1 << 20;

fn request(case: &Case<'_>, group: Vec<u32>, algorithm: Option<Algorithm>) -> Request {
    let collective: Collective = case.operation.parse().unwrap();
    Request { root: case.root, peer: case.peer, algorithm, ..Request::new(collective, group, case.bytes) }
}

fn check(sweep: &mut Sweep, case: Case<'_>, group: Vec<u32>, algorithm: Option<Algorithm>) {
    sweep.check(&request(&case, group, algorithm), |seed| Moving { case, seed });
}

/// Runs every algorithm that there is for the case, and gives their names.
fn check_all(sweep: &mut Sweep, case: Case<'_>, group: Vec<u32>) -> BTreeSet<&'static str> {
    let all = candidates(&request(&case, group, None), sweep.cluster.capabilities());
    let plans = all.into_iter().filter_map(|(algorithm, plan)| Some((algorithm, plan.ok()?)));
    plans
        .map(|(algorithm, plan)| {
            sweep.check_plan(&plan, |seed| Moving { case, seed });
            algorithm.name()
        })
        .collect()
}

fn sizes(full: bool) -> Vec<u64> {
    if full { vec![0, 1, 63, 64, 4095, 16384, 16385, 65568, MIB + 3] } else { vec![0, 1, 63, 4095, 16384, 16385] }
}

/// All roots in the full form; on many ranks for short blocks only.
fn roots(ranks: u32, bytes: u64, full: bool) -> Vec<u32> {
    match full {
        true if ranks <= 17 || bytes == 4095 => (0..ranks).collect(),
        _ => vec![0, ranks / 2, ranks - 1],
    }
}

fn takes_root(operation: &str) -> bool {
    ["send", "recv", "scatter", "gather", "broadcast"].contains(&operation)
}

#[test]
fn every_operation_on_every_number_of_ranks() {
    let full = is_full();
    let ranks: Vec<u32> = if full { (2..=17).chain([32, 64]).collect() } else { vec![2, 3, 4, 7, 16] };
    let mut cases = 0;
    let mut used = BTreeSet::new();
    for ranks in ranks {
        let mut sweep = Sweep::new(&format!("mock:optweb:{ranks}"));
        let group: Vec<u32> = (0..ranks).collect();
        for operation in OPERATIONS {
            for bytes in sizes(full) {
                for root in if takes_root(operation) { roots(ranks, bytes, full) } else { vec![0] } {
                    let case = Case { operation, ranks, bytes, root, peer: (root + 1) % ranks };
                    used.extend(check_all(&mut sweep, case, group.clone()).into_iter().map(|way| (operation, way)));
                }
            }
        }
        cases += sweep.cases;
    }
    println!("{cases} cases");
    assert!(cases > 300);
    // What has rounds is forced on each of these; what moves by one instruction, by direct.
    for (operation, ways) in [
        ("barrier", &["binomial", "direct"][..]),
        ("broadcast", &["binomial", "direct", "multipath", "ring"]),
        ("allgather", &["direct", "ring"]),
        ("scatter", &["binomial", "direct"]),
        ("gather", &["binomial", "direct"]),
        ("send", &["direct", "multipath"]),
        ("alltoall", &["direct"]),
    ] {
        let found: Vec<&str> = used.iter().filter(|one| one.0 == operation).map(|one| one.1).collect();
        assert_eq!(found, ways, "{operation}");
    }
}

/// Any operation with any root on a communicator of any cards that was split from the world, by any algorithm.
#[test]
fn any_case_is_as_the_oracle_says() {
    let config = Config { cases: if is_full() { 10_000 } else { 250 }, failure_persistence: None, ..Config::default() };
    let all = RefCell::new(fabrics());
    let bytes = prop_oneof![Just(0_u64), 1_u64..200, 16_000_u64..17_000, 1_u64..70_000];
    let strategy = (
        groups(),
        prop::sample::select(&OPERATIONS[..]),
        bytes,
        any::<(u32, u32)>(),
        prop::option::of(0_u64..16_385),
        any::<prop::sample::Index>(),
    );
    TestRunner::new(config)
        .run(&strategy, |((fabric, group), operation, bytes, (root, peer), limit, way)| {
            let sweep = &mut all.borrow_mut()[fabric];
            let ranks = group.len() as u32;
            let root = root % ranks;
            let case = Case { operation, ranks, bytes, root, peer: (root + 1 + peer % (ranks - 1)) % ranks };
            let request = Request { eager_limit: limit, ..request(&case, group, None) };
            let plans = candidates(&request, sweep.cluster.capabilities());
            let plans: Vec<Plan> = plans.into_iter().filter_map(|(_, plan)| plan.ok()).collect();
            let plan = &plans[way.index(plans.len())];
            sweep.try_split(plan, |seed| Moving { case, seed }).map_err(TestCaseError::fail)
        })
        .unwrap();
}

#[test]
fn sixty_four_cards_run_every_operation() {
    let mut sweep = Sweep::new("mock:optweb:64");
    for operation in OPERATIONS {
        for bytes in [1, 4095, 16385] {
            let case = Case { operation, ranks: 64, bytes, root: 5, peer: 63 };
            check(&mut sweep, case, (0..64).collect(), None);
        }
    }
}

#[test]
fn subgroups_in_any_order() {
    let mut sweep = Sweep::new("mock:optweb:8");
    for group in [vec![5, 2], vec![7, 0, 3], vec![1, 2, 3, 4, 5], vec![6, 5, 4, 3, 2, 1, 0]] {
        let ranks = group.len() as u32;
        for operation in OPERATIONS {
            for bytes in [1, 4095, 65568] {
                let case = Case { operation, ranks, bytes, root: ranks - 1, peer: 0 };
                check_all(&mut sweep, case, group.clone());
            }
        }
    }
}

#[test]
fn dragonfly_runs_every_operation() {
    for (selector, ranks) in [("mock:optweb:4x4", 16), ("mock:optweb:3x5", 15), ("mock:optweb:4x4+lanes=6", 16)] {
        let mut sweep = Sweep::new(selector);
        for operation in OPERATIONS {
            for bytes in [0, 1, 4095, 16385] {
                for root in [0, 7, ranks - 1] {
                    let case = Case { operation, ranks, bytes, root, peer: (root + 6) % ranks };
                    let is_to_one = matches!(operation, "send" | "recv");
                    let on_rows_and_columns = if is_to_one { "relay" } else { "two-level" };
                    assert!(check_all(&mut sweep, case, (0..ranks).collect()).contains(on_rows_and_columns));
                }
            }
        }
    }
}

#[test]
fn tori_run_every_operation() {
    for (selector, ranks) in [("mock:circus:1x5", 5), ("mock:circus:3x4", 12), ("mock:bluelink:2x2", 4)] {
        let mut sweep = Sweep::new(selector);
        for operation in OPERATIONS {
            for bytes in [0, 1, 4095, 16385] {
                for root in [0, ranks - 1] {
                    let case = Case { operation, ranks, bytes, root, peer: (root + 2) % ranks };
                    check_all(&mut sweep, case, (0..ranks).collect());
                }
            }
        }
    }
}

#[test]
fn groups_on_a_torus_in_any_order() {
    let mut sweep = Sweep::new("mock:circus:4x4");
    for group in [vec![5, 2], vec![15, 0, 7], vec![0, 1, 4, 5], vec![9, 8, 3, 1, 14], vec![12, 8, 4, 0, 3, 7, 11, 15]] {
        let ranks = group.len() as u32;
        for operation in OPERATIONS {
            for bytes in [1, 65568] {
                let case = Case { operation, ranks, bytes, root: ranks - 1, peer: 0 };
                check_all(&mut sweep, case, group.clone());
            }
        }
    }
}

#[test]
fn large_blocks() {
    let (ranks, bytes) = (4, if is_full() { 128 * MIB } else { 8 * MIB + 3 });
    let mut sweep = Sweep::new("mock:optweb:4");
    for operation in OPERATIONS {
        let case = Case { operation, ranks, bytes, root: 1, peer: 3 };
        check(&mut sweep, case, (0..ranks).collect(), None);
    }
}

/// A request whose sizes are not those of the definition is seen before it runs.
#[test]
fn a_wrong_size_is_seen() {
    let mut cluster = Sweep::new("mock:optweb:4").cluster;
    for operation in OPERATIONS.into_iter().filter(|operation| *operation != "barrier") {
        let case = Case { operation, ranks: 4, bytes: 1000, root: 1, peer: 2 };
        let plan = plan(&request(&case, (0..4).collect(), None), cluster.capabilities()).unwrap();
        let longer = Case { bytes: 1001, ..case };
        let error = run(&mut cluster, &plan, &Moving { case: longer, seed: 1 }, false).unwrap_err();
        assert!(error.contains("bytes of input and output"), "{operation}: {error}");
    }
}

/// The comparison can fail: one bit flipped in what comes back is seen in every operation that gives anything.
#[test]
fn one_wrong_bit_is_seen() {
    let mut cluster = Sweep::new("mock:optweb:4").cluster;
    for operation in OPERATIONS.iter().filter(|operation| **operation != "barrier") {
        let case = Case { operation, ranks: 4, bytes: 1000, root: 0, peer: 3 };
        let plan = plan(&request(&case, (0..4).collect(), None), cluster.capabilities()).unwrap();
        let data = Moving { case, seed: 3 };
        assert!(run(&mut cluster, &plan, &data, true).is_err(), "{operation}");
        assert!(run(&mut cluster, &plan, &data, false).is_ok(), "{operation}");
    }
}

/// Where a card has no room for input and output beside what lies between, the output of an alltoall replaces the input.
#[test]
fn an_alltoall_without_room_runs_in_place() {
    let (_fabric, mut cluster) = open(Profile { memory_bytes: 32 << 20, ..Profile::optweb_dragonfly(2, 15) });
    let case = |bytes| Case { operation: "alltoall", ranks: 30, bytes, root: 0, peer: 0 };
    let planned = |bytes| plan(&request(&case(bytes), (0..30).collect(), None), cluster.capabilities());
    assert!(!planned(100_000).unwrap().replaces_input && planned(1_100_000).is_err());
    // Two passes, of which the last is shorter.
    let plan = planned(610_000).unwrap();
    assert!(plan.replaces_input);
    let report = run(&mut cluster, &plan, &Moving { case: case(610_000), seed: 7 }, false).unwrap();
    let counted_ps = report.arrival_cycles * 1_000_000_000 / u64::from(report.clock_khz);
    let difference = plan.predicted.arrival_ps.abs_diff(counted_ps);
    assert!(difference * 50 < counted_ps, "{counted_ps} ps, predicted {}", plan.predicted.arrival_ps);
}
