//! Graphs of collectives on mock cards: every launch, with any binding of buffers, leaves the same memory as the collectives
//! one by one, by the oracles of this crate. And their behaviour when cards fail.
//!
//! `FPGA_TESTS_FULL=1` runs many more random graphs (`tests/run --full`).

use fpga_tests::sweep::is_full;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use cmdseq::graph::{Buffer, Graph, GraphError, Schedule, Step};
use cmdseq::plan::{Collective, ProgramSet, Request, plan};
use cmdseq::{Combine, Element, Instruction, Operand, Operation, Reason, Reduction, Status};
use fpga_driver::{Cluster, Error, Execution, NO_DETAIL, Prepared};
use fpga_mock::{Fabric, Fault, Profile, When};
use fpga_tests::{oracle, pattern, reduction, run, threads};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const TIMEOUT: Duration = Duration::from_secs(20);
const BUFFERS: usize = 4;

#[derive(Debug, Clone)]
struct RandomStep {
    collective: Collective,
    /// Nodes by rank.
    group: Vec<u32>,
    bytes: u64,
    root: u32,
    peer: u32,
    input: usize,
    output: usize,
}

#[derive(Debug, Clone)]
struct RandomGraph {
    nodes: u32,
    seed: u64,
    steps: Vec<RandomStep>,
    is_rebindable: [bool; BUFFERS],
}

fn random_step(nodes: u32) -> impl Strategy<Value = RandomStep> {
    let groups = Just((0..nodes).collect::<Vec<u32>>()).prop_shuffle();
    let bytes = prop_oneof![Just(0_u64), 1_u64..200, Just(5000_u64)].prop_map(|elements| elements * 4);
    // A graph has no tables.
    let plain: Vec<Collective> = Collective::ALL.iter().copied().filter(|one| !one.has_counts()).collect();
    let collective = prop::sample::select(plain);
    (collective, groups, 1..=nodes, bytes, any::<[u32; 2]>(), 0..BUFFERS, 0..BUFFERS).prop_map(
        move |(collective, mut group, ranks, bytes, [root, peer], input, output)| {
            // Half of the steps are of all cards.
            if ranks * 2 <= nodes {
                group.truncate(ranks as usize);
            }
            let ranks = group.len() as u32;
            RandomStep { collective, group, bytes, root: root % ranks, peer: peer % ranks, input, output }
        },
    )
}

fn random_graph() -> impl Strategy<Value = RandomGraph> {
    (2_u32..7).prop_flat_map(|nodes| {
        let steps = prop::collection::vec(random_step(nodes), 1..9);
        (Just(nodes), any::<u64>(), steps, any::<[bool; BUFFERS]>()).prop_map(|(nodes, seed, steps, mut bound)| {
            bound[3] = false;
            RandomGraph { nodes, seed, steps, is_rebindable: bound }
        })
    })
}

fn name(buffer: usize) -> String {
    format!("b{buffer}")
}

impl RandomGraph {
    /// Room for what any step has.
    fn bytes(&self) -> u64 {
        20_000 * u64::from(self.nodes)
    }

    /// With those of `steps` that can be done at all: not all of them work in place.
    fn graph(&self, steps: &[RandomStep]) -> Graph {
        let mut graph = Graph::new((0..self.nodes).collect());
        for (number, is_rebindable) in self.is_rebindable.iter().enumerate() {
            let buffer = Buffer::new(name(number), self.bytes()).of(Element::U32);
            graph.buffer(if *is_rebindable { buffer.rebindable() } else { buffer });
        }
        for step in steps {
            let combine = step.collective.reduces().then_some(Combine::new(Reduction::Sum, Element::U32));
            let request = Request {
                root: step.root,
                peer: step.peer,
                combine,
                ..Request::new(step.collective, step.group.clone(), step.bytes)
            };
            graph.step(Step::new(request).input(name(step.input)).output(name(step.output)));
        }
        graph
    }

    fn data(&self, round: u64) -> Memory {
        let bytes = self.bytes() as usize;
        let fill = |node: u32, buffer: usize| {
            let mut data = vec![0; bytes];
            pattern::fill(self.seed ^ round, node * BUFFERS as u32 + buffer as u32, 0, &mut data);
            data
        };
        (0..self.nodes).map(|node| (0..BUFFERS).map(|buffer| fill(node, buffer)).collect()).collect()
    }
}

/// By node and buffer.
type Memory = Vec<Vec<Vec<u8>>>;

/// What one collective leaves, by the oracles.
fn model(memory: &mut Memory, step: &RandomStep) {
    let ranks = step.group.len() as u32;
    let inputs: Vec<Vec<u8>> = step.group.iter().map(|node| memory[*node as usize][step.input].clone()).collect();
    let operation = step.collective.name();
    for (rank, node) in (0..).zip(&step.group) {
        let output = &mut memory[*node as usize][step.output];
        if step.collective.reduces() {
            let (reduction, element, bytes, root) = ("sum", "u32", step.bytes, step.root);
            let case = reduction::Case { operation, ranks, bytes, root, reduction, element };
            let contributions: Vec<Vec<u8>> =
                inputs.iter().map(|input| input[..case.input_bytes() as usize].to_vec()).collect();
            // Sums of integers are the same in any order.
            let result = case.output(&case.way("direct", (1, ranks), false), rank, &contributions);
            output[..result.len()].copy_from_slice(&result);
        } else {
            let case = oracle::Case { operation, ranks, bytes: step.bytes, root: step.root, peer: step.peer };
            for copied in case.output(rank) {
                let from = &inputs[copied.from as usize][copied.from_offset as usize..][..copied.bytes as usize];
                output[copied.offset as usize..][..from.len()].copy_from_slice(from);
            }
        }
    }
}

fn put(cluster: &mut Cluster, prepared: &Prepared, memory: &Memory) {
    for (rank, buffers) in (0..).zip(memory) {
        for (number, data) in buffers.iter().enumerate() {
            cluster.write_buffer(prepared, rank, &name(number), 0, data).unwrap();
        }
    }
}

fn assert_holds(cluster: &mut Cluster, prepared: &Prepared, memory: &Memory) {
    for (rank, buffers) in (0..).zip(memory) {
        for (number, expected) in buffers.iter().enumerate() {
            let mut data = vec![0; expected.len()];
            cluster.read_buffer(prepared, rank, &name(number), 0, &mut data).unwrap();
            let wrong = data.iter().zip(expected).position(|(found, right)| found != right);
            assert_eq!(wrong, None, "rank {rank}, buffer {number}");
        }
    }
}

#[test]
fn graphs_leave_what_their_collectives_leave_one_by_one() {
    let clusters: RefCell<Vec<Option<(Fabric, Cluster)>>> = RefCell::new((0..7).map(|_| None).collect());
    let (kept, rebound) = (Cell::new(0), Cell::new(0));
    let cases = if is_full() { 3000 } else { 80 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&random_graph(), |random| {
        let mut clusters = clusters.borrow_mut();
        let (_, cluster) =
            clusters[random.nodes as usize].get_or_insert_with(|| run::open(Profile::optweb(random.nodes)));
        let mut steps = random.steps.clone();
        let schedule = loop {
            match random.graph(&steps).schedule(cluster.capabilities()) {
                Ok(schedule) => break schedule,
                Err(GraphError::Refused { step, .. }) if steps[step].input == steps[step].output => {
                    drop(steps.remove(step))
                }
                Err(GraphError::NoSteps) => return Ok(()),
                Err(error) => {
                    return Err(TestCaseError::fail(format!("{error}: {:?}", std::error::Error::source(&error))));
                }
            }
        };
        kept.set(kept.get() + steps.len());
        let mut prepared = cluster.prepare(&schedule).unwrap();
        let mut memory = random.data(0);
        put(cluster, &prepared, &memory);
        for _ in 0..2 {
            cluster.launch(&mut prepared).unwrap();
            cluster.finish(&mut prepared, TIMEOUT).unwrap();
            steps.iter().for_each(|step| model(&mut memory, step));
        }
        assert_holds(cluster, &prepared, &memory);
        // Elsewhere, behind all that the graph has placed.
        let end = schedule.buffers.iter().map(|placed| placed.address + placed.buffer.bytes).max().unwrap();
        let mut next = end.max(schedule.between.address + schedule.between.bytes).next_multiple_of(4096);
        for (number, is_rebindable) in random.is_rebindable.iter().enumerate() {
            if *is_rebindable {
                prepared.rebind(&name(number), next).unwrap();
                next += random.bytes() + 64;
                rebound.set(rebound.get() + 1);
            }
        }
        let before = memory.clone();
        let mut memory = random.data(1);
        put(cluster, &prepared, &memory);
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, TIMEOUT).unwrap();
        steps.iter().for_each(|step| model(&mut memory, step));
        assert_holds(cluster, &prepared, &memory);
        // Where the buffers were before, nothing has changed.
        for (number, placed) in schedule.buffers.iter().enumerate().filter(|(_, placed)| placed.argument.is_some()) {
            let mut data = vec![0; random.bytes() as usize];
            cluster.card_mut(0).read_memory(placed.address, &mut data).unwrap();
            assert!(data == before[0][number], "buffer {number} was written where it no longer is");
        }
        Ok(())
    });
    outcome.unwrap();
    let (kept, rebound) = (kept.get(), rebound.get());
    assert!(kept > cases as usize * 3 && rebound > cases as usize / 2, "{kept} steps kept, {rebound} buffers rebound");
}

/// Two allgathers, of which the second takes what the first gives.
fn small(nodes: u32) -> Graph {
    let mut graph = Graph::new((0..nodes).collect());
    graph.buffer(Buffer::new("a", 64).rebindable());
    graph.buffer(Buffer::new("b", 64 * u64::from(nodes)));
    graph.buffer(Buffer::new("c", 64 * u64::from(nodes)));
    let all = |collective| Request::new(collective, (0..nodes).collect(), 64);
    graph.step(Step::new(all(Collective::Allgather)).input("a").output("b"));
    graph.step(Step::new(all(Collective::Alltoall)).input("b").output("c"));
    graph
}

fn prepared(cluster: &mut Cluster) -> Prepared {
    let schedule = small(cluster.capabilities().nodes).schedule(cluster.capabilities()).unwrap();
    cluster.prepare(&schedule).unwrap()
}

#[test]
fn launches_pile_up_until_the_rings_are_full() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    let mut prepared = prepared(&mut cluster);
    let depth = cluster.cards()[0].queue().depth() as usize;
    while prepared.in_flight() < depth * 4 {
        match cluster.launch(&mut prepared) {
            Ok(()) => {}
            Err(Error::Full { instruction, .. }) => {
                assert_eq!(instruction.instruction().operation, Operation::Launch);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((depth..depth * 4).contains(&prepared.in_flight()), "{}", prepared.in_flight());
    while prepared.in_flight() > 0 {
        cluster.finish(&mut prepared, TIMEOUT).unwrap();
    }
    assert!(matches!(cluster.finish(&mut prepared, TIMEOUT), Err(Error::BadArgument { .. })));
}

/// Windows are opened for what the launches of all ranks reach with these addresses.
#[test]
fn ranks_that_have_bound_a_buffer_differently_prepare_nothing() {
    let fabric = Fabric::new(Profile::optweb(2)).unwrap();
    threads::clusters(&fabric, |cluster, rank| {
        let capabilities = cluster.capabilities().clone();
        let mut schedule = small(2).schedule(&capabilities).unwrap();
        if rank == 1 {
            schedule.rebind("a", 1 << 20, &capabilities).unwrap();
        }
        let error = cluster.prepare(&schedule).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Differs { what, .. } if what.contains("binding")), "{error}");
    });
}

/// A write of the second launch may come while the first launch still reads on the other card, unless barriers on both sides
/// of it keep the launches apart.
#[test]
fn one_sided_launches_are_in_flight_together_only_if_nothing_of_them_can_meet() {
    let (write, barrier) =
        (Instruction::rdma_write(1, Operand::card(0), Operand::card(4096), 64), Instruction::barrier());
    let using = [Instruction::delay(100_000), Instruction::copy(Operand::card(4096), Operand::card(1 << 20), 64)];
    let open = [vec![write, barrier], [&[barrier], &using[..]].concat()];
    let closed = [vec![barrier, write, barrier], [&[barrier, barrier], &using[..]].concat()];
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    for (programs, is_apart) in [(open, false), (closed, true)] {
        let mut prepared = cluster.prepare(&ProgramSet::new([0, 1], programs).into()).unwrap();
        cluster.launch(&mut prepared).unwrap();
        match cluster.launch(&mut prepared) {
            Ok(()) => assert!(is_apart),
            Err(Error::Refused(refusal)) => {
                assert!(!is_apart);
                assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Race));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(prepared.in_flight(), if is_apart { 2 } else { 1 });
        while prepared.in_flight() > 0 {
            cluster.finish(&mut prepared, TIMEOUT).unwrap();
        }
        // Alone it goes again.
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, TIMEOUT).unwrap();
    }
}

/// Their places in the rings are free once they have ended.
#[test]
fn launches_dropped_in_flight_leave_the_rings() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    let depth = cluster.cards()[0].queue().depth();
    for _ in 0..2 * depth {
        let mut one = prepared(&mut cluster);
        cluster.launch(&mut one).unwrap();
    }
    let mut last = prepared(&mut cluster);
    cluster.launch(&mut last).unwrap();
    cluster.finish(&mut last, TIMEOUT).unwrap();
}

#[test]
fn slots_come_back_and_what_is_gone_is_stale() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    let slots = cluster.capabilities().resident_programs as usize;
    let mut all: Vec<Prepared> = (0..slots).map(|_| prepared(&mut cluster)).collect();
    let schedule = all[0].schedule().clone();
    let full = cluster.prepare(&schedule).unwrap_err();
    let Error::BadArgument { what: "number of resident programs", value, .. } = &full else { panic!("{full}") };
    assert_eq!(*value, (slots + 1).to_string());
    drop(all.pop());
    all.push(prepared(&mut cluster));
    // All of them still run what they were.
    for one in &mut all {
        cluster.launch(one).unwrap();
        cluster.finish(one, TIMEOUT).unwrap();
    }
    // Somebody stores over one of them.
    cluster.card_mut(1).store(0, [Instruction::nop()]).unwrap();
    let stale = |cluster: &mut Cluster, one: &mut Prepared| matches!(cluster.launch(one), Err(Error::Stale { .. }));
    assert_eq!(all.iter_mut().filter_map(|one| stale(&mut cluster, one).then_some(())).count(), 1);
    cluster.card_mut(0).reset().unwrap();
    assert!(all.iter_mut().all(|one| stale(&mut cluster, one)));
    let (_other_fabric, mut other) = run::open(Profile::optweb(2));
    let mut here = prepared(&mut other);
    assert!(stale(&mut cluster, &mut here));
    let mut anew = prepared(&mut cluster);
    cluster.launch(&mut anew).unwrap();
    // What this cluster has in flight is none of the other's.
    assert!(matches!(other.finish(&mut anew, TIMEOUT), Err(Error::Stale { .. })));
    assert!(matches!(other.give_up(&mut anew), Err(Error::Stale { .. })));
    cluster.finish(&mut anew, TIMEOUT).unwrap();
}

#[test]
fn communicators_of_what_is_prepared_are_not_taken_by_others() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(4));
    let on = |group: &[u32]| {
        let mut graph = Graph::new(group.to_vec());
        graph.buffer(Buffer::new("a", 256)).buffer(Buffer::new("b", 1024));
        graph.step(Step::new(Request::new(Collective::Allgather, group.to_vec(), 256)).input("a").output("b"));
        graph
    };
    let mut pairs = Vec::new();
    for group in [[0, 1], [1, 0], [2, 3], [0, 3]] {
        let schedule = on(&group).schedule(cluster.capabilities()).unwrap();
        pairs.push(cluster.prepare(&schedule).unwrap());
        // A plan that is executed in between has communicators of its own.
        let plan = plan(&Request::new(Collective::Broadcast, vec![3, 0, 1], 64), cluster.capabilities()).unwrap();
        cluster.execute(&plan.set, &Execution::default()).unwrap();
    }
    for (seed, one) in (0..).zip(&mut pairs) {
        let mut input = [0; 256];
        for rank in 0..2 {
            pattern::fill(seed, rank, 0, &mut input);
            cluster.write_buffer(one, rank, "a", 0, &input).unwrap();
        }
        cluster.launch(one).unwrap();
        cluster.finish(one, TIMEOUT).unwrap();
        for rank in 0..2 {
            let mut output = [0; 512];
            cluster.read_buffer(one, rank, "b", 0, &mut output).unwrap();
            for from in 0..2 {
                let part = &output[from as usize * 256..][..256];
                assert_eq!(pattern::first_difference(seed, from, 0, part), None, "{seed}: from {from} at {rank}");
            }
        }
    }
}

#[test]
fn a_program_that_is_too_long_is_refused() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    let words = cluster.capabilities().resident_words;
    let mut graph = Graph::new(vec![0, 1]);
    for _ in 0..=words {
        graph.step(Step::new(Request::new(Collective::Barrier, vec![0, 1], 0)));
    }
    let schedule = graph.schedule(cluster.capabilities()).unwrap();
    let Error::Refused(why) = cluster.prepare(&schedule).unwrap_err() else { panic!("not refused") };
    assert!(why.to_string().contains(&format!("at most {words}")), "{why}");
}

#[test]
fn a_schedule_for_other_cards_is_refused() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(2));
    let (_large, other) = run::open(Profile::optweb(4));
    let schedule = small(4).schedule(other.capabilities()).unwrap();
    assert!(matches!(cluster.prepare(&schedule), Err(Error::Refused(_))));
}

/// The bare error of a launch on a fabric in which something is wrong.
fn failure(cluster: &mut Cluster, prepared: &mut Prepared, timeout: Duration) -> Error {
    cluster.launch(prepared).unwrap();
    cluster.finish(prepared, timeout).unwrap_err()
}

#[test]
fn a_failure_names_rank_and_instruction_and_the_cards_stay_usable() {
    let (fabric, mut cluster) = run::open(Profile::optweb(3));
    let allgather = |group: &[u32], output: &str| {
        Step::new(Request::new(Collective::Allgather, group.to_vec(), 64)).input("a").output(output)
    };
    let mut graph = Graph::new(vec![0, 1, 2]);
    graph.buffer(Buffer::new("a", 64)).buffer(Buffer::new("b", 192)).buffer(Buffer::new("c", 192));
    graph.step(allgather(&[0, 1], "b"));
    let schedule = graph.schedule(cluster.capabilities()).unwrap();
    let mut pair = cluster.prepare(&schedule).unwrap();
    assert_eq!(pair.cards(), 2, "rank 2 has nothing to do");
    graph.step(allgather(&[0, 1, 2], "c"));
    let schedule = graph.schedule(cluster.capabilities()).unwrap();
    let mut all = cluster.prepare(&schedule).unwrap();
    fabric.plant(Fault::Cut { a: 0, b: 2, when: When::Now });
    for _ in 0..2 {
        let error = failure(&mut cluster, &mut all, TIMEOUT);
        let Error::Failed { rank, instruction, operation, status, detail, .. } = error else { panic!("{error:?}") };
        assert_eq!((rank, instruction, operation, status), (Some(0), 1, Operation::Allgather, Status::LinkDown));
        assert_eq!(detail, NO_DETAIL);
        assert_eq!(all.schedule().step_of(0, instruction), Some(1));
        assert_eq!(all.in_flight(), 0);
        cluster.launch(&mut pair).unwrap();
        cluster.finish(&mut pair, TIMEOUT).unwrap();
    }
}

#[test]
fn a_launch_that_lacks_memory_for_mock_cards_says_so() {
    let (fabric, mut cluster) = run::open(Profile::optweb(2));
    fabric.limit_memory(64 << 20);
    let fill = Instruction::fill(Operand::card(0), 8 << 30, 0x0101_0101_0101_0101);
    let programs = vec![vec![Instruction::barrier(), fill], vec![Instruction::barrier()]];
    let mut prepared = cluster.prepare(&ProgramSet::new([0, 1], programs).into()).unwrap();
    let error = failure(&mut cluster, &mut prepared, TIMEOUT);
    let Error::Failed { rank, instruction, status, .. } = error else { panic!("{error:?}") };
    assert_eq!((rank, instruction, status), (Some(0), 1, Status::OutOfRange));
    assert!(error.to_string().contains("no memory left for mock cards"), "{error}");
}

#[test]
fn a_rank_that_does_not_come_is_waited_for_no_longer_than_asked() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(3));
    let mut prepared = prepared(&mut cluster);
    // Rank 1 is busy with a barrier that nobody else comes to.
    let busy = cluster.card_mut(1).queue_mut().submit(Instruction::barrier()).unwrap();
    let error = failure(&mut cluster, &mut prepared, Duration::from_millis(50));
    let Error::Timeout { rank, what, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*rank, Some(1), "the others wait for it: {error}");
    assert!(what.contains("launched program") && what.contains("3 of 3 ranks"), "{what}");
    assert_eq!((prepared.in_flight(), busy.is_done()), (1, false), "nothing was consumed or aborted");
    assert!(matches!(cluster.finish(&mut prepared, Duration::from_millis(50)), Err(Error::Timeout { .. })));
    cluster.give_up(&mut prepared).unwrap();
    assert!(busy.is_done(), "it was aborted with the launch behind it");
    busy.abandon();
    for _ in 0..3 {
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, TIMEOUT).unwrap();
    }
    let mut data = [0; 64];
    cluster.read_buffer(&prepared, 2, "a", 0, &mut data).unwrap();
}

#[test]
fn a_plan_is_launched_where_the_planner_has_its_data() {
    let (_fabric, mut cluster) = run::open(Profile::optweb(4));
    let plan = run::plan_all(&cluster, "alltoall", 4096, None, None).unwrap();
    let mut prepared = cluster.prepare(&Schedule::of(&plan)).unwrap();
    for launch in 0..3 {
        for rank in 0..4 {
            let mut data = vec![0; 4 * 4096];
            pattern::fill(launch, rank, 0, &mut data);
            cluster.write_input(&plan.set, rank, 0, &data).unwrap();
        }
        cluster.launch(&mut prepared).unwrap();
        let times = cluster.finish(&mut prepared, TIMEOUT).unwrap();
        assert!(times.t2_cycles >= times.t1_cycles && times.arrival_cycles > 0);
        let case = oracle::Case { operation: "alltoall", ranks: 4, bytes: 4096, root: 0, peer: 3 };
        for rank in 0..4 {
            let mut data = vec![0; 4 * 4096];
            cluster.read_output(&plan.set, rank, 0, &mut data).unwrap();
            assert_eq!(case.first_wrong(launch, rank, 0, &data), None);
        }
    }
}
