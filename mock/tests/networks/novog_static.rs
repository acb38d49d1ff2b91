//! Statically scheduled routers of Novo-G#: every node gets the data that it should, with jitter and without, and tables are
//! exchanged on all cards at once. `FPGA_TESTS_FULL=1` checks and executes the tables of 100 000 random collectives for each algorithm.

#[path = "../../../cmdseq/tests/routed_checker/mod.rs"]
mod routed_checker;

use std::collections::BTreeMap;

use cmdseq::routing::{CollectiveKind, RoutedCollective, Torus3, TreeAlgorithm, compile};
use fpga_mock::novog::{LoadError, Network, Outcome, Payload, Profile, Sampling};
use proptest::prelude::*;

fn data(collective: usize, packet: u32, node: u32) -> Payload {
    [collective as u64, packet.into(), node.into(), u64::MAX - u64::from(node)]
}

/// What each node should get, as often as it should.
fn right(list: &[RoutedCollective]) -> BTreeMap<(u32, Payload), usize> {
    let mut right = BTreeMap::new();
    for (number, one) in list.iter().enumerate() {
        for packet in 0..one.packets {
            if one.kind == CollectiveKind::Reduction {
                let parts = one.members.iter().map(|member| data(number, packet, *member));
                let sum = parts.fold([0_u64; 4], |sum, part| [0, 1, 2, 3].map(|i| sum[i].wrapping_add(part[i])));
                *right.entry((one.root, sum)).or_default() += 1;
            } else {
                for member in &one.members {
                    *right.entry((*member, data(number, packet, one.root))).or_default() += 1;
                }
            }
        }
    }
    right
}

fn run(torus: Torus3, list: &[RoutedCollective], algorithm: TreeAlgorithm, profile: Profile) -> Outcome {
    let mut network = Network::new(profile, torus);
    let report = network.stage(compile(torus, list, algorithm).unwrap()).unwrap();
    network.commit().unwrap();
    let outcome = network.run(&data).unwrap();
    assert_eq!((outcome.lost, outcome.stray, outcome.hops), (0, 0, report.hops));
    assert!(outcome.depth_max as u64 <= report.link_packets_max, "the verifier's depth is the worst case");
    outcome
}

fn got(outcome: &Outcome) -> BTreeMap<(u32, Payload), usize> {
    let mut got = BTreeMap::new();
    outcome.deliveries.iter().for_each(|one| *got.entry((one.node, one.payload)).or_default() += 1);
    got
}

fn collectives() -> impl Strategy<Value = (Torus3, Vec<RoutedCollective>)> {
    let shape = [1_u32..=4, 1..=4, 1..=3].prop_filter_map("a torus", |sides| Torus3::new(sides).ok());
    shape.prop_flat_map(|torus| {
        let nodes = torus.nodes();
        let one = (any::<bool>(), 0..nodes, prop::collection::btree_set(0..nodes, 1..=nodes as usize), 1_u32..=8);
        let one = one.prop_map(move |(is_reduction, root, members, packets)| {
            let mut members: Vec<u32> = members.into_iter().collect();
            if !is_reduction {
                members.retain(|member| *member != root);
                if members.is_empty() {
                    members.push((root + 1) % nodes);
                }
            }
            let kind = if is_reduction { CollectiveKind::Reduction } else { CollectiveKind::Multicast };
            RoutedCollective { kind, root, members, packets }
        });
        (Just(torus), prop::collection::vec(one, 1..12))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_node_gets_its_data((torus, list) in collectives(), seed in any::<u64>()) {
        for sampling in [Sampling::Fixed, Sampling::PerPacket, Sampling::PerLinkUp] {
            let profile = Profile { sampling, seed, ..Profile::published() };
            for algorithm in TreeAlgorithm::ALL.iter().copied() {
                prop_assert_eq!(got(&run(torus, &list, algorithm, profile)), right(&list));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        if routed_checker::is_full() { 100_000 / routed_checker::COLLECTIVES as u32 } else { 32 }
    ))]

    /// One batch after the other, on links with jitter: the checker follows the tables, then the routers do.
    #[test]
    fn checked_tables_of_random_collectives_are_executed((torus, list) in routed_checker::collectives(), seed in any::<u64>()) {
        let profile = Profile { sampling: Sampling::PerPacket, seed, ..Profile::published() };
        for algorithm in TreeAlgorithm::ALL.iter().copied() {
            routed_checker::check(&compile(torus, &list, algorithm).unwrap());
            prop_assert_eq!(got(&run(torus, &list, algorithm, profile)), right(&list));
        }
    }
}

fn multicast(root: u32, members: &[u32], packets: u32) -> RoutedCollective {
    RoutedCollective { kind: CollectiveKind::Multicast, root, members: members.to_vec(), packets }
}

#[test]
fn a_hop_takes_the_stages_and_the_link() {
    let torus = Torus3::new([4, 1, 1]).unwrap();
    let profile = Profile { sampling: Sampling::Fixed, ..Profile::published() };
    let cycles = |to| run(torus, &[multicast(0, &[to], 1)], TreeAlgorithm::Ocr, profile).cycles;
    // Seven cycles in each router; 175.7 ns are 27.5 cycles, and a packet is seen at the next edge.
    assert_eq!((cycles(1), cycles(2) - cycles(1)), (7 + 28 + 7, 7 + 28));
}

#[test]
fn tables_are_exchanged_on_all_cards_at_once() {
    let torus = Torus3::new([4, 4, 1]).unwrap();
    let mut network = Network::new(Profile::published(), torus);
    assert_eq!(network.commit(), Err(LoadError::Nothing));
    assert_eq!(network.run(&data), None);
    let lists = [[multicast(0, &[1, 2, 3], 2)], [multicast(5, &[9], 3)]];
    let tables = |list| compile(torus, list, TreeAlgorithm::Ocr).unwrap();
    network.stage(tables(&lists[0])).unwrap();
    network.commit().unwrap();
    network.stage(tables(&lists[1])).unwrap();
    // What is staged is not in use.
    assert_eq!(got(&network.run(&data).unwrap()), right(&lists[0]));
    network.commit().unwrap();
    assert_eq!(got(&network.run(&data).unwrap()), right(&lists[1]));
    // Wrong tables leave what was staged before.
    let mut wrong = tables(&lists[0]);
    wrong.nodes[0].routes.clear();
    assert!(matches!(network.stage(wrong), Err(LoadError::Tables(_))));
    let other = Torus3::new([2, 2, 2]).unwrap();
    let error = network.stage(compile(other, &[multicast(0, &[1], 1)], TreeAlgorithm::Ocr).unwrap()).unwrap_err();
    assert_eq!(error, LoadError::Shape { given: [2, 2, 2], has: [4, 4, 1] });
    network.commit().unwrap();
    assert_eq!(got(&network.run(&data).unwrap()), right(&lists[0]));
}

#[test]
fn buffers_that_could_overflow_are_refused() {
    let torus = Torus3::new([2, 1, 1]).unwrap();
    let mut network = Network::new(Profile { input_packets: 4, ..Profile::published() }, torus);
    let error = network.stage(compile(torus, &[multicast(0, &[1], 5)], TreeAlgorithm::Ocr).unwrap()).unwrap_err();
    assert!(error.to_string().contains("up to 5 packets wait at the input from X-"), "{error}");
    network.stage(compile(torus, &[multicast(0, &[1], 4)], TreeAlgorithm::Ocr).unwrap()).unwrap();
}
