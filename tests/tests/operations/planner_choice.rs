//! The planner's predictions and choices against the counts of mock cards. All predictions are made before a card is opened.
//!
//! A fixed sample always runs; `FPGA_TESTS_FULL=1` runs every number of ranks and every power of two.

#[path = "../../../cmdseq/tests/cards/mod.rs"]
mod cards;

use cmdseq::plan::{Algorithm, Collective, Plan, Request, plan, predict};
use cmdseq::{Capabilities, Instruction, Operand, Topology};
use fpga_driver::{Cluster, Execution};
use fpga_mock::Profile;
use fpga_tests::prediction::{self, Case, Lengths, plans, request, request_of};
use fpga_tests::sweep::is_full;
use fpga_tests::{pattern, run};

/// The most by which a prediction may be wrong.
const WRONG_PERCENT: f64 = 2.0;
/// The most that what was chosen may take beyond the best.
const WORSE_PERCENT: f64 = 5.0;

fn sizes(ranks: u32) -> Vec<u64> {
    match is_full() {
        true => (3..=26).map(|power| 1 << power).collect(),
        false if ranks > 32 => vec![8, (16 << 10) + 8, 64 << 20],
        false => vec![8, 1000, 2 << 10, 16 << 10, (16 << 10) + 8, 512 << 10, 8 << 20, 64 << 20],
    }
}

/// What one request came to.
struct Outcome {
    chosen: Case,
    forced: Vec<Case>,
}

/// Every collective of every size.
fn requests(profile: &Profile) -> Vec<Request> {
    let all = Collective::ALL
        .iter()
        .flat_map(|collective| sizes(profile.nodes).into_iter().map(move |bytes| (*collective, bytes)));
    all.flat_map(|(collective, bytes)| [false, true].map(|rendezvous| (collective, bytes, rendezvous)))
        .filter(|(collective, bytes, _)| *collective != Collective::Barrier || *bytes == 8)
        .map(|(collective, bytes, rendezvous)| request(profile.nodes, collective, bytes, rendezvous))
        .collect()
}

/// Every vector form of every size with blocks of lengths of other kinds than those of [`requests`].
fn uneven_requests(profile: &Profile) -> Vec<Request> {
    let mut requests = Vec::new();
    for collective in Collective::ALL.iter().filter(|collective| collective.has_counts()) {
        for lengths in Lengths::ALL.into_iter().filter(|lengths| *lengths != Lengths::Mixed) {
            for bytes in sizes(profile.nodes) {
                for rendezvous in [false, true] {
                    let request = request_of(profile.nodes, *collective, bytes, rendezvous, lengths);
                    // Of nothing there is no last byte to arrive.
                    if request.counts.iter().any(|bytes| *bytes != 0) {
                        requests.push(request);
                    }
                }
            }
        }
    }
    requests
}

/// Plans all for cards that are described by hand, and only then opens them and runs the plans.
fn outcomes(profile: &Profile, requests: &[Request]) -> Vec<Outcome> {
    let capabilities = match profile.topology {
        Topology::FullyConnected => cards::connected(profile.nodes),
        Topology::Dragonfly { groups } => cards::dragonfly(groups, profile.nodes / groups),
        Topology::Torus { rows } => cards::circus(rows, profile.nodes / rows),
        Topology::Switched(shape) => cards::mpi_fpga(shape),
    };
    let capabilities = Capabilities { lanes: profile.lanes, ..capabilities };
    let planned: Vec<(Plan, Vec<Plan>)> = requests
        .iter()
        .filter_map(|request| match plans(request, &capabilities) {
            Ok(planned) => Some(planned),
            Err(refusal) => {
                // With what lies between on the way, it is more than a card holds.
                let bytes = |rank| request.input_bytes(rank) + request.output_bytes(rank);
                let most = (0..request.ranks()).map(bytes).max().unwrap_or(0);
                assert!(2 * most > capabilities.memory_bytes, "{request:?}: {refusal}");
                None
            }
        })
        .collect();
    let (fabric, mut cluster) = run::open(profile.clone());
    let found = cluster.capabilities();
    // The rooms of the cards are none of the planner's business here.
    let planned_for = Capabilities {
        queue_depth_max: found.queue_depth_max,
        communicator_ranks: found.communicator_ranks,
        resident_programs: found.resident_programs,
        resident_words: found.resident_words,
        element_types: found.element_types,
        reductions: found.reductions,
        ..capabilities.clone()
    };
    assert_eq!(*found, planned_for, "the cards are not what was planned for");
    fabric.hollow_out();
    let mut one = |plan: &Plan| run_to_t2(&mut cluster, plan);
    planned
        .iter()
        .map(|(chosen, forced)| Outcome { chosen: one(chosen), forced: forced.iter().map(&mut one).collect() })
        .collect()
}

/// Runs a plan, and checks T2: no card is done before what arrives there, and the last one is when predicted.
fn run_to_t2(cluster: &mut Cluster, plan: &Plan) -> Case {
    let report = cluster.execute(&plan.set, &Execution::default()).expect("a run");
    let ps = |cycles: u64| cycles * 1_000_000_000 / u64::from(report.clock_khz);
    let case = prediction::case(plan, &report);
    let (counted, predicted) = (ps(report.t2_cycles), plan.predicted.t2_ps);
    assert!(report.t2_cycles >= report.arrival_cycles, "{case:?}: T2 is {counted} ps, before the arrival");
    let wrong = 100.0 * (predicted as f64 / counted as f64 - 1.0);
    assert!(wrong.abs() <= WRONG_PERCENT, "{case:?}: T2 is {counted} ps, predicted {predicted}: {wrong:+.1} %");
    case
}

fn check(profile: &Profile, requests: &[Request]) {
    let outcomes = outcomes(profile, requests);
    let (mut wrong, mut worse) = (0.0_f64, 0.0_f64);
    for Outcome { chosen, forced } in &outcomes {
        for case in forced.iter().chain([chosen]) {
            wrong = wrong.max(case.difference_percent().abs());
            assert!(case.difference_percent().abs() <= WRONG_PERCENT, "{case:?}: {:+.1} %", case.difference_percent());
        }
        let best = forced.iter().min_by_key(|case| case.simulated_ps).expect("the way chosen can be forced too");
        let beyond = 100.0 * (chosen.simulated_ps as f64 / best.simulated_ps as f64 - 1.0);
        worse = worse.max(beyond);
        assert!(beyond <= WORSE_PERCENT, "{chosen:?} takes {beyond:.1} % more than {best:?}");
    }
    let (nodes, topology) = (profile.nodes, profile.topology);
    let count: usize = outcomes.iter().map(|outcome| outcome.forced.len()).sum();
    println!("{topology:?} of {nodes}: {count} plans, at most {wrong:.2} % wrong and {worse:.2} % behind the best");
}

#[test]
fn predictions_are_right_and_the_best_way_is_chosen() {
    let ranks: Vec<u32> = if is_full() { (2..=64).collect() } else { vec![2, 3, 4, 7, 16, 24] };
    ranks.into_iter().map(Profile::optweb).for_each(|profile| check(&profile, &requests(&profile)));
}

#[test]
fn the_same_on_sixty_four_ranks() {
    let profile = Profile::optweb(64);
    check(&profile, &requests(&profile));
}

#[test]
fn the_same_on_dragonflies() {
    let shapes: &[(u32, u32)] = if is_full() { &[(2, 2), (2, 8), (3, 5), (4, 4), (8, 8)] } else { &[(2, 3), (4, 4)] };
    for (groups, size) in shapes {
        let profile = Profile::optweb_dragonfly(*groups, *size);
        check(&profile, &requests(&profile));
    }
}

#[test]
fn the_same_on_tori() {
    let shapes: &[(u32, u32)] =
        if is_full() { &[(1, 2), (1, 7), (2, 2), (3, 4), (4, 4), (5, 5), (8, 8)] } else { &[(1, 5), (2, 3), (4, 4)] };
    for (rows, columns) in shapes {
        let profile = Profile::circus(*rows, *columns);
        check(&profile, &requests(&profile));
    }
}

/// What forms of switches take is predicted in `switches.rs`.
#[test]
fn cards_of_networks_whose_switches_compute_are_as_described() {
    for shape in ["2x1x1", "2x2x2", "4x3x2", "fat:2", "fat:13", "fat:20:16"] {
        assert!(outcomes(&Profile::mpi_fpga_of(shape).unwrap(), &[]).is_empty());
    }
}

#[test]
fn the_same_on_cards_with_several_lanes() {
    let meshes: &[(u32, u32)] = if is_full() { &[(3, 2), (4, 2), (8, 2), (16, 6)] } else { &[(3, 2), (8, 2)] };
    let shapes: &[(u32, u32)] = if is_full() { &[(2, 2), (2, 8), (3, 5), (4, 4), (8, 8)] } else { &[(2, 3), (4, 4)] };
    check_lanes(meshes, shapes);
}

/// Where stripes share pseudo channels, exchanges in several lanes must not be slower than each of them alone.
#[test]
fn the_same_on_cards_with_several_lanes_and_shared_channels() {
    let meshes: &[(u32, u32)] =
        if is_full() { &[(17, 2), (24, 2), (40, 2), (48, 2), (64, 2)] } else { &[(24, 2), (40, 2)] };
    let shapes: &[(u32, u32)] =
        if is_full() { &[(2, 24), (2, 32), (4, 14), (4, 30), (3, 40)] } else { &[(2, 32), (4, 14)] };
    check_lanes(meshes, shapes);
}

fn check_lanes(meshes: &[(u32, u32)], shapes: &[(u32, u32)]) {
    let meshes = meshes.iter().map(|(ranks, lanes)| Profile { lanes: *lanes, ..Profile::optweb(*ranks) });
    let grids = shapes.iter().map(|(groups, size)| Profile { lanes: 6, ..Profile::optweb_dragonfly(*groups, *size) });
    meshes.chain(grids).for_each(|profile| check(&profile, &requests(&profile)));
}

#[test]
fn the_same_of_blocks_of_very_unequal_lengths() {
    let ranks: &[u32] = if is_full() { &[2, 3, 5, 8, 16, 17, 32, 64] } else { &[3, 8, 17] };
    let shapes: &[(u32, u32)] = if is_full() { &[(2, 2), (2, 8), (3, 5), (4, 4), (8, 8)] } else { &[(3, 4), (8, 2)] };
    let dragonflies = shapes.iter().map(|(groups, size)| Profile::optweb_dragonfly(*groups, *size));
    for profile in ranks.iter().copied().map(Profile::optweb).chain(dragonflies) {
        check(&profile, &uneven_requests(&profile));
    }
}

/// Cards that come late, before each of their instructions: what others wait for them is theirs to wait, and eager data lies
/// in receive buffers meanwhile.
#[test]
fn late_cards_are_predicted_too() {
    let (mut seed, mut worst) = (0, 0.0_f64);
    for ranks in [2, 3, 6] {
        let (fabric, mut cluster) = run::open(Profile::optweb(ranks));
        fabric.hollow_out();
        let capabilities = cluster.capabilities().clone();
        for collective in Collective::ALL {
            for bytes in [64, 8 << 10, 100_000] {
                let (_, forced) = plans(&request(ranks, *collective, bytes, false), &capabilities).unwrap();
                for mut plan in forced {
                    for program in &mut plan.set.programs {
                        seed += 1;
                        let mut late = vec![0; program.instructions.len()];
                        pattern::fill(seed, 0, 0, &mut late);
                        let behind = |(one, late): (Instruction, u8)| [Instruction::delay(8 * u64::from(late)), one];
                        program.instructions = program.instructions.drain(..).zip(late).flat_map(behind).collect();
                    }
                    let predicted = predict(&plan.set, &capabilities).unwrap();
                    let is_barrier = *collective == Collective::Barrier;
                    plan.predicted.arrival_ps = if is_barrier { predicted.t2_ps } else { predicted.arrival_ps };
                    let case = prediction::run(&mut cluster, &plan);
                    worst = worst.max(case.difference_percent().abs());
                    assert!(case.difference_percent().abs() < 1.0, "{case:?}: {:+.2} %", case.difference_percent());
                }
            }
        }
    }
    println!("at most {worst:.2} % wrong");
}

/// Repetitions that begin together take as long as one alone. If one card is late, its data counts from when the others began.
#[test]
fn repetitions_apart_take_as_long_as_one_alone() {
    const LATE_CYCLES: u64 = 20_000;
    for (profile, collective, bytes, (root, peer), algorithm) in [
        (Profile::optweb(5), Collective::Broadcast, 64 << 10, (0, 0), Some(Algorithm::Ring)),
        (Profile::optweb_dragonfly(3, 3), Collective::Send, 1, (3, 1), None),
        (Profile::optweb(4), Collective::Send, 4 << 10, (1, 0), None),
    ] {
        let nodes = profile.nodes;
        let (_, mut cluster) = run::open(profile);
        let request = Request { root, peer, algorithm, ..Request::new(collective, (0..nodes).collect(), bytes) };
        let plan = plan(&request, cluster.capabilities()).unwrap();
        let bound_ps = request.lower_bound(cluster.capabilities()).unwrap().total_ps();
        let mut arrivals = |start_delay_cycles: Vec<u64>| {
            let execution = Execution { start_delay_cycles, repeat: 4, apart: true, ..Execution::default() };
            let report = cluster.execute(&plan.set, &execution).unwrap();
            let ps = |cycles: u64| cycles * 1_000_000_000 / u64::from(report.clock_khz);
            assert_eq!(report.arrival_cycles, report.repetitions[3].arrival_cycles);
            report.repetitions.iter().map(|times| ps(times.arrival_cycles)).collect::<Vec<_>>()
        };
        let together = arrivals(Vec::new());
        let wrong = |ps: &u64| 100.0 * (plan.predicted.arrival_ps as f64 / *ps as f64 - 1.0);
        assert!(together.iter().all(|ps| wrong(ps).abs() <= WRONG_PERCENT), "{collective:?}: {together:?}");
        assert!(together.iter().all(|ps| *ps >= bound_ps), "{collective:?}: {together:?}");
        for late in 0..plan.set.nodes.len() {
            let mut delays = vec![0; plan.set.nodes.len()];
            delays[late] = LATE_CYCLES;
            let arrivals = arrivals(delays);
            assert!(arrivals.iter().all(|ps| *ps >= bound_ps), "{collective:?}, {late} is late: {arrivals:?}");
        }
    }
}

/// Signals are waited for as long as they take to come.
#[test]
fn signals_are_predicted_too() {
    let (_, mut cluster) = run::open(Profile::optweb(2));
    let capabilities = cluster.capabilities().clone();
    for bytes in [0, 64, 100_000] {
        let (_, mut forced) = plans(&request(2, Collective::Barrier, 8, false), &capabilities).unwrap();
        let mut plan = forced.remove(0);
        let (source, destination) = (Operand::card(0), Operand::card(1 << 28));
        let put = Instruction::put_signal(1, source, destination, bytes, 3, 2);
        plan.set.programs[0].instructions = vec![Instruction::delay(100), put, put];
        plan.set.programs[1].instructions = vec![Instruction::wait_signal(3, 4)];
        let predicted = predict(&plan.set, &capabilities).unwrap();
        plan.predicted.arrival_ps = predicted.t2_ps;
        let case = prediction::run(&mut cluster, &plan);
        assert!(case.difference_percent().abs() < 1.0, "{bytes} B: {case:?}");
    }
}
