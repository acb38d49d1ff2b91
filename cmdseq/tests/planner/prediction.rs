//! Predicted times against what the OPTWEB paper publishes of its cards.

use super::cards::{connected, dragonfly, request};
use cmdseq::Capabilities;
use cmdseq::plan::{Algorithm, Collective, Plan, Prediction, plan};

fn direct(collective: Collective, bytes: u64) -> Plan {
    plan(&request(collective, 4, bytes, Some(Algorithm::Direct)), &connected(4)).unwrap()
}

fn close(found_ps: u64, published_us: f64, percent: f64) {
    let found = found_ps as f64 / 1e6;
    assert!((found / published_us - 1.0).abs() <= percent / 100.0, "{found} us, published {published_us} us");
}

const DATA: [Collective; 8] = [
    Collective::Send,
    Collective::Recv,
    Collective::Sendrecv,
    Collective::Scatter,
    Collective::Gather,
    Collective::Broadcast,
    Collective::Alltoall,
    Collective::Allgather,
];

#[test]
fn barrier() {
    let Prediction { t1_ps, t2_ps, arrival_ps, .. } = direct(Collective::Barrier, 0).predicted;
    assert_eq!((t1_ps, t2_ps, arrival_ps), (40_000, 400_000, 400_000));
}

#[test]
fn eager_64_bytes_are_the_same_for_every_operation() {
    for collective in DATA {
        let Prediction { t1_ps, t2_ps, arrival_ps, .. } = direct(collective, 64).predicted;
        close(t1_ps, 0.32, 2.0);
        close(arrival_ps, 0.71, 2.0);
        close(t2_ps, 1.10, 2.0);
    }
}

#[test]
fn vector_forms_of_one_length_are_as_fast_as_the_others() {
    for (vector, plain) in [
        (Collective::Scatterv, Collective::Scatter),
        (Collective::Gatherv, Collective::Gather),
        (Collective::Allgatherv, Collective::Allgather),
        (Collective::Alltoallv, Collective::Alltoall),
    ] {
        for bytes in [0, 1, 64, 16384, 16385, 1 << 20, 256 << 20] {
            let mut request = request(vector, 4, bytes, None);
            request.counts.fill(bytes);
            let predicted = plan(&request, &connected(4)).unwrap().predicted;
            assert_eq!(predicted, direct(plain, bytes).predicted, "{vector} of {bytes} B");
        }
    }
}

#[test]
fn rendezvous_64_bytes() {
    for collective in DATA {
        let mut forced = request(collective, 4, 64, Some(Algorithm::Direct));
        forced.eager_limit = Some(0);
        let arrival = plan(&forced, &connected(4)).unwrap().predicted.arrival_ps;
        close(arrival, 0.80, 2.0);
        let later = arrival - direct(collective, 64).predicted.arrival_ps;
        assert!((75_000..=105_000).contains(&later), "{collective}: {later} ps later");
    }
}

#[test]
fn large_blocks_fill_the_links() {
    for collective in DATA {
        let bytes: u64 = 128 << 20;
        let arrival = direct(collective, bytes).predicted.arrival_ps;
        close(arrival, 0.8 + bytes as f64 * 8.0 / 45_000.0, 1.0);
    }
}

#[test]
fn multipath_start_up_and_bandwidth() {
    let multipath = |nodes, bytes| {
        plan(&request(Collective::Send, nodes, bytes, Some(Algorithm::Multipath)), &connected(nodes)).unwrap()
    };
    close(multipath(4, 256).predicted.arrival_ps, 1.87, 2.0);
    for (nodes, published_gbps) in [(4, 90.0), (8, 180.0)] {
        let bytes: u64 = 128 << 20;
        let plan = multipath(nodes, bytes);
        close(plan.predicted.arrival_ps, bytes as f64 * 8e-3 / published_gbps, 1.0);
        // The direct link carries its own piece to the receiver, and the one that the sender kept.
        assert_eq!(plan.busiest_link_bytes, 2 * bytes / u64::from(nodes));
    }
}

#[test]
fn the_faster_way_is_chosen() {
    let chosen = |collective, nodes, bytes| plan(&request(collective, nodes, bytes, None), &connected(nodes)).unwrap();
    for collective in [Collective::Send, Collective::Recv] {
        assert_eq!(chosen(collective, 4, 8 << 10).algorithm, Algorithm::Direct);
        assert_eq!(chosen(collective, 4, 16 << 10).algorithm, Algorithm::Multipath);
        assert_eq!(chosen(collective, 2, 1 << 20).algorithm, Algorithm::Direct);
    }
    assert_eq!(chosen(Collective::Broadcast, 4, 1 << 20).algorithm, Algorithm::Multipath);
    assert_eq!(chosen(Collective::Alltoall, 4, 1 << 20).algorithm, Algorithm::Direct);
}

#[test]
fn nothing_sent_takes_the_dispatch_only() {
    for collective in DATA {
        let Prediction { t1_ps, t2_ps, arrival_ps, .. } = direct(collective, 0).predicted;
        assert_eq!((t1_ps, t2_ps, arrival_ps), (40_000, 40_000, 40_000), "{collective}");
    }
}

#[test]
fn a_pseudo_channel_is_shared_by_the_blocks_it_serves() {
    // 20 cards, 16 memory I/Os: some pseudo channels serve two blocks.
    let bytes: u64 = 16 << 20;
    let time = |nodes| {
        let request = request(Collective::Alltoall, nodes, bytes, Some(Algorithm::Direct));
        plan(&request, &connected(nodes)).unwrap().predicted.arrival_ps
    };
    close(time(16), 0.8 + bytes as f64 * 8.0 / 45_000.0, 1.0);
    assert!(time(20) > time(16) * 3 / 2, "{} against {}", time(20), time(16));
}

#[test]
fn a_note_counts_the_memory_ios_that_ranks_share() {
    for (memory_channels, note) in [(32, "20 ranks share 16 memory I/Os"), (2, "20 ranks share 1 memory I/O")] {
        let capabilities = Capabilities { memory_channels, ..connected(20) };
        let request = request(Collective::Alltoall, 20, 64, Some(Algorithm::Direct));
        let notes = plan(&request, &capabilities).unwrap().notes;
        assert!(notes.iter().any(|one| one == note), "{notes:?}");
    }
}

#[test]
fn a_dragonfly_takes_two_phases() {
    let barrier = plan(&request(Collective::Barrier, 16, 0, None), &dragonfly(4, 4)).unwrap();
    assert_eq!(barrier.algorithm, Algorithm::TwoLevel);
    assert_eq!(barrier.predicted.arrival_ps, 400_000 + 60_000 + 400_000);
}

#[test]
fn short_blocks_are_packed_between_the_phases_of_a_grid() {
    let most = |collective: Collective, (groups, size): (u32, u32), bytes: u64| {
        let plan = plan(&request(collective, groups * size, bytes, None), &dragonfly(groups, size)).unwrap();
        plan.set.programs.iter().map(|program| program.instructions.len()).max().unwrap()
    };
    for shape in [(8, 8), (4, 8)] {
        for collective in [Collective::Scatter, Collective::Gather, Collective::Allgather, Collective::ReduceScatter] {
            assert_eq!(most(collective, shape, 1 << 10), 2, "{collective} on {shape:?}");
            // Long ones are in stripes: an instruction for each rank of a row.
            assert_eq!(most(collective, shape, 1 << 18), 1 + shape.1 as usize, "{collective} on {shape:?}");
        }
        assert_eq!(most(Collective::Allreduce, shape, 1 << 16), 4, "{shape:?}");
    }
}
