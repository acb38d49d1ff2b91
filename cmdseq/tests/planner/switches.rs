//! Plans for cards between switches that compute.

use cmdseq::plan::{Collective, Request, candidates};
use cmdseq::switch::Shape;
use proptest::prelude::*;

use crate::cards::{combine, counts, mpi_fpga};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn no_plan_is_below_the_bound(
        shape in prop::sample::select(&["2x1x1", "3x2x1", "2x2x2", "4x3x1", "fat:2", "fat:5", "fat:13", "fat:20:16"][..]),
        collective in prop::sample::select(Collective::ALL),
        bytes in prop_oneof![Just(0_u64), 1_u64..300, 300_u64..40_000],
        (root, peer, count, order) in any::<(u32, u32, u32, u64)>(),
    ) {
        let capabilities = mpi_fpga(shape.parse::<Shape>().unwrap());
        let mut group: Vec<u32> = (0..capabilities.nodes).collect();
        group.sort_by_key(|node| u64::from(*node).wrapping_mul(order | 1) % 23);
        group.truncate(1 + (count % capabilities.nodes) as usize);
        let ranks = group.len() as u32;
        let request = Request {
            root: root % ranks,
            peer: peer % ranks,
            combine: combine(collective),
            counts: counts(collective, ranks, bytes),
            ..Request::new(collective, group, bytes)
        };
        let bound = request.lower_bound(&capabilities).unwrap();
        for (algorithm, plan) in candidates(&request, &capabilities) {
            let Ok(plan) = plan else { continue };
            let predicted = plan.predicted;
            prop_assert!(bound.total_ps() <= predicted.arrival_ps, "{}: {:?} of {:?}", algorithm, bound, predicted);
        }
    }
}
