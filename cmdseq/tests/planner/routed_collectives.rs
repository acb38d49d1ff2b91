//! Tables of random collectives, read from their bits by a checker that shares no code with the compiler, its trees or the
//! verifier. `FPGA_TESTS_FULL=1` checks 100 000 collectives for each algorithm. `mock/tests/networks/novog_static.rs` also executes them.

#[path = "../routed_checker/mod.rs"]
mod routed_checker;

use std::collections::BTreeMap;

use cmdseq::routing::{
    Capacity, CollectiveKind, RoutedCollective, RoutedTables, Torus3, TreeAlgorithm, VerifyError, compile, verify,
};
use proptest::prelude::*;
use routed_checker::{COLLECTIVES, check, collectives, follow, is_full, reduce};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_full() { 100_000 / COLLECTIVES as u32 } else { 100 }))]

    #[test]
    fn tables_of_random_collectives_route_them((torus, list) in collectives()) {
        for algorithm in TreeAlgorithm::ALL.iter().copied() {
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
    let refused = |one| {
        let error = compile(torus, &[multicast(&[1]), one], TreeAlgorithm::Ocr).unwrap_err().to_string();
        error.strip_prefix("collective 1: ").unwrap().to_owned()
    };
    assert_eq!(refused(multicast(&[64])), "no node 64 (available: 0 to 63)");
    assert_eq!(refused(multicast(&[3, 3])), "node 3 is a member twice");
    assert_eq!(refused(multicast(&[3, 0])), "the root 0 is among the members: it has the data");
    assert_eq!(refused(multicast(&[])), "a multicast of no members (expected at least one)");
    let none = RoutedCollective { packets: 0, ..multicast(&[1]) };
    assert_eq!(refused(none), "no packets (expected at least 1)");
    let two = RoutedCollective { kind: CollectiveKind::Unicast, ..multicast(&[1, 2]) };
    assert_eq!(refused(two), "a unicast to 2 members (expected one; use a multicast)");
    let many = RoutedCollective { kind: CollectiveKind::Reduction, packets: 65_537, ..multicast(&[1]) };
    assert!(refused(many).contains(" needs more than 65536 entries in a table, "));
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
        verify(&tables, Capacity::default()).unwrap_err().to_string()
    };
    let error = refused(&|tables| tables.nodes[3].routes.clear());
    assert!(error.contains("node 3 has no entry "), "{error}");
    // Z has one node.
    let error = refused(&|tables| tables.nodes[0].multicasts[0].children[0].port = 4);
    assert_eq!(error, "collective 0: node 0 sends through Z+, where no card is");
    let error = refused(&|tables| tables.nodes[0].multicasts[0].children[0].port = 6);
    assert!(error.starts_with("collective 0: node ") && error.ends_with(" packets (expected 1)"), "{error}");
    let error = refused(&|tables| tables.nodes[5].reductions[0].expected += 1);
    assert!(error.starts_with("collective 1: reduction entry 0 of node 5 gets "), "{error}");
    let error = refused(&|tables| tables.nodes[5].reductions[1].expected = 0);
    assert_eq!(error, "node 5: entry 1 of the reduction table has 0 expected packets (expected 1 to 7)");
    let error = refused(&|tables| tables.nodes[0].multicasts[0].children.clear());
    assert_eq!(error, "node 0: entry 0 of the multicast table has 0 children (expected 1 to 6)");
    let error = refused(&|tables| tables.collectives[1].starts[1] = tables.collectives[1].starts[0].clone());
    assert!(error.starts_with("collective 1: reduction entry "), "{error}");
    assert!(error.ends_with(" is also used by another packet"), "{error}");
    let error = refused(&|tables| tables.collectives[0].collective.members[2] = 77);
    assert!(error.contains("no node 77 (available: 0 to 15)"), "{error}");
    let error = refused(&|tables| tables.nodes.truncate(3));
    assert_eq!(error, "tables of 3 nodes do not fit a torus of 16");
    let error = verify(&tables, Capacity { entries: 1, ..Capacity::default() }).unwrap_err().to_string();
    assert!(error.ends_with(" table (a card holds 1)"), "{error}");
    let error = verify(&tables, Capacity { depth: 1, ..Capacity::default() }).unwrap_err();
    assert!(matches!(error, VerifyError::Overflow { depth: 1, .. }), "{error}");
}

#[test]
fn of_two_entries_that_wait_the_first_is_named() {
    let torus = Torus3::new([4, 1, 1]).unwrap();
    let all = RoutedCollective { kind: CollectiveKind::Reduction, root: 0, members: vec![0, 1, 2, 3], packets: 1 };
    let mut tables = compile(torus, &[all], TreeAlgorithm::Ocr).unwrap();
    // Node 0 waits for a packet more, and a node before it too: its own never comes.
    let waiting: Vec<usize> = (0..4).filter(|node| !tables.nodes[*node].reductions.is_empty()).collect();
    assert!(waiting.len() >= 2, "{waiting:?}");
    waiting.iter().for_each(|node| tables.nodes[*node].reductions[0].expected += 1);
    for _ in 0..100 {
        let error = verify(&tables, Capacity::default()).unwrap_err().to_string();
        assert!(error.starts_with("collective 0: reduction entry 0 of node 0 gets "), "{error}");
    }
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
        assert!(error.to_string().starts_with("collective 0: packets loop: they return to node "), "{error}");
    }
}
