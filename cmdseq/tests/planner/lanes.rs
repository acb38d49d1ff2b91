//! Plans for cards with several lanes.

use cmdseq::plan::{Algorithm, Collective, Piece, Plan, Request, plan};
use cmdseq::{Capabilities, Instruction, Operation};

use crate::cards::{combine, connected, dragonfly, request};
use crate::{check, data, expected, run};

fn with_lanes(lanes: u32, capabilities: Capabilities) -> Capabilities {
    Capabilities { lanes, ..capabilities }
}

/// The predicted arrival of the plan that is chosen, over the lower bound.
fn over_bound(request: &Request, capabilities: &Capabilities) -> f64 {
    let plan = plan(request, capabilities).unwrap();
    let bound = request.lower_bound(capabilities).unwrap().total_ps();
    plan.predicted.arrival_ps as f64 / bound as f64
}

#[test]
fn long_vectors_use_all_links_at_once() {
    let meshes = [3, 4, 8, 16].map(connected);
    let grids = [(2, 2), (3, 4), (4, 4), (8, 8)].map(|(groups, size)| dragonfly(groups, size));
    for capabilities in meshes.into_iter().chain(grids) {
        let capabilities = with_lanes(6, capabilities);
        for collective in [Collective::Send, Collective::Broadcast, Collective::Reduce, Collective::Allreduce] {
            let mut request = request(collective, capabilities.nodes, 64 << 20, None);
            request.peer = capabilities.nodes - 1;
            let ratio = over_bound(&request, &capabilities);
            assert!(ratio < 1.15, "{collective} of 64 MiB on {:?}: {ratio}", capabilities.topology);
        }
        for collective in [
            Collective::Scatter,
            Collective::Gather,
            Collective::Allgather,
            Collective::ReduceScatter,
            Collective::Alltoall,
        ] {
            let ratio = over_bound(&request(collective, capabilities.nodes, 4 << 20, None), &capabilities);
            // On a grid that is not square, some of what an alltoall sends at once is in one stripe.
            let is_square = capabilities.nodes != 12 || collective != Collective::Alltoall;
            let most = if is_square { 1.15 } else { 1.5 };
            assert!(ratio < most, "{collective} of 4 MiB on {:?}: {ratio}", capabilities.topology);
        }
    }
}

/// Where stripes share pseudo channels, memory is the bottleneck: what else moves has channels that blocks leave.
#[test]
fn long_vectors_use_the_whole_memory_where_stripes_share_channels() {
    use Collective::{Allgather, Allreduce, Alltoall, Broadcast, Gather, Reduce, ReduceScatter, Scatter, Send};
    let mesh = |lanes| with_lanes(lanes, connected(64));
    let grid = with_lanes(6, dragonfly(22, 44));
    for (capabilities, collective, bytes, most) in [
        (mesh(2), Send, 64 << 20, 1.15),
        (mesh(2), Broadcast, 64 << 20, 1.15),
        (mesh(1), Reduce, 64 << 20, 1.15),
        (mesh(1), Allreduce, 64 << 20, 1.15),
        (mesh(1), Scatter, 4 << 20, 1.15),
        (mesh(1), Gather, 4 << 20, 1.15),
        (mesh(1), Allgather, 4 << 20, 1.15),
        (mesh(1), Alltoall, 4 << 20, 1.15),
        (mesh(1), ReduceScatter, 4 << 20, 1.15),
        // Here it has a channel of its own.
        (connected(24), ReduceScatter, 4 << 20, 1.15),
        (grid.clone(), Send, 64 << 20, 1.5),
        (grid.clone(), Broadcast, 64 << 20, 1.5),
        (grid.clone(), Reduce, 64 << 20, 1.5),
        (grid.clone(), Allreduce, 64 << 20, 1.5),
        // A channel has up to three of the blocks of a row.
        (grid.clone(), Scatter, 4 << 20, 2.0),
        (grid.clone(), Gather, 4 << 20, 2.0),
        (grid.clone(), Allgather, 4 << 20, 2.0),
        (grid.clone(), ReduceScatter, 4 << 20, 2.0),
        (grid, Alltoall, 4 << 20, 1.5),
    ] {
        let mut request = request(collective, capabilities.nodes, bytes, None);
        request.peer = capabilities.nodes - 1;
        let ratio = over_bound(&request, &capabilities);
        assert!(ratio < most, "{collective} of {bytes} B on {:?}: {ratio}", capabilities.topology);
    }
}

/// Where a channel has two stripes, each rank reads its own chunk of a broadcast where it came, and no other is in that channel.
#[test]
fn a_broadcast_needs_no_buffers_where_a_channel_has_two_stripes() {
    for (nodes, root) in [(4, 0), (4, 2), (6, 5), (8, 0), (8, 3), (8, 7)] {
        let mut capabilities = with_lanes(2, connected(nodes));
        capabilities.memory_channels = nodes / 2;
        capabilities.memory_bytes = 8192 * u64::from(nodes);
        capabilities.stripe_half_bytes = 4096;
        // So slow that short chunks go in pieces.
        capabilities.timing.channel_mbps /= 500;
        for bytes in [1, 63, 200, 1000, 4096, 9999, u64::from(nodes - 1) * 4096] {
            let request = Request { root, ..request(Collective::Broadcast, nodes, bytes, Some(Algorithm::Lanes)) };
            let plan = plan(&request, &capabilities).unwrap();
            check(&plan, &capabilities);
            let input = data(&request);
            assert_eq!(run(&plan, &capabilities, &input), expected(&request, &input), "{nodes} cards, {bytes} B");
            for (rank, program) in (0..nodes).zip(&plan.set.programs) {
                assert_eq!(program.tables.is_empty(), rank == root);
                assert!(bytes < 9999 || program.instructions.len() > 3, "pieces");
                let sends = |one: &&Instruction| one.operation == Operation::Allgatherv && one.bytes > 0;
                let own = program.instructions.iter().find(sends).map(|own| own.source.address / 16_384);
                let in_channel = |one: &&Piece| own == Some(one.address / 16_384);
                assert!(program.output.iter().filter(in_channel).count() <= 1, "rank {rank} of {nodes}, {bytes} B");
            }
        }
    }
}

/// With one lane, or without what the programs need, others are chosen.
#[test]
fn cards_that_lack_something_get_other_plans() {
    let forced = |collective, nodes| request(collective, nodes, 1 << 20, Some(Algorithm::Lanes));
    let mut without_tables = with_lanes(8, dragonfly(4, 4));
    without_tables.tables = 4;
    let mut without_alltoallv = with_lanes(8, dragonfly(4, 4));
    without_alltoallv.operations &= !(1 << Operation::Alltoallv as u8);
    let mut narrow = with_lanes(8, connected(8));
    narrow.memory_bytes /= 32;
    for (capabilities, collective, says) in [
        (connected(8), Collective::Broadcast, "these have one"),
        (with_lanes(2, connected(8)), Collective::Allgather, "lanes of allgather is for a Dragonfly or a torus"),
        (with_lanes(2, dragonfly(4, 4)), Collective::Broadcast, "needs 6 lanes: these cards have 2"),
        (with_lanes(2, connected(2)), Collective::Broadcast, "needs three ranks"),
        (without_tables, Collective::Alltoall, "a table for each row and column"),
        (without_alltoallv, Collective::Alltoall, "a table for each row and column"),
        (with_lanes(8, connected(64)), Collective::Reduce, "these cards are fully connected"),
        (with_lanes(8, dragonfly(4, 32)), Collective::Alltoall, "needs 64 stripes, with pseudo channels of their own"),
        (narrow, Collective::Broadcast, "no room for 1048576 B over 7 links"),
    ] {
        let refusal = plan(&forced(collective, capabilities.nodes), &capabilities).unwrap_err();
        assert!(refusal.cause.contains(says), "{collective}: {refusal}");
        let any = Request { algorithm: None, ..forced(collective, capabilities.nodes) };
        assert_ne!(plan(&any, &capabilities).unwrap().algorithm, Algorithm::Lanes);
    }
    let in_order = Request {
        order: cmdseq::plan::Order::Rank,
        combine: combine(Collective::Reduce).map(|one| cmdseq::Combine { element: cmdseq::Element::F32, ..one }),
        ..forced(Collective::Reduce, 4)
    };
    assert!(plan(&in_order, &with_lanes(8, connected(4))).is_err());
}

/// As many chunks as channels that stripes share, whether that divides the cards or not.
#[test]
fn lanes_are_right_however_few_channels_a_card_has() {
    for (nodes, memory_channels) in [(3, 1), (5, 2), (7, 4), (12, 4), (26, 4), (26, 8), (36, 16), (40, 32)] {
        let capabilities = Capabilities { memory_channels, ..with_lanes(2, connected(nodes)) };
        let mut planned = 0;
        for collective in [Collective::Send, Collective::Broadcast, Collective::Reduce, Collective::Allreduce] {
            for bytes in [1, 12, 4096] {
                let request = request(collective, nodes, bytes, Some(Algorithm::Lanes));
                let Ok(plan) = plan(&request, &capabilities) else { continue };
                planned += 1;
                check(&plan, &capabilities);
                let input = data(&plan.request);
                assert!(
                    run(&plan, &capabilities, &input) == expected(&plan.request, &input),
                    "{collective} of {bytes} B on {nodes} cards with {memory_channels} channels"
                );
            }
        }
        assert!(planned >= 3, "{planned} plans on {nodes} cards with {memory_channels} channels");
    }
}

/// Where the fastest broadcast needs tables, cards store another one.
#[test]
fn a_resident_broadcast_in_lanes_has_no_tables() {
    let capabilities = with_lanes(4, connected(64));
    let once = request(Collective::Broadcast, 64, 16 << 20, Some(Algorithm::Lanes));
    let stored = Request { resident: true, ..once.clone() };
    let [once, stored] = [once, stored].map(|request| plan(&request, &capabilities).unwrap());
    let has_tables = |plan: &Plan| plan.set.programs.iter().any(|program| !program.tables.is_empty());
    assert_eq!([&once, &stored].map(has_tables), [true, false]);
    assert!(stored.predicted.arrival_ps < once.predicted.arrival_ps * 11 / 10);
}
