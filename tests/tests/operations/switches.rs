//! Collectives that the switches of MPI-FPGA compute, on cards on a bus, against an oracle with arithmetic and an order of combination
//! of its own.

#[path = "../../../mock/tests/networks/mpi_fpga/oracle.rs"]
mod oracle;

use std::time::Duration;

use cmdseq::communicator::ContextId;
use cmdseq::plan::{self, Algorithm, Plan, Prediction, Request, plan, predict};
use cmdseq::reduction::{Combine, Element, Reduction};
use cmdseq::switch::{PHIT_BYTES, PROCESSOR_HEADER_BYTES};
use cmdseq::{Capabilities, Flags, Instruction, Operand, Status};
use fpga_driver::{Cluster, Error, Execution, Report};
use fpga_mock::mpi_fpga::{Call, Collective, Form};
use fpga_mock::{Fabric, Profile};
use fpga_tests::dice::{Dice, seed};
use fpga_tests::run;
use oracle::{case, leaves};

const SECONDS: Duration = Duration::from_secs(20);

fn open(shape: &str) -> (Fabric, Cluster) {
    run::open(Profile::mpi_fpga_of(shape).unwrap())
}

/// What the units have, by the paper and `docs/mpi-fpga.md`.
fn operations() -> Vec<Combine> {
    use Reduction::{And, Max, Min, Or, Sum, Xor};
    let integers =
        [Element::I8, Element::U8, Element::I16, Element::U16, Element::I32, Element::U32, Element::I64, Element::U64];
    let of = |elements: &[Element], reductions: &[Reduction]| -> Vec<Combine> {
        let each = |element: &Element| reductions.iter().map(|one| Combine::new(*one, *element)).collect::<Vec<_>>();
        elements.iter().flat_map(each).collect()
    };
    let mut all = of(&integers, &[Sum, Min, Max, Xor, And, Or]);
    all.extend(of(&[Element::F32, Element::F64], &[Sum, Min, Max]));
    all
}

/// The plan of a call on `nodes` in the form of the call.
fn planned(cluster: &Cluster, nodes: &[u32], call: &Call) -> Plan {
    let collective: plan::Collective = call.collective.name().parse().unwrap();
    let request = Request {
        root: call.root.into(),
        combine: call.combine,
        algorithm: Some(Algorithm::Switch),
        ..Request::new(collective, nodes.to_vec(), call.bytes.into())
    };
    let mut plan = plan(&request, cluster.capabilities()).unwrap();
    for instruction in plan.set.programs.iter_mut().flat_map(|program| &mut program.instructions) {
        assert!(instruction.form().is_some());
        instruction.flags = (instruction.flags - Flags::FORMS) | call.form.flag();
    }
    plan
}

/// Runs a call, and compares what each rank gets with the oracle.
fn check(cluster: &mut Cluster, shape: &str, nodes: &[u32], call: &Call, seed: u64) {
    let (inputs, outputs) = case(call, nodes.len(), seed, leaves(shape, nodes).as_deref());
    let Plan { set, .. } = planned(cluster, nodes, call);
    for (rank, input) in (0..).zip(&inputs).filter(|(_, input)| !input.is_empty()) {
        cluster.write_input(&set, rank, 0, input).unwrap();
    }
    let execution = Execution { timeout: SECONDS, ..Execution::default() };
    cluster.execute(&set, &execution).unwrap_or_else(|error| panic!("{shape} {nodes:?} {call:?}: {error}"));
    for (rank, expected) in (0..).zip(&outputs).filter(|(_, output)| !output.is_empty()) {
        let mut found = vec![0; expected.len()];
        cluster.read_output(&set, rank, 0, &mut found).unwrap();
        assert!(found == *expected, "{shape} {nodes:?} {call:?} seed {seed}: rank {rank}");
    }
}

fn call(collective: Collective, form: Form, combine: Option<Combine>, root: u16, bytes: u32) -> Call {
    Call { context: ContextId::WORLD, collective, form, combine, root, bytes }
}

/// The forms that a network of this shape has, for so many ranks.
fn forms(shape: &str, collective: Collective, ranks: usize) -> Vec<Form> {
    match shape.starts_with("fat") {
        true => vec![Form::Tree],
        false => {
            let may_be = |form: &&Form| **form != Form::Ring || ranks.is_power_of_two();
            collective.forms().iter().filter(may_be).copied().collect()
        }
    }
}

#[test]
fn every_collective_form_type_and_operation_gives_the_oracles_bits() {
    let mut runs = 0;
    for shape in ["2x1x1", "2x2x2", "3x2x1", "fat:2", "fat:13", "fat:20:16"] {
        let (_fabric, mut cluster) = open(shape);
        let nodes: Vec<u32> = (0..cluster.capabilities().nodes).collect();
        for collective in Collective::ALL.iter().copied() {
            for form in forms(shape, collective, nodes.len()) {
                let combines = match collective.combines() {
                    true => operations().into_iter().map(Some).collect(),
                    false => vec![None; 3],
                };
                for (number, combine) in (0..).zip(combines) {
                    let bytes = [8, 24, 264][number as usize % 3];
                    let root = (number * 5 % nodes.len() as u64) as u16;
                    check(&mut cluster, shape, &nodes, &call(collective, form, combine, root, bytes), number + 7);
                    runs += 1;
                }
            }
        }
    }
    assert!(runs > 1500, "{runs}");
}

#[test]
fn a_thousand_random_communicators_share_the_32_entries() {
    for shape in ["4x4x2", "fat:32"] {
        let (_fabric, mut cluster) = open(shape);
        let mut dice = Dice(seed());
        let (mut held, mut full, mut runs) = (Vec::new(), 0, 0);
        while runs < 1000 {
            let mut nodes: Vec<u32> = (0..32).collect();
            (1..32).rev().for_each(|place| nodes.swap(place, dice.below(place as u64 + 1) as usize));
            nodes.truncate(2 + dice.below(12) as usize);
            let world = cluster.world();
            // A full table is refused by name, and nothing else is.
            loop {
                match cluster.create(&world, &nodes) {
                    Ok(communicator) => break held.push(communicator),
                    Err(Error::TableFull { limit: 32, .. }) => full += 1,
                    Err(error) => panic!("{error}"),
                }
                for _ in 0..1 + dice.below(20) {
                    let place = dice.below(held.len() as u64) as usize;
                    cluster.free(&held.swap_remove(place)).unwrap();
                }
            }
            let all: Vec<Collective> = Collective::ALL.into();
            let collective = all[runs % all.len()];
            let combine = Some(Combine::new(Reduction::Sum, Element::F32)).filter(|_| collective.combines());
            let of = forms(shape, collective, nodes.len());
            let form = of[dice.below(of.len() as u64) as usize];
            let root = dice.below(nodes.len() as u64) as u16;
            // The held one of the same members is used.
            check(&mut cluster, shape, &nodes, &call(collective, form, combine, root, 64), runs as u64);
            runs += 1;
        }
        assert!(full > 0, "the tables were never full");
    }
}

/// Also of forms whose steps change from piece to piece of a block, and of more pieces than the planner follows one by one.
#[test]
fn every_form_takes_as_long_as_predicted() {
    let mut wrong = Vec::new();
    for shape in ["2x2x2", "3x2x1", "4x2x2", "fat:13"] {
        let (fabric, mut cluster) = open(shape);
        fabric.hollow_out();
        let nodes: Vec<u32> = (0..cluster.capabilities().nodes).collect();
        for collective in Collective::ALL.iter().copied() {
            let combine = Some(Combine::new(Reduction::Sum, Element::F32)).filter(|_| collective.combines());
            for form in forms(shape, collective, nodes.len()) {
                // Blocks of every rank are as long in all as one block of the others.
                let most = match collective {
                    Collective::Reduce | Collective::Allreduce | Collective::Broadcast => 64 << 10,
                    _ => 4 << 10,
                };
                for bytes in [8, 2400, most] {
                    let call = call(collective, form, combine, 0, bytes);
                    let Plan { set, .. } = planned(&cluster, &nodes, &call);
                    let predicted = predict(&set, cluster.capabilities()).unwrap();
                    let execution = Execution { timeout: 6 * SECONDS, ..Execution::default() };
                    let report = cluster.execute(&set, &execution).unwrap();
                    let most_given = (0..nodes.len() as u32)
                        .map(|rank| call.inputs(rank, nodes.len() as u32).len() as u64 * u64::from(bytes))
                        .max();
                    let differ = differences(&predicted, &report, most_given.unwrap(), cluster.capabilities());
                    let name = format!("{shape} {} {} {bytes} B", collective.name(), form.name());
                    wrong.extend(differ.into_iter().map(|how| format!("{name}: {how}")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The times that were predicted wrong, of a call to which each card gives up to so many bytes.
fn differences(predicted: &Prediction, report: &Report, given: u64, capabilities: &Capabilities) -> Vec<String> {
    const MOST_PERCENT: f64 = 5.0;
    let units = capabilities.switch.unwrap();
    let cycle_ps = 1e9 / f64::from(report.clock_khz);
    // What the FIFO of a switch holds leaves at the rate of the line. Then T1 can differ by no more than the cycle that the card
    // rounds down to, and the phit until an edge of the transmitter. Other data waits for what the units take.
    let is_held = given + PROCESSOR_HEADER_BYTES as u64 <= u64::from(units.input_phits) * PHIT_BYTES as u64;
    let within_percent = |counted_ps: f64| counted_ps * MOST_PERCENT / 100.0;
    let times = [
        ("T1", predicted.t1_ps, report.t1_cycles, is_held.then(|| cycle_ps + f64::from(units.phit_ps))),
        ("T2", predicted.t2_ps, report.t2_cycles, None),
        ("arrival", predicted.arrival_ps, report.arrival_cycles, None),
    ];
    let of = |(name, predicted_ps, cycles, most): (&str, u64, u64, Option<f64>)| {
        let (predicted_ps, counted_ps) = (predicted_ps as f64, cycles as f64 * cycle_ps);
        let is_near = (predicted_ps - counted_ps).abs() <= most.unwrap_or_else(|| within_percent(counted_ps));
        let percent = 100.0 * (predicted_ps / counted_ps - 1.0);
        let [predicted_us, counted_us] = [predicted_ps, counted_ps].map(|time| time / 1e6);
        (!is_near)
            .then(|| format!("{name} {predicted_us:.3} us predicted, {counted_us:.3} us counted, {percent:+.1} %"))
    };
    times.into_iter().filter_map(of).collect()
}

/// A plan of some of the ranks needs an entry, whatever its algorithm: the error says what to do.
#[test]
fn a_plan_for_which_no_entry_is_left_says_what_to_free() {
    let (_fabric, mut cluster) = open("fat:8");
    let world = cluster.world();
    let held: Vec<_> = (0..31).map(|_| cluster.duplicate(&world).unwrap()).collect();
    let combine = Some(Combine::new(Reduction::Sum, Element::F32));
    let call = call(Collective::Allreduce, Form::Tree, combine, 0, 8);
    let set = planned(&cluster, &[1, 2, 5], &call).set;
    let error = cluster.execute(&set, &Execution::default()).unwrap_err();
    assert!(matches!(error, Error::TableFull { cards: 3, limit: 32 }), "{error}");
    assert!(error.to_string().ends_with("free one of them first"), "{error}");
    cluster.free(&held[17]).unwrap();
    check(&mut cluster, "fat:8", &[1, 2, 5], &call, 1);
}

/// A card that only gives is calls ahead of the one that takes.
#[test]
fn calls_on_one_communicator_are_told_apart() {
    const CALLS: u64 = 40;
    for shape in ["3x2x1", "fat:8"] {
        let (_fabric, mut cluster) = open(shape);
        let nodes = cluster.capabilities().nodes;
        let combine = Combine::new(Reduction::Sum, Element::U64);
        let mut tokens = Vec::new();
        // The takers come last: card 0 takes half of the calls, the last card the others.
        for node in (1..nodes - 1).chain([nodes - 1, 0]) {
            let queue = cluster.card_mut(node as usize).queue_mut();
            for number in 0..CALLS {
                let (give, take) = (Operand::card(0), Operand::card((1 + number) << 12));
                let root = if number % 2 == 0 { 0 } else { nodes as u16 - 1 };
                let reduce = Instruction::reduce(combine, root, give, take, 8).with_flags(Flags::TREE);
                let value = (number + 1) * (u64::from(node) + 1);
                for instruction in [Instruction::fill(give, 8, value), reduce] {
                    tokens.push((node, queue.submit(instruction).unwrap()));
                }
            }
        }
        for (node, token) in tokens {
            cluster.card_mut(node as usize).wait(&token, SECONDS).unwrap();
        }
        for number in 0..CALLS {
            let root = if number % 2 == 0 { 0 } else { nodes - 1 };
            let mut found = [0; 8];
            cluster.card_mut(root as usize).read_memory((1 + number) << 12, &mut found).unwrap();
            let expected = (1..=u64::from(nodes)).sum::<u64>() * (number + 1);
            assert_eq!(u64::from_le_bytes(found), expected, "{shape} call {number}");
        }
    }
}

/// The results of a call come to a card before it has begun the call: they wait for it there.
#[test]
fn results_wait_for_a_late_card() {
    for shape in ["3x2x1", "fat:8", "2x2x2"] {
        let ranks = Profile::mpi_fpga_of(shape).unwrap().nodes;
        for collective in [Collective::Broadcast, Collective::Scatter, Collective::Gather] {
            for form in forms(shape, collective, ranks as usize) {
                late_takers(shape, collective, form);
            }
        }
    }
}

/// Calls in which the instructions of those that only take data are submitted after all others.
fn late_takers(shape: &str, collective: Collective, form: Form) {
    // More calls than a card may be ahead.
    const CALLS: u64 = 20;
    let (_fabric, mut cluster) = open(shape);
    let nodes = cluster.capabilities().nodes;
    let (root, others) = (nodes - 1, 0..nodes - 1);
    let call = |give, take| match collective {
        Collective::Broadcast => Instruction::broadcast(root as u16, give, take, 600),
        Collective::Scatter => Instruction::scatter(root as u16, give, take, 600),
        _ => Instruction::gather(root as u16, give, take, 600),
    };
    let (order, givers, takers): (Vec<u32>, Vec<u32>, Vec<u32>) = match collective {
        Collective::Gather => ((0..nodes).collect(), (0..nodes).collect(), vec![root]),
        _ => ([root].into_iter().chain(others.clone()).collect(), vec![root], others.collect()),
    };
    let value = |number: u64, node: u32| number << 8 | u64::from(node);
    let mut tokens = Vec::new();
    for node in order {
        let queue = cluster.card_mut(node as usize).queue_mut();
        for number in 0..CALLS {
            let (give, take) = (Operand::card(0), Operand::card((1 + number) << 16));
            let fill = Instruction::fill(give, 8 << 10, value(number, node));
            let call = call(give, take).with_flags(form.flag());
            tokens.extend([fill, call].map(|one| (node, queue.submit(one).unwrap())));
        }
    }
    for (node, token) in tokens {
        let waits = cluster.card_mut(node as usize).wait(&token, SECONDS);
        waits.unwrap_or_else(|error| panic!("{shape} {collective:?} {form:?}: {error}"));
    }
    for number in 0..CALLS {
        let block = |giver: &u32| value(number, *giver).to_le_bytes().repeat(600 / 8);
        let expected: Vec<u8> = givers.iter().flat_map(block).collect();
        for taker in &takers {
            let mut found = vec![0; expected.len()];
            cluster.card_mut(*taker as usize).read_memory((1 + number) << 16, &mut found).unwrap();
            assert!(found == expected, "{shape} {collective:?} {form:?} call {number}, node {taker}");
        }
    }
}

/// One card never joins a call: the others are aborted, and what they gave is in no later result.
#[test]
fn what_an_aborted_call_left_is_in_no_later_result() {
    for shape in ["2x2x1", "fat:7"] {
        let (_fabric, mut cluster) = open(shape);
        let nodes: Vec<u32> = (0..cluster.capabilities().nodes).collect();
        let combine = Combine::new(Reduction::Sum, Element::U64);
        for round in 0..10 {
            let allreduce = Instruction::allreduce(combine, Operand::card(0), Operand::card(4096), 8);
            let absent = nodes[round % nodes.len()];
            let others = nodes.iter().filter(|node| **node != absent);
            let tokens: Vec<_> = others
                .map(|node| {
                    let queue = cluster.card_mut(*node as usize).queue_mut();
                    (*node, queue.submit(allreduce.with_flags(Flags::TREE)).unwrap())
                })
                .collect();
            let waits = cluster.card_mut(tokens[0].0 as usize).wait(&tokens[0].1, Duration::from_millis(20));
            let seen = format!("waiting for node {absent};");
            assert!(matches!(&waits, Err(Error::Timeout { last_seen, .. }) if last_seen.contains(&seen)), "{waits:?}");
            cluster.abort(0..nodes.len()).unwrap();
            for (node, token) in tokens {
                let ended = cluster.card_mut(node as usize).queue_mut().wait(&token, SECONDS).unwrap();
                assert_eq!(ended.status, Status::Aborted);
            }
            let call = call(Collective::Allreduce, Form::Tree, Some(combine), 0, 8);
            check(&mut cluster, shape, &nodes, &call, round as u64);
        }
    }
}

#[test]
fn what_the_switches_lack_the_cards_do() {
    let (_fabric, cluster) = open("fat:8");
    let capabilities = cluster.capabilities();
    let request = |collective, reduction| Request {
        combine: Some(Combine::new(reduction, Element::F32)),
        ..Request::new(collective, (0..8).collect(), 64)
    };
    let product = request(plan::Collective::Allreduce, Reduction::Prod);
    assert_ne!(plan(&product, capabilities).unwrap().algorithm, Algorithm::Switch);
    let forced = plan(&Request { algorithm: Some(Algorithm::Switch), ..product }, capabilities).unwrap_err();
    assert_eq!(forced.cause, "the units of the switches do not support prod of f32 elements");
    let sum = request(plan::Collective::Allreduce, Reduction::Sum);
    assert_eq!(plan(&sum, capabilities).unwrap().algorithm, Algorithm::Switch);
    // A scan is none of theirs.
    let scan = request(plan::Collective::Scan, Reduction::Sum);
    assert_ne!(plan(&scan, capabilities).unwrap().algorithm, Algorithm::Switch);
    let refused = plan(&Request { algorithm: Some(Algorithm::Switch), ..scan }, capabilities).unwrap_err();
    assert!(refused.cause.starts_with("the switches do not compute scan"), "{refused}");
}

#[test]
fn a_shape_that_no_network_has_is_refused_with_one_that_would_fit() {
    let cause = |shape: &str| Profile::mpi_fpga_of(shape).unwrap_err().to_string();
    assert!(cause("4x4").ends_with("2 to 512 processors): 4x4x1 would fit"), "{}", cause("4x4"));
    assert!(cause("8").ends_with(": 8x1x1 would fit"));
    assert!(cause("fat:32:9").ends_with(": fat:32:16 would fit"));
    // Nothing near either of these fits.
    for wrong in ["fat:a", "fat:4096", "4096", "fat:"] {
        assert!(cause(wrong).ends_with("2 to 512 processors)"), "{}", cause(wrong));
    }
    assert!(cause("9x9x9").ends_with("2 to 512 processors)"), "{}", cause("9x9x9"));
}
