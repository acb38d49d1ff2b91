//! Scans over all links: an alltoall_scan, then an alltoall.

use cmdseq::plan::{Algorithm, Collective, Placement, Plan, Request, plan};
use cmdseq::ranges::{Range, card_ranges};
use cmdseq::{Capabilities, Context, Operand, Operation, Tables, Topology};
use proptest::prelude::*;

use crate::cards::{connected, dragonfly, request};
use crate::{check, data, expected, members, run};

const SCANS: [Collective; 2] = [Collective::Scan, Collective::Exscan];

fn operations(plan: &Plan, rank: usize) -> Vec<Operation> {
    plan.set.programs[rank].instructions.iter().map(|one| one.operation).collect()
}

/// On 64 cards, the blocks of several ranks share a pseudo channel.
#[test]
fn long_vectors_take_twice_the_bound_at_most() {
    let bytes = 64 << 20;
    for (collective, nodes) in SCANS.into_iter().flat_map(|one| [4, 8, 16, 64].map(|nodes| (one, nodes))) {
        let capabilities = connected(nodes);
        let plan = plan(&request(collective, nodes, bytes, None), &capabilities).unwrap();
        assert_eq!(plan.algorithm, Algorithm::Multipath, "{collective} on {nodes}");
        assert_eq!(operations(&plan, 1), [Operation::AlltoallScan, Operation::Alltoall]);
        assert_eq!(plan.busiest_link_bytes, 2 * bytes / u64::from(nodes));
        let bound = plan.request.lower_bound(&capabilities).unwrap().total_ps();
        let ratio = plan.predicted.arrival_ps as f64 / bound as f64;
        assert!(ratio < 2.01, "{collective} on {nodes}: {ratio}");
    }
}

/// Of a vector B on a grid of R columns, a link of a row carries B in the last step and B / R in the others, where whole vectors
/// take a B in each of four steps.
#[test]
fn long_vectors_on_a_grid_use_all_links_of_a_row() {
    for (collective, size) in SCANS.into_iter().flat_map(|one| [4_u64, 8].map(|size| (one, size))) {
        let capabilities = dragonfly(size as u32, size as u32);
        let plan = plan(&request(collective, capabilities.nodes, 64 << 20, None), &capabilities).unwrap();
        assert_eq!(plan.algorithm, Algorithm::TwoLevel);
        let bytes = (64 << 20) + 4 * (64 << 20) / size;
        let link_ps = bytes * 8_000_000 / 45_000;
        let beyond = plan.predicted.arrival_ps as f64 / link_ps as f64;
        assert!((1.0..1.001).contains(&beyond), "{collective} on {size}x{size}: {beyond}");
    }
}

#[test]
fn cards_without_the_operation_scan_as_before() {
    let mut grid = dragonfly(4, 4);
    grid.operations &= !(1 << Operation::AlltoallScan as u8);
    let whole = plan(&request(Collective::Scan, 16, 64 << 20, None), &grid).unwrap();
    assert_eq!(operations(&whole, 0)[0], Operation::Scan);
    let mut capabilities = connected(8);
    capabilities.operations &= !(1 << Operation::AlltoallScan as u8);
    for collective in SCANS {
        let long = request(collective, 8, 64 << 20, None);
        assert_eq!(plan(&long, &capabilities).unwrap().algorithm, Algorithm::Direct);
        let forced = Request { algorithm: Some(Algorithm::Multipath), ..long };
        let cause = plan(&forced, &capabilities).unwrap_err().to_string();
        assert!(cause.contains("does not support this operation"), "{cause}");
    }
}

#[test]
fn what_multipath_cannot_scan_is_refused_with_the_reason() {
    let scan = |ranks, bytes| request(Collective::Scan, ranks, bytes, Some(Algorithm::Multipath));
    let operand = Operand::card;
    let between = Range { address: 2 << 20, bytes: 1 << 20 };
    let placement = Placement { input: operand(0), output: operand(1 << 20), between };
    for (wrong, part) in [
        (scan(1, 64), "two different cards"),
        (Request { placement: Some(placement), ..scan(4, 64) }, "a placement is not supported"),
        // Four pieces of 4 blocks of half of K.
        (scan(4, (2 << 30) + 1), "4 ranks have 4 blocks each of at most 134217728 B"),
    ] {
        let cause = plan(&wrong, &connected(4)).unwrap_err().to_string();
        assert!(cause.contains(part), "{cause}");
    }
    let cause = plan(&scan(16, 64), &dragonfly(4, 4)).unwrap_err().to_string();
    assert!(cause.contains("a link between every two cards"), "{cause}");
    check(&plan(&scan(4, 2 << 30), &connected(4)).unwrap(), &connected(4));
}

/// A row of a Dragonfly, in any order, is linked.
#[test]
fn ranks_of_a_row_are_scanned_over_all_their_links() {
    let capabilities = dragonfly(3, 5);
    for collective in SCANS {
        let request = Request { group: vec![9, 5, 7, 6], ..request(collective, 4, 5000, Some(Algorithm::Multipath)) };
        let plan = plan(&request, &capabilities).unwrap();
        let input = data(&request);
        assert_eq!(run(&plan, &capabilities, &input), expected(&request, &input));
    }
}

/// What `rank` writes.
fn writes(plan: &Plan, capabilities: &Capabilities, rank: usize) -> Vec<Range> {
    let node = plan.request.group[rank];
    let mut writes = Vec::new();
    for instruction in &plan.set.programs[rank].instructions {
        let members = members(plan, capabilities, node, instruction.communicator);
        let own = members.iter().position(|member| *member == node).unwrap() as u32;
        let (ranks, stripe_bytes) = (members.len() as u32, capabilities.stripe_bytes());
        let context = Context { rank: own, ranks, stripe_bytes, tables: &Tables::new() };
        writes.extend(card_ranges(instruction, &context).unwrap().writes);
    }
    writes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// On slow links, so that vectors of any length go over all links of a row if they have more than one block. Stripes may be
    /// too small for that.
    #[test]
    fn grids_scan_over_all_links_of_a_row(
        collective in prop::sample::select(&SCANS[..]),
        rows in 2_u32..5,
        columns in 2_u32..5,
        bytes in prop_oneof![0_u64..300, 300_u64..6000],
        half_beats in prop_oneof![4_u64..400, Just(1 << 20)],
        limit in prop::option::of(0_u64..200),
    ) {
        let mut capabilities = dragonfly(rows, columns);
        capabilities.timing.link_mbps = 10;
        capabilities.stripe_half_bytes = 32 * half_beats;
        capabilities.memory_bytes = (1 << 16) + 40 * capabilities.stripe_bytes();
        let request = Request { eager_limit: limit, ..request(collective, rows * columns, bytes, None) };
        let plan = plan(&request, &capabilities).unwrap();
        check(&plan, &capabilities);
        let input = data(&request);
        prop_assert_eq!(run(&plan, &capabilities, &input), expected(&request, &input));
        let block = bytes.div_ceil(columns.into());
        let fits = block <= half_beats / 4 * 32;
        let is_in_blocks = operations(&plan, 0).contains(&Operation::AlltoallScan);
        prop_assert!(fits || !is_in_blocks);
        prop_assert!(is_in_blocks || !fits || bytes < 300, "{:?}", plan.predicted);
        if collective == Collective::Exscan {
            let outputs = plan.set.programs[1].output.iter().map(|piece| Range { address: piece.address, bytes: piece.bytes });
            let written = writes(&plan, &capabilities, 0);
            for output in outputs.filter(|_| is_in_blocks) {
                prop_assert!(written.iter().all(|range| !range.overlaps(output)), "{:?} at {:?}", written, output);
            }
        }
    }

    /// Stripes of a few beats, so that vectors are cut into pieces. Rank 0 of an exscan writes nothing where the others have
    /// their outputs.
    #[test]
    fn vectors_of_any_length_are_scanned_if_the_stripes_hold_them(
        collective in prop::sample::select(&SCANS[..]),
        nodes in 2_u32..8,
        spare in 0_u32..2,
        half_beats in 2_u64..12,
        stripes in 1_u64..40,
        bytes in prop_oneof![0_u64..200, 0_u64..6000],
        limit in prop::option::of(0_u64..200),
    ) {
        let mut capabilities = connected(nodes + spare);
        prop_assert_eq!(capabilities.topology, Topology::FullyConnected);
        capabilities.stripe_half_bytes = 32 * half_beats;
        capabilities.memory_bytes = stripes * capabilities.stripe_bytes();
        let forced = request(collective, nodes, bytes, Some(Algorithm::Multipath));
        let request = Request { group: (spare..nodes + spare).rev().collect(), eager_limit: limit, ..forced };
        let blocks_in_half = if collective == Collective::Exscan { 3 } else { 2 };
        let held = u64::from(nodes) * (stripes / u64::from(nodes)) * (half_beats / blocks_in_half * 32);
        let plan = plan(&request, &capabilities);
        prop_assert_eq!(plan.is_ok(), bytes <= held && held > 0, "{:?}", plan.map_err(|refusal| refusal.cause));
        let Ok(plan) = plan else { return Ok(()) };
        check(&plan, &capabilities);
        let input = data(&request);
        prop_assert_eq!(run(&plan, &capabilities, &input), expected(&request, &input));
        if collective == Collective::Exscan {
            let outputs = plan.set.programs[1].output.iter().map(|piece| Range { address: piece.address, bytes: piece.bytes });
            let written = writes(&plan, &capabilities, 0);
            for output in outputs {
                prop_assert!(written.iter().all(|range| !range.overlaps(output)), "{:?} at {:?}", written, output);
            }
        }
    }
}
