//! Any group of a Dragonfly, with unlinked pairs and without paths inside: every operation, type, reduction, order, vector form and
//! placement on mock cards, bit for bit against an oracle independent of planner and mock.
//!
//! A fixed sample always runs; `FPGA_TESTS_FULL=1` runs 10 000 groups.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cmdseq::graph::{Buffer, Graph, Schedule, Step};
use cmdseq::plan::{Collective, Order, Placement, Plan, Request, candidates, plan};
use cmdseq::ranges::Range;
use cmdseq::{Capabilities, Combine, Operand};
use fpga_driver::{Cluster, Report};
use fpga_tests::folding::{grid, is_row_by_row};
use fpga_tests::oracle::{Case, Moving, MovingBlocks, OPERATIONS, VECTOR_FORMS, VectorCase};
use fpga_tests::prediction::arrival_cycles;
use fpga_tests::reduction::{self, Reducing, combinations, element_bytes};
use fpga_tests::sweep::{Data as _, Sweep, is_full, run};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Bytes of all blocks of an operation together, at most about.
const TOGETHER: u64 = 4 << 20;

/// A group of a Dragonfly, and what it is to do.
#[derive(Debug, Clone)]
struct Asked {
    shape: (u32, u32),
    group: Vec<u32>,
    operation: usize,
    combination: prop::sample::Index,
    bytes: u64,
    ends: (u32, u32),
    order: Order,
    eager_limit: Option<u64>,
    is_placed: bool,
    way: Option<prop::sample::Index>,
    /// Whether all cards are named as relays.
    is_open: bool,
    lanes: u32,
}

/// The names of all operations.
fn operations() -> Vec<&'static str> {
    OPERATIONS.iter().chain(&VECTOR_FORMS).chain(&reduction::OPERATIONS).copied().collect()
}

fn asked() -> impl Strategy<Value = Asked> {
    let shape = (2_u32..9, 2_u32..9);
    let group = shape.prop_flat_map(|(groups, size)| {
        let nodes = groups * size;
        let ranks = prop_oneof![2 => 2..=nodes.min(6), 2 => 2..=nodes, 1 => nodes - 1..=nodes];
        let any = (Just((0..nodes).collect::<Vec<u32>>()).prop_shuffle(), ranks);
        let rows = move |(rows, columns): (u32, u32)| {
            let of_row = move |row: u32| (0..columns).map(move |column| row * size + column);
            let group: Vec<u32> = (0..rows).flat_map(of_row).collect();
            (Just(group).prop_shuffle(), Just(rows * columns))
        };
        let grid = (2..=groups, 2..=size).prop_flat_map(rows);
        (Just((groups, size)), prop_oneof![4 => any.boxed(), 1 => grid.boxed()])
    });
    let bytes = prop_oneof![1 => Just(0_u64), 4 => 1_u64..200, 3 => 1_u64..20_000, 2 => 16_000_u64..400_000];
    let order = prop::sample::select(Order::ALL);
    let limit = prop::option::of(0_u64..16_385);
    let way = prop::option::of(any::<prop::sample::Index>());
    let options = (order, limit, any::<bool>(), way, any::<bool>(), prop_oneof![2 => Just(1_u32), 1 => Just(6)]);
    let operation = (0..operations().len(), any::<prop::sample::Index>(), bytes, any::<(u32, u32)>());
    (group, operation, options).prop_map(
        |((shape, (mut group, ranks)), (operation, combination, bytes, ends), options)| {
            let (order, eager_limit, is_placed, way, is_open, lanes) = options;
            group.truncate(ranks as usize);
            Asked {
                shape,
                group,
                operation,
                combination,
                bytes,
                ends,
                order,
                eager_limit,
                is_placed,
                way,
                is_open,
                lanes,
            }
        },
    )
}

/// What a group is asked, and what it should do.
enum Expected {
    Moving(Case<'static>),
    Blocks(VectorCase),
    Reducing(reduction::Case<'static>),
}

impl Asked {
    fn expected(&self) -> Expected {
        let ranks = self.group.len() as u32;
        let operation = operations()[self.operation];
        let (root, peer) = (self.ends.0 % ranks, self.ends.1 % ranks);
        let bytes = self.bytes.min(TOGETHER / u64::from(ranks * ranks));
        if VECTOR_FORMS.contains(&operation) {
            let lengths: Vec<u64> = (0..u64::from(ranks)).map(|rank| bytes * (rank * 5 % 7) / 6).collect();
            return Expected::Blocks(VectorCase::of_lengths(operation, &lengths, root));
        }
        if OPERATIONS.contains(&operation) {
            return Expected::Moving(Case { operation, ranks, bytes, root, peer });
        }
        let (reduction, element) = *self.combination.get(&combinations());
        let bytes = (bytes / element_bytes(element) as u64).max(1) * element_bytes(element) as u64;
        Expected::Reducing(reduction::Case { operation, reduction, element, ranks, bytes, root })
    }

    fn request(&self, expected: &Expected) -> Request {
        let request = |operation: &str, bytes| Request {
            order: self.order,
            eager_limit: self.eager_limit,
            placement: self.is_placed.then(placement),
            relays: self.is_open.then(|| (0..self.shape.0 * self.shape.1).collect()),
            ..Request::new(operation.parse().unwrap(), self.group.clone(), bytes)
        };
        match expected {
            Expected::Moving(case) => {
                Request { root: case.root, peer: case.peer, ..request(case.operation, case.bytes) }
            }
            Expected::Blocks(case) => Request { counts: case.counts(), root: case.root, ..request(case.operation, 0) },
            Expected::Reducing(case) => {
                let combine = Combine::new(case.reduction.parse().unwrap(), case.element.parse().unwrap());
                Request { root: case.root, combine: Some(combine), ..request(case.operation, case.bytes) }
            }
        }
    }
}

/// Addresses of input, output and what lies between.
fn placement() -> Placement {
    let between = Range { address: 5 << 30, bytes: 1 << 30 };
    Placement { input: Operand::card(3 << 30), output: Operand::card(1 << 30), between }
}

/// Number of parts of a group between which there are no links.
fn parts(group: &[u32], capabilities: &Capabilities) -> usize {
    let mut left: BTreeSet<u32> = group.iter().copied().collect();
    let mut parts = 0;
    while let Some(first) = left.pop_first() {
        parts += 1;
        let mut reached = vec![first];
        while let Some(at) = reached.pop() {
            let linked = |other: &u32| capabilities.topology.linked(at, *other, capabilities.nodes);
            let next: Vec<u32> = left.iter().copied().filter(linked).collect();
            left.retain(|node| !next.contains(node));
            reached.extend(next);
        }
    }
    parts
}

/// Data of a caller on cards that relay, where the ranks have inputs and outputs.
fn guard(cluster: &mut Cluster, plan: &Plan, is_to_be_set: bool) -> Result<(), String> {
    let Some(Placement { input, output, .. }) = plan.request.placement else { return Ok(()) };
    for (node, address) in plan.relays().iter().flat_map(|node| [(*node, input.address), (*node, output.address)]) {
        let (mut found, expected) = ([0; 4096], [0x5a; 4096]);
        let card = cluster.card_mut(node as usize);
        if is_to_be_set {
            card.write_memory(address, &expected).map_err(|error| error.to_string())?;
        } else {
            card.read_memory(address, &mut found).map_err(|error| error.to_string())?;
            if found != expected {
                return Err(format!("the data of relay {node} at {address:#x} has changed"));
            }
        }
    }
    Ok(())
}

fn execute(sweep: &mut Sweep, plan: &Plan, expected: &Expected, seed: u64) -> Result<Report, String> {
    let (capabilities, group) = (sweep.cluster.capabilities(), &plan.request.group);
    let (grid, is_renumbered) = (grid(capabilities, group), !is_row_by_row(capabilities, group));
    let cluster = &mut sweep.cluster;
    guard(cluster, plan, true)?;
    let report = match expected {
        Expected::Moving(case) => run(cluster, plan, &Moving { case: *case, seed }, false),
        Expected::Blocks(case) => run(cluster, plan, &MovingBlocks { case: case.clone(), seed }, false),
        Expected::Reducing(case) => {
            let data = Reducing::new(*case, grid, seed);
            run(cluster, plan, &if is_renumbered { data.renumbered() } else { data }, false)
        }
    }?;
    guard(cluster, plan, false)?;
    Ok(report)
}

/// Percent by which the prediction is wrong; none if there is nothing to time.
fn wrong_percent(plan: &Plan, report: &Report) -> Option<f64> {
    let counted_ps = arrival_cycles(plan, report) * 1_000_000_000 / u64::from(report.clock_khz);
    (counted_ps > 0).then(|| 100.0 * (plan.predicted.arrival_ps as f64 / counted_ps as f64 - 1.0))
}

#[derive(Debug, Default)]
struct Counts {
    groups: u32,
    in_no_rows: u32,
    in_other_order: u32,
    disconnected: u32,
    with_relays: u32,
    /// Connected groups that others complete to a grid.
    completed: u32,
    worst_percent: f64,
}

#[test]
fn every_group_of_a_dragonfly_runs_every_operation() {
    let config = Config { cases: if is_full() { 10_000 } else { 150 }, failure_persistence: None, ..Config::default() };
    let fabrics: RefCell<BTreeMap<(u32, u32, u32), Sweep>> = RefCell::default();
    let counts = RefCell::new(Counts::default());
    let result = TestRunner::new(config).run(&asked(), |asked| {
        let ((groups, size), lanes) = (asked.shape, asked.lanes);
        let mut fabrics = fabrics.borrow_mut();
        let open = || Sweep::new(&format!("mock:optweb:{groups}x{size}+lanes={lanes}"));
        let sweep = fabrics.entry((groups, size, lanes)).or_insert_with(open);
        let capabilities = sweep.cluster.capabilities().clone();
        let expected = asked.expected();
        let request = asked.request(&expected);
        let refused = |refusal: cmdseq::Refusal| TestCaseError::fail(format!("{request:?}: {refusal}"));
        let plan = match asked.way {
            None => plan(&request, &capabilities).map_err(refused)?,
            Some(way) => {
                let plans = candidates(&request, &capabilities).into_iter().filter_map(|(_, plan)| plan.ok());
                let plans: Vec<Plan> = plans.collect();
                prop_assert!(!plans.is_empty(), "{:?} has no plan", request);
                plans[way.index(plans.len())].clone()
            }
        };
        let seed = u64::from(counts.borrow().groups);
        let ran = execute(sweep, &plan, &expected, seed);
        let report = ran.map_err(|why| TestCaseError::fail(format!("{}: {why}: {request:?}", plan.algorithm)))?;
        let bound = request.lower_bound(&capabilities).map_or(u64::MAX, |bound| bound.total_ps());
        prop_assert!(bound <= plan.predicted.arrival_ps, "{bound} ps of {:?}: {:?}", plan.predicted, request);
        let mut counts = counts.borrow_mut();
        if let Some(percent) = wrong_percent(&plan, &report) {
            prop_assert!(percent.abs() < 2.0, "{}: {percent:+.2} %: {request:?}", plan.algorithm);
            counts.worst_percent = counts.worst_percent.max(percent.abs());
        }
        let is_apart = parts(&request.group, &capabilities) > 1;
        let is_inside = plan.relays().is_empty();
        prop_assert!(
            is_apart || is_inside || asked.is_open,
            "cards outside of a connected group relay: {:?}",
            plan.relays()
        );
        counts.groups += 1;
        let mut sorted = request.group.clone();
        sorted.sort_unstable();
        let is_in_rows = is_row_by_row(&capabilities, &request.group);
        counts.in_other_order += u32::from(!is_in_rows && is_row_by_row(&capabilities, &sorted));
        counts.in_no_rows += u32::from(!is_row_by_row(&capabilities, &sorted));
        counts.disconnected += u32::from(is_apart);
        counts.with_relays += u32::from(!is_inside);
        counts.completed += u32::from(!is_apart && !is_inside);
        Ok(())
    });
    println!("{:?}", counts.borrow());
    result.unwrap();
}

/// Where programs lie that are launched one after another.
fn placed(number: u64) -> Placement {
    let at = |part: u64| (3 * number + part) << 20;
    let between = Range { address: at(2), bytes: 1 << 20 };
    Placement { input: Operand::card(at(0)), output: Operand::card(at(1)), between }
}

/// Each of two groups relays for the other. Both are in flight at once, again and again.
#[test]
fn two_groups_that_relay_for_each_other_run_at_once() {
    const BYTES: u64 = 20_000;
    const LAUNCHES: usize = 8;
    let mut cluster = Sweep::new("mock:optweb:4x4").cluster;
    let capabilities = cluster.capabilities().clone();
    let planned = [([0, 5], [1, 4]), ([1, 4], [0, 5])].into_iter().zip(0..).map(|((group, relays), number)| {
        let (placement, relays) = (Some(placed(number)), Some(relays.to_vec()));
        let request = Request { placement, relays, ..Request::new(Collective::Alltoall, group.to_vec(), BYTES) };
        plan(&request, &capabilities).unwrap()
    });
    let plans: Vec<Plan> = planned.collect();
    assert!(
        plans.iter().all(|plan| plan.relays().len() == 1
            && plans.iter().any(|other| other.request.group.contains(&plan.relays()[0])))
    );
    let case = Case { operation: "alltoall", ranks: 2, bytes: BYTES, root: 0, peer: 1 };
    for (seed, plan) in (1..).zip(&plans) {
        let data = Moving { case, seed };
        let mut input = vec![0; 2 * BYTES as usize];
        for rank in 0..2 {
            data.fill(rank, 0, &mut input);
            cluster.write_input(&plan.set, rank, 0, &input).unwrap();
        }
    }
    let mut prepared: Vec<_> = plans.iter().map(|plan| cluster.prepare(&Schedule::of(plan)).unwrap()).collect();
    for number in 0..2 * LAUNCHES {
        cluster.launch(&mut prepared[number % 2]).unwrap();
    }
    // The one launched last is waited for first.
    for one in prepared.iter_mut().rev() {
        for _ in 0..LAUNCHES {
            cluster.finish(one, Duration::from_secs(20)).unwrap();
        }
    }
    for (seed, plan) in (1..).zip(&plans) {
        for rank in 0..2 {
            let mut output = vec![0; 2 * BYTES as usize];
            cluster.read_output(&plan.set, rank, 0, &mut output).unwrap();
            assert_eq!(Moving { case, seed }.first_wrong(plan, rank, 0, &output), None);
        }
    }
}

/// A graph on cards that are no grid: cards of the graph relay for steps that they have no part in.
#[test]
fn cards_of_a_graph_relay_for_its_steps() {
    let mut cluster = Sweep::new("mock:optweb:4x4").cluster;
    let capabilities = cluster.capabilities().clone();
    let mut graph = Graph::new(vec![0, 1, 5, 10, 9]);
    graph.buffer(Buffer::new("given", 4096));
    graph.buffer(Buffer::new("all", 3 * 4096));
    graph.step(Step::new(Request::new(Collective::Allgather, vec![0, 5, 10], 4096)).input("given").output("all"));
    let schedule = graph.schedule(&capabilities).unwrap();
    let mut prepared = cluster.prepare(&schedule).unwrap();
    for (rank, value) in [(0, 1), (2, 2), (3, 3)] {
        cluster.write_buffer(&prepared, rank, "given", 0, &[value; 4096]).unwrap();
    }
    cluster.launch(&mut prepared).unwrap();
    cluster.finish(&mut prepared, Duration::from_secs(20)).unwrap();
    let mut all = [0; 3 * 4096];
    cluster.read_buffer(&prepared, 3, "all", 0, &mut all).unwrap();
    assert!(all.chunks(4096).zip(1..).all(|(block, value)| block.iter().all(|byte| *byte == value)));
    let mut alone = Graph::new(vec![0, 5, 10]);
    alone.buffer(Buffer::new("given", 4096)).buffer(Buffer::new("all", 3 * 4096));
    alone.step(Step::new(Request::new(Collective::Allgather, vec![0, 5, 10], 4096)).input("given").output("all"));
    let cause = alone.schedule(&capabilities).unwrap_err();
    let source = std::error::Error::source(&cause).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{cause} {source}").contains("no path from node 0 to node 5"), "{cause} {source}");
}
