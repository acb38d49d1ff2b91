//! Groups of a Dragonfly that are no grid: their ranks talk over other cards where they have no link.

use cmdseq::meaning::expect;
use cmdseq::plan::{Collective, Order, Placement, Plan, Request, candidates, plan};
use cmdseq::ranges::Range;
use cmdseq::{Capabilities, Operand};
use proptest::prelude::*;

use crate::cards::{dragonfly, request_of};
use crate::{check, verified};

/// Any group of a Dragonfly of up to 6x6, any operation with any root, in any placement.
fn cases() -> impl Strategy<Value = (Capabilities, Request)> {
    let shape = (2_u32..7, 2_u32..7);
    let group = shape.prop_flat_map(|(groups, size)| {
        let nodes = groups * size;
        let order = Just((0..nodes).collect::<Vec<u32>>()).prop_shuffle();
        (Just((groups, size)), order, 2..=nodes as usize)
    });
    let bytes = prop_oneof![2 => Just(0_u64), 1 => 1_u64..200, 1 => 1_u64..70_000, 1 => 70_000_u64..900_000];
    let choice = (prop::sample::select(Collective::ALL), bytes, any::<(u32, u32)>(), any::<bool>(), 0..3_u8);
    let relays = (any::<bool>(), prop::sample::select(&[1_u32, 6][..]));
    (group, choice, relays).prop_map(|(((groups, size), mut group, ranks), choice, (is_open, lanes))| {
        let (collective, bytes, (root, peer), order, place) = choice;
        group.truncate(ranks);
        // Nothing is known of addresses within a block, so all are to be aligned.
        let request = Request {
            order: if order { Order::Rank } else { Order::Any },
            placement: placement(place),
            relays: is_open.then(|| (0..groups * size).collect()),
            ..request_of(collective, group, bytes, [root, peer])
        };
        (Capabilities { lanes, ..dragonfly(groups, size) }, request)
    })
}

fn placement(number: u8) -> Option<Placement> {
    let between = Range { address: 3 << 30, bytes: 1 << 30 };
    match number {
        0 => None,
        1 => Some(Placement { input: Operand::card(96), output: Operand::card(1 << 30), between }),
        _ => Some(Placement { input: Operand::card(1 << 30), output: Operand::card(96), between }),
    }
}

fn meant(plan: &Plan, capabilities: &Capabilities) {
    verified(plan, capabilities).unwrap();
    expect(&plan.set, capabilities, &plan.request).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_group_of_a_dragonfly_has_a_plan((capabilities, request) in cases()) {
        let chosen = plan(&request, &capabilities).unwrap();
        check(&chosen, &capabilities);
        let bound = request.lower_bound(&capabilities).unwrap().total_ps();
        for (algorithm, candidate) in candidates(&request, &capabilities) {
            let Ok(candidate) = candidate else { continue };
            meant(&candidate, &capabilities);
            prop_assert!(bound <= candidate.predicted.arrival_ps, "{}: {} of {:?}", algorithm, bound, candidate.predicted);
        }
    }
}

/// With the cards that complete them to a grid, groups send long vectors as grids do.
#[test]
fn long_vectors_go_over_cards_that_complete_a_grid() {
    let (most, lanes) = (1.2, 6);
    let capabilities = Capabilities { lanes, ..dragonfly(8, 8) };
    let all: Vec<u32> = (0..64).collect();
    for collective in [Collective::Send, Collective::Broadcast] {
        let alone = Request { relays: Some(Vec::new()), ..Request::new(collective, all[..63].to_vec(), 64 << 20) };
        let open = Request { relays: Some(all.clone()), ..alone.clone() };
        let over_bound = |request: &Request| {
            let plan = plan(request, &capabilities).unwrap();
            let bound = request.lower_bound(&capabilities).unwrap().total_ps();
            (plan.relays().to_vec(), plan.predicted.arrival_ps as f64 / bound as f64)
        };
        let (relays, ratio) = over_bound(&open);
        assert!(relays == [63] && ratio < most, "{collective}: {ratio} with {relays:?}");
        assert!(over_bound(&alone).0.is_empty());
    }
}
