//! Folds of two operands of a card: data, time, lanes, resident programs and errors.

use std::time::Duration;

use cmdseq::instruction::offset;
use cmdseq::plan::{ProgramSet, predict};
use cmdseq::{Combine, Flags, Instruction, Operand, Reason, Status, verify};
use fpga_driver::{Bound, Cluster, Error};
use fpga_mock::{Fabric, Profile};
use fpga_regs::sequencer;
use fpga_tests::raw_host::RawHost;
use fpga_tests::reduction::{combinations, element_bytes, fold, input};
use fpga_tests::run::open;

const MIB: u64 = 1 << 20;
/// Half a stripe: the bytes of a pseudo channel.
const K: u64 = 256 * MIB;
const BYTES: u64 = 72_000;
/// A loop-back passes a beat of 32 bytes each cycle, and each operand is a beat.
const BYTES_CYCLES: u64 = 2 * BYTES / 32;
const SECONDS: Duration = Duration::from_secs(10);

fn sum() -> Combine {
    how("sum", "f32")
}

fn how(reduction: &str, element: &str) -> Combine {
    Combine::new(reduction.parse().unwrap(), element.parse().unwrap())
}

/// The place of an operand: each in a pseudo channel of its own.
fn place(number: u64) -> Operand {
    Operand::card(number * K)
}

/// A fold over three places.
fn three(first: u64, bytes: u64) -> Instruction {
    Instruction::fold(sum(), place(first), place(first + 1), place(first + 2), bytes)
}

fn one_lane() -> (Fabric, Cluster) {
    open(Profile::optweb(2))
}

fn with_lanes(lanes: u32) -> (Fabric, Cluster) {
    open(Profile { lanes, ..Profile::optweb(2) })
}

fn run_alone(cluster: &mut Cluster, program: &[Instruction]) -> fpga_driver::Result<Vec<cmdseq::Completion>> {
    let bound: Vec<Bound> = program.iter().copied().map(Bound::from).collect();
    let outcome = cluster.run(&[0], &[bound], SECONDS)?;
    outcome.result.map(|()| outcome.completions[0].clone())
}

fn read(cluster: &mut Cluster, address: u64, bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    cluster.card_mut(0).read_memory(address, &mut data).unwrap();
    data
}

#[test]
fn the_result_is_the_first_operand_folded_with_the_second() {
    let (_fabric, mut cluster) = one_lane();
    let [first, second, third] = [0, 1, 2].map(place);
    for (number, (reduction, element)) in combinations().into_iter().enumerate() {
        let bytes = [1, 77, 9999][number % 3] * element_bytes(element) as u64;
        let operands = [0, 1].map(|rank| input(number as u64, rank, element, bytes));
        let right = fold(reduction, element, &[&operands[0], &operands[1]]);
        for destination in [third, first, second] {
            for (place, data) in [first, second].iter().zip(&operands) {
                cluster.card_mut(0).write_memory(place.address, data).unwrap();
            }
            let combine = how(reduction, element);
            run_alone(&mut cluster, &[Instruction::fold(combine, first, second, destination, bytes)]).unwrap();
            let what = format!("{combine} to {:#x}", destination.address);
            assert!(read(&mut cluster, destination.address, bytes) == right, "{what}");
            for (place, data) in [first, second].iter().zip(&operands).filter(|(place, _)| **place != destination) {
                assert!(read(&mut cluster, place.address, bytes) == *data, "{what} left its operands");
            }
        }
        // One operand twice, and in its own place.
        cluster.card_mut(0).write_memory(0, &operands[0]).unwrap();
        run_alone(&mut cluster, &[Instruction::fold(how(reduction, element), first, first, first, bytes)]).unwrap();
        let twice = fold(reduction, element, &[&operands[0], &operands[0]]);
        assert!(read(&mut cluster, 0, bytes) == twice, "{reduction} of {element}, all in one place");
    }
}

/// Dispatch, read, a beat that announces, both operands over one loop-back, out and in through the switch, one unit.
#[test]
fn a_fold_takes_what_its_parts_take() {
    let (_fabric, mut cluster) = one_lane();
    let near = |at: u64| Operand::card(at * MIB);
    let timing = cluster.capabilities().timing;
    let parts = timing.dispatch_cycles + timing.memory_read_cycles + 1 + 2 * timing.switch_cycles;
    // The size check is what data takes longer than a control signal.
    let check = (timing.data_ps - timing.control_ps) / 5000;
    let least = u64::from(parts + check + timing.reduce_unit_cycles);
    for (fold, cycles) in [
        (three(0, BYTES), BYTES_CYCLES),
        (three(0, 0), 0),
        // Two reads of one channel have 25.6 Gb/s each, as much as a loop-back has for two.
        (Instruction::fold(sum(), near(0), near(1), place(2), BYTES), BYTES_CYCLES),
        // Two reads and a write of one channel have 51.2 / 3: 32 bytes in three cycles.
        (Instruction::fold(sum(), near(0), near(1), near(2), BYTES), BYTES * 3 / 32),
        (Instruction::fold(sum(), near(0), near(0), near(0), BYTES), BYTES * 3 / 32),
    ] {
        let completions = run_alone(&mut cluster, &[fold]).unwrap();
        let one = completions[0];
        assert_eq!((one.t1, one.t2, one.arrival, one.bytes), (least + cycles, least + cycles, 0, 0), "{fold:?}");
        let predicted = predict(&ProgramSet::new([0], [vec![fold]]), cluster.capabilities()).unwrap();
        assert_eq!(predicted.t2_ps / 5000, one.t2, "{fold:?}");
    }
}

#[test]
fn folds_of_several_lanes_run_at_once() {
    let (_fabric, mut cluster) = with_lanes(3);
    let dispatch = u64::from(cluster.capabilities().timing.dispatch_cycles);
    let handover = u64::from(cluster.capabilities().timing.handover_cycles);
    let alone = run_alone(&mut cluster, &[three(0, BYTES)]).unwrap()[0].t2;
    let program = [
        three(0, BYTES),
        three(3, BYTES).in_lane(1),
        three(6, BYTES).in_lane(2),
        three(9, BYTES),
        three(12, BYTES).in_lane(1).with_flags(Flags::FENCE),
    ];
    let completions = run_alone(&mut cluster, &program).unwrap();
    let issued: Vec<u64> = completions.iter().map(|one| one.issued - completions[0].issued).collect();
    let second = alone + handover;
    assert_eq!(issued, [0, dispatch, 2 * dispatch, second, 2 * second]);
    assert!(completions.iter().all(|one| one.t2 == alone), "{completions:?}");
}

/// Beside an exchange, which it waits for only in the same lane.
#[test]
fn a_fold_runs_beside_an_exchange() {
    let (_fabric, mut cluster) = with_lanes(2);
    let swap = |peer| Instruction::sendrecv(peer, peer, place(6), place(7), BYTES);
    let of = |lane| -> Vec<Vec<Bound>> {
        let programs = [vec![swap(1), three(0, BYTES).in_lane(lane)], vec![swap(0)]];
        programs.map(|program| program.into_iter().map(Bound::from).collect()).into()
    };
    let issued = |cluster: &mut Cluster, lane| {
        let outcome = cluster.run(&[0, 1], &of(lane), SECONDS).unwrap();
        outcome.result.unwrap();
        let [swap, fold] = outcome.completions[0][..] else { panic!("{:?}", outcome.completions) };
        (fold.issued - swap.issued, swap.t2)
    };
    let timing = cluster.capabilities().timing;
    assert_eq!(issued(&mut cluster, 1).0, u64::from(timing.dispatch_cycles));
    let (after, swap) = issued(&mut cluster, 0);
    let due = swap + u64::from(timing.handover_cycles);
    assert!((due..=due + 1).contains(&after), "{after} and not {due}");
}

/// With all three addresses launch arguments.
#[test]
fn resident_folds_use_launch_arguments() {
    let (_fabric, mut cluster) = one_lane();
    let [first, second, third] =
        [(0, 64_u64), (1, 32), (2, 0)].map(|(index, offset)| Operand::card(offset).plus_argument(index));
    let program = [Instruction::fold(how("sum", "u32"), first, second, third, 8).with_flags(Flags::LAST)];
    let card = cluster.card_mut(0);
    card.write_memory(K + 64, &[1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    card.write_memory(2 * K + 32, &[10, 0, 0, 0, 20, 0, 0, 0]).unwrap();
    let words: Vec<u8> = program.iter().flat_map(Instruction::encode).collect();
    let buffer = card.allocate(4096).unwrap();
    buffer.write(0, &words).unwrap();
    let store = Instruction::store(0, buffer.iova().0, 1);
    card.run([Bound::covered_by(&store, &[buffer])], SECONDS).unwrap();
    card.run([Instruction::launch(0, [K, 2 * K, 3 * K])], SECONDS).unwrap();
    assert_eq!(read(&mut cluster, 3 * K, 8), [11, 0, 0, 0, 22, 0, 0, 0]);
}

#[test]
fn cards_refuse_what_the_verifier_refuses() {
    let (_fabric, mut cluster) = with_lanes(2);
    let [first, second, third] = [0, 1, 2].map(place);
    let near = |operand: Operand, by: u64| Operand::card(operand.address + by);
    let end = Operand::card((8 << 30) - 32);
    for (wrong, status, reason) in [
        (Instruction::fold(sum(), first, second, near(first, 32), 64), Status::Overlap, Reason::Overlap),
        (Instruction::fold(sum(), first, second, near(second, 60), 64), Status::Overlap, Reason::Overlap),
        (Instruction::fold(sum(), near(third, 4), second, third, 64), Status::Overlap, Reason::Overlap),
        (Instruction::fold(sum(), first, near(first, 32), first, 64), Status::Overlap, Reason::Overlap),
        (Instruction::fold(sum(), end, second, third, 64), Status::OutOfRange, Reason::Memory),
        (Instruction::fold(sum(), first, end, third, 64), Status::OutOfRange, Reason::Memory),
        (Instruction::fold(sum(), first, second, end, 64), Status::OutOfRange, Reason::Memory),
        (Instruction::fold(sum(), first, Operand::card(u64::MAX), third, 0), Status::OutOfRange, Reason::Memory),
        (Instruction::fold(sum(), first, second, third, 63), Status::BadField, Reason::Field),
        (Instruction::fold(how("minloc", "f32"), first, second, third, 64), Status::BadField, Reason::Field),
        (Instruction::fold(sum(), first.striped(), second, third, 64), Status::BadField, Reason::Field),
        (three(0, 64).on(1), Status::BadField, Reason::Field),
        (three(0, 64).in_lane(2), Status::BadField, Reason::Unsupported),
    ] {
        match cluster.card_mut(0).run([wrong], SECONDS) {
            Err(Error::Failed { status: found, .. }) => assert_eq!(found, status, "{wrong:?}"),
            other => panic!("{wrong:?}: {other:?}"),
        }
        let set = ProgramSet::new([0], [vec![Instruction::nop(), wrong]]);
        let refusal = verify(&set, cluster.capabilities()).unwrap_err();
        assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(1), reason), "{wrong:?}");
    }
    // Two reads may overlap.
    run_alone(&mut cluster, &[Instruction::fold(sum(), first, near(first, 32), third, 64)]).unwrap();
}

/// An overlap within a fold, and a race between two, name rank, lane and instruction.
#[test]
fn refusals_name_rank_lane_and_instruction() {
    let (_fabric, cluster) = with_lanes(3);
    let cause = |instructions: Vec<Instruction>| {
        let set = ProgramSet::new([0, 1], [vec![], instructions]);
        let refusal = verify(&set, cluster.capabilities()).unwrap_err();
        (refusal.rank, refusal.instruction, refusal.reason, refusal.cause)
    };
    let overlap = Instruction::fold(sum(), place(0), place(1), Operand::card(K + 4), 64).in_lane(2);
    let (rank, instruction, reason, text) = cause(vec![three(3, 64), overlap]);
    assert_eq!((rank, instruction, reason), (Some(1), Some(1), Reason::Overlap));
    assert_eq!(text, "fold in lane 2: 64 B at 0x10000000 and 64 B at 0x10000004 overlap, and one of them is written");
    // The second reads what the first writes, and the third writes what the first reads.
    for (later, does) in
        [(three(2, 64), "reads"), (Instruction::fold(sum(), place(4), place(5), place(1), 64), "writes")]
    {
        let racing = vec![three(0, 64), later.in_lane(1)];
        let (rank, instruction, reason, text) = cause(racing.clone());
        assert_eq!((rank, instruction, reason), (Some(1), Some(1), Reason::Race), "{text}");
        assert!(text.starts_with(&format!("fold in lane 1 {does} 64 B")), "{text}");
        assert!(text.contains("instruction 0 (fold in lane 0)"), "{text}");
        for ordered in [vec![racing[0], racing[1].in_lane(0)], vec![racing[0], racing[1].with_flags(Flags::FENCE)]] {
            assert_eq!(verify(&ProgramSet::new([0], [ordered]), cluster.capabilities()), Ok(()));
        }
    }
}

#[test]
fn an_abort_and_a_reset_end_folds() {
    let fabric = Fabric::new(Profile { lanes: 2, ..Profile::optweb(2) }).unwrap();
    let mut host = RawHost::attach(fabric.endpoint(0), 1 << 16);
    let waiting = Instruction::sendrecv(1, 1, place(6), place(7), BYTES);
    // The fold of lane 1 ends, and that of lane 0 waits for an exchange without a partner.
    host.push_all(&[waiting, three(0, 64).in_lane(1), three(0, 64)]);
    assert_eq!(host.take(), None);
    host.write(sequencer::ABORT, sequencer::ABORT_VALUE);
    assert_eq!([host.wait().status, host.wait().status], [Status::Aborted, Status::Done]);
    assert_eq!(host.take(), None);
    host.function.reset().unwrap();
    host.start();
    assert_eq!(host.run(&three(0, 64)).status, Status::Done);
    let lane = host.run(&three(0, 64).in_lane(2));
    assert_eq!((lane.status, lane.detail), (Status::BadField, offset::LANE as u16));
}
