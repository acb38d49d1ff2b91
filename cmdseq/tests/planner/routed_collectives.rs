//! Tables of random collectives, read from their bits by a checker that shares no code with the compiler, its trees or the
//! verifier. `FPGA_TESTS_FULL=1` checks 100 000 collectives for each algorithm. `mock/tests/networks/novog_static.rs` also executes them.

#[path = "../routed_checker/mod.rs"]
mod routed_checker;

use std::collections::BTreeMap;

use cmdseq::routing::{
    Capacity, CollectiveKind, CompileError, RoutedCollective, RoutedTables, Torus3, TreeAlgorithm, VerifyError,
    compile, verify,
};
use proptest::prelude::*;
use routed_checker::{COLLECTIVES, check, collectives, follow, is_full, reduce};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_full() { 100_000 / COLLECTIVES as u32 } else { 100 }))]

    #[test]
    fn tables_of_random_collectives_route_them((torus, list) in collectives()) {
        for algorithm in TreeAlgorithm::ALL {
            let tables = compile(torus, &list, algorithm).unwrap();
            check(&tables);
            let report = verify(&tables, Capacity::default()).unwrap();
            prop_assert!(report.hops >= list.iter().filter(|one| one.members.iter().any(|member| *member != one.root)).count() as u64);
        }
    }

    /// What the verifier accepts, the checker accepts: the bit of an entry that is changed is one without effect, or is noticed.
    #[test]
    fn the_verifier_notices_changed_entries((torus, list) in collectives(), place in any::<prop::sample::Index>(), bit in 0..28_u32) {
        let mut tables = compile(torus, &list, TreeAlgorithm::Ocr).unwrap();
        let filled: Vec<usize> = (0..tables.nodes.len()).filter(|node| !tables.nodes[*node].routes.is_empty()).collect();
        let node = filled[place.index(filled.len())];
        let entry = place.index(tables.nodes[node].routes.len());
        let changed = tables.nodes[node].routes[entry].to_bits() ^ 1 << bit;
        if let Ok(route) = cmdseq::routing::Route::from_bits(changed) {
            tables.nodes[node].routes[entry] = route;
            if verify(&tables, Capacity::default()).is_ok() {
                check_delivery(&tables);
            }
        }
    }
}

/// As [`check`], without the lengths of routes: a changed entry may lead a longer way round.
fn check_delivery(tables: &RoutedTables) {
    let sides = tables.torus.sides();
    for one in &tables.collectives {
        for starts in &one.starts {
            let starts: Vec<(u32, u32)> = starts.iter().map(|start| (start.node, start.index.into())).collect();
            if one.collective.kind == CollectiveKind::Reduction {
                let sum = one.collective.members.iter().map(|member| 1_u128 << member).sum();
                assert_eq!(reduce(&tables.nodes, sides, &starts), [(one.collective.root, sum)]);
            } else {
                let mut got = BTreeMap::new();
                follow(&tables.nodes, sides, starts[0].0, starts[0].1, 0, &mut got);
                let mut members = one.collective.members.clone();
                members.sort_unstable();
                assert_eq!(
                    got.into_iter().map(|(node, times)| (node, times.len())).collect::<Vec<_>>(),
                    members.into_iter().map(|node| (node, 1)).collect::<Vec<_>>()
                );
            }
        }
    }
}

fn multicast(members: &[u32]) -> RoutedCollective {
    RoutedCollective { kind: CollectiveKind::Multicast, root: 0, members: members.to_vec(), packets: 1 }
}

#[test]
fn lists_that_are_not_valid_are_refused_with_the_collective() {
    let torus = Torus3::new([4, 4, 4]).unwrap();
    let refused = |one| compile(torus, &[multicast(&[1]), one], TreeAlgorithm::Ocr).unwrap_err();
    assert_eq!(refused(multicast(&[64])), CompileError::NoNode { collective: 1, node: 64, last: 63 });
    assert_eq!(refused(multicast(&[3, 3])), CompileError::Twice { collective: 1, node: 3 });
    assert_eq!(refused(multicast(&[3, 0])), CompileError::Root { collective: 1, node: 0 });
    assert!(matches!(refused(multicast(&[])), CompileError::Members { collective: 1, .. }));
    let none = RoutedCollective { packets: 0, ..multicast(&[1]) };
    assert_eq!(refused(none), CompileError::Packets { collective: 1 });
    let two = RoutedCollective { kind: CollectiveKind::Unicast, ..multicast(&[1, 2]) };
    assert_eq!(refused(two), CompileError::Unicast { collective: 1, members: 2 });
    let many = RoutedCollective { kind: CollectiveKind::Reduction, packets: 65_537, ..multicast(&[1]) };
    assert!(matches!(refused(many), CompileError::Full { collective: 1, .. }));
}

#[test]
fn bad_tables_are_refused_with_the_place() {
    let torus = Torus3::new([4, 4, 1]).unwrap();
    let all: Vec<u32> = (1..16).collect();
    let reduction = RoutedCollective { kind: CollectiveKind::Reduction, root: 5, members: all.clone(), packets: 2 };
    let tables = compile(torus, &[multicast(&all), reduction], TreeAlgorithm::Ocr).unwrap();
    let refused = |change: &dyn Fn(&mut RoutedTables)| {
        let mut tables = tables.clone();
        change(&mut tables);
        verify(&tables, Capacity::default()).unwrap_err()
    };
    let error = refused(&|tables| tables.nodes[3].routes.clear());
    assert!(matches!(error, VerifyError::NoEntry { node: 3, .. }), "{error}");
    // Z has one node.
    let error = refused(&|tables| tables.nodes[0].multicasts[0].children[0].port = 4);
    assert_eq!(error, VerifyError::NoCard { collective: 0, node: 0, port: 4 });
    let error = refused(&|tables| tables.nodes[0].multicasts[0].children[0].port = 6);
    assert!(matches!(error, VerifyError::Delivered { collective: 0, .. }), "{error}");
    let error = refused(&|tables| tables.nodes[5].reductions[0].expected += 1);
    assert!(matches!(error, VerifyError::Waits { collective: 1, node: 5, index: 0, .. }), "{error}");
    let error = refused(&|tables| tables.nodes[5].reductions[1].expected = 0);
    assert!(matches!(error, VerifyError::Count { node: 5, index: 1, .. }), "{error}");
    let error = refused(&|tables| tables.collectives[1].starts[1] = tables.collectives[1].starts[0].clone());
    assert!(matches!(error, VerifyError::Mixed { collective: 1, .. }), "{error}");
    let error = refused(&|tables| tables.collectives[0].collective.members[2] = 77);
    assert!(error.to_string().contains("no node 77 (available: 0 to 15)"), "{error}");
    let error = verify(&tables, Capacity { entries: 1, ..Capacity::default() }).unwrap_err();
    assert!(matches!(error, VerifyError::TooLarge { most: 1, .. }), "{error}");
    let error = verify(&tables, Capacity { depth: 1, ..Capacity::default() }).unwrap_err();
    assert!(matches!(error, VerifyError::Overflow { depth: 1, .. }), "{error}");
}

#[test]
fn tables_that_loop_are_refused() {
    let torus = Torus3::new([4, 1, 1]).unwrap();
    let unicast = RoutedCollective { kind: CollectiveKind::Unicast, ..multicast(&[1]) };
    for kind in [CollectiveKind::Unicast, CollectiveKind::Reduction] {
        let one = RoutedCollective { kind, ..unicast.clone() };
        let mut tables = compile(torus, &[one], TreeAlgorithm::Rpm).unwrap();
        for node in 0..4 {
            tables.nodes[node].routes = tables.nodes[1].routes.clone();
            tables.nodes[node].routes[0].port = 0;
            tables.nodes[node].routes[0].next = 0;
        }
        let error = verify(&tables, Capacity::default()).unwrap_err();
        assert!(matches!(error, VerifyError::Loop { collective: 0, .. }), "{error}");
    }
}
