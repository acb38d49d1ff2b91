//! Resident programs, their loops and arguments.

use cmdseq::limits::EXPANDED_MAX;
use cmdseq::plan::{Program, ProgramSet};
use cmdseq::verify::{Stored, verify_in_flight, verify_launches, verify_resident};
use cmdseq::{Capabilities, Flags, Instruction, Operand, Operation, Reason, Refusal, Table};

use crate::cards::connected;

fn at(address: u64) -> Operand {
    Operand::card(address)
}

fn ring(rank: u16, ranks: u16) -> Instruction {
    let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    Instruction::sendrecv(to, from, at(0).plus_argument(0), at(1 << 20).plus_argument(0), 64)
}

fn resident(programs: &[Vec<Instruction>], arguments: [u64; 3]) -> Result<(), Refusal> {
    let ranks = programs.len() as u32;
    let set = ProgramSet::new((0..ranks).collect::<Vec<_>>(), programs.to_vec());
    verify_resident(&set, &vec![arguments; programs.len()], &connected(ranks))
}

fn looped(count: u16, step: u64) -> Vec<Vec<Instruction>> {
    let round = Instruction { extent: step, extent_argument: Some(0), ..Instruction::repeat(count, 1) };
    (0..3).map(|rank| vec![round, ring(rank, 3), Instruction::barrier().with_flags(Flags::LAST)]).collect()
}

#[test]
fn programs_with_tables_are_not_stored() {
    let with_tables = Program { tables: [(0, Table::default())].into(), ..Program::from(vec![Instruction::barrier()]) };
    let set = ProgramSet::new([0, 1], [Program::from(vec![Instruction::barrier()]), with_tables]);
    let refusal = verify_resident(&set, &[[0; 3]; 2], &connected(2)).unwrap_err();
    assert_eq!((refusal.rank, refusal.reason), (Some(1), Reason::Stored));
    assert!(refusal.cause.contains("no resident program has"), "{refusal}");
}

#[test]
fn loops_are_unrolled_with_their_arguments() {
    resident(&looped(1000, 64), [0; 3]).unwrap();
    // The last round would write past the end, and the round before would not.
    let end = (8 << 30) - (1 << 20) - 64;
    resident(&looped(1000, 64), [end - 999 * 64, 0, 0]).unwrap();
    let refusal = resident(&looped(1000, 64), [end - 998 * 64, 0, 0]).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(1), Reason::Memory), "{refusal}");
    // In the second round, it sends what it receives.
    let refusal = resident(&looped(2, 0), [0; 3]).map(|()| resident(&looped(2, 1 << 63), [1 << 63, 0, 0]));
    assert_eq!(refusal.unwrap().unwrap_err().reason, Reason::Memory);
}

#[test]
fn other_rounds_on_one_rank_are_found() {
    let mut programs = looped(10, 64);
    programs[1][0].loop_count = 9;
    let refusal = resident(&programs, [0; 3]).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Unmatched | Reason::Deadlock), "{refusal}");
    assert_eq!(refusal.instruction, Some(1), "{refusal}");
    assert!(refusal.cause.ends_with("; other indices in this message count unrolled instructions"), "{refusal}");
}

#[test]
fn a_message_about_one_instruction_counts_those_of_the_program() {
    let mut programs = looped(10, 64);
    for program in &mut programs {
        program.insert(1, Instruction::copy(at(0), at(8), 64));
        program[0].loop_body = 2;
    }
    let refusal = resident(&programs, [0; 3]).unwrap_err();
    assert_eq!((refusal.reason, refusal.instruction), (Reason::Overlap, Some(1)), "{refusal}");
    assert!(!refusal.cause.contains("unrolled"), "{refusal}");
    // After the loop too.
    let mut programs = looped(10, 64);
    programs.iter_mut().for_each(|program| program.insert(2, Instruction::copy(at(0), at(8), 64)));
    let refusal = resident(&programs, [0; 3]).unwrap_err();
    assert_eq!((refusal.reason, refusal.instruction), (Reason::Overlap, Some(2)), "{refusal}");
    assert!(!refusal.cause.contains("unrolled"), "{refusal}");
}

#[test]
fn what_a_card_does_not_store_is_refused() {
    let nop = Instruction::nop;
    for (program, index) in [
        (vec![nop().with_flags(Flags::LAST), nop()], 0),
        (vec![nop(), Instruction::launch(0, [0; 3])], 1),
        (vec![nop(), Instruction::store(0, 0, 1)], 1),
        (vec![nop(), nop(), Instruction::free(1)], 2),
        (vec![nop(), Instruction::group(1, 0, 1)], 1),
        (vec![nop(), Instruction::table(0, 0, 1)], 1),
        (vec![Instruction::repeat(0, 1), nop()], 0),
        (vec![Instruction::repeat(1, 0), nop()], 0),
        (vec![nop(), Instruction::repeat(2, 2), nop()], 1),
        (vec![Instruction::repeat(2, 2), Instruction::repeat(2, 1), nop()], 1),
    ] {
        let refusal = resident(&[program], [0; 3]).unwrap_err();
        assert_eq!((refusal.instruction, refusal.reason), (Some(index), Reason::Stored), "{refusal}");
    }
    let refusal = resident(&[vec![nop(); 257]], [0; 3]).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), None, Reason::Stored), "{refusal}");
    // Nothing is stored where there is nothing to run.
    assert_eq!(resident(&[vec![]], [0; 3]), Ok(()));
}

/// Unrolling leaves nothing of a loop, but a card checks its word like any other.
#[test]
fn what_a_card_refuses_of_a_loop_is_refused() {
    let verified = |round: Instruction, capabilities: &Capabilities| {
        let set = ProgramSet::new([0, 1], vec![vec![Instruction::nop(), round, Instruction::barrier()]; 2]);
        let launched: Vec<Stored> = vec![Stored { slot: 2, instructions: set.programs[0].instructions.clone() }];
        let launches = ProgramSet::new([0, 1], vec![vec![Instruction::launch(2, [0; 3])]; 2]);
        let resident = verify_resident(&set, &[[0; 3]; 2], capabilities);
        let stored = verify_launches(&launches, &[launched.clone(), launched], capabilities);
        assert_eq!(resident.is_ok(), stored.is_ok(), "{stored:?}");
        resident.map_err(|refusal| (refusal.rank, refusal.instruction, refusal.reason))
    };
    let round = Instruction::repeat(2, 1);
    let (one_lane, two_lanes) = (connected(2), Capabilities { lanes: 2, ..connected(2) });
    let refused = |reason| Err((Some(0), Some(1), reason));
    assert_eq!(verified(round, &one_lane), Ok(()));
    assert_eq!(verified(round.with_flags(Flags::FENCE), &one_lane), refused(Reason::Unsupported));
    assert_eq!(verified(round.with_flags(Flags::FENCE), &two_lanes), Ok(()));
    assert_eq!(verified(round.with_flags(Flags::EAGER | Flags::RENDEZVOUS), &one_lane), refused(Reason::Field));
    assert_eq!(verified(Instruction { root: 1, ..round }, &one_lane), refused(Reason::Field));
    let without = Capabilities { operations: one_lane.operations & !(1 << Operation::Loop as u32), ..one_lane };
    assert_eq!(verified(round, &without), refused(Reason::Unsupported));
}

/// Two ranks, the first of which runs `first` and the other `second`: whether they are in order, and whether several
/// launches may be in flight.
fn in_flight(first: &[Instruction], second: &[Instruction]) -> Result<(), Refusal> {
    let set = ProgramSet::new([0, 1], [first.to_vec(), second.to_vec()]);
    let arguments = [[0; 3]; 2];
    verify_resident(&set, &arguments, &connected(2)).unwrap();
    verify_in_flight(&set, &arguments, &connected(2))
}

#[test]
fn one_sided_launches_in_flight_are_kept_apart() {
    let barrier = Instruction::barrier();
    let write = Instruction::rdma_write(1, at(0), at(4096), 64);
    let read = Instruction::rdma_read(1, at(4096), at(0), 64);
    let send = |peer| Instruction::send(peer, at(12288), 64);
    let receive = |peer| Instruction::recv(peer, at(8192), 64);
    // The second launch's write may come while the first launch still reads what it has written.
    let using = Instruction::copy(at(4096), at(1 << 20), 64);
    for one_sided in [write, read] {
        let refusal = in_flight(&[one_sided, barrier], &[barrier, using]).unwrap_err();
        assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Race), "{refusal}");
        assert!(refusal.cause.contains("which may not have begun"), "{refusal}");
        let refusal = in_flight(&[barrier, one_sided], &[barrier]).unwrap_err();
        assert_eq!((refusal.rank, refusal.instruction), (Some(0), Some(1)), "{refusal}");
        assert!(refusal.cause.contains("whose program may have ended"), "{refusal}");
        in_flight(&[barrier, one_sided, barrier], &[barrier, barrier, using]).unwrap();
    }
    // A signal of the next launch may come before this one has waited for its own.
    let put = Instruction::put_signal(1, at(0), at(4096), 64, 3, 1);
    let wait = Instruction::wait_signal(3, 1);
    let refusal = in_flight(&[put], &[wait, using]).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Race), "{refusal}");
    in_flight(&[receive(1), put], &[send(0), wait, using]).unwrap();
    // In a loop, the instruction of the stored program is named.
    let refusal = in_flight(&[Instruction::repeat(2, 1), write, barrier], &[barrier]).unwrap_err();
    assert_eq!(refusal.instruction, Some(1), "{refusal}");
    // Without one-sided operations each card's own order is enough.
    in_flight(&[send(1), using], &[receive(0)]).unwrap();
    in_flight(&[Instruction::rdma_write(1, at(0), at(0), 0)], &[]).unwrap();
}

#[test]
fn loops_beyond_the_bound_are_refused_soon() {
    let mut program: Vec<Instruction> = Vec::new();
    for _ in 0..16 {
        program.extend([Instruction::repeat(u16::MAX, 2), Instruction::nop(), Instruction::nop()]);
    }
    assert!(16 * 2 * usize::from(u16::MAX) > EXPANDED_MAX);
    let refusal = resident(&[program], [0; 3]).unwrap_err();
    assert_eq!(refusal.reason, Reason::TooLong);
}

#[test]
fn launches_run_what_is_stored() {
    let capabilities = connected(3);
    let stored: Vec<Vec<Stored>> =
        (0..3).map(|rank| vec![Stored { slot: 2, instructions: vec![ring(rank, 3)] }]).collect();
    let launching = |slot: u64, argument: u64| {
        let instructions = vec![Instruction::barrier(), Instruction::launch(slot, [argument, 0, 0])];
        verify_launches(&ProgramSet::new([0, 1, 2], vec![instructions; 3]), &stored, &capabilities)
    };
    launching(2, 0).unwrap();
    let refusal = launching(2, 8 << 30).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(1), Reason::Memory));
    assert_eq!(launching(1, 0).unwrap_err().reason, Reason::Stored);
}

/// The driver opens windows for what it launches; nobody does for a launch in a program.
#[test]
fn stored_programs_that_are_launched_name_their_windows() {
    let launching = |windows, instructions: Vec<Instruction>| {
        let stored = [vec![Stored { slot: 2, instructions }], vec![]];
        let set = ProgramSet::new([0, 1], [vec![Instruction::launch(2, [0; 3])], vec![]]);
        verify_launches(&set, &stored, &Capabilities { windows, ..connected(2) })
    };
    let write = Instruction::rdma_write(1, at(0), at(64), 8);
    let refusal = launching(1, vec![Instruction::nop(), write]).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(0), Some(0), Reason::Window), "{refusal}");
    assert!(refusal.cause.contains("instruction 1 of the stored program (rdma_write)"), "{refusal}");
    launching(1, vec![Instruction::copy(at(0), at(64), 8)]).unwrap();
    // Cards without windows ask for none.
    launching(0, vec![write]).unwrap();
}

#[test]
fn what_a_program_stores_itself_is_not_taken_for_what_was_there() {
    let stored = [vec![Stored { slot: 2, instructions: vec![Instruction::nop().with_flags(Flags::LAST)] }]];
    let launching =
        |instructions: Vec<Instruction>| verify_launches(&ProgramSet::new([0], [instructions]), &stored, &connected(1));
    let (launch, store) = (Instruction::launch(2, [0; 3]), |slot| Instruction::store(slot, 0, 1));
    launching(vec![store(3), launch, store(2)]).unwrap();
    let refusal = launching(vec![launch, store(2), launch]).unwrap_err();
    assert_eq!((refusal.instruction, refusal.reason), (Some(2), Reason::Stored), "{refusal}");
    // The launch itself is looked at too.
    let refusal = launching(vec![Instruction { root: 1, ..launch }]).unwrap_err();
    assert_eq!((refusal.instruction, refusal.reason), (Some(0), Reason::Field), "{refusal}");
}

#[test]
fn tables_and_groups_have_no_more_entries_than_there_are_cards() {
    let alone = |it: Instruction| {
        let set = ProgramSet::new([0, 1], [vec![it], vec![]]);
        verify_launches(&set, &[], &connected(2)).map_err(|refusal| refusal.reason)
    };
    assert_eq!(alone(Instruction::table(0, 0, 2)), Ok(()));
    assert_eq!(alone(Instruction::table(0, 0, 3)), Err(Reason::Field));
    assert_eq!(alone(Instruction::group(5, 0, 2)), Ok(()));
    assert_eq!(alone(Instruction::group(5, 0, 3)), Err(Reason::Field));
}
