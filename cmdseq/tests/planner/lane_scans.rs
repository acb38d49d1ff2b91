//! Scans on grids of cards with several lanes.

use cmdseq::plan::{Algorithm, Collective, Request, plan};
use cmdseq::{Capabilities, Operation};
use proptest::prelude::*;

use crate::cards::{dragonfly, request};
use crate::{check, data, expected, run};

const SCANS: [Collective; 2] = [Collective::Scan, Collective::Exscan];

fn grid(rows: u32, columns: u32, lanes: u32) -> Capabilities {
    Capabilities { lanes, ..dragonfly(rows, columns) }
}

/// Each link of a row carries three times a block, if there is a lane for each card of the row and two for folds; with fewer
/// lanes, the last step takes its rounds.
#[test]
fn long_vectors_take_three_blocks_on_each_link_of_a_row() {
    let bytes = 64 << 20;
    for (size, lanes, blocks) in [(4, 5, 3), (4, 6, 3), (8, 9, 3), (8, 6, 4), (8, 3, 5)] {
        let capabilities = grid(size, size, lanes);
        for collective in SCANS {
            let plan = plan(&request(collective, size * size, bytes, None), &capabilities).unwrap();
            assert_eq!(plan.algorithm, Algorithm::Lanes, "{collective} on {size}x{size} with {lanes} lanes");
            assert_eq!(plan.busiest_link_bytes, 3 * bytes / u64::from(size));
            let link_ps = blocks * bytes / u64::from(size) * 8_000_000 / 45_000;
            let beyond = plan.predicted.arrival_ps as f64 / link_ps as f64;
            assert!((1.0..1.05).contains(&beyond), "{collective} on {size}x{size} with {lanes} lanes: {beyond}");
        }
    }
}

#[test]
fn cards_that_lack_something_scan_as_before() {
    let without = |operation: Operation| {
        let mut capabilities = grid(4, 4, 6);
        capabilities.operations &= !(1 << operation as u8);
        capabilities
    };
    let mut narrow = grid(4, 4, 6);
    narrow.memory_bytes /= 4;
    let longest = grid(4, 4, 6).stripe_half_bytes * 2;
    for (capabilities, bytes, says) in [
        (grid(4, 4, 1), 1 << 20, "these have one"),
        (without(Operation::Fold), 1 << 20, "needs fold, which these cards do not have"),
        (without(Operation::AlltoallScan), 1 << 20, "needs alltoall_scan"),
        (narrow, 1 << 20, "needs 8 stripes"),
        (grid(4, 4, 6), longest + 1, "no room for blocks of"),
        (grid(4, 4, 6), 0, "or none to send"),
    ] {
        let forced = request(Collective::Scan, 16, bytes, Some(Algorithm::Lanes));
        let refusal = plan(&forced, &capabilities).unwrap_err();
        assert!(refusal.cause.contains(says), "{refusal}");
        let any = Request { algorithm: None, ..forced };
        assert_ne!(plan(&any, &capabilities).unwrap().algorithm, Algorithm::Lanes, "{says}");
    }
    let forced = request(Collective::Scan, 16, longest, Some(Algorithm::Lanes));
    check(&plan(&forced, &grid(4, 4, 6)).unwrap(), &grid(4, 4, 6));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// On slow links, so that there are several pieces.
    #[test]
    fn vectors_of_any_length_are_scanned_in_lanes(
        collective in prop::sample::select(&SCANS[..]),
        rows in 2_u32..5,
        columns in 2_u32..6,
        lanes in 2_u32..9,
        bytes in prop_oneof![1_u64..300, 300_u64..9000],
        limit in prop::option::of(0_u64..200),
        link_mbps in prop::sample::select(vec![1_u32, 10, 100, 45_000]),
    ) {
        let mut capabilities = grid(rows, columns, lanes);
        capabilities.timing.link_mbps = link_mbps;
        let forced = request(collective, rows * columns, bytes, Some(Algorithm::Lanes));
        let request = Request { eager_limit: limit, ..forced };
        let plan = plan(&request, &capabilities).unwrap();
        check(&plan, &capabilities);
        let input = data(&request);
        prop_assert_eq!(run(&plan, &capabilities, &input), expected(&request, &input));
        // Every lane that is used is there, and folds are only where there is a carry.
        for (rank, program) in plan.set.programs.iter().enumerate() {
            prop_assert!(program.instructions.iter().all(|one| u32::from(one.lane) < lanes));
            let folds = program.instructions.iter().any(|one| one.operation == Operation::Fold);
            let has_prefix = collective == Collective::Scan || rank as u32 % columns > 0;
            prop_assert_eq!(folds, rank as u32 >= columns && has_prefix, "rank {}", rank);
        }
    }
}
