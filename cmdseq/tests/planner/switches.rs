//! Plans for cards between switches that compute.

use cmdseq::plan::{Algorithm, Collective, candidates, plan};
use cmdseq::switch::{Form, Shape};
use proptest::prelude::*;

use crate::cards::{mpi_fpga, request, request_of};

/// Bytes over the busiest link, as a simulation of all packets counted them; also of forms whose steps change from piece to piece.
#[test]
fn the_busiest_link_carries_what_the_steps_send() {
    let cases = [
        ("2x2x2", Collective::Scatter, 2400, Form::Tree, 9600),
        ("2x2x2", Collective::Allgather, 40_000, Form::Doubling, 160_000),
        ("3x2x1", Collective::Allreduce, 8, Form::Doubling, 16),
        ("3x2x1", Collective::ReduceScatter, 2400, Form::Tree, 16_800),
        ("5x3x1", Collective::Broadcast, 40_000, Form::Tree, 120_000),
        ("5x3x1", Collective::Allgather, 2400, Form::Doubling, 105_600),
        ("5x3x1", Collective::ReduceScatter, 8, Form::Halving, 240),
        ("4x2x2", Collective::Broadcast, 1 << 20, Form::Ring, 1_179_616),
        ("4x4x2", Collective::Allreduce, 1 << 20, Form::Halving, 1_315_200),
        ("fat:13", Collective::Gather, 2400, Form::Tree, 31_200),
        ("fat:20:16", Collective::Reduce, 40_000, Form::Tree, 40_000),
        ("fat:20:16", Collective::Scatter, 8, Form::Tree, 160),
    ];
    for (shape, collective, bytes, form, busiest) in cases {
        let capabilities = mpi_fpga(shape.parse::<Shape>().unwrap());
        let request = request(collective, capabilities.nodes, bytes, Some(Algorithm::Switch));
        let plan = plan(&request, &capabilities).unwrap();
        assert_eq!(plan.set.programs[0].instructions[0].form(), Some(form), "{shape} {collective}");
        assert_eq!(plan.busiest_link_bytes, busiest, "{shape} {collective} of {bytes} B");
    }
}

/// Data has left a card once its last phit is in the transmitter, which holds four besides the one on the line; blocks share phits.
#[test]
fn short_data_has_left_as_soon_as_it_is_at_the_switch() {
    // Dispatch and the read of memory are 61 cycles of 4 ns.
    for (shape, collective, bytes, t1_ps) in [
        ("fat:8", Collective::Scatter, 3, 244_000),
        ("fat:8", Collective::Broadcast, 64, 244_000),
        // 17 phits, and 33.
        ("fat:8", Collective::Scatter, 64, 244_000 + 12 * 2669),
        ("fat:8", Collective::Broadcast, 1023, 244_000 + 28 * 2669),
        ("4x2x2", Collective::Scatter, 3, 244_000),
        ("4x2x2", Collective::Scatter, 64, 244_000 + 28 * 2000),
    ] {
        let capabilities = mpi_fpga(shape.parse::<Shape>().unwrap());
        let request = request(collective, capabilities.nodes, bytes, Some(Algorithm::Switch));
        let predicted = plan(&request, &capabilities).unwrap().predicted;
        assert_eq!(predicted.t1_ps, t1_ps, "{shape} {collective} of {bytes} B");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn no_plan_is_below_the_bound(
        shape in prop::sample::select(&["2x1x1", "3x2x1", "2x2x2", "4x3x1", "fat:2", "fat:5", "fat:13", "fat:20:16"][..]),
        collective in prop::sample::select(Collective::ALL),
        bytes in prop_oneof![Just(0_u64), 1_u64..300, 300_u64..40_000],
        (ends, count, order) in any::<([u32; 2], u32, u64)>(),
    ) {
        let capabilities = mpi_fpga(shape.parse::<Shape>().unwrap());
        let mut group: Vec<u32> = (0..capabilities.nodes).collect();
        group.sort_by_key(|node| u64::from(*node).wrapping_mul(order | 1) % 23);
        group.truncate(1 + (count % capabilities.nodes) as usize);
        let request = request_of(collective, group, bytes, ends);
        let bound = request.lower_bound(&capabilities).unwrap();
        for (algorithm, plan) in candidates(&request, &capabilities) {
            let Ok(plan) = plan else { continue };
            let predicted = plan.predicted;
            prop_assert!(bound.total_ps() <= predicted.arrival_ps, "{}: {:?} of {:?}", algorithm, bound, predicted);
        }
    }
}
