//! What takes too long or too much memory is refused, and the limit is named.

use std::time::Duration;

use cmdseq::limits::{BLOCKS_MAX, KNOWN_MAX, ORDERED_MAX};
use cmdseq::meaning::expect;
use cmdseq::plan::{Collective, Communicator, Piece, Program, ProgramSet, Request};
use cmdseq::{Instruction, Operand, Reason, Refusal, verify};
use nix::time::{ClockId, clock_gettime};

use crate::cards::connected;

fn at(address: u64) -> Operand {
    Operand::card(address)
}

/// Programs of `ranks` ranks, of which those that are not given are empty.
fn refused(ranks: u32, mut programs: Vec<Vec<Instruction>>) -> Refusal {
    programs.resize(ranks as usize, Vec::new());
    verify(&ProgramSet::new((0..ranks).collect::<Vec<_>>(), programs), &connected(ranks)).unwrap_err()
}

fn assert_limit(refusal: &Refusal, name: &str) {
    assert_eq!(refusal.reason, Reason::TooLong, "{refusal}");
    assert!(refusal.cause.contains(&format!("(limit {name})")), "{refusal}");
}

#[test]
fn what_ranks_know_of_each_other_is_bounded() {
    let write = || vec![Instruction::rdma_write(1, at(0), at(0), 64)];
    let ranks = KNOWN_MAX.isqrt() as u32;
    assert_limit(&refused(ranks, vec![write()]), "KNOWN_MAX");
    let nops = (ORDERED_MAX / 4000 + 1) as usize;
    assert_limit(&refused(4000, vec![write(), vec![Instruction::nop(); nops]]), "ORDERED_MAX");
}

/// The processor time that `test` takes.
fn processor_time(test: impl FnOnce()) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let began = now();
    test();
    now() - began
}

#[test]
fn windows_of_many_ranks_are_counted_in_time() {
    let ranks = 1 << 16;
    let one_sided = |rank: u32| {
        let next = ((rank + 1) % ranks) as u16;
        vec![
            Instruction::rdma_write(next, at(0), at(0), 64),
            Instruction::rdma_read(next, at(0), at(0), 64),
            Instruction::put_signal(next, at(0), at(0), 64, 0, 1),
        ]
    };
    let took = processor_time(|| assert_limit(&refused(ranks, (0..ranks).map(one_sided).collect()), "KNOWN_MAX"));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Each member has a root of its own, and so differs from all others.
#[test]
fn members_that_disagree_are_compared_in_time() {
    let ranks = 1 << 16;
    let broadcast = |root: u32| vec![Instruction::broadcast(root as u16, at(0), at(0), 64)];
    let mut capabilities = connected(ranks);
    capabilities.communicator_ranks = ranks;
    let set = ProgramSet::new((0..ranks).collect::<Vec<_>>(), (0..ranks).map(broadcast));
    let took = processor_time(|| {
        let refusal = verify(&set, &capabilities).unwrap_err();
        assert_eq!((refusal.reason, refusal.rank), (Reason::RootMismatch, Some(ranks - 1)), "{refusal}");
    });
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Before each put, its rank learns something new from another: all of it is kept, for the waits.
#[test]
fn what_puts_know_is_bounded() {
    let ranks = 2000;
    let rounds = KNOWN_MAX as u64 / ranks + 1;
    let each = |one: &[Instruction]| (0..rounds).flat_map(|_| one.to_vec()).collect::<Vec<_>>();
    let learning = [Instruction::recv(1, at(0), 8), Instruction::put_signal(2, at(0), at(64), 0, 0, 1)];
    let programs =
        vec![each(&learning), each(&[Instruction::send(0, at(0), 8)]), each(&[Instruction::wait_signal(0, 1)])];
    assert_limit(&refused(ranks as u32, programs), "KNOWN_MAX");
}

/// Rank 0 exchanges with half of the others in each lane. Blocks of one lane lie between those of the other, so that they are looked
/// at one by one.
#[test]
fn blocks_of_several_lanes_are_bounded() {
    let members: u32 = 5000;
    let ranks = 2 * members - 1;
    let mut capabilities = connected(ranks);
    (capabilities.communicator_ranks, capabilities.lanes) = (ranks, 2);
    let halves = [(1..members).collect::<Vec<_>>(), (members..ranks).collect()];
    let communicators =
        (1..).zip(halves).map(|(id, half)| Communicator { id, members: [0].into_iter().chain(half).collect() });
    let communicators: Vec<Communicator> = communicators.collect();
    let table = cmdseq::Table::packed((0..members).map(|_| 8), 16);
    let exchange = |number: u64| {
        let (lane, place) = ((number % 2) as u8, number % 2 * 8);
        Instruction { lane, ..Instruction::alltoallv(at(place), at((1 << 30) + place), 0, 0).on(1 + u16::from(lane)) }
    };
    // Each reads a block of every member and writes one.
    let most = BLOCKS_MAX / u64::from(2 * members);
    let first = (0..=most).map(exchange).collect::<Vec<_>>();
    let mut programs = vec![Program::default(); ranks as usize];
    programs[0] = Program { tables: [(0, table)].into(), ..first.into() };
    let set = ProgramSet::new((0..ranks).collect::<Vec<_>>(), programs).with(communicators);
    assert_limit(&verify(&set, &capabilities).unwrap_err(), "BLOCKS_MAX");
}

#[test]
fn comparisons_of_blocks_are_bounded() {
    let ranks: u32 = 1024;
    // The last but one reaches the limit.
    let rounds = BLOCKS_MAX / u64::from(ranks * ranks) + 1;
    assert_eq!((rounds - 1) * u64::from(ranks * ranks), BLOCKS_MAX);
    let mut capabilities = connected(ranks);
    capabilities.communicator_ranks = ranks;
    let table = cmdseq::Table::packed((0..ranks).map(|_| 0), 1);
    let instructions = vec![Instruction::alltoallv(at(0), at(0), 0, 0); rounds as usize];
    let programs = vec![Program { tables: [(0, table)].into(), ..instructions.into() }; ranks as usize];
    let group: Vec<u32> = (0..ranks).collect();
    let refusal = verify(&ProgramSet::new(group, programs), &capabilities).unwrap_err();
    assert_limit(&refusal, "BLOCKS_MAX");
    // From the second round on, the lowest rank comes last.
    assert_eq!((refusal.rank, refusal.instruction), (Some(0), Some(rounds as usize - 1)), "{refusal}");
}

/// Instructions that a short look does not suffice for cost a look at a block of each rank, but each only once.
#[test]
fn long_looks_at_instructions_are_bounded() {
    let ranks = 1 << 16;
    let most = BLOCKS_MAX / u64::from(ranks);
    let mut capabilities = connected(ranks);
    capabilities.stripe_half_bytes = 4096;
    let verified =
        |instructions: Vec<Instruction>| verify(&ProgramSet::new([0, 1], [instructions, vec![]]), &capabilities);
    let long = |number: u64| Instruction::rdma_write(1, at(8 * number).striped(), at(0), 8);
    verified((0..most).map(long).collect()).unwrap();
    let refusal = verified((0..=most).map(long).collect()).unwrap_err();
    assert_limit(&refusal, "BLOCKS_MAX");
    assert_eq!((refusal.rank, refusal.instruction), (Some(0), Some(most as usize)), "{refusal}");
    // The same again and again, and others that the short look suffices for.
    verified((0..3 * most).map(|number| long(number % most).with_tag(number as u16)).collect()).unwrap();
    verified((0..3 * most).map(|number| Instruction::rdma_write(1, at(8 * number), at(0), 8)).collect()).unwrap();
}

/// A copy of what lies before it doubles the pieces of memory: without a limit, forty of them would take 16 TiB.
#[test]
fn pieces_of_memory_are_bounded() {
    let mut instructions =
        vec![Instruction::fill(at(0), 8, 1), Instruction::fill(at(8), 8, 2), Instruction::fill(at(16), 8, 3)];
    instructions.extend((0..28).map(|round| Instruction::copy(at(0), at(16 << round), 16 << round)));
    let request = Request::new(Collective::Broadcast, vec![0], 8);
    let refusal = expect(&ProgramSet::new([0], [instructions]), &connected(1), &request).unwrap_err();
    assert_limit(&refusal, "PIECES_MAX");
    assert_eq!(refusal.rank, Some(0));
    assert!(refusal.instruction.is_some_and(|index| index > 20), "{refusal}");
}

/// All ranks fold the same in each round: kept once, that is little.
#[test]
fn rounds_of_folds_end_in_time() {
    let (ranks, rounds) = (64_u32, 3000);
    let sum = cmdseq::Combine::new(cmdseq::Reduction::Sum, cmdseq::Element::U32);
    let round = |number: u64| Instruction::allreduce(sum, at(1024 * number), at(1024 * (number + 1)), 1024);
    let piece = |address| vec![Piece { offset: 0, address, bytes: 1024 }];
    let instructions = (0..rounds).map(round).collect();
    let program = Program { instructions, input: piece(0), output: piece(1024), ..Program::default() };
    let group: Vec<u32> = (0..ranks).collect();
    let request = Request { combine: Some(sum), ..Request::new(Collective::Allreduce, group.clone(), 1024) };
    let set = ProgramSet::new(group, vec![program; ranks as usize]);
    let took = processor_time(|| expect(&set, &connected(ranks), &request).unwrap());
    assert!(took < Duration::from_secs(60), "{took:?}");
}
