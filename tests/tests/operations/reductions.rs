//! Every reduction of every element type, over rings, DMA and registers of mock cards, bit for bit against an oracle
//! independent of the cards' arithmetic and the planner.
//!
//! The named subset always runs; `FPGA_TESTS_FULL=1` runs all cases (`tests/run --full`).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::groups::{fabrics, groups};
use cmdseq::plan::{Algorithm, FoldOrder, Folding, Order, Plan, Request, candidates, plan};
use cmdseq::{Combine, Instruction, Operand, Operation, Status};
use fpga_driver::{Cluster, Error, Execution};
use fpga_mock::Profile;
use fpga_tests::folding::{Tree, grid};
use fpga_tests::reduction::{Case, FLOATS, OPERATIONS, Reducing, combinations, element_bytes, fold, input, special};
use fpga_tests::run;
use fpga_tests::sweep::{self, Sweep, is_full};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn combine(case: &Case<'_>) -> Combine {
    Combine::new(case.reduction.parse().unwrap(), case.element.parse().unwrap())
}

fn request(case: &Case<'_>, group: Vec<u32>) -> Request {
    Request {
        root: case.root,
        combine: Some(combine(case)),
        ..Request::new(case.operation.parse().unwrap(), group, case.bytes)
    }
}

/// Runs every algorithm that there is for the request, and gives their names.
fn check_all(sweep: &mut Sweep, case: Case<'_>, request: &Request) -> BTreeSet<&'static str> {
    let grid = grid(sweep.cluster.capabilities(), &request.group);
    let all = candidates(request, sweep.cluster.capabilities());
    let plans = all.into_iter().filter_map(|(algorithm, plan)| Some((algorithm, plan.ok()?)));
    plans
        .map(|(algorithm, plan)| {
            sweep.check_plan(&plan, |seed| Reducing::new(case, grid, seed));
            algorithm.name()
        })
        .collect()
}

/// Algorithms for each operation where every two cards have a link.
const WAYS: [(&str, &[&str]); 5] = [
    ("reduce", &["binomial", "direct", "multipath", "ring"]),
    ("allreduce", &["binomial", "direct", "multipath", "ring"]),
    ("reduce_scatter", &["direct", "ring"]),
    ("scan", &["direct", "multipath", "ring"]),
    ("exscan", &["direct", "multipath", "ring"]),
];

/// Elements: one, a few beats and a part, and more than is sent eagerly.
const SIZES: [u64; 3] = [1, 77, 16_999];

#[test]
fn every_reduction_of_every_type_on_every_number_of_ranks() {
    let full = is_full();
    let ranks: Vec<u32> = if full { (2..=17).chain([64]).collect() } else { vec![2, 3, 5, 8] };
    let mut cases = 0;
    for ranks in ranks {
        // Of many ranks each combination has one size and one root; together they have all.
        let all = full && (ranks <= 8 || ranks == 17);
        let mut sweep = Sweep::new(&format!("mock:optweb:{ranks}"));
        let group: Vec<u32> = (0..ranks).collect();
        for (number, (reduction, element)) in combinations().into_iter().enumerate() {
            for (place, (operation, ways)) in WAYS.into_iter().enumerate() {
                let sizes = if all { &SIZES[..] } else { &SIZES[(number + place + ranks as usize) % 3..][..1] };
                let roots = if operation == "reduce" && all { 0..ranks } else { 0..1 };
                for (root, elements) in roots.flat_map(|root| sizes.iter().map(move |elements| (root, *elements))) {
                    let root = if all { root } else { number as u32 % ranks };
                    // Past the eager limit, for the longer types; the longest vectors now and then.
                    let elements = if elements > 1000 && !all && number % 32 != 0 { 4100 } else { elements };
                    let bytes = elements * element_bytes(element) as u64;
                    let case = Case { operation, reduction, element, ranks, bytes, root };
                    let eager_limit = [None, Some(0)][(number + place) % 2];
                    let request = Request { eager_limit, ..request(&case, group.clone()) };
                    let found = check_all(&mut sweep, case, &request);
                    assert!(found.iter().eq(ways), "{operation}: {found:?}");
                }
            }
        }
        cases += sweep.cases;
    }
    println!("{cases} cases");
    assert!(cases >= 4 * 106 * 14);
}

#[test]
fn special_values_meet_each_other() {
    let mut cluster = Sweep::new("mock:optweb:3").cluster;
    for (reduction, element) in combinations() {
        let special = special(element);
        let count = special.len();
        // Each value with each, and some with all.
        let column = |pick: &dyn Fn(usize) -> usize| -> Vec<u8> {
            (0..count * count).flat_map(|place| special[pick(place) % count].clone()).collect()
        };
        let inputs = vec![column(&|place| place), column(&|place| place / count), column(&|place| place * 7 + 3)];
        let bytes = inputs[0].len() as u64;
        for operation in ["allreduce", "scan"] {
            let case = Case { operation, reduction, element, ranks: 3, bytes, root: 0 };
            let data = Reducing::of(case, (1, 3), inputs.clone());
            for (algorithm, plan) in candidates(&request(&case, vec![0, 1, 2]), cluster.capabilities()) {
                let Ok(plan) = plan else { continue };
                sweep::run(&mut cluster, &plan, &data, false)
                    .unwrap_or_else(|why| panic!("{operation}, {algorithm}: {reduction} of {element}: {why}"));
            }
        }
    }
}

#[test]
fn subgroups_in_any_order_fold_in_the_order_of_their_ranks() {
    let mut sweep = Sweep::new("mock:optweb:8");
    for group in [vec![5], vec![5, 2], vec![7, 0, 3], vec![6, 5, 4, 3, 2, 1, 0]] {
        let ranks = group.len() as u32;
        for operation in OPERATIONS {
            for (reduction, element) in [("sum", "f32"), ("sum", "f16"), ("prod", "bf16"), ("maxloc", "f64i32")] {
                for elements in [1, 1000, 5000] {
                    let bytes = elements * element_bytes(element) as u64;
                    let case = Case { operation, reduction, element, ranks, bytes, root: ranks - 1 };
                    check_all(&mut sweep, case, &request(&case, group.clone()));
                }
            }
        }
    }
}

/// Rows and columns, and what has links besides.
#[test]
fn dragonflies_reduce() {
    for (selector, ranks) in
        [("mock:optweb:4x4", 16), ("mock:optweb:3x5", 15), ("mock:optweb:2x2", 4), ("mock:optweb:3x4+lanes=6", 12)]
    {
        let mut sweep = Sweep::new(selector);
        for operation in OPERATIONS {
            for (number, (reduction, element)) in
                [("sum", "f32"), ("sum", "f16"), ("prod", "f64"), ("xor", "u8"), ("minloc", "i64i32")]
                    .into_iter()
                    .enumerate()
            {
                for (elements, order) in
                    [(1, Order::Any), (77, Order::Rank), (4100 + 12_899 * u64::from(is_full()), Order::Any)]
                {
                    let bytes = elements * element_bytes(element) as u64;
                    for root in [0, ranks / 2 + number as u32 % 2, ranks - 1] {
                        let case = Case { operation, reduction, element, ranks, bytes, root };
                        let request = Request { order, ..request(&case, (0..ranks).collect()) };
                        let found = check_all(&mut sweep, case, &request);
                        assert!(found.contains("two-level") || found.contains("ring"), "{case:?}: {found:?}");
                        if operation != "reduce" {
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// The cards of a torus all reach each other, and are rows and columns all the same.
#[test]
fn the_two_levels_of_tori_reduce() {
    for (selector, ranks) in [("mock:circus:2x3", 6), ("mock:circus:4x4", 16), ("mock:bluelink:2x4", 8)] {
        let mut sweep = Sweep::new(selector);
        for operation in OPERATIONS {
            for (reduction, element) in [("sum", "f32"), ("prod", "f64"), ("sum", "f16")] {
                for elements in [1, 256, 5000] {
                    let bytes = elements * element_bytes(element) as u64;
                    let case = Case { operation, reduction, element, ranks, bytes, root: ranks - 1 };
                    let request =
                        Request { algorithm: Some(Algorithm::TwoLevel), ..request(&case, (0..ranks).collect()) };
                    let plan = plan(&request, sweep.cluster.capabilities()).unwrap();
                    let grid = grid(sweep.cluster.capabilities(), &request.group);
                    sweep.check_plan(&plan, |seed| Reducing::new(case, grid, seed));
                }
            }
        }
    }
}

/// In blocks, over all links of a row, which is faster for long vectors: with the same folds.
#[test]
fn long_scans_of_dragonflies_fold_as_short_ones() {
    let in_lanes = [("mock:optweb:4x4+lanes=6", 16), ("mock:optweb:3x5+lanes=2", 15), ("mock:optweb:5x2+lanes=9", 10)];
    for (selector, ranks) in
        [("mock:optweb:4x4", 16), ("mock:optweb:3x5", 15), ("mock:optweb:2x2", 4)].into_iter().chain(in_lanes)
    {
        let mut sweep = Sweep::new(selector);
        let has_lanes = selector.contains("lanes");
        for (operation, (reduction, element)) in ["scan", "exscan"].into_iter().flat_map(|operation| {
            [("sum", "f32"), ("sum", "f16"), ("prod", "bf16"), ("maxloc", "f64i32")].map(|how| (operation, how))
        }) {
            let case = Case { operation, reduction, element, ranks, bytes: 65_552, root: 0 };
            let algorithm = has_lanes.then_some(Algorithm::Lanes);
            let request = Request { algorithm, ..request(&case, (0..ranks).collect()) };
            let plan = plan(&request, sweep.cluster.capabilities()).unwrap();
            assert_eq!(plan.set.programs[0].instructions[0].operation, Operation::AlltoallScan, "{case:?}");
            // Cards of the first row have nothing to fold with.
            let folds = |rank: u32| {
                plan.set.programs[rank as usize].instructions.iter().any(|one| one.operation == Operation::Fold)
            };
            assert_eq!([folds(0), folds(ranks - 1)], [false, has_lanes], "{case:?}");
            let grid = grid(sweep.cluster.capabilities(), &plan.request.group);
            sweep.check_plan(&plan, |seed| Reducing::new(case, grid, seed));
        }
    }
}

/// Every operation, type and reduction on 2 to 17 ranks and 64, with any root, on a communicator of any cards that was split
/// from the world, by any algorithm.
#[test]
fn any_case_is_as_the_oracle_says() {
    let cases = if is_full() { 10_000 } else { 250 };
    let began = Instant::now();
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let all = RefCell::new(fabrics());
    let strategy = (
        groups(),
        prop::sample::select(&OPERATIONS[..]),
        prop::sample::select(combinations()),
        1_u64..700,
        any::<u32>(),
        prop::option::of(0_u64..16_385),
        any::<prop::sample::Index>(),
        any::<bool>(),
    );
    let runs = std::cell::Cell::new(0);
    runner
        .run(&strategy, |((fabric, group), operation, (reduction, element), elements, root, limit, way, rank)| {
            let sweep = &mut all.borrow_mut()[fabric];
            let (ranks, bytes) = (group.len() as u32, elements * element_bytes(element) as u64);
            let case = Case { operation, reduction, element, ranks, bytes, root: root % ranks };
            let order = if rank { Order::Rank } else { Order::Any };
            let request = Request { eager_limit: limit, order, ..request(&case, group) };
            let plans = candidates(&request, sweep.cluster.capabilities());
            let plans: Vec<Plan> = plans.into_iter().filter_map(|(_, plan)| plan.ok()).collect();
            let grid = grid(sweep.cluster.capabilities(), &request.group);
            let plan = &plans[way.index(plans.len())];
            runs.set(runs.get() + 1);
            sweep.try_split(plan, |seed| Reducing::new(case, grid, seed)).map_err(TestCaseError::fail)
        })
        .unwrap();
    println!("{} random cases in {:.1} s", runs.get(), began.elapsed().as_secs_f64());
}

/// In the order of ranks, all that take it give the same bits, and for every type something does.
#[test]
fn the_order_of_ranks_has_one_result() {
    for (selector, ranks) in [("mock:optweb:6", 6), ("mock:optweb:2x3", 6)] {
        let mut sweep = Sweep::new(selector);
        let is_dragonfly = selector.contains('x');
        for operation in OPERATIONS {
            for (reduction, element) in combinations() {
                let case =
                    Case { operation, reduction, element, ranks, bytes: 40 * element_bytes(element) as u64, root: 1 };
                let request = Request { order: Order::Rank, ..request(&case, (0..ranks).collect()) };
                // The oracle has one tree for all of them.
                let found = check_all(&mut sweep, case, &request);
                let is_rounded = ["sum", "prod"].contains(&reduction) && FLOATS.iter().any(|one| one.0 == element);
                let is_short = element.ends_with("f16");
                let expected: Vec<&str> = match (is_dragonfly, is_rounded) {
                    (true, true) if ["reduce", "scan"].contains(&operation) => vec!["ring"],
                    (true, true) => vec!["ring", "two-level"],
                    (false, true) if is_short => vec!["ring"],
                    (false, true) if operation == "reduce_scatter" => vec!["direct", "ring"],
                    (false, true) => vec!["direct", "multipath", "ring"],
                    (_, false) => continue,
                };
                assert!(found.iter().eq(&expected), "{operation}, {reduction} of {element}: {found:?}");
            }
        }
    }
}

/// What the planner says of its orders, for hosts that compute the same bits, is what is written down here.
#[test]
fn the_planner_knows_its_orders() {
    fn same(one: &Folding, other: &Tree) -> bool {
        match (one, other) {
            (Folding::Rank(one), Tree::Rank(other)) => one == other,
            (Folding::Left(one), Tree::Fold(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
            }
            _ => false,
        }
    }
    let fabrics = (2..18).map(|nodes| format!("mock:optweb:{nodes}"));
    // Stripes of the last one share pseudo channels.
    let others = ["4x4", "3x5", "7+lanes=2", "3x4+lanes=6", "4x14+lanes=6"].map(|shape| format!("mock:optweb:{shape}"));
    for selector in fabrics.chain(others) {
        let cluster = Sweep::new(&selector).cluster;
        let (capabilities, grid) = (
            cluster.capabilities(),
            grid(cluster.capabilities(), &(0..cluster.capabilities().nodes).collect::<Vec<_>>()),
        );
        let ranks = capabilities.nodes;
        for (operation, order) in
            OPERATIONS.into_iter().flat_map(|one| Order::ALL.iter().map(move |order| (one, *order)))
        {
            let case = Case { operation, reduction: "sum", element: "f32", ranks, bytes: 4000, root: ranks / 2 };
            let request = Request { order, ..request(&case, (0..ranks).collect()) };
            for (algorithm, plan) in candidates(&request, capabilities) {
                let Ok(plan) = plan else { continue };
                let (said, way) =
                    (FoldOrder::new(&plan, capabilities), case.way(algorithm.name(), grid, order == Order::Rank));
                for (rank, offset) in (0..ranks).flat_map(|rank| [0, 1234, 3999].map(|offset| (rank, offset))) {
                    let chunk = offset / way.chunk_bytes(case.bytes);
                    let is_block = operation == "reduce_scatter" && algorithm == Algorithm::Ring;
                    let block = if is_block { rank } else { chunk as u32 };
                    let agree = match (said.at(rank, offset), way.tree(rank, block)) {
                        (Some((folding, end)), Some(tree)) => {
                            same(&folding, &tree) && end == (chunk + 1) * way.chunk_bytes(case.bytes)
                        }
                        (None, None) => true,
                        _ => false,
                    };
                    assert!(agree, "{selector}: {algorithm} {operation}, rank {rank}, byte {offset}");
                }
            }
        }
    }
}

/// Arrival does not change the result: the last rank comes first, and each of the others a microsecond later.
#[test]
fn the_result_does_not_depend_on_who_comes_first() {
    let mut cluster = Sweep::new("mock:optweb:5").cluster;
    for eager_limit in [None, Some(0)] {
        for bytes in [4000, 40_000] {
            let case = Case { operation: "allreduce", reduction: "sum", element: "f32", ranks: 5, bytes, root: 0 };
            let inputs: Vec<Vec<u8>> = (0..5).map(|rank| input(3, rank, "f32", bytes)).collect();
            for (algorithm, plan) in
                candidates(&Request { eager_limit, ..request(&case, (0..5).collect()) }, cluster.capabilities())
            {
                let Ok(plan) = plan else { continue };
                for (rank, input) in (0..).zip(&inputs) {
                    cluster.write_input(&plan.set, rank, 0, input).unwrap();
                }
                for delays in [vec![0, 200, 400, 600, 800], vec![800, 600, 400, 200, 0]] {
                    let execution = Execution { start_delay_cycles: delays, ..Execution::default() };
                    cluster.execute(&plan.set, &execution).unwrap();
                    for rank in 0..5 {
                        let mut output = vec![0; bytes as usize];
                        cluster.read_output(&plan.set, rank, 0, &mut output).unwrap();
                        let expected = case.output(&case.way(algorithm.name(), (1, 5), false), rank, &inputs);
                        assert!(output == expected, "{algorithm}: {bytes} B, rank {rank}");
                    }
                }
            }
        }
    }
}

#[test]
fn one_wrong_bit_would_be_seen() {
    let inputs: Vec<Vec<u8>> = (0..3).map(|rank| input(1, rank, "i32", 400)).collect();
    let all: Vec<&[u8]> = inputs.iter().map(|input| &input[..]).collect();
    let mut changed = inputs.clone();
    changed[1][100] ^= 1;
    let other: Vec<&[u8]> = changed.iter().map(|input| &input[..]).collect();
    assert_ne!(fold("sum", "i32", &all), fold("sum", "i32", &other));
}

/// What a card says to an instruction that no planner would make.
fn refused(cluster: &mut Cluster, instruction: &Instruction) -> Status {
    match cluster.card_mut(0).run(std::slice::from_ref(instruction), Duration::from_secs(10)) {
        Err(Error::Failed { status, .. }) => status,
        other => panic!("{instruction:?}: {other:?}"),
    }
}

#[test]
fn cards_refuse_what_is_not_defined_and_what_overlaps() {
    let mut cluster = Sweep::new("mock:optweb:4").cluster;
    let (low, high) = (Operand::card(0), Operand::card(1 << 28));
    let how = |reduction: &str, element: &str| Combine::new(reduction.parse().unwrap(), element.parse().unwrap());
    let sum = how("sum", "f32");
    for (wrong, status) in [
        (Instruction::allreduce(how("xor", "f32"), low, high, 64), Status::BadField),
        (Instruction::allreduce(how("minloc", "i32"), low, high, 64), Status::BadField),
        (Instruction::allreduce(how("sum", "f64i32"), low, high, 64), Status::BadField),
        (Instruction::allreduce(sum, low, high, 63), Status::BadField),
        (Instruction { element: None, ..Instruction::allreduce(sum, low, high, 64) }, Status::BadField),
        (Instruction { reduction: sum.reduction.into(), ..Instruction::barrier() }, Status::BadField),
        (Instruction::allreduce(sum, low, low, 64), Status::Overlap),
        (Instruction::allreduce(sum, low, Operand::card(60), 64), Status::Overlap),
        (Instruction::reduce(sum, 4, low, high, 64), Status::BadRank),
    ] {
        assert_eq!(refused(&mut cluster, &wrong), status, "{wrong:?}");
    }
    let past_the_end = Instruction::reduce(sum, 0, low, Operand::card(8 << 30), 64);
    assert_eq!(refused(&mut cluster, &past_the_end), Status::OutOfRange);
}

#[test]
fn in_place_works_where_the_own_contribution_is_not_sent() {
    let mut cluster = Sweep::new("mock:optweb:4").cluster;
    let inputs: Vec<Vec<u8>> = (0..4).map(|rank| input(9, rank, "f32", 40_000)).collect();
    for (operation, bytes) in
        [("reduce", 4_000), ("reduce", 40_000), ("reduce_scatter", 1_000), ("reduce_scatter", 10_000)]
    {
        let case = Case { operation, reduction: "sum", element: "f32", ranks: 4, bytes, root: 2 };
        let request = Request {
            algorithm: Some(Algorithm::Direct),
            eager_limit: Some(4_000),
            ..request(&case, (0..4).collect())
        };
        let mut plan = plan(&request, cluster.capabilities()).unwrap();
        let inputs: Vec<Vec<u8>> = inputs.iter().map(|one| one[..case.input_bytes() as usize].to_vec()).collect();
        for (rank, program) in plan.set.programs.iter_mut().enumerate() {
            let own = if operation == "reduce" { 0 } else { rank };
            let address = program.input[own].address;
            program.instructions[0].destination = Operand::card(address);
            program.output.iter_mut().for_each(|piece| piece.address = address);
        }
        for (rank, input) in (0..).zip(&inputs) {
            cluster.write_input(&plan.set, rank, 0, input).unwrap();
        }
        cmdseq::verify(&plan.set, cluster.capabilities()).unwrap();
        cluster.execute(&plan.set, &Execution::default()).unwrap();
        for rank in 0..4 {
            let expected = case.output(&case.way("direct", (1, 4), false), rank, &inputs);
            let mut output = vec![0; expected.len()];
            cluster.read_output(&plan.set, rank, 0, &mut output).unwrap();
            assert!(output == expected, "{operation} of {bytes} B, rank {rank}");
        }
    }
}

/// Each unit of the chain takes its cycles, once; and with slower units each beat takes longer.
#[test]
fn folding_takes_the_cycles_of_its_units() {
    let arrival = |profile: Profile, operation: &str, bytes: u64, limit: Option<u64>| {
        let (_fabric, mut cluster) = run::open(profile);
        let ranks = cluster.capabilities().nodes;
        let case = Case { operation, reduction: "sum", element: "f32", ranks, bytes, root: 0 };
        let algorithm = Some(Algorithm::Direct);
        let request = Request { algorithm, eager_limit: limit, ..request(&case, (0..ranks).collect()) };
        let plan = plan(&request, cluster.capabilities()).unwrap();
        let report = sweep::run(&mut cluster, &plan, &Reducing::new(case, (1, ranks), 9), false).unwrap();
        let simulated = report.arrival_cycles as f64 * 5e3;
        let predicted = plan.predicted.arrival_ps as f64;
        assert!((predicted / simulated - 1.0).abs() < 0.01, "{operation} of {bytes} B: {predicted} and {simulated} ps");
        report.arrival_cycles
    };
    for limit in [None, Some(0)] {
        let gathered = {
            let (_fabric, mut cluster) = run::open(Profile::optweb(4));
            run::run(&mut cluster, "allgather", 64, None, limit).arrival_cycles
        };
        assert_eq!(arrival(Profile::optweb(4), "allreduce", 64, limit), gathered + 3 * 8);
        assert_eq!(arrival(Profile::optweb(8), "allreduce", 64, limit), gathered + 7 * 8);
        let instant = Profile { reduce_unit_cycles: 0, ..Profile::optweb(4) };
        assert_eq!(arrival(instant, "allreduce", 64, limit), gathered);
    }
    for operation in OPERATIONS {
        let bytes = 1 << 20;
        let fast = arrival(Profile::optweb(4), operation, bytes, None);
        let slow = arrival(Profile { reduce_beat_cycles: 2, ..Profile::optweb(4) }, operation, bytes, None);
        // A beat in two cycles is 25.6 Gb/s, where the links have 45.
        let ratio = slow as f64 / fast as f64;
        assert!((ratio / (45.0 / 25.6) - 1.0).abs() < 0.05, "{operation}: {ratio}");
    }
}

/// 2 (N - 1) / N of the vector has to leave every card, over N - 1 links.
#[test]
fn allreduce_reaches_the_bound_of_its_links() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(8));
    let bytes: u64 = if is_full() { 64 << 20 } else { 8 << 20 };
    let case = Case { operation: "allreduce", reduction: "sum", element: "f32", ranks: 8, bytes, root: 0 };
    let plan = plan(&request(&case, (0..8).collect()), cluster.capabilities()).unwrap();
    let report = cluster.execute(&plan.set, &Execution::default()).unwrap();
    let bound_us = 2.0 * 7.0 / 8.0 * bytes as f64 * 8.0 / (7.0 * 45_000.0);
    let us = report.microseconds(report.arrival_cycles);
    println!("allreduce of {bytes} B on 8 cards: {us:.3} us, bound {bound_us:.3} us");
    assert!(us >= bound_us && us < 1.01 * bound_us, "{us} us, bound {bound_us} us");
}
