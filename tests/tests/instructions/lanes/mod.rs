//! Exchanges in several lanes of mock cards (`docs/isa.md`, Lanes): when each is issued, what meets, and what happens when one
//! fails or is aborted.

mod any_exchanges;
mod by_hand;
mod resident;

use std::time::Duration;

use cmdseq::plan::{Communicator, ProgramSet};
use cmdseq::{Completion, Flags, Instruction, Operand};
use fpga_driver::{Bound, Cluster, Error, Execution, Report, Result};
use fpga_mock::Profile;
use fpga_tests::pattern;
use fpga_tests::run::open;

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
    let nodes: Vec<u32> = (0..programs.len() as u32).collect();
    let set = ProgramSet::new(nodes, programs.iter().cloned()).with(communicators(rows));
    cluster.execute(&set, &Execution { timeout: SECONDS, ..Execution::default() }).unwrap()
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

/// The second exchange of each card is issued when the first has ended, or at once, as the case says.
#[test]
fn a_direction_of_a_link_a_lane_and_a_fence_hold_back() {
    let row = |node: u16| swap(node ^ 1, 0, BYTES);
    let column = |node: u16| swap(node ^ 2, 2, BYTES);
    let fenced = |instruction: Instruction| instruction.with_flags(Flags::FENCE);
    let broadcast = |root: u16| Instruction::broadcast(root, place(4), place(5), BYTES).on(ROW).in_lane(1);
    // In a circle 0 1 3 2: to one partner, and from the other.
    let circle = |node: u16| {
        let [to, from] = [[1, 3, 0, 2], [2, 0, 3, 1]].map(|next: [u16; 4]| next[usize::from(node)]);
        (to, from)
    };
    type Case<'a> = (&'a str, &'a dyn Fn(u16) -> Instruction, [bool; 4]);
    let cases: [Case<'_>; 10] = [
        ("both directions", &|node| row(node).in_lane(1), [true; 4]),
        ("one direction each", &|_| broadcast(0), [true; 4]),
        (
            "to one partner, from another",
            &|node| Instruction::sendrecv(circle(node).0, circle(node).1, place(4), place(5), 7200).in_lane(1),
            [true; 4],
        ),
        ("the same lane", &column, [true; 4]),
        ("a fence", &|node| fenced(column(node)).in_lane(1), [true; 4]),
        ("no exchange", &|_| Instruction::nop(), [true; 4]),
        ("another link", &|node| column(node).in_lane(1), [false; 4]),
        ("signals on the same link", &|_| Instruction::barrier().on(ROW).in_lane(2), [false; 4]),
        ("an empty block", &|node| swap(node ^ 1, 0, 0).in_lane(1), [false; 4]),
        ("signals on another link", &|_| Instruction::barrier().on(COLUMN).in_lane(2), [false; 4]),
    ];
    for (what, second, waits) in cases {
        let programs: Vec<_> = (0..4).map(|node| vec![row(node), second(node), column(node).in_lane(2)]).collect();
        check_second(what, &programs, waits);
    }
    // From 0 to 1 and from 2 to 3 in lane 0, and in lane 1 back, or the same way.
    let send = |node: u16| match node % 2 {
        0 => Instruction::send(node + 1, place(0), BYTES),
        _ => Instruction::recv(node - 1, place(1), BYTES),
    };
    for (what, root, waits) in [("the other direction", 1, [false; 4]), ("the same direction", 0, [true; 4])] {
        let programs: Vec<_> = (0..4).map(|node| vec![send(node), broadcast(root)]).collect();
        check_second(what, &programs, waits);
    }
}

/// Checks on which cards the second instruction waits for the first.
fn check_second(what: &str, programs: &[Vec<Instruction>], waits: [bool; 4]) {
    let (_fabric, mut cluster) = open(four(3));
    for members in communicators(&grid(2, 2)) {
        cluster.define(&members).unwrap();
    }
    let Cycles { dispatch, handover } = cycles(&cluster);
    for (node, completions) in run(&mut cluster, programs).iter().enumerate() {
        let [first, second, ..] = completions[..] else { panic!("{completions:?}") };
        let due = if waits[node] { first.t2 + handover } else { dispatch };
        assert_eq!(second.issued - first.issued, due, "{what}, node {node}");
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

/// On a bus whose DMA is slow, the host's time passes and not the fabric's: all counts are the same.
#[test]
fn slow_host_memory_changes_no_count() {
    let counted = |selector: &str| {
        let selection = fpga_select::select(selector).unwrap();
        let mut cluster = Cluster::open(selection.functions).unwrap();
        // All of lane 1 ends while lane 0 waits, so that completions are written one after another.
        let program = |node: u16| {
            let short = swap(node ^ 2, 2, 640).in_lane(1);
            [swap(node ^ 1, 0, 4 * BYTES), Instruction::barrier().on(COLUMN).in_lane(1)]
                .into_iter()
                .chain(vec![short; 9])
        };
        let report =
            run_together(&mut cluster, &grid(2, 2), &(0..4).map(|node| program(node).collect()).collect::<Vec<_>>());
        let counts = |one: &Completion| (one.t1, one.t2, one.arrival, one.bytes);
        let of = |rank: &fpga_driver::RankReport| {
            (span(&rank.repetitions[0]), rank.repetitions[0].iter().map(counts).collect::<Vec<_>>())
        };
        report.ranks.iter().map(of).collect::<Vec<_>>()
    };
    let prompt = counted("mock:optweb:2x2+lanes=2");
    assert!(
        prompt.iter().all(|((end, issued), _)| *end > *issued.last().unwrap() + 500),
        "lane 0 ends last: {prompt:?}"
    );
    assert_eq!(counted("mock:optweb:2x2+lanes=2+late=200"), prompt);
}
