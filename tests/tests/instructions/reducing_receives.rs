//! recv_reduce and sendrecv_reduce on mock cards: data, time and errors.

use std::time::Duration;

use cmdseq::plan::ProgramSet;
use cmdseq::{Combine, Flags, Instruction, Operand, Status, verify};
use fpga_driver::{Cluster, Error, Execution, Report};
use fpga_mock::{Fault, Moved, Profile, When};
use fpga_tests::reduction::{combinations, element_bytes, fold, input};
use fpga_tests::run::open;

const MIB: u64 = 1 << 20;
/// Places of data on each card, in pseudo channels of their own.
const SOURCE: u64 = 0;
const OWN: u64 = 256 * MIB;
const RESULT: u64 = 512 * MIB;
const SECOND: u64 = 768 * MIB;

fn how(reduction: &str, element: &str) -> Combine {
    Combine::new(reduction.parse().unwrap(), element.parse().unwrap())
}

/// Programs of these instructions, one list for each card.
fn set(programs: Vec<Vec<Instruction>>) -> ProgramSet {
    ProgramSet::new((0..programs.len() as u32).collect::<Vec<_>>(), programs)
}

fn execute(cluster: &mut Cluster, programs: Vec<Vec<Instruction>>) -> Report {
    let set = set(programs);
    verify(&set, cluster.capabilities()).unwrap();
    cluster.execute(&set, &Execution::default()).unwrap()
}

fn read(cluster: &mut Cluster, rank: usize, address: u64, bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    cluster.card_mut(rank).read_memory(address, &mut data).unwrap();
    data
}

/// A shift that folds, an exchange that folds what it sends, and a pair that folds in place: of each rank's two inputs.
#[test]
fn what_comes_is_folded_with_what_is_there() {
    const RANKS: usize = 4;
    let (_fabric, mut cluster) = open(Profile::optweb(RANKS as u32));
    for (number, (reduction, element)) in combinations().into_iter().enumerate() {
        for flags in [Flags::EAGER, Flags::RENDEZVOUS] {
            let combine = how(reduction, element);
            let bytes = [1, 77, 999][number % 3] * element_bytes(element) as u64;
            let inputs = |seed| (0..RANKS as u32).map(|rank| input(seed, rank, element, bytes)).collect::<Vec<_>>();
            let (sources, owns) = (inputs(number as u64), inputs(number as u64 + 1000));
            for (place, (source, own)) in sources.iter().zip(&owns).enumerate() {
                let card = cluster.card_mut(place);
                card.write_memory(SOURCE, source).unwrap();
                card.write_memory(OWN, own).unwrap();
            }
            let [source, own, result, second] = [SOURCE, OWN, RESULT, SECOND].map(Operand::card);
            let program = |rank: usize| {
                let of = |other: usize| (other % RANKS) as u16;
                let shift = (of(rank + 1), of(rank + 3));
                let partner = of(rank ^ 1);
                let last = match rank % 2 {
                    0 => Instruction::send(partner, own, bytes),
                    _ => Instruction::recv_reduce(combine, partner, second, second, bytes),
                };
                vec![
                    Instruction::sendrecv_reduce(combine, shift, source, own, result, bytes),
                    Instruction::sendrecv_reduce(combine, (partner, partner), result, result, second, bytes),
                    last,
                ]
                .into_iter()
                .map(|one| one.with_flags(flags))
                .collect()
            };
            execute(&mut cluster, (0..RANKS).map(program).collect());
            let shifted: Vec<Vec<u8>> =
                (0..RANKS).map(|rank| fold(reduction, element, &[&sources[(rank + 3) % RANKS], &owns[rank]])).collect();
            for rank in 0..RANKS {
                assert!(read(&mut cluster, rank, RESULT, bytes) == shifted[rank], "{combine}, rank {rank}: shift");
                let mut expected = fold(reduction, element, &[&shifted[rank & !1], &shifted[rank | 1]]);
                if rank % 2 == 1 {
                    expected = fold(reduction, element, &[&owns[rank - 1], &expected]);
                }
                assert!(read(&mut cluster, rank, SECOND, bytes) == expected, "{combine}, rank {rank}: exchange");
                assert!(read(&mut cluster, rank, OWN, bytes) == owns[rank], "{combine}, rank {rank}: own");
            }
        }
    }
}

/// The own contribution may take the place of the result, and that of what is sent must not.
#[test]
fn cards_refuse_what_overlaps_and_oneself() {
    let (_fabric, mut cluster) = open(Profile::optweb(2));
    let sum = how("sum", "f32");
    let [source, own, result] = [SOURCE, OWN, RESULT].map(Operand::card);
    let near = Operand::card(OWN + 32);
    for (wrong, status) in [
        (Instruction::sendrecv_reduce(sum, (1, 1), source, own, source, 64), Status::Overlap),
        (Instruction::sendrecv_reduce(sum, (1, 1), source, own, near, 64), Status::Overlap),
        (Instruction::sendrecv_reduce(sum, (1, 1), source, source, source, 64), Status::Overlap),
        (Instruction::sendrecv_reduce(sum, (0, 0), source, own, result, 64), Status::BadRank),
        (Instruction::sendrecv_reduce(sum, (1, 2), source, own, result, 64), Status::BadRank),
        (Instruction::sendrecv_reduce(sum, (1, 1), source, Operand::card(8 << 30), result, 64), Status::OutOfRange),
        (Instruction::recv_reduce(sum, 1, own, near, 64), Status::Overlap),
        (Instruction::recv_reduce(sum, 0, own, result, 64), Status::BadRank),
        (Instruction::recv_reduce(sum, 1, own, result, 63), Status::BadField),
        (Instruction::recv_reduce(how("minloc", "f32"), 1, own, result, 64), Status::BadField),
    ] {
        match cluster.card_mut(0).run([wrong], Duration::from_secs(10)) {
            Err(Error::Failed { status: found, .. }) => assert_eq!(found, status, "{wrong:?}"),
            other => panic!("{wrong:?}: {other:?}"),
        }
    }
}

#[test]
fn another_length_than_the_partners_is_a_mismatch() {
    for flags in [Flags::EAGER, Flags::RENDEZVOUS] {
        let (_fabric, mut cluster) = open(Profile::optweb(2));
        let [source, own, result] = [SOURCE, OWN, RESULT].map(Operand::card);
        let send = Instruction::send(1, source, 128).with_flags(flags);
        let receive = Instruction::recv_reduce(how("sum", "f32"), 0, own, result, 64).with_flags(flags);
        let set = set(vec![vec![send], vec![receive]]);
        let refusal = verify(&set, cluster.capabilities()).unwrap_err();
        assert!(refusal.cause.contains("128 B"), "{refusal}");
        let execution = Execution { timeout: Duration::from_secs(5), ..Execution::default() };
        match cluster.execute(&set, &execution).unwrap_err() {
            Error::Failed { status: Status::Mismatch, rank: Some(1), .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A partner that stops, or whose link is cut, once it has sent 5 of 16 MiB; if it were to send more than it does, it goes on.
#[test]
fn a_partner_that_goes_does_not_leave_a_fold_waiting() {
    let bytes = 16 * MIB;
    let moved = |bytes| When::Moved(Moved { node: 2, tag: None, transfer: 0, bytes });
    let (midway, never) = (moved(5 * MIB), moved(bytes + 1));
    for (fault, expected) in [
        (Fault::Freeze { node: 2, when: midway }, "a timeout"),
        (Fault::Cut { a: 0, b: 2, when: midway }, "a link down"),
        (Fault::Freeze { node: 2, when: never }, "done"),
    ] {
        let (fabric, mut cluster) = open(Profile::optweb(3));
        let [source, own, result] = [SOURCE, OWN, RESULT].map(Operand::card);
        let ring = |rank: u16| {
            let places = ((rank + 1) % 3, (rank + 2) % 3);
            vec![Instruction::sendrecv_reduce(how("sum", "f32"), places, source, own, result, bytes)]
        };
        let set = set((0..3).map(ring).collect());
        fabric.plant(fault);
        // Whoever ends has all the time that it needs.
        let timeout = Duration::from_millis(if expected == "a timeout" { 300 } else { 60_000 });
        let execution = Execution { timeout, ..Execution::default() };
        let found = match cluster.execute(&set, &execution) {
            Err(Error::Timeout { .. }) => "a timeout",
            Err(Error::Failed { status: Status::LinkDown, .. }) => "a link down",
            Ok(_) => "done",
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(found, expected);
    }
}

/// One unit of the chain behind a plain shift, whatever the size.
#[test]
fn folding_what_comes_takes_one_unit_of_the_chain() {
    for (bytes, flags) in [(64, Flags::EAGER), (64, Flags::RENDEZVOUS), (MIB, Flags::RENDEZVOUS)] {
        let arrival = |folds: bool| {
            let (_fabric, mut cluster) = open(Profile::optweb(4));
            let [source, own, result] = [SOURCE, OWN, RESULT].map(Operand::card);
            let ring = |rank: u16| {
                let (to, from) = ((rank + 1) % 4, (rank + 3) % 4);
                let one = match folds {
                    true => Instruction::sendrecv_reduce(how("sum", "f32"), (to, from), source, own, result, bytes),
                    false => Instruction::sendrecv(to, from, source, result, bytes),
                };
                vec![one.with_flags(flags)]
            };
            execute(&mut cluster, (0..4).map(ring).collect()).arrival_cycles
        };
        assert_eq!(arrival(true), arrival(false) + 8, "{bytes} B");
    }
}
