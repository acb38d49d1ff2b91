//! Exchanges in several lanes of mock cards (`docs/isa.md`, Lanes): when each is issued, what meets, and what happens when one
//! fails or is aborted.
#![forbid(unsafe_code)]

use std::time::Duration;

use cmdseq::instruction::offset;
use cmdseq::plan::{Communicator, Program};
use cmdseq::{Completion, Flags, Instruction, Operand, Status};
use fpga_driver::{Bound, Cluster, Error, Execution, Report, Result};
use fpga_mock::{Fault, Profile};
use fpga_regs::{bits, sequencer};
use fpga_tests::pattern;
use fpga_tests::raw_host::RawHost;
use fpga_tests::run::{open, plan_all};
use fpga_tests::sweep::is_full;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
/// Half a stripe: the bytes of a pseudo channel.
const K: u64 = 256 * MIB;
/// Takes whole cycles on a link of 45 Gb/s, 256 for each 7200 bytes; more than is sent eagerly.
const BYTES: u64 = 10 * 7200;
const BYTES_CYCLES: u64 = 10 * 256;
const SHORT: Duration = Duration::from_millis(150);
const SECONDS: Duration = Duration::from_secs(10);

/// Communicators of a Dragonfly: the row and the column of a card.
const ROW: u16 = 1;
const COLUMN: u16 = 2;

fn with_lanes(lanes: u32, profile: Profile) -> Profile {
    Profile { lanes, ..profile }
}

/// Groups 0 1 and 2 3. Card 0 has links to 1, in its row, and 2, in its column.
fn four(lanes: u32) -> Profile {
    with_lanes(lanes, Profile::optweb_dragonfly(2, 2))
}

/// The place of an operand: each in a pseudo channel of its own.
fn place(number: u64) -> Operand {
    Operand::card(number * K)
}

/// Exchanges `bytes` with `peer`, from the first place to the next.
fn swap(peer: u16, first: u64, bytes: u64) -> Instruction {
    Instruction::sendrecv(peer, peer, place(first), place(first + 1), bytes)
}

/// Runs programs by node, and returns their completions.
fn run(cluster: &mut Cluster, programs: &[Vec<Instruction>]) -> Vec<Vec<Completion>> {
    let outcome = try_run(cluster, programs, SECONDS);
    outcome.1.unwrap();
    outcome.0
}

fn try_run(
    cluster: &mut Cluster,
    programs: &[Vec<Instruction>],
    timeout: Duration,
) -> (Vec<Vec<Completion>>, Result<()>) {
    let group: Vec<u32> = (0..programs.len() as u32).collect();
    let programs: Vec<Vec<Bound>> =
        programs.iter().map(|program| program.iter().copied().map(Bound::from).collect()).collect();
    let outcome = cluster.run(&group, &programs, timeout).unwrap();
    (outcome.completions, outcome.result)
}

/// Runs a program on each card, all from the same cycle.
fn run_together(cluster: &mut Cluster, rows: &[Vec<u32>], programs: &[Vec<Instruction>]) -> Report {
    let mut plan = plan_all(cluster, "allgather", 64, None, None).unwrap();
    plan.communicators = communicators(rows);
    plan.programs = programs
        .iter()
        .map(|instructions| Program { instructions: instructions.clone(), ..Program::default() })
        .collect();
    cluster.execute(&plan, &Execution { timeout: SECONDS, ..Execution::default() }).unwrap()
}

/// Rows and columns of a grid of nodes.
fn communicators(rows: &[Vec<u32>]) -> Vec<Communicator> {
    let columns = (0..rows[0].len()).map(|column| rows.iter().map(|row| row[column]).collect());
    let rows = rows.iter().map(|members| Communicator { id: ROW, members: members.clone() });
    rows.chain(columns.map(|members| Communicator { id: COLUMN, members })).collect()
}

fn grid(groups: u32, size: u32) -> Vec<Vec<u32>> {
    (0..groups).map(|group| (group * size..(group + 1) * size).collect()).collect()
}

/// Cycles from the issue of the first to the end of the last, and the issues from that of the first.
fn span(completions: &[Completion]) -> (u64, Vec<u64>) {
    let first = completions[0].issued;
    let issued: Vec<u64> = completions.iter().map(|one| one.issued - first).collect();
    let end = completions.iter().map(|one| one.issued - first + one.t2).max().unwrap_or(0);
    (end, issued)
}

struct Cycles {
    dispatch: u64,
    handover: u64,
}

fn cycles(cluster: &Cluster) -> Cycles {
    let timing = cluster.capabilities().timing;
    Cycles { dispatch: timing.dispatch_cycles.into(), handover: timing.handover_cycles.into() }
}

#[test]
fn the_row_and_the_column_take_the_time_of_one() {
    let (_fabric, mut cluster) = open(four(2));
    assert_eq!(cluster.capabilities().lanes, 2);
    let Cycles { dispatch, handover } = cycles(&cluster);
    let rows = grid(2, 2);
    let of = |lane: u8| -> Vec<Vec<Instruction>> {
        (0..4_u16).map(|node| vec![swap(node ^ 1, 0, BYTES), swap(node ^ 2, 2, BYTES).in_lane(lane)]).collect()
    };
    let alone: Vec<Vec<Instruction>> = of(0).into_iter().map(|program| vec![program[0]]).collect();
    let one = run_together(&mut cluster, &rows, &alone);
    let both = run_together(&mut cluster, &rows, &of(1));
    let after = run_together(&mut cluster, &rows, &of(0));
    for rank in 0..4 {
        let of = |report: &Report| span(&report.ranks[rank].repetitions[0]);
        let took = of(&one).0;
        assert!((BYTES_CYCLES..BYTES_CYCLES + 500).contains(&took), "{took}");
        assert_eq!(of(&both), (dispatch + took, vec![0, dispatch]), "rank {rank}");
        assert_eq!(of(&after), (2 * took + handover, vec![0, took + handover]), "rank {rank}");
        let both = &both.ranks[rank].repetitions[0];
        assert_eq!((both[0].bytes, both[0].t2, both[1].t2), (2 * BYTES, took, took));
    }
}

#[test]
fn collectives_of_rows_and_columns_run_at_once() {
    let rows = grid(4, 4);
    let (_fabric, mut cluster) = open(with_lanes(2, Profile::optweb_dragonfly(4, 4)));
    let Cycles { dispatch, handover } = cycles(&cluster);
    for node in 0..16_u32 {
        let mut data = vec![0; BYTES as usize];
        pattern::fill(0, node, 0, &mut data);
        // The source of both: in the stripe of the own rank of its row, and of its column.
        for stripe in [u64::from(node % 4), 4 + u64::from(node / 4)] {
            cluster.card_mut(node as usize).write_memory(2 * K * stripe, &data).unwrap();
        }
    }
    let gather = |communicator, stripe: u64, lane| {
        let [source, destination] =
            [2 * K * stripe, 2 * K * stripe + K].map(|address| Operand::card(address).striped());
        Instruction::allgather(source, destination, BYTES).on(communicator).in_lane(lane)
    };
    let program = |lane| vec![gather(ROW, 0, 0), gather(COLUMN, 4, lane)];
    let after = run_together(&mut cluster, &rows, &vec![program(0); 16]);
    for node in 0..16 {
        cluster.card_mut(node).fill(K, BYTES, 0).unwrap();
    }
    let both = run_together(&mut cluster, &rows, &vec![program(1); 16]);
    for node in 0..16_u32 {
        let first = after.ranks[node as usize].repetitions[0][0].t2;
        assert_eq!(span(&after.ranks[node as usize].repetitions[0]), (2 * first + handover, vec![0, first + handover]));
        assert_eq!(span(&both.ranks[node as usize].repetitions[0]), (first + dispatch, vec![0, dispatch]));
        let mut found = vec![0; BYTES as usize];
        for other in 0..4 {
            for (stripe, from) in [(other, node / 4 * 4 + other), (4 + other, other * 4 + node % 4)] {
                let address = 2 * K * u64::from(stripe) + K;
                cluster.card_mut(node as usize).read_memory(address, &mut found).unwrap();
                assert_eq!(pattern::first_difference(0, from, 0, &found), None, "node {node}, from {from}");
            }
        }
    }
}

/// The second exchange of each card is issued when the first has ended: another lane does not help.
#[test]
fn a_link_a_lane_and_a_fence_hold_back() {
    let row = |node: u16| swap(node ^ 1, 0, BYTES);
    let column = |node: u16| swap(node ^ 2, 2, BYTES);
    let fenced = |instruction: Instruction| instruction.with_flags(Flags::FENCE);
    type Of = fn(u16) -> Instruction;
    let barrier: Of = |_| Instruction::barrier().on(ROW).in_lane(2);
    // To one partner and from the other, in a circle 0 1 3 2: one of the two is the partner of the first exchange.
    let circle: Of = |node| {
        let [to, from] = [[1, 3, 0, 2], [2, 0, 3, 1]].map(|next: [u16; 4]| next[usize::from(node)]);
        Instruction::sendrecv(to, from, place(4), place(5), 7200).in_lane(1)
    };
    let nop: Of = |_| Instruction::nop();
    let cases: [(&str, &dyn Fn(u16) -> Instruction, bool); 8] = [
        ("the same link", &|node| row(node).in_lane(1), true),
        ("the same link of a collective", &barrier, true),
        ("one of two links", &circle, true),
        ("the same lane", &column, true),
        ("a fence", &|node| fenced(column(node)).in_lane(1), true),
        ("no exchange", &nop, true),
        ("nothing", &|node| column(node).in_lane(1), false),
        ("nothing of a collective", &|_| Instruction::barrier().on(COLUMN).in_lane(2), false),
    ];
    for (what, second, waits) in cases {
        let (_fabric, mut cluster) = open(four(3));
        for members in communicators(&grid(2, 2)) {
            cluster.define(&members).unwrap();
        }
        let Cycles { dispatch, handover } = cycles(&cluster);
        let programs: Vec<_> = (0..4).map(|node| vec![row(node), second(node), column(node).in_lane(2)]).collect();
        for (node, completions) in run(&mut cluster, &programs).iter().enumerate() {
            let [first, second, ..] = completions[..] else { panic!("{completions:?}") };
            let due = if waits { first.t2 + handover } else { dispatch };
            assert_eq!(second.issued - first.issued, due, "{what}, node {node}");
        }
    }
}

/// What follows a fence does not wait for the instruction with the fence.
#[test]
fn a_fence_waits_and_is_not_waited_for() {
    let (_fabric, mut cluster) = open(four(2));
    let Cycles { dispatch, handover } = cycles(&cluster);
    let program = |node: u16| {
        vec![
            swap(node ^ 1, 0, 2 * BYTES),
            swap(node ^ 2, 2, BYTES).in_lane(1),
            swap(node ^ 2, 4, BYTES).in_lane(1).with_flags(Flags::FENCE),
            swap(node ^ 1, 6, BYTES),
        ]
    };
    for rank in run_together(&mut cluster, &grid(2, 2), &(0..4).map(program).collect::<Vec<_>>()).ranks {
        let [long, short, fenced, last] = rank.repetitions[0][..] else { panic!("{rank:?}") };
        assert!(short.issued + short.t2 < long.issued + long.t2);
        assert_eq!(fenced.issued, long.issued + long.t2 + handover);
        assert_eq!(last.issued, fenced.issued + dispatch);
    }
}

/// Operations that are no exchange run alone.
#[test]
fn all_other_operations_run_alone() {
    let (_fabric, mut cluster) = open(four(2));
    let Cycles { dispatch, handover } = cycles(&cluster);
    let alone = [
        Instruction::delay(40),
        Instruction::copy(place(8), place(9), 64),
        Instruction::put_signal(3, place(8), place(9), 64, 5, 1).on(0),
    ];
    for one in alone {
        let program = |node: u16| {
            let one = Instruction { peer: if one.operation.fields().peer { node ^ 1 } else { 0 }, ..one };
            vec![
                swap(node ^ 1, 0, BYTES),
                swap(node ^ 2, 2, 2 * BYTES).in_lane(1),
                one,
                swap(node ^ 2, 4, BYTES).in_lane(1),
            ]
        };
        for rank in run_together(&mut cluster, &grid(2, 2), &(0..4).map(program).collect::<Vec<_>>()).ranks {
            let [first, second, one, last] = rank.repetitions[0][..] else { panic!("{rank:?}") };
            assert_eq!(second.issued, first.issued + dispatch);
            assert_eq!(one.issued, second.issued + second.t2 + handover);
            let due = one.issued + one.t2 + handover;
            assert!((due..=due + 1).contains(&last.issued), "{} and not {due}", last.issued);
        }
    }
}

/// Lanes share the pseudo channels: two streams from one channel have half of its rate each.
#[test]
fn lanes_share_the_memory() {
    let (_fabric, mut cluster) = open(four(2));
    let Cycles { dispatch, .. } = cycles(&cluster);
    let rows = grid(2, 2);
    let programs = |address: u64| -> Vec<Vec<Instruction>> {
        let other =
            |node: u16| Instruction::sendrecv(node ^ 2, node ^ 2, Operand::card(address), place(3), BYTES).in_lane(1);
        (0..4_u16).map(|node| vec![swap(node ^ 1, 0, BYTES), other(node)]).collect()
    };
    let apart = run_together(&mut cluster, &rows, &programs(2 * K));
    let shared = run_together(&mut cluster, &rows, &programs(MIB));
    for (apart, shared) in apart.ranks.iter().zip(&shared.ranks) {
        let times = |one: &fpga_driver::RankReport| (one.repetitions[0][0].t2, one.repetitions[0][1].t2);
        let (first, second) = times(apart);
        assert_eq!(first, second);
        // 16 bytes a cycle instead of 28.125. The first was alone for a dispatch, and so is the second at the end.
        let slow = BYTES / 16 - BYTES_CYCLES;
        let gained = dispatch * 28 / 16;
        for (slow_t2, t2) in [(times(shared).0, first), (times(shared).1, second)] {
            assert!((slow - gained..=slow).contains(&(slow_t2 - t2)), "{slow_t2} and {t2}: not {slow} more");
        }
    }
}

/// A host that stores instructions by hand on each card.
fn raw(profile: Profile) -> (fpga_mock::Fabric, Vec<RawHost>) {
    let fabric = fpga_mock::Fabric::new(profile).unwrap();
    let hosts = (0..fabric.profile().nodes).map(|node| RawHost::attach(fabric.endpoint(node), 1 << 16)).collect();
    (fabric, hosts)
}

#[test]
fn completions_are_in_the_order_of_the_program() {
    let (_fabric, mut hosts) = raw(four(2));
    let tagged = |instruction: Instruction, tag| instruction.with_tag(tag);
    let last = tagged(swap(2, 4, 64).in_lane(1), 3);
    hosts[0].push_all(&[tagged(swap(1, 0, 64), 1), tagged(swap(2, 2, 64).in_lane(1), 2), last]);
    hosts[2].push_all(&[swap(0, 2, 64).in_lane(1), swap(0, 4, 64).in_lane(1)]);
    // Both of lane 1 have ended, as their partner says.
    assert!((0..2).all(|_| hosts[2].wait().status == Status::Done));
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::CURRENT) & 0xffff, 1);
    assert_eq!(hosts[0].read(sequencer::WAITING_PEER), 1);
    assert_eq!(hosts[0].read(sequencer::RETIRED_LO), 0);
    hosts[1].push(&swap(0, 0, 64));
    let completions: Vec<Completion> = (0..3).map(|_| hosts[0].wait()).collect();
    assert_eq!(completions.iter().map(|one| one.tag).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(completions.iter().all(|one| one.status == Status::Done && one.bytes == 128), "{completions:?}");
    // Each has its own time, not that at which its turn came.
    let end = |one: &Completion| one.issued + one.t2;
    assert!(end(&completions[1]) < end(&completions[2]) && end(&completions[2]) < end(&completions[0]));
    assert_eq!(hosts[0].read(sequencer::RETIRED_LO), 3);
}

#[test]
fn the_ring_of_completions_does_not_overflow() {
    let (_fabric, mut hosts) = raw(four(2));
    let depth = fpga_tests::raw_host::DEPTH;
    // One that waits, and more beside it than there is room for.
    let beside = vec![swap(2, 2, 64).in_lane(1); depth as usize - 1];
    hosts[0].push(&swap(1, 0, 64));
    hosts[0].push_all(&beside);
    hosts[2].push_all(&[swap(0, 2, 64).in_lane(1)]);
    for _ in 0..depth - 2 {
        hosts[2].push(&swap(0, 2, 64).in_lane(1));
        assert_eq!(hosts[2].wait().status, Status::Done);
    }
    assert_eq!(hosts[2].wait().status, Status::Done);
    hosts[0].push_all(&beside[1..3]);
    hosts[2].push_all(&beside[1..3].iter().map(|_| swap(0, 2, 64).in_lane(1)).collect::<Vec<_>>());
    assert_eq!(hosts[2].take(), None, "there is no room for a completion of its partner");
    hosts[1].push(&swap(0, 0, 64));
    for _ in 0..depth + 2 {
        assert_eq!(hosts[0].wait().status, Status::Done);
    }
    assert_eq!(hosts[0].read(sequencer::ERROR), 0);
}

#[test]
fn an_abort_ends_all_that_run() {
    let (_fabric, mut hosts) = raw(four(2));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, 64).in_lane(1), swap(1, 0, 64), swap(2, 2, 64).in_lane(1)]);
    // The second ends, the third waits for the first, and the fourth for the third.
    hosts[2].push(&swap(0, 2, 64).in_lane(1));
    assert_eq!(hosts[2].wait().status, Status::Done);
    assert_eq!(hosts[0].take(), None);
    hosts[0].write(sequencer::ABORT, sequencer::ABORT_VALUE);
    let statuses = [hosts[0].wait().status, hosts[0].wait().status];
    assert_eq!(statuses, [Status::Aborted, Status::Done]);
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());

    // Both run.
    hosts[0].write(sequencer::CONTROL, 1);
    assert_eq!(hosts[0].read(sequencer::STATUS), (bits::Status::READY | bits::Status::BUSY).bits());
    hosts[0].write(sequencer::ABORT, sequencer::ABORT_VALUE);
    let aborted = [hosts[0].wait(), hosts[0].wait()];
    assert_eq!(aborted.map(|one| one.status), [Status::Aborted; 2]);
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());

    // The card is as before. What it sent is dropped by its partners.
    for host in &hosts {
        host.write(sequencer::ABORT, sequencer::ABORT_VALUE);
        host.write(sequencer::CONTROL, 1);
    }
    hosts[1].push(&swap(0, 4, BYTES));
    hosts[2].push(&swap(0, 6, BYTES).in_lane(1));
    hosts[0].push_all(&[swap(1, 4, BYTES), swap(2, 6, BYTES).in_lane(1)]);
    for host in [0, 0, 1, 2] {
        assert_eq!(hosts[host].wait().status, Status::Done, "host {host}");
    }
}

#[test]
fn a_reset_ends_all_that_run() {
    let (_fabric, mut hosts) = raw(four(2));
    for _ in 0..2 {
        hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1)]);
        assert_eq!(hosts[0].read(sequencer::STATUS), (bits::Status::READY | bits::Status::BUSY).bits());
        hosts[0].function.reset().unwrap();
        assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());
        hosts[0].start();
    }
    hosts[1].push(&swap(0, 0, BYTES));
    hosts[2].push(&swap(0, 2, BYTES).in_lane(1));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1)]);
    for host in [0, 0, 1, 2] {
        assert_eq!(hosts[host].wait().status, Status::Done, "host {host}");
    }
}

#[test]
fn a_link_that_fails_ends_the_exchange_that_uses_it() {
    let (fabric, mut hosts) = raw(four(2));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1)]);
    fabric.plant(Fault::Cut { a: 0, b: 2, after_ps: 0 });
    assert_eq!(hosts[0].take(), None);
    hosts[1].push(&swap(0, 0, BYTES));
    assert_eq!(hosts[0].wait().status, Status::Done);
    let cut = hosts[0].wait();
    assert_eq!((cut.status, cut.detail), (Status::LinkDown, 2));
}

#[test]
fn clearing_run_lets_all_that_run_end() {
    let (_fabric, mut hosts) = raw(four(2));
    hosts[0].push_all(&[swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1), swap(1, 4, BYTES)]);
    hosts[0].write(sequencer::CONTROL, 0);
    hosts[1].push_all(&[swap(0, 0, BYTES), swap(0, 4, BYTES)]);
    hosts[2].push(&swap(0, 2, BYTES).in_lane(1));
    assert_eq!([hosts[0].wait().status, hosts[0].wait().status], [Status::Done; 2]);
    assert_eq!(hosts[0].take(), None);
    assert_eq!(hosts[0].read(sequencer::STATUS), bits::Status::READY.bits());
    hosts[0].write(sequencer::CONTROL, 1);
    assert_eq!(hosts[0].wait().status, Status::Done);
}

/// Status and detail of an instruction that a card refuses.
fn refused(lanes: u32, instruction: Instruction) -> (Status, u16) {
    let (_fabric, mut hosts) = raw(four(lanes));
    let completion = hosts[0].run(&instruction);
    assert_eq!(hosts[0].run(&Instruction::nop()).status, Status::Done);
    (completion.status, completion.detail)
}

#[test]
fn lanes_and_fences_that_a_card_does_not_have_are_refused() {
    let lane = (Status::BadField, offset::LANE as u16);
    for (lanes, number) in [(1, 1), (1, 255), (2, 2), (64, 64)] {
        assert_eq!(refused(lanes, swap(1, 0, 64).in_lane(number)), lane);
        assert_eq!(refused(lanes, Instruction::barrier().in_lane(number)), lane);
    }
    let fence = (Status::BadField, offset::FLAGS as u16);
    for instruction in [swap(1, 0, 64), Instruction::nop()] {
        assert_eq!(refused(1, instruction.with_flags(Flags::FENCE)), fence);
    }
    assert_eq!(refused(2, Instruction::nop().with_flags(Flags::FENCE)), (Status::Done, 0));
    // An operation that is no exchange has no lane.
    assert_eq!(refused(2, Instruction::nop().in_lane(1)), lane);
}

#[test]
fn exchanges_of_different_lanes_do_not_meet() {
    let (_fabric, mut cluster) = open(four(2));
    for bytes in [64, BYTES] {
        let send = Instruction::send(1, place(0), bytes);
        let receive = Instruction::recv(0, place(1), bytes).in_lane(1);
        let (_, outcome) = try_run(&mut cluster, &[vec![send], vec![receive], vec![], vec![]], SHORT);
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{bytes} B: {outcome:?}");
        // The abort dropped what had come in. In one lane, they meet.
        run(&mut cluster, &[vec![send.in_lane(1)], vec![receive], vec![], vec![]]);
    }
}

/// Stores `programs` on the first cards, launches them, and returns the outcome of each.
fn launch(cluster: &mut Cluster, programs: &[Vec<Instruction>]) -> Vec<(Status, u16, Option<Completion>)> {
    let stored: Vec<_> = (0..)
        .zip(programs)
        .filter(|(_, program)| !program.is_empty())
        .map(|(node, program)| (node, cluster.card_mut(node).store(0, program).unwrap()))
        .collect();
    let tokens: Vec<_> = stored
        .iter()
        .map(|(node, resident)| (*node, cluster.card_mut(*node).launch(resident, [0; 3]).unwrap()))
        .collect();
    let outcome = |(node, token)| match cluster.card_mut(node).wait(&token, SHORT) {
        Ok(completion) => (completion.status, completion.detail, Some(completion)),
        Err(Error::Failed { status, detail, .. }) => (status, detail, None),
        Err(Error::Timeout { .. }) => (Status::Aborted, u16::MAX, None),
        Err(other) => panic!("{other}"),
    };
    tokens.into_iter().map(outcome).collect()
}

#[test]
fn a_resident_program_takes_the_time_of_its_longest_lane() {
    let (_fabric, mut cluster) = open(four(2));
    let Cycles { dispatch, handover } = cycles(&cluster);
    let rows = grid(2, 2);
    let program = |node: u16, lane| vec![swap(node ^ 1, 0, 2 * BYTES), swap(node ^ 2, 2, BYTES).in_lane(lane)];
    for lane in [0, 1] {
        let programs: Vec<_> = (0..4).map(|node| program(node, lane)).collect();
        for (node, program) in programs.iter().enumerate() {
            cluster.card_mut(node).store(0, program.iter().copied()).unwrap();
        }
        let in_ring = run_together(&mut cluster, &rows, &programs);
        let launched = run_together(&mut cluster, &rows, &vec![vec![Instruction::launch(0, [0; 3])]; 4]);
        for (in_ring, launched) in in_ring.ranks.iter().zip(&launched.ranks) {
            let ([long, short], [launched]) = (&in_ring.repetitions[0][..], &launched.repetitions[0][..]) else {
                panic!("{in_ring:?} {launched:?}")
            };
            let last = if lane == 0 { short } else { long };
            let after = dispatch + if lane == 0 { long.t2 + handover } else { 0 };
            assert_eq!(
                (launched.t1, launched.t2, launched.arrival, launched.bytes),
                (after + last.t1, after + last.t2, after + last.arrival, 6 * BYTES)
            );
        }
    }
}

/// All rounds of a loop, and what follows a launch, wait for all before them.
#[test]
fn rounds_and_launches_wait_for_all() {
    let (_fabric, mut cluster) = open(four(2));
    let Cycles { dispatch, handover } = cycles(&cluster);
    let rows = grid(2, 2);
    // Lane 1 ends first, and begins the next round.
    let body = |node: u16| [swap(node ^ 2, 2, BYTES).in_lane(1), swap(node ^ 1, 0, 2 * BYTES)];
    let once = run_together(&mut cluster, &rows, &(0..4).map(|node| body(node).to_vec()).collect::<Vec<_>>());
    let round = span(&once.ranks[0].repetitions[0]).0;
    for rounds in [1, 2, 5] {
        for node in 0..4_u16 {
            let program: Vec<_> = [Instruction::repeat(rounds, 2)].into_iter().chain(body(node)).collect();
            cluster.card_mut(node.into()).store(0, program).unwrap();
        }
        // In the order of the ring after the launch: lane 1, which nothing of the last round in lane 0 holds back.
        let launch = Instruction::launch(0, [0; 3]);
        let programs: Vec<_> = (0..4).map(|node| vec![launch, body(node)[0], body(node)[1]]).collect();
        let report = run_together(&mut cluster, &rows, &programs);
        for rank in &report.ranks {
            let [launched, first, second] = rank.repetitions[0][..] else { panic!("{rank:?}") };
            let between = (handover + dispatch + round) * (u64::from(rounds) - 1);
            assert_eq!(launched.t2, dispatch + dispatch + handover + round + between, "{rounds} rounds");
            assert_eq!(first.issued, launched.issued + launched.t2 + handover);
            assert_eq!(second.issued, first.issued + dispatch);
        }
    }
}

#[test]
fn an_instruction_that_fails_ends_those_after_it() {
    let (_fabric, mut cluster) = open(four(2));
    // Card 1 sends less than card 0 expects; card 2 does not come.
    let program = vec![swap(1, 0, BYTES), swap(2, 2, BYTES).in_lane(1), swap(1, 4, BYTES)];
    let outcome = launch(&mut cluster, &[program, vec![swap(0, 0, BYTES - 64)]]);
    assert_eq!((outcome[0].0, outcome[0].1), (Status::Mismatch, 0));
    cluster.abort([0, 1]).unwrap();
    let again = |node: u16| vec![swap(node ^ 1, 0, BYTES), swap(node ^ 2, 2, BYTES).in_lane(1)];
    let outcome = launch(&mut cluster, &(0..4).map(again).collect::<Vec<_>>());
    assert!(outcome.iter().all(|one| one.0 == Status::Done), "{outcome:?}");
}

#[test]
fn those_before_an_instruction_that_fails_end_first() {
    let (_fabric, mut cluster) = open(four(2));
    let mut data = vec![0; BYTES as usize];
    pattern::fill(0, 1, 0, &mut data);
    cluster.card_mut(1).write_memory(0, &data).unwrap();
    // The second fails at once, the third waits for the first, and is not issued.
    let bad = swap(2, 40, BYTES).in_lane(1);
    let programs = [vec![swap(1, 0, BYTES), bad, swap(1, 4, BYTES)], vec![Instruction::delay(1000), swap(0, 0, BYTES)]];
    let outcome = launch(&mut cluster, &programs);
    assert_eq!((outcome[0].0, outcome[0].1), (Status::OutOfRange, 1));
    assert_eq!(outcome[1].0, Status::Done);
    let mut found = vec![0; BYTES as usize];
    cluster.card_mut(0).read_memory(place(1).address, &mut found).unwrap();
    assert_eq!(pattern::first_difference(0, 1, 0, &found), None);

    // Both fail, the second first: the program's failure is that of the first.
    let programs = [vec![swap(1, 0, BYTES), bad], vec![Instruction::delay(1000), swap(0, 0, BYTES - 64)]];
    let outcome = launch(&mut cluster, &programs);
    assert_eq!((outcome[0].0, outcome[0].1), (Status::Mismatch, 0));
}

#[test]
fn a_resident_program_is_aborted_in_all_lanes() {
    let (_fabric, mut cluster) = open(four(2));
    let program = vec![swap(2, 0, 64), swap(1, 2, BYTES), swap(2, 4, BYTES).in_lane(1)];
    let resident = cluster.card_mut(0).store(0, program).unwrap();
    let token = cluster.card_mut(0).launch(&resident, [0; 3]).unwrap();
    run_one(&mut cluster, 2, swap(0, 0, 64));
    assert!(matches!(cluster.card_mut(0).wait(&token, SHORT), Err(Error::Timeout { .. })));
    cluster.card_mut(0).abort().unwrap();
    match cluster.card_mut(0).wait(&token, SHORT) {
        Err(Error::Failed { status: Status::Aborted, detail, .. }) => assert_eq!(detail, 1),
        other => panic!("{other:?}"),
    }
    cluster.card_mut(0).run([Instruction::nop()], SECONDS).unwrap();
}

fn run_one(cluster: &mut Cluster, node: usize, instruction: Instruction) {
    cluster.card_mut(node).run([instruction], SECONDS).unwrap();
}

/// An exchange of some cards of a fully connected fabric.
#[derive(Debug, Clone)]
struct Exchange {
    lane: u8,
    is_fenced: bool,
    what: What,
    bytes: u64,
}

#[derive(Debug, Clone)]
enum What {
    Swap(u16, u16),
    /// An allgather on one of the communicators.
    Gather(u16),
    /// All cards wait, without an exchange.
    Delay(u64),
}

const RANKS: u16 = 6;
const LANES: u32 = 3;

/// The communicators of the cards, by id.
fn members(id: u16) -> Vec<u32> {
    match id {
        0 => (0..u32::from(RANKS)).collect(),
        1 => vec![0, 1, 2],
        2 => vec![3, 4, 5],
        3 => vec![1, 4],
        _ => vec![5, 2, 0],
    }
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let what = prop_oneof![
        4 => (0..RANKS, 1..RANKS).prop_map(|(one, step)| What::Swap(one, (one + step) % RANKS)),
        3 => (0_u16..5).prop_map(What::Gather),
        1 => (0_u64..5000).prop_map(What::Delay),
    ];
    let bytes = prop_oneof![Just(0_u64), Just(64), 1_u64..20_000, Just(BYTES)];
    (0..LANES as u8, prop::bool::weighted(0.1), what, bytes).prop_map(|(lane, is_fenced, what, bytes)| Exchange {
        lane,
        is_fenced,
        what,
        bytes,
    })
}

/// The instruction of exchange `number` for a card: each writes a place of its own.
fn instruction(number: usize, exchange: &Exchange, node: u16) -> Option<Instruction> {
    let (from, to) = (Operand::card(u64::from(exchange.lane) * MIB), Operand::card(K + number as u64 * MIB));
    let one = match exchange.what {
        What::Swap(one, other) if node == one || node == other => {
            Instruction::sendrecv(one + other - node, one + other - node, from, to, exchange.bytes)
        }
        What::Gather(id) if members(id).contains(&node.into()) => {
            Instruction::allgather(from, to, exchange.bytes).on(id)
        }
        What::Delay(cycles) => return Some(Instruction::delay(cycles)),
        _ => return None,
    };
    Some(one.in_lane(exchange.lane).with_flags(if exchange.is_fenced { Flags::FENCE } else { Flags::empty() }))
}

/// Whether an instruction of `node` waits for an earlier one.
fn waits(later: &Exchange, earlier: &Exchange, node: u16) -> bool {
    let links = |exchange: &Exchange| match exchange.what {
        What::Swap(one, other) => vec![u32::from(one + other - node)],
        What::Gather(id) => members(id).into_iter().filter(|member| *member != u32::from(node)).collect(),
        What::Delay(_) => vec![],
    };
    let is_alone = |exchange: &Exchange| matches!(exchange.what, What::Delay(_));
    later.is_fenced
        || is_alone(later)
        || is_alone(earlier)
        || later.lane == earlier.lane
        || links(later).iter().any(|link| links(earlier).contains(link))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if is_full() { 2000 } else { 60 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Exchanges in one order on all cards: each is issued in the cycle that the rule says, and moves what it should.
    #[test]
    fn any_exchanges_are_issued_by_the_rule(exchanges in prop::collection::vec(exchange(), 2..24)) {
        let (_fabric, mut cluster) = open(with_lanes(LANES, Profile::optweb(RANKS.into())));
        let Cycles { dispatch, handover } = cycles(&cluster);
        for id in 1..5 {
            cluster.define(&Communicator { id, members: members(id) }).unwrap();
        }
        let mut data = vec![0; LANES as usize * MIB as usize];
        for node in 0..u32::from(RANKS) {
            pattern::fill(1, node, 0, &mut data);
            cluster.card_mut(node as usize).write_memory(0, &data).unwrap();
        }
        let of = |node: u16| {
            let one = |(number, one): (usize, &Exchange)| Some((number, instruction(number, one, node)?));
            exchanges.iter().enumerate().filter_map(one).collect::<Vec<_>>()
        };
        let programs: Vec<Vec<Instruction>> =
            (0..RANKS).map(|node| of(node).into_iter().map(|(_, instruction)| instruction).collect()).collect();
        let completions = run(&mut cluster, &programs);
        for (node, completions) in (0..RANKS).zip(completions) {
            let program: Vec<_> = of(node).into_iter().map(|(number, _)| &exchanges[number]).zip(completions).collect();
            for (place, (exchange, completion)) in program.iter().enumerate().skip(1) {
                let earlier = program[..place].iter().filter(|(earlier, _)| waits(exchange, earlier, node));
                let ends = earlier.map(|(_, one)| one.issued + one.t2 + handover);
                let due = ends.fold(program[place - 1].1.issued + dispatch, u64::max);
                // An end within a cycle counts as the next cycle, and t2 says the cycle before.
                prop_assert!(
                    (due..=due + 1).contains(&completion.issued),
                    "node {}, exchange {}: issued {} and not {}", node, place, completion.issued, due
                );
            }
            for (number, _) in of(node) {
                let Exchange { lane, bytes, ref what, .. } = exchanges[number];
                let from: Vec<u32> = match what {
                    What::Swap(one, other) => vec![u32::from(one + other - node)],
                    What::Gather(id) => members(*id),
                    What::Delay(_) => vec![],
                };
                for (block, from) in (0..).zip(from) {
                    let mut found = vec![0; bytes as usize];
                    let address = K + number as u64 * MIB + block * bytes;
                    cluster.card_mut(node.into()).read_memory(address, &mut found).unwrap();
                    prop_assert_eq!(pattern::first_difference(1, from, u64::from(lane) * MIB, &found), None);
                }
            }
        }
    }
}
