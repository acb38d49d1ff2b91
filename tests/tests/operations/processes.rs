//! Ranks that hold one card each, and agree through [`fpga_driver::Peers`]: the same results and times as from one process; a rank that
//! differs, fails or ends is named by all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cmdseq::graph::Schedule;
use cmdseq::plan::{Collective, Communicator, Piece, Plan, Program, ProgramSet, Request, plan};
use cmdseq::table::{Entry, Table};
use cmdseq::{Combine, Element, Instruction, Operand, Reduction, Status};
use fpga_driver::{Alone, Bound, Cluster, Error, ErrorKind, Execution, Peers, PeersError, Prepared, State, digest};
use fpga_mock::{Fabric, Fault, Profile, When};
use fpga_tests::threads;
use fpga_tests::{pattern, reduction, run};

const SECONDS: Duration = Duration::from_secs(20);
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(120);
/// By then all ranks have submitted their programs.
const SUBMITTED: Duration = Duration::from_secs(2);

pub(crate) fn fabric(nodes: u32) -> Fabric {
    Fabric::new(Profile::optweb(nodes)).unwrap()
}

pub(crate) fn request(collective: Collective, bytes: u64) -> Request {
    let combine = matches!(
        collective,
        Collective::Reduce | Collective::Allreduce | Collective::ReduceScatter | Collective::Scan | Collective::Exscan
    );
    let combine = combine.then(|| Combine::new(Reduction::Sum, Element::U32));
    let mut request = Request { combine, ..Request::new(collective, Vec::new(), bytes) };
    if collective.has_counts() {
        request.counts = vec![bytes; request.counts_needed() as usize];
    }
    request
}

/// Inputs of rank `rank`.
fn input(plan: &Plan, rank: u32) -> Vec<u8> {
    let mut data = vec![0; plan.request.input_bytes(rank) as usize];
    pattern::fill(1, rank, 0, &mut data);
    data
}

/// Times, and outputs by rank.
pub(crate) type Ran = ((u64, u64, u64), Vec<Vec<u8>>);

/// Runs a plan on the cards held here.
pub(crate) fn execute(cluster: &mut Cluster, plan: &Plan) -> Result<Ran, Error> {
    let held: Vec<u32> =
        (0..).zip(&plan.set.nodes).filter(|(_, node)| cluster.holds(**node)).map(|(rank, _)| rank).collect();
    for rank in &held {
        cluster.write_input(&plan.set, *rank, 0, &input(plan, *rank))?;
    }
    let report = cluster.execute(&plan.set, &Execution { timeout: Duration::from_secs(60), ..Execution::default() })?;
    let mut outputs = Vec::new();
    for rank in held {
        let mut output = vec![0; plan.request.output_bytes(rank) as usize];
        cluster.read_output(&plan.set, rank, 0, &mut output)?;
        outputs.push(output);
    }
    Ok(((report.t1_cycles, report.t2_cycles, report.arrival_cycles), outputs))
}

#[test]
fn every_operation_is_as_from_one_process() {
    for nodes in [2, 4, 8] {
        let group: Vec<u32> = (0..nodes).collect();
        let plans = |cluster: &Cluster| -> Vec<Plan> {
            let one = |collective: &Collective| {
                let mut request = Request { group: group.clone(), ..request(*collective, 4096) };
                request.peer = nodes - 1;
                if collective.has_counts() {
                    request.counts = vec![4096; request.counts_needed() as usize];
                }
                plan(&request, cluster.capabilities()).unwrap()
            };
            Collective::ALL.iter().map(one).collect()
        };
        let (_fabric, mut cluster) = run::open(Profile::optweb(nodes));
        let expected: Vec<Ran> = plans(&cluster).iter().map(|plan| execute(&mut cluster, plan).unwrap()).collect();
        let found = threads::clusters(&fabric(nodes), |cluster, _| {
            plans(cluster).iter().map(|plan| execute(cluster, plan).unwrap()).collect::<Vec<Ran>>()
        });
        for (index, (collective, (times, outputs))) in Collective::ALL.iter().zip(&expected).enumerate() {
            for (rank, of_rank) in found.iter().enumerate() {
                let (found, output) = &of_rank[index];
                assert_eq!((found, &output[0]), (times, &outputs[rank]), "{collective} on {nodes}, rank {rank}");
            }
        }
    }
}

/// What each rank ends with, as text.
fn refusals(outcomes: Vec<Result<Cluster, Error>>) -> Vec<String> {
    outcomes
        .into_iter()
        .map(|outcome| outcome.map_or_else(|error| error.to_string(), |_| "a cluster".to_owned()))
        .collect()
}

#[test]
fn a_card_of_another_fabric_is_named_by_all() {
    for (nodes, away) in [(4, vec![2]), (4, vec![0]), (4, vec![1, 3]), (2, vec![1]), (3, vec![0, 1])] {
        let fabrics = [fabric(nodes), fabric(nodes)];
        let _clocks = fabrics.each_ref().map(Fabric::start_clock);
        let began = Instant::now();
        let outcomes = threads::ranks(nodes, |peers| {
            let node = peers.rank();
            let fabric = &fabrics[usize::from(away.contains(&node))];
            Cluster::join(threads::card(fabric, node).map(|card| vec![card]), Box::new(peers), &[])
        });
        let majority_is_away = away.len() * 2 > nodes as usize;
        let named = (0..nodes).find(|node| {
            away.contains(node) != (majority_is_away || away.contains(&0) && away.len() * 2 == nodes as usize)
        });
        let named = named.unwrap();
        for refusal in refusals(outcomes) {
            let expected = format!("Rank {named}: its card mock {named} (node {named}) is of another fabric than");
            assert!(refusal.starts_with(&expected), "{away:?} of {nodes}: {refusal}");
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}

#[test]
fn ranks_that_differ_are_named_by_all() {
    let one_node = fabric(3);
    let other = fabric(3);
    let clocks = [one_node.start_clock(), other.start_clock()];
    // Two cards that are the same node.
    let outcomes = threads::ranks(3, |peers| {
        let (fabric, node) = if peers.rank() == 2 { (&other, 1) } else { (&one_node, peers.rank()) };
        Cluster::join(threads::card(fabric, node).map(|card| vec![card]), Box::new(peers), &[])
    });
    for refusal in refusals(outcomes) {
        assert!(refusal.starts_with("Rank 2: its card mock 1 is node 1, and so is mock 1 of rank 1"), "{refusal}");
    }
    // Another eager limit, and another calibration.
    let outcomes = threads::ranks(3, |peers| {
        let node = peers.rank();
        let card = threads::card(&one_node, node)
            .and_then(|mut card| if node == 0 { card.set_eager_limit(64) } else { Ok(()) }.map(|()| vec![card]));
        Cluster::join(card, Box::new(peers), &[])
    });
    for refusal in refusals(outcomes) {
        assert!(refusal.starts_with("Rank 0: its eager_limit is 64, and that of rank 1 is "), "{refusal}");
    }
    let outcomes = threads::ranks(3, |peers| {
        let terms = [("calibration", if peers.rank() == 1 { "measured" } else { "stated" }.to_owned())];
        let card = threads::card(&one_node, peers.rank()).map(|card| vec![card]);
        Cluster::join(card, Box::new(peers), &terms)
    });
    for refusal in refusals(outcomes) {
        assert_eq!(refusal, "Rank 1: its calibration is measured, and that of rank 0 is stated");
    }
    // A card that does not open.
    let outcomes = threads::ranks(3, |peers| {
        let rank = peers.rank();
        let card = if rank == 1 {
            Err(Error::Removed { name: "mock 1".to_owned(), source: None })
        } else {
            threads::card(&one_node, rank)
        };
        Cluster::join(card.map(|card| vec![card]), Box::new(peers), &[]).map_err(|error| (rank, error))
    });
    for outcome in outcomes {
        match outcome.unwrap_err() {
            (1, Error::Removed { .. }) => {}
            (0 | 2, Error::Peer { rank: 1, kind: ErrorKind::Gone, message }) => {
                assert!(message.contains("mock 1 is gone"))
            }
            (rank, other) => panic!("rank {rank}: {other}"),
        }
    }
    drop(clocks);
}

/// What a call refuses by itself, the other ranks need not wait for.
#[test]
fn a_rank_that_is_refused_is_named_by_all() {
    let errors = threads::clusters(&fabric(2), |cluster, rank| {
        let programs =
            |longer: bool| [vec![Instruction::barrier(); if longer { 5000 } else { 1 }], vec![Instruction::barrier()]];
        let set = |longer| ProgramSet::new([0, 1], programs(longer));
        let is_wrong = rank == 1;
        let execution = Execution { repeat: if is_wrong { 0 } else { 1 }, ..Execution::default() };
        let few = [Vec::new(), Vec::new()];
        let id = if is_wrong { 0 } else { 1 };
        [
            cluster.execute(&set(false), &execution).map(drop),
            cluster.prepare(&Schedule::from(set(is_wrong))).map(drop),
            cluster.run(&[0, 1], &few[usize::from(is_wrong)..], LONG).map(drop),
            cluster.define(&Communicator { id, members: vec![0, 1] }),
            cluster.define(&Communicator { id: 1, members: vec![0, 1] }),
        ]
    });
    let [of_0, of_1] = <[_; 2]>::try_from(errors).unwrap();
    for (call, (one, other)) in of_0.into_iter().zip(of_1).enumerate() {
        if call == 4 {
            return one.and(other).unwrap();
        }
        let (Error::BadArgument { .. } | Error::Refused(_)) = other.unwrap_err() else { panic!("call {call}") };
        let one = one.unwrap_err();
        assert!(matches!(one, Error::Peer { rank: 1, .. }), "call {call}: {one}");
    }
}

#[test]
fn ranks_that_run_something_else_are_refused_before_anything_runs() {
    let errors = threads::clusters(&fabric(3), |cluster, rank| {
        let bytes = if rank == 2 { 8192 } else { 4096 };
        let plan =
            plan(&Request { group: vec![0, 1, 2], ..request(Collective::Allgather, bytes) }, cluster.capabilities());
        let refused = cluster.execute(&plan.unwrap().set, &Execution::default()).unwrap_err().to_string();
        // The cluster goes on.
        let same = Request { group: vec![0, 1, 2], ..request(Collective::Allgather, 64) };
        execute(cluster, &plan_of(cluster, &same)).unwrap();
        refused
    });
    for error in errors {
        assert!(error.starts_with("Rank 2: its program digest is "), "{error}");
    }
}

fn plan_of(cluster: &Cluster, request: &Request) -> Plan {
    plan(request, cluster.capabilities()).unwrap()
}

#[test]
fn a_card_that_fails_is_named_by_all_and_all_go_on() {
    let fabric = fabric(4);
    let group = || vec![0, 1, 2, 3];
    let errors = threads::clusters(&fabric, |cluster, rank| {
        let broadcast = |to: u64| Instruction::broadcast(0, Operand::card(0), Operand::card(to), 64);
        // The third card refuses its own, and the others wait for it.
        let beyond = cluster.capabilities().memory_bytes;
        let programs = (0..4).map(|one| vec![broadcast(if one == 2 { beyond } else { 4096 })]);
        let set = ProgramSet::new(group(), programs);
        let error = cluster.execute(&set, &Execution::default()).unwrap_err();
        let again = Request { group: group(), ..request(Collective::Allgather, 64) };
        execute(cluster, &plan_of(cluster, &again)).unwrap();
        (rank, error)
    });
    for (rank, error) in errors {
        match error {
            Error::Failed { node: 2, rank: Some(2), status: Status::OutOfRange, .. } if rank == 2 => {}
            Error::Peer { rank: 2, kind: ErrorKind::Failed, message } if rank != 2 => {
                assert!(message.starts_with("Node 2, instruction 0 (broadcast)"), "{message}");
            }
            other => panic!("rank {rank}: {other}"),
        }
    }
}

/// One whose programs have all come to their end has failed no less.
#[test]
fn a_rank_that_is_done_and_has_failed_ends_the_wait_of_the_others() {
    let found = threads::clusters(&fabric(2), |cluster, _| {
        let beyond = Operand::card(cluster.capabilities().memory_bytes);
        let copy = Instruction::copy(beyond, Operand::card(0), 64);
        let programs = [vec![Bound::from(copy)], vec![Bound::from(Instruction::recv(0, Operand::card(0), 64))]];
        let began = Instant::now();
        let error = cluster.run(&[0, 1], &programs, LONG).unwrap().result.unwrap_err();
        (error, began.elapsed())
    });
    assert!(matches!(found[0].0, Error::Failed { node: 0, status: Status::OutOfRange, .. }), "{found:?}");
    assert!(matches!(found[1].0, Error::Peer { rank: 0, kind: ErrorKind::Failed, .. }), "{found:?}");
    assert!(found.iter().all(|(_, took)| *took < LONG / 2), "{found:?}");
}

/// What is waited for is another launch.
#[test]
fn a_launch_that_fails_ends_no_other() {
    let found = threads::clusters(&fabric(2), |cluster, rank| {
        // Long enough that one of these goes on when another rank would have given up.
        let long = plan_of(cluster, &Request { group: vec![0, 1], ..request(Collective::Allreduce, 64 << 20) });
        let mut first = cluster.prepare(&Schedule::of(&long)).unwrap();
        let (_, mut second) = prepared(cluster);
        if rank == 1 {
            // In the place of the second program: slots are taken from the last one on.
            let slot = cluster.capabilities().resident_programs - 2;
            cluster.card_mut(0).store(slot, [Instruction::nop()]).unwrap();
        }
        (0..4).for_each(|_| cluster.launch(&mut first).unwrap());
        cluster.launch(&mut second).unwrap();
        let ended: Vec<_> = (0..4).map(|_| cluster.finish(&mut first, LONG).err()).collect();
        (ended, cluster.finish(&mut second, LONG).unwrap_err())
    });
    assert!(found.iter().all(|(ended, _)| ended.iter().all(Option::is_none)), "{found:?}");
    assert!(matches!(found[0].1, Error::Peer { rank: 1, .. }), "{found:?}");
    assert!(matches!(found[1].1, Error::Stale { .. }), "{found:?}");
}

/// An allreduce that is stored on the cards, with its input.
fn prepared(cluster: &mut Cluster) -> (Plan, Prepared) {
    let group = (0..cluster.capabilities().nodes).collect();
    let plan = plan_of(cluster, &Request { group, ..request(Collective::Allreduce, 4096) });
    let prepared = cluster.prepare(&Schedule::of(&plan)).unwrap();
    (plan, prepared)
}

#[test]
fn launches_end_together() {
    let fabric = fabric(4);
    let found = threads::clusters(&fabric, |cluster, rank| {
        let (plan, mut prepared) = prepared(cluster);
        let input = input(&plan, rank);
        cluster.write_input(&plan.set, rank, 0, &input).unwrap();
        for _ in 0..3 {
            cluster.launch(&mut prepared).unwrap();
        }
        let times = [(); 3].map(|()| cluster.finish(&mut prepared, SECONDS).unwrap());
        assert!(matches!(cluster.finish(&mut prepared, SECONDS), Err(Error::BadArgument { .. })));
        let mut output = vec![0; 4096];
        cluster.read_output(&plan.set, rank, 0, &mut output).unwrap();
        (times, input, output)
    });
    let inputs: Vec<&[u8]> = found.iter().map(|(_, input, _)| &input[..]).collect();
    let expected = reduction::fold("sum", "u32", &inputs);
    for (times, _, output) in &found {
        assert_eq!(times, &found[0].0, "all ranks are told the same");
        assert!(times.iter().all(|times| times.t1_cycles > 0 && times.t1_cycles <= times.t2_cycles), "{times:?}");
        assert!(*output == expected);
    }
}

/// Whatever kept a rank from launching, all are told by `finish`, and what is prepared anew runs.
#[test]
fn a_launch_that_fails_is_named_by_all() {
    let fabric = fabric(3);
    let errors = threads::clusters(&fabric, |cluster, rank| {
        let (_, mut first) = prepared(cluster);
        if rank == 1 {
            // In the place of the program.
            let slots = cluster.capabilities().resident_programs;
            (0..slots).for_each(|slot| drop(cluster.card_mut(0).store(slot, [Instruction::nop()]).unwrap()));
        }
        cluster.launch(&mut first).unwrap();
        let error = cluster.finish(&mut first, SECONDS).unwrap_err();
        drop(first);
        let (_, mut anew) = prepared(cluster);
        cluster.launch(&mut anew).unwrap();
        cluster.finish(&mut anew, SECONDS).unwrap();
        error
    });
    for (rank, error) in errors.iter().enumerate() {
        match error {
            Error::Stale { .. } if rank == 1 => {}
            Error::Peer { rank: 1, kind: ErrorKind::Failed, .. } if rank != 1 => {}
            other => panic!("rank {rank}: {other}"),
        }
    }
}

/// What is given up tells nobody afterwards why it failed.
#[test]
fn a_launch_that_fails_and_is_given_up_leaves_no_error() {
    threads::clusters(&fabric(2), |cluster, rank| {
        let (_, mut prepared) = prepared(cluster);
        let mut kept = Vec::new();
        if rank == 0 {
            let full = loop {
                match cluster.card_mut(0).queue_mut().submit(Instruction::nop()) {
                    Ok(token) => kept.push(token),
                    Err(error) => break error,
                }
            };
            assert!(matches!(full, Error::Full { .. }), "{full}");
        }
        cluster.launch(&mut prepared).unwrap();
        cluster.give_up(&mut prepared).unwrap();
        drop(kept);
        cluster.launch(&mut prepared).unwrap();
        cluster.finish(&mut prepared, LONG).unwrap();
    });
}

#[test]
fn a_stale_launch_is_given_up_by_nobody() {
    threads::clusters(&fabric(3), |cluster, rank| {
        let (_, mut prepared) = prepared(cluster);
        cluster.launch(&mut prepared).unwrap();
        if rank == 1 {
            let slots = cluster.capabilities().resident_programs;
            (0..slots).for_each(|slot| drop(cluster.card_mut(0).store(slot, [Instruction::nop()]).unwrap()));
        }
        match cluster.give_up(&mut prepared).unwrap_err() {
            Error::Stale { .. } if rank == 1 => {}
            Error::Peer { rank: 1, .. } if rank != 1 => {}
            other => panic!("rank {rank}: {other}"),
        }
        assert_eq!(prepared.in_flight(), 0);
        // All ranks are at the same place, and their cards go on.
        let again = Request { group: vec![0, 1, 2], ..request(Collective::Allgather, 64) };
        execute(cluster, &plan_of(cluster, &again)).unwrap();
    });
}

/// After a timeout the launch goes on, and may be waited for again. The first whose time is over ends the wait of all.
#[test]
fn a_launch_that_is_late_is_named_by_all() {
    let fabric = fabric(3);
    let errors = threads::clusters(&fabric, |cluster, rank| {
        let (_, mut prepared) = prepared(cluster);
        if rank == 0 {
            fabric.plant(Fault::Freeze { node: 2, when: When::Now });
        }
        cluster.launch(&mut prepared).unwrap();
        // All have launched.
        cluster.compare(&[]).unwrap();
        let late = |cluster: &mut Cluster, prepared: &mut Prepared| {
            let timeout = if rank == 0 { Duration::from_millis(500) } else { LONG };
            cluster.finish(prepared, timeout).unwrap_err().to_string()
        };
        let errors = [(); 2].map(|()| late(cluster, &mut prepared));
        assert_eq!(prepared.in_flight(), 1);
        errors
    });
    for error in errors.iter().flatten() {
        assert!(error.contains(" for rank 2 (mock 2) to complete its launched program"), "{error}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_all() {
    let errors = threads::clusters(&fabric(3), |cluster, _| {
        // The card of rank 1 has nothing to do, and the others wait for it.
        let barrier = || vec![Instruction::barrier()];
        let set = ProgramSet::new(vec![0, 1, 2], [barrier(), vec![Instruction::delay(1)], barrier()]);
        let execution = Execution { timeout: SUBMITTED, ..Execution::default() };
        cluster.execute(&set, &execution).unwrap_err().to_string()
    });
    for error in errors {
        let expected = "2 of 3 ranks not being done; ranks 0, 2 wait for rank 1";
        assert!(error.contains("for rank 0 (mock 0) to complete its program") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_rank_that_ends_is_named_by_all() {
    let fabric = fabric(3);
    let _clock = fabric.start_clock();
    let began = Instant::now();
    let errors = threads::ranks(3, |peers| {
        let rank = peers.rank();
        let mut cluster = threads::join(&fabric, peers);
        if rank == 1 {
            return None;
        }
        let plan = plan_of(&cluster, &Request { group: vec![0, 1, 2], ..request(Collective::Allgather, 64) });
        Some(execute(&mut cluster, &plan).unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        assert!(matches!(error, Error::Peers(PeersError::Gone { rank: 1, .. })), "{error:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_rank_that_ends_during_a_launch_stops_the_cards_of_all() {
    let fabric = fabric(3);
    let _clock = fabric.start_clock();
    threads::ranks(3, |peers| {
        let rank = peers.rank();
        let mut cluster = threads::join(&fabric, peers);
        let (_, mut prepared) = prepared(&mut cluster);
        if rank == 1 {
            return;
        }
        cluster.launch(&mut prepared).unwrap();
        let error = cluster.finish(&mut prepared, SECONDS).unwrap_err();
        assert!(matches!(error, Error::Peers(PeersError::Gone { rank: 1, .. })), "rank {rank}: {error:?}");
        assert_ne!(cluster.cards()[0].state(), State::Running, "rank {rank}");
    });
}

/// Card 0 waits for card 2, and that for card 1. The rank whose time is over first knows only of its own.
#[test]
fn the_first_that_gives_up_asks_what_the_others_wait_for() {
    let began = Instant::now();
    let errors = threads::clusters(&fabric(3), |cluster, rank| {
        let receive = |from| Instruction::recv(from, Operand::card(0), 64);
        let set = ProgramSet::new(vec![0, 1, 2], [vec![receive(2)], vec![Instruction::delay(1)], vec![receive(1)]]);
        let timeout = if rank == 0 { SUBMITTED } else { LONG };
        cluster.execute(&set, &Execution { timeout, ..Execution::default() }).unwrap_err()
    });
    for (rank, error) in errors.iter().enumerate() {
        let Error::Timeout { what, rank: Some(2), .. } = error else { panic!("rank {rank}: {error}") };
        assert!(
            what.contains("2 of 3 ranks not being done; rank 2 waits for rank 1; rank 0 waits for rank 2"),
            "{what}"
        );
    }
    assert!(began.elapsed() < LONG);
}

#[test]
fn terms_of_a_caller_are_compared() {
    threads::clusters(&fabric(3), |cluster, rank| {
        cluster.compare(&[("size", "7".to_owned()), ("name", "one".to_owned())]).unwrap();
        let error = cluster.compare(&[("size", (7 + rank / 2).to_string())]).unwrap_err();
        assert_eq!(error.to_string(), "Rank 2: its size is 8, and that of rank 0 is 7");
    });
}

#[test]
fn cards_close_once_all_ranks_are_done_with_them() {
    let fabric = fabric(3);
    let _clock = fabric.start_clock();
    let is_done = AtomicBool::new(false);
    threads::ranks(3, |peers| {
        let rank = peers.rank();
        let cluster = threads::join(&fabric, peers);
        if rank == 2 {
            std::thread::sleep(Duration::from_millis(50));
            is_done.store(true, Ordering::Relaxed);
        }
        cluster.close().unwrap();
        assert!(is_done.load(Ordering::Relaxed), "rank {rank}");
    });
}

/// Ranks compare digests instead of programs: whatever differs, the digests do.
#[test]
fn digests_tell_programs_apart() {
    let barrier = Instruction::barrier();
    let set = || ProgramSet::new(vec![0, 1], [vec![barrier, barrier], vec![barrier, Instruction::delay(1)]]);
    let communicator = |id, members: &[u32]| Communicator { id, members: members.to_vec() };
    let changed = |change: &dyn Fn(&mut Program)| {
        let mut set = set();
        let piece = Piece { offset: 0, address: 64, bytes: 8 };
        set.programs[0].input = vec![piece];
        set.programs[1].output = vec![piece, piece];
        change(&mut set.programs[0]);
        set
    };
    // All its bytes are 0, as those of the empty lists around it.
    let with_table = |rank: usize| {
        let mut set = ProgramSet::new(vec![0, 1], [vec![], vec![]]);
        set.programs[rank].tables.insert(0, Table { entries: vec![Entry::default()] });
        set
    };
    let all = [
        set(),
        ProgramSet::new(vec![1, 0], [vec![barrier, barrier], vec![barrier, Instruction::delay(1)]]),
        ProgramSet::new(vec![0, 1], [vec![barrier, barrier], vec![barrier, Instruction::delay(2)]]),
        ProgramSet::new(vec![0, 1], [vec![barrier], vec![barrier, barrier, Instruction::delay(1)]]),
        set().with([communicator(1, &[0, 1])]),
        set().with([communicator(2, &[0, 1])]),
        set().with([communicator(1, &[1, 0])]),
        set().with([communicator(1, &[0]), communicator(1, &[1])]),
        changed(&|_| {}),
        changed(&|program| program.input[0].offset = 8),
        changed(&|program| program.input[0].address = 8),
        changed(&|program| program.input[0].bytes = 64),
        changed(&|program| program.input.clear()),
        changed(&|program| program.output = std::mem::take(&mut program.input)),
        with_table(0),
        with_table(1),
    ];
    let digests: std::collections::BTreeSet<String> = all.iter().map(digest).collect();
    assert_eq!(digests.len(), all.len());
    assert_eq!(digest(&all[0]), digest(&set()));
}

#[test]
fn one_process_asks_nobody() {
    let (_fabric, cluster) = run::open(Profile::optweb(2));
    assert_eq!((cluster.nodes(), cluster.roster()[1].peer), (vec![0, 1], 0));
    let cards = threads::card(&fabric(2), 0).map(|card| vec![card]);
    let joined = Cluster::join(cards, Box::new(Alone), &[("anything", "at all".to_owned())]).unwrap();
    joined.close().unwrap();
}
