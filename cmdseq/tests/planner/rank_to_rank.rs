//! What goes from rank to rank on a grid: transfers, and reductions in the order of the ranks. And what long blocks take.

use cmdseq::meaning::expect;
use cmdseq::plan::Order;
use cmdseq::{Combine, Element};

use super::*;

const COLLECTIVES: [Collective; 7] = [
    Collective::Send,
    Collective::Recv,
    Collective::Reduce,
    Collective::Allreduce,
    Collective::ReduceScatter,
    Collective::Scan,
    Collective::Exscan,
];

fn in_rank_order(collective: Collective, ranks: u32, bytes: u64) -> Request {
    let combine = collective.reduces().then_some(Combine::new(Reduction::Sum, Element::F32));
    Request { order: Order::Rank, combine, ..request(collective, ranks, bytes, None) }
}

/// Arrival of the chosen plan, in multiples of the lower bound.
fn over_bound(request: &Request, capabilities: &Capabilities) -> f64 {
    let bound = request.lower_bound(capabilities).unwrap().total_ps();
    plan(request, capabilities).unwrap().predicted.arrival_ps as f64 / bound as f64
}

/// By all algorithms, at any root, in any placement. Input and output that lie apart are not copied.
#[test]
fn what_goes_from_rank_to_rank_is_right_on_a_grid() {
    let between = Range { address: 16 << 20, bytes: 16 << 20 };
    let at = |input, output| Placement { input: Operand::card(input), output: Operand::card(output), between };
    let placements = [None, Some(at(0, 8 << 20)), Some(at(8 << 20, 0)), Some(at(0, 0)), Some(at(64, 0))];
    for (rows, columns, bytes) in [(2, 2, 4), (3, 4, 1000), (2, 3, 66_000)] {
        for (collective, placement, align) in COLLECTIVES
            .into_iter()
            .flat_map(|one| placements.iter().flat_map(move |place| [1, 32].map(move |align| (one, place, align))))
        {
            let capabilities = Capabilities { address_align: align, ..dragonfly(rows, columns) };
            let ranks = rows * columns;
            let is_aligned = collective != Collective::ReduceScatter || bytes % u64::from(align) == 0;
            if placement.is_some() && !is_aligned {
                continue;
            }
            for root in [0, 1, ranks - 1] {
                let whole = in_rank_order(collective, ranks, bytes);
                let request = Request { root, peer: ranks - 1 - root, placement: *placement, ..whole };
                let input = data(&request);
                let mut found = Vec::new();
                for (algorithm, candidate) in candidates(&request, &capabilities) {
                    let Ok(candidate) = candidate else { continue };
                    check(&candidate, &capabilities);
                    expect(&candidate.set, &capabilities, &request).unwrap();
                    assert!(
                        run(&candidate, &capabilities, &input) == expected(&request, &input),
                        "{algorithm}: {request:?}"
                    );
                    found.push((algorithm, candidate));
                }
                let places = placement.as_ref().map(|one| one.input.address.abs_diff(one.output.address));
                let is_apart = places.is_some_and(|distance| distance > 1 << 20);
                let way = if collective.reduces() { Algorithm::Ring } else { Algorithm::Relay };
                let (_, over_others) = found.iter().find(|(algorithm, _)| *algorithm == way).unwrap();
                // What the last rank folds and what a scan leaves lies in intermediate memory first.
                if is_apart && collective != Collective::Scan && root != request.peer {
                    let first = &over_others.set.programs[0].instructions;
                    assert!(first.iter().all(|one| one.operation != Operation::Copy), "{request:?}");
                }
                if !collective.has_root() {
                    break;
                }
            }
        }
    }
}

/// Segments of long vectors follow each other along the ranks.
#[test]
fn long_reductions_in_rank_order_are_pipelined_on_a_grid() {
    for (collective, bytes) in [
        (Collective::Reduce, 64 << 20),
        (Collective::Allreduce, 64 << 20),
        (Collective::ReduceScatter, 4 << 20),
        (Collective::Scan, 64 << 20),
    ] {
        let ratio = over_bound(&in_rank_order(collective, 64, bytes), &dragonfly(8, 8));
        assert!(ratio < 100.0, "{collective}: {ratio:.1} times the bound");
    }
}

#[test]
fn a_long_transfer_on_a_small_grid_is_within_twice_and_a_half_the_bound() {
    for collective in [Collective::Send, Collective::Recv] {
        let ratio = over_bound(&request(collective, 4, 64 << 20, None), &dragonfly(2, 2));
        assert!(ratio < 2.5, "{collective}: {ratio:.2} times the bound");
    }
}

/// Twice the bytes take little more than twice the time, whatever the layout of the blocks.
#[test]
fn long_blocks_of_an_alltoall_take_no_more_for_each_byte() {
    for (rows, columns) in [(2, 2), (3, 5), (4, 4), (8, 4)] {
        let capabilities = dragonfly(rows, columns);
        let arrival = |bytes| {
            let request = request(Collective::Alltoall, rows * columns, bytes, None);
            plan(&request, &capabilities).unwrap().predicted.arrival_ps as f64
        };
        for bytes in [16 << 20, 32 << 20] {
            let growth = arrival(2 * bytes) / arrival(bytes);
            assert!(growth < 2.05, "{rows}x{columns}, {bytes} B: {growth:.2} times for twice the bytes");
        }
    }
}

/// Whole blocks where all cards relay for others meanwhile, else segments that follow each other.
#[test]
fn blocks_over_other_cards_are_cut_only_if_that_is_faster() {
    let grid = dragonfly(4, 4);
    let most_on_a_card = |collective, group: Vec<u32>| {
        let request = request_of(collective, group, 4 << 20, [0, 1]);
        let plan = plan(&request, &grid).unwrap();
        assert_eq!(plan.algorithm, Algorithm::Relay);
        plan.set.programs.iter().map(|program| program.instructions.len()).max().unwrap()
    };
    assert!(most_on_a_card(Collective::Alltoall, (0..15).collect()) < 64);
    assert!(most_on_a_card(Collective::Sendrecv, vec![0, 5, 10, 15]) >= 64);
}
