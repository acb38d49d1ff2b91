//! No plan arrives before the lower bound of its request, by any algorithm.

use cmdseq::Capabilities;
use cmdseq::capability::Timing;
use cmdseq::plan::{Collective, candidates};

use crate::cards::{TIMING, circus, connected, dragonfly, mpi_fpga, request};

/// Blocks that take less than a hop, about as long, and many times that.
const LENGTHS: [u64; 10] = [1, 64, 256, 512, 1042, 2048, 4096, 8192, 16_384, 65_536];

fn assert_bounds_hold(capabilities: &Capabilities) {
    for collective in Collective::ALL {
        for bytes in LENGTHS {
            let request = request(*collective, capabilities.nodes, bytes, None);
            let bound = request.lower_bound(capabilities).unwrap();
            let mut plans = 0;
            for (algorithm, plan) in candidates(&request, capabilities) {
                let Ok(plan) = plan else { continue };
                let (arrival_ps, bound_ps) = (plan.predicted.arrival_ps, bound.total_ps());
                let (nodes, topology) = (capabilities.nodes, capabilities.topology);
                assert!(
                    bound_ps <= arrival_ps,
                    "{collective} of {bytes} B by {algorithm}, {nodes} cards, {topology:?}: {bound_ps} of {arrival_ps} ps, {bound:?}"
                );
                plans += 1;
            }
            assert!(plans > 0, "{collective} of {bytes} B, {:?}", capabilities.topology);
        }
    }
}

/// From 32 cards on, a card reads and writes more slowly than its links carry, so it matters what it reads during the first hop.
#[test]
fn no_plan_is_below_the_bound_of_fully_connected_cards() {
    for nodes in [2, 3, 4, 8, 16, 31, 32, 48, 62, 63, 64] {
        assert_bounds_hold(&connected(nodes));
    }
}

#[test]
fn no_plan_is_below_the_bound_of_dragonflies_tori_and_switched_cards() {
    for (rows, columns) in [(2, 2), (3, 4), (8, 8)] {
        assert_bounds_hold(&dragonfly(rows, columns));
        assert_bounds_hold(&Capabilities { lanes: 6, ..dragonfly(rows, columns) });
    }
    [(1, 2), (2, 2), (3, 4)].iter().for_each(|(rows, columns)| assert_bounds_hold(&circus(*rows, *columns)));
    ["2x2x2", "fat:5"].iter().for_each(|shape| assert_bounds_hold(&mpi_fpga(shape.parse().unwrap())));
}

/// Memory that is slower than the links of a few cards, and reads and hops that are short or long beside each other.
#[test]
fn no_plan_is_below_the_bound_of_cards_with_slow_memory() {
    let timings = [
        TIMING,
        Timing { memory_read_cycles: 0, ..TIMING },
        Timing { memory_read_cycles: 400, switch_cycles: 60, ..TIMING },
        Timing { data_ps: 2_000_000, control_ps: 1_500_000, ..TIMING },
    ];
    for timing in timings {
        for memory_channels in [1, 2, 4] {
            let slow = |fabric: Capabilities| Capabilities { memory_channels, timing, ..fabric };
            [3, 8].iter().for_each(|nodes| assert_bounds_hold(&slow(connected(*nodes))));
            [1, 6]
                .iter()
                .for_each(|lanes| assert_bounds_hold(&Capabilities { lanes: *lanes, ..slow(dragonfly(2, 3)) }));
        }
    }
}
