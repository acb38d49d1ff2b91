//! Random collectives, and a checker of their tables that reads the bits of entries and shares no code with the compilers, their trees or
//! the verifier.

use std::collections::BTreeMap;

use cmdseq::routing::{CollectiveKind, NodeTables, RoutedCollective, RoutedTables, Torus3};
use proptest::prelude::*;

/// Moves through a port, by coordinates.
fn hop(sides: [u32; 3], node: u32, port: u32) -> u32 {
    let mut at = [node % sides[0], node / sides[0] % sides[1], node / sides[0] / sides[1]];
    let (axis, step) = [(0, 1), (0, -1), (1, 1), (1, -1), (2, 1), (2, -1)][port as usize];
    assert!(sides[axis] > 1, "node {node} sends along a ring of one node");
    at[axis] = (at[axis] as i64 + step).rem_euclid(sides[axis].into()) as u32;
    at[0] + sides[0] * at[1] + sides[0] * sides[1] * at[2]
}

/// Hops of a shortest route.
fn shortest(sides: [u32; 3], one: u32, other: u32) -> u32 {
    let mut frontier = vec![one];
    let mut seen = vec![one];
    for hops in 0.. {
        if frontier.contains(&other) {
            return hops;
        }
        let mut next = Vec::new();
        for node in frontier {
            for port in (0..6).filter(|port| sides[*port as usize / 2] > 1) {
                let there = hop(sides, node, port);
                if !seen.contains(&there) {
                    seen.push(there);
                    next.push(there);
                }
            }
        }
        frontier = next;
    }
    unreachable!()
}

/// Delivers what starts at a node and returns hops, by receiver. `port` 6 is the node itself.
pub(crate) fn follow(
    tables: &[NodeTables],
    sides: [u32; 3],
    node: u32,
    index: u32,
    hops: u32,
    got: &mut BTreeMap<u32, Vec<u32>>,
) {
    assert!(hops <= sides.iter().sum(), "a packet goes round");
    let mut send = |port: u32, next: u32| match port {
        6 => got.entry(node).or_default().push(hops),
        _ => follow(tables, sides, hop(sides, node, port), next, hops + 1, got),
    };
    let word = tables[node as usize].routes[index as usize].to_bits();
    let (kind, port, next) = (word >> 28, word >> 24 & 15, word >> 8 & 0xffff);
    if kind == 0 {
        return send(port, next);
    }
    assert_eq!(kind, 1);
    let bits = tables[node as usize].multicasts[next as usize].to_bits();
    for child in 0..bits >> 120 {
        let child = (bits >> (20 * child)) as u32 & 0xf_ffff;
        send(child >> 16, child & 0xffff);
    }
}

/// Reduces powers of two by passing on whatever is complete until nothing changes; returns what arrives where.
pub(crate) fn reduce(tables: &[NodeTables], sides: [u32; 3], starts: &[(u32, u32)]) -> Vec<(u32, u128)> {
    let mut moving: Vec<(u32, u32, u128)> = starts.iter().map(|(node, index)| (*node, *index, 1 << node)).collect();
    let mut held: BTreeMap<(u32, u32), (u32, u128)> = BTreeMap::new();
    let mut results = Vec::new();
    let mut moves = 0;
    while let Some((node, index, mut sum)) = moving.pop() {
        moves += 1;
        assert!(moves < 10_000, "packets go round");
        let word = tables[node as usize].routes[index as usize].to_bits();
        let (kind, port, mut next) = (word >> 28, word >> 24 & 15, word >> 8 & 0xffff);
        if kind == 2 {
            let entry = tables[node as usize].reductions[next as usize].to_bits();
            let place = held.entry((node, next)).or_default();
            *place = (place.0 + 1, place.1 + sum);
            if place.0 < entry >> 16 {
                continue;
            }
            sum = place.1;
            held.remove(&(node, next));
            next = entry & 0xffff;
        }
        if port == 6 { results.push((node, sum)) } else { moving.push((hop(sides, node, port), next, sum)) }
    }
    assert!(held.is_empty(), "a reduction waits");
    results
}

/// Panics unless every destination gets each packet, or the value of each member, exactly once, by a shortest route.
pub(crate) fn check(tables: &RoutedTables) {
    let sides = tables.torus.sides();
    for one in &tables.collectives {
        let RoutedCollective { kind, root, members, .. } = &one.collective;
        for starts in &one.starts {
            let starts: Vec<(u32, u32)> = starts.iter().map(|start| (start.node, start.index.into())).collect();
            if *kind == CollectiveKind::Reduction {
                let sum = members.iter().map(|member| 1_u128 << member).sum();
                assert_eq!(reduce(&tables.nodes, sides, &starts), [(*root, sum)]);
            } else {
                let mut got = BTreeMap::new();
                follow(&tables.nodes, sides, starts[0].0, starts[0].1, 0, &mut got);
                let right = members.iter().map(|member| (*member, vec![shortest(sides, *root, *member)])).collect();
                assert_eq!(got, right);
            }
        }
    }
}

/// Whether the long forms of tests run.
pub(crate) fn is_full() -> bool {
    std::env::var_os("FPGA_TESTS_FULL").is_some_and(|value| value != "0")
}

/// Collectives of a list.
pub(crate) const COLLECTIVES: usize = 20;

/// A torus and a list of collectives on it.
pub(crate) fn collectives() -> impl Strategy<Value = (Torus3, Vec<RoutedCollective>)> {
    let shape = [1_u32..=5, 1..=5, 1..=4].prop_filter_map("a torus", |sides| Torus3::new(sides).ok());
    shape.prop_flat_map(|torus| {
        let nodes = torus.nodes();
        let kind = prop::sample::select(CollectiveKind::ALL);
        let members = prop::collection::btree_set(0..nodes, 1..=nodes as usize);
        let one = (kind, 0..nodes, members, 1_u32..=3).prop_map(move |(kind, root, members, packets)| {
            let mut members: Vec<u32> = members.into_iter().collect();
            if kind != CollectiveKind::Reduction {
                members.retain(|member| *member != root);
                if members.is_empty() {
                    members.push((root + 1) % nodes);
                }
            }
            if kind == CollectiveKind::Unicast {
                members.truncate(1);
            }
            RoutedCollective { kind, root, members, packets }
        });
        (Just(torus), prop::collection::vec(one, COLLECTIVES))
    })
}
