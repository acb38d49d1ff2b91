//! Groups of a Dragonfly that are no grid: their ranks talk over other cards where they have no link.

use cmdseq::meaning::expect;
use cmdseq::plan::{Collective, Order, Placement, Plan, Request, candidates, plan};
use cmdseq::ranges::Range;
use cmdseq::{Capabilities, Operand};
use proptest::prelude::*;

use crate::cards::{combine, counts, dragonfly};
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
    (group, choice).prop_map(|(((groups, size), mut group, ranks), (collective, bytes, (root, peer), order, place))| {
        group.truncate(ranks);
        let ranks = group.len() as u32;
        // Nothing is known of addresses within a block, so all are to be aligned.
        let request = Request {
            root: root % ranks,
            peer: peer % ranks,
            combine: combine(collective),
            counts: counts(collective, ranks, bytes),
            order: if order { Order::Rank } else { Order::Any },
            placement: placement(place),
            ..Request::new(collective, group, bytes)
        };
        (dragonfly(groups, size), request)
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
