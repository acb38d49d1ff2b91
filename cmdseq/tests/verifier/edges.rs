//! The last value that is right and the first that is wrong.

use cmdseq::plan::{Communicator, Program, ProgramSet};
use cmdseq::verify::{verify_launches, verify_resident};
use cmdseq::{Capabilities, Flags, Instruction, Operand, Reason, Refusal, verify};

use crate::cards::{connected, dragonfly};
use crate::verified;

fn at(address: u64) -> Operand {
    Operand::card(address)
}

/// All four cards have a program, of which the first runs `instructions` and the others nothing.
fn first(instructions: &[Instruction], capabilities: &Capabilities) -> Result<(), Refusal> {
    verify(&ProgramSet::new([0, 1, 2, 3], [instructions.to_vec(), vec![], vec![], vec![]]), capabilities)
}

/// Index, reason and a part of the sentence; `None` if nothing is refused.
type Expected = Option<(usize, Reason, &'static str)>;

fn assert_all(capabilities: &Capabilities, cases: &[(&[Instruction], Expected)]) {
    for (instructions, expected) in cases {
        let found = first(instructions, capabilities);
        match (&found, expected) {
            (Ok(()), None) => {}
            (Err(refusal), Some((index, reason, says))) => {
                assert_eq!(
                    (refusal.rank, refusal.instruction, refusal.reason),
                    (Some(0), Some(*index), *reason),
                    "{refusal}"
                );
                assert!(refusal.cause.contains(says), "{refusal}, and not {says}");
            }
            _ => panic!("{instructions:?}: {found:?}, and not {expected:?}"),
        }
    }
}

#[test]
fn numbers_of_the_card_are_kept_to() {
    let mut capabilities = connected(4);
    capabilities.communicator_ranks = 3;
    let of_bytes = |it: Instruction, bytes: u64| Instruction { bytes, ..it };
    let (table, group, store) = (Instruction::table, Instruction::group, Instruction::store);
    let launch = |slot: u64| Instruction::launch(slot, [0; 3]);
    let wait = |signal: u16| Instruction::wait_signal(signal, 0);
    let put = |signal: u16| Instruction::put_signal(1, at(0), at(0), 0, signal, 0);
    let field = |says| Some((0, Reason::Field, says));
    let none = |says| Some((0, Reason::Unsupported, says));
    assert_all(
        &capabilities,
        &[
            (&[Instruction::delay(1 << 36)], None),
            (&[Instruction::delay((1 << 36) + 1)], field("68719476737 cycles exceed the longest delay")),
            (&[wait(63)], None),
            (&[put(63)], None),
            (&[wait(64)], none("no signal 64 (the card has 64 signals)")),
            (&[put(64)], none("no signal 64 (the card has 64 signals)")),
            // As many as the card takes, and no more than there are.
            (&[table(15, 0, 1)], None),
            (&[table(15, 0, 3)], None),
            (&[table(15, 0, 0)], field("invalid length 0 B: expected 1 to 3 entries of 16 B")),
            (&[table(15, 0, 4)], field("invalid length 64 B: expected 1 to 3 entries of 16 B")),
            (&[of_bytes(table(15, 0, 1), 24)], field("invalid length 24 B: expected 1 to 3 entries of 16 B")),
            (&[table(16, 0, 1)], none("no table slot 16 (the card has 16 slots)")),
            (&[group(5, 0, 1)], None),
            (&[group(5, 0, 3)], None),
            (&[group(5, 0, 0)], field("invalid length 0 B: expected 1 to 3 node numbers of 2 B")),
            (&[group(5, 0, 4)], field("invalid length 8 B: expected 1 to 3 node numbers of 2 B")),
            (&[of_bytes(group(5, 0, 1), 3)], field("invalid length 3 B: expected 1 to 3 node numbers of 2 B")),
            (&[store(7, 0, 1)], None),
            (&[store(7, 0, 256)], None),
            (&[store(7, 0, 0)], field("invalid length 0 B: expected 1 to 256 instructions of 64 B")),
            (&[store(7, 0, 257)], field("invalid length 16448 B: expected 1 to 256 instructions of 64 B")),
            // Counts whose bytes exceed 64 bits are no smaller ones.
            (&[table(15, 0, (1 << 60) + 1)], field("invalid length 18446744073709551615 B")),
            (&[group(5, 0, (1 << 63) + 1)], field("invalid length 18446744073709551615 B")),
            (&[store(7, 0, (1 << 58) + 1)], field("invalid length 18446744073709551615 B")),
            (&[of_bytes(store(7, 0, 1), 96)], field("invalid length 96 B: expected 1 to 256 instructions of 64 B")),
            (&[store(8, 0, 1)], none("no program slot 8 (the card has 8 slots)")),
            (&[store(7, 0, 1), launch(7)], None),
            (&[store(6, 0, 1), launch(7)], Some((1, Reason::Stored, "no program in slot 7"))),
            (&[launch(8)], none("no program slot 8")),
        ],
    );
    // What each alone allows, and the two together.
    let both = Flags::EAGER | Flags::RENDEZVOUS;
    for (flags, is_right) in
        [(Flags::EAGER, true), (Flags::RENDEZVOUS, true), (both, false), (both | Flags::LAST, false)]
    {
        let send = Instruction::send(1, at(0), 0).with_flags(flags);
        assert_eq!(
            first(&[send], &capabilities).map_err(|it| it.reason),
            if is_right { Ok(()) } else { Err(Reason::Field) }
        );
    }
}

#[test]
fn ids_of_communicators_name_an_entry_and_a_generation_that_there_is() {
    let mut small = connected(4);
    (small.communicators, small.communicator_generations) = (8, 4);
    let full = connected(4);
    for (capabilities, id, is_id) in [
        (&full, 0, false),
        (&full, 1, true),
        (&full, 31, true),
        (&full, 32, false),
        (&full, 33, true),
        (&full, 255 << 5 | 31, true),
        (&full, 255 << 5, false),
        (&full, 256 << 5 | 31, false),
        (&full, u16::MAX, false),
        (&small, 7, true),
        (&small, 8, false),
        (&small, 3 << 5 | 7, true),
        (&small, 3 << 5 | 8, false),
        (&small, 4 << 5 | 7, false),
        (&small, 4 << 5 | 8, false),
    ] {
        let defined = [Communicator { id, members: vec![0, 1] }];
        let given = verify(&ProgramSet::new([0], [Program::default()]).with(defined), capabilities);
        let grouped = first(&[Instruction::group(id, 0, 2)], capabilities);
        assert_eq!([given.is_ok(), grouped.is_ok()], [is_id; 2], "{id}: {given:?} {grouped:?}");
        if !is_id {
            let last = capabilities.communicators - 1;
            let says = format!(
                "communicator {id}: invalid id: the cards' tables have entries 1 to {last}, with later generations"
            );
            assert_eq!((given.unwrap_err().to_string(), grouped.unwrap_err().reason), (says, Reason::Communicators));
        }
    }
}

#[test]
fn communicators_that_cannot_be_are_refused() {
    let mut capabilities = connected(4);
    capabilities.communicator_ranks = 3;
    let given = |all: &[(u16, &[u32])]| {
        let all: Vec<Communicator> =
            all.iter().map(|(id, members)| Communicator { id: *id, members: members.to_vec() }).collect();
        // Nodes 1 and 3 have a program.
        verify(&ProgramSet::new([3, 1], vec![Program::default(); 2]).with(all), &capabilities).map_err(|refusal| {
            assert_eq!(refusal.reason, Reason::Communicators, "{refusal}");
            refusal.to_string()
        })
    };
    let refused = |says: &str| Err(says.to_owned());
    assert_eq!(given(&[(1, &[0, 1, 2]), (2, &[3, 1])]), Ok(()));
    // One entry, on different cards.
    assert_eq!(given(&[(1, &[0, 1]), (33, &[2, 3])]), Ok(()));
    let same = "rank 0: communicators 1 and 33 need the same table entry";
    assert_eq!(given(&[(1, &[0, 3]), (33, &[2, 3])]), refused(same));
    let twice = "rank 1: communicator 4: duplicate node 1";
    assert_eq!(given(&[(4, &[1, 2, 1])]), refused(twice));
    // Of nodes without a program too.
    assert_eq!(given(&[(4, &[1, 2, 2])]), refused("communicator 4: duplicate node 2"));
    assert_eq!(given(&[(4, &[])]), refused("communicator 4: 0 ranks: the cards' tables allow 1 to 3"));
    assert_eq!(given(&[(4, &[0, 1, 2, 3])]), refused("communicator 4: 4 ranks: the cards' tables allow 1 to 3"));
    assert_eq!(given(&[(4, &[0, 4])]), refused("communicator 4: no node 4 (the fabric has 4 nodes)"));
}

/// The last range of host memory, and one that exceeds 64-bit addresses.
#[test]
fn host_memory_ends_with_64_bit_addresses() {
    let beyond = Some((0, Reason::Memory, "exceeds 64-bit addresses"));
    let last = |bytes: u64| u64::MAX - bytes;
    assert_all(
        &connected(4),
        &[
            (&[Instruction::group(5, last(4), 2)], None),
            (&[Instruction::group(5, last(3), 2)], beyond),
            (&[Instruction::store(7, last(128), 2)], None),
            (&[Instruction::store(7, last(127), 2)], beyond),
            (&[Instruction::table(15, last(32), 2)], None),
            (&[Instruction::table(15, last(31), 2)], beyond),
        ],
    );
}

#[test]
fn host_memory_is_named_by_either_operand() {
    let mut capabilities = connected(4);
    let copy = |source, destination| Instruction::copy(source, destination, 64);
    let named =
        [copy(Operand::host(0), at(0)), copy(at(0), Operand::host(0)), copy(Operand::host(0), Operand::host(64))];
    for instruction in named {
        assert!(instruction.names_host());
        capabilities.host_memory = true;
        assert_all(&capabilities, &[(&[instruction], None)]);
        capabilities.host_memory = false;
        let refused = Some((0, Reason::Unsupported, "reaches no host memory"));
        assert_all(&capabilities, &[(&[instruction], refused)]);
    }
    let on_card = copy(at(0), at(64));
    assert!(!on_card.names_host());
    assert_all(&capabilities, &[(&[on_card], None)]);
}

#[test]
fn addresses_are_aligned_as_the_card_asks() {
    let mut capabilities = connected(4);
    capabilities.address_align = 32;
    let field = |says| Some((0, Reason::Field, says));
    let copy = Instruction::copy;
    let host = Operand::host;
    let store = Instruction::store(0, 0, 1);
    assert_all(
        &capabilities,
        &[
            (&[copy(at(32), at(96), 8)], None),
            (&[copy(at(33), at(96), 8)], field("source 0x21 is misaligned: expected a multiple of 32")),
            (&[copy(at(32), at(80), 8)], field("destination 0x50 is misaligned: expected a multiple of 32")),
            (&[copy(host(33), at(96), 8)], None),
            (&[copy(at(32), host(33), 8)], None),
            (&[copy(host(33), at(80), 8)], field("destination 0x50 is misaligned: expected a multiple of 32")),
            (
                &[Instruction::rdma_write(1, at(0), at(16), 8)],
                field("destination 0x10 is misaligned: expected a multiple of 32"),
            ),
            // A launch passes values.
            (&[store, Instruction::launch(0, [1, 2, 3])], None),
        ],
    );
    capabilities.address_align = 0;
    assert_all(&capabilities, &[(&[copy(at(1), at(64), 8)], None)]);
}

#[test]
fn memory_ends_where_the_card_says() {
    let capabilities = connected(4);
    let end = capabilities.memory_bytes;
    let host = Operand::host;
    let (fill, copy) = (Instruction::fill, Instruction::copy);
    let memory = |says| Some((0, Reason::Memory, says));
    let overlap = |says| Some((0, Reason::Overlap, says));
    assert_all(
        &capabilities,
        &[
            (&[fill(at(end - 64), 64, 0)], None),
            (&[fill(at(end - 63), 64, 0)], memory("64 B at 0x1ffffffc1 exceed card memory, which ends at 0x200000000")),
            // A copy or fill of nothing begins somewhere too.
            (&[fill(at(end), 0, 0)], None),
            (&[fill(at(end + 1), 0, 0)], memory("0 B at 0x200000001 exceed card memory")),
            (&[copy(at(end), at(end), 0)], None),
            (&[copy(at(end + 1), at(0), 0)], memory("0 B at 0x200000001 exceed card memory")),
            (&[copy(at(0), at(end + 1), 0)], memory("0 B at 0x200000001 exceed card memory")),
            (&[copy(host(end + 64), host(end + 128), 64)], None),
            (&[Instruction::user(at(end + 64), at(end + 64), 0, 0)], None),
            (&[Instruction::send(1, at(end + 64), 0)], None),
            // Of the host, and of both.
            (&[copy(host(0), host(64), 64)], None),
            (&[copy(host(64), host(0), 64)], None),
            (&[copy(host(0), host(63), 64)], overlap("64 B of host memory at 0x0 and at 0x3f overlap")),
            (&[copy(host(63), host(0), 64)], overlap("64 B of host memory at 0x3f and at 0x0 overlap")),
            (&[copy(host(0), at(0), 64)], None),
            (&[copy(at(0), host(0), 64)], None),
            (&[copy(at(0), at(64), 64)], None),
            (&[copy(at(0), at(63), 64)], overlap("64 B at 0x0 and 64 B at 0x3f overlap")),
        ],
    );
    // Alone, an exchange has nothing to write over.
    verified(1, "alltoall source 0, destination 0, bytes 64", &connected(1)).unwrap();
    verified(2, "alltoall source 0, destination 0, bytes 64", &connected(2)).unwrap_err();
}

/// Node 0 has a link to all others of the communicator, which have none to each other.
#[test]
fn members_of_a_barrier_need_a_link_to_all_others() {
    let text = "communicator corner = 1 of 0, 1, 2\nif rank < 3\n barrier communicator corner\nend";
    let refusal = verified(4, text, &dragonfly(2, 2)).unwrap_err();
    assert_eq!((refusal.rank, refusal.instruction, refusal.reason), (Some(1), Some(0), Reason::Link), "{refusal}");
    assert!(refusal.cause.contains("no link from node 1 to node 2 (rank 2)"), "{refusal}");
}

#[test]
fn what_a_program_changes_on_its_card_is_followed() {
    let mut capabilities = connected(4);
    capabilities.tables = 4;
    let lists = |slots: &[u16]| slots.iter().map(|slot| (*slot, cmdseq::Table::packed([8; 4], 1))).collect();
    let alone = |instructions: Vec<Instruction>| {
        let mut programs = vec![Program::default(); 4];
        programs[0] = Program { instructions, tables: lists(&[0, 1, 2]), ..Program::default() };
        let communicators =
            [Communicator { id: 1, members: vec![0] }, Communicator { id: 2, members: vec![0, 1, 2, 3] }];
        let refusal = verify(&ProgramSet::new([0, 1, 2, 3], programs).with(communicators), &capabilities);
        refusal.map_err(|refusal| (refusal.instruction.unwrap(), refusal.reason, refusal.cause))
    };
    let (free, group) = (Instruction::free, |id: u16| Instruction::group(id, 0, 1));
    let barrier = Instruction::barrier;
    let table = |slot: u64| Instruction::table(slot.try_into().unwrap(), 0, 4);
    let exchange = |sends, receives| Instruction::alltoallv(at(0), at(64), sends, receives).on(2);
    let gather = |slot| Instruction::allgatherv(at(0), at(64), 8, slot).on(2);
    let refused = |found: Result<(), (usize, Reason, String)>, index: usize, reason: Reason, says: &str| {
        let (at, why, cause) = found.unwrap_err();
        assert_eq!((at, why), (index, reason), "{cause}");
        assert!(cause.contains(says), "{cause}");
    };
    assert_eq!(alone(vec![barrier().on(1), free(1), group(33), free(33), group(1)]), Ok(()));
    refused(alone(vec![free(33)]), 0, Reason::Membership, "communicator 33 is not defined on this card");
    refused(
        alone(vec![free(1), group(33), free(1)]),
        2,
        Reason::Membership,
        "instruction 0 already freed communicator 1",
    );
    refused(
        alone(vec![free(1), group(33), group(65)]),
        2,
        Reason::Communicators,
        "communicator 33 occupies the same table entry",
    );
    refused(alone(vec![group(33)]), 0, Reason::Communicators, "communicator 1 occupies the same table entry");
    refused(
        alone(vec![free(1), group(1), barrier().on(1)]),
        2,
        Reason::Membership,
        "instruction 1 defined communicator 1",
    );
    refused(alone(vec![free(1), barrier().on(1)]), 1, Reason::Membership, "instruction 0 freed communicator 1");
    // Tables that are stored are unknown; all others are what they were. These wait for the other cards in vain.
    for (stored, instruction) in [
        (3, exchange(0, 1)),
        (2, exchange(0, 1)),
        (1, exchange(0, 2)),
        (0, gather(1)),
        (1, gather(0)),
        (0, barrier().on(2)),
    ] {
        refused(alone(vec![table(stored), instruction]), 1, Reason::Unmatched, "has no partner");
    }
    for (stored, instruction) in [(1, exchange(0, 1)), (1, exchange(1, 0)), (1, exchange(1, 1)), (1, gather(1))] {
        refused(alone(vec![table(stored), instruction]), 1, Reason::Stored, "instruction 0 stored table 1 from host");
    }
}

/// Of blocks that are sent, which may overlap, the one is told of that begins first.
#[test]
fn blocks_that_are_overwritten_are_named() {
    for (at_second, at_third) in [(0, 32), (32, 0)] {
        let (second, third) = (64 - at_second, 64 - at_third);
        let text = format!(
            "if rank == 0\n blocks b = 0 of 8 at 100, {second} at {at_second}, {third} at {at_third}\nend\nscatterv root 0, \
             source 0, destination 40, bytes 8, extent 0"
        );
        let refusal = verified(3, &text, &connected(3)).unwrap_err();
        assert!(refusal.cause.contains("64 B at 0x0 and 8 B at 0x28 overlap"), "{refusal}");
    }
}

#[test]
fn signals_hold_32_bits() {
    let capabilities = connected(3);
    let sums = |first: u32, second: u32| {
        let put = |value| vec![Instruction::put_signal(2, at(0), at(0), 0, 0, value)];
        let waits = vec![Instruction::wait_signal(0, first), Instruction::wait_signal(0, second)];
        verify(&ProgramSet::new([0, 1, 2], [put(first), put(second), waits]), &capabilities)
    };
    sums(u32::MAX - 1, 1).unwrap();
    let refusal = sums(u32::MAX - 1, 2).unwrap_err();
    assert_eq!(
        (refusal.rank, refusal.instruction, refusal.reason),
        (Some(1), Some(0), Reason::SignalOverflow),
        "{refusal}"
    );
}

#[test]
fn resident_programs_are_as_long_and_as_deep_as_a_card_stores() {
    let nop = Instruction::nop;
    let resident = |instructions: Vec<Instruction>| {
        let set = ProgramSet::new([0], [instructions]);
        verify_resident(&set, &[[0; 3]], &connected(1)).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(resident(vec![nop(); 256]), Ok(()));
    let long = "rank 0: has 257 instructions: a resident program has at most 256";
    assert_eq!(resident(vec![nop(); 257]), Err(long.to_owned()));
    // Loops one after another, and with something in between.
    let round = Instruction::repeat(2, 1);
    assert_eq!(resident(vec![round, nop(), round, nop(), nop(), round, nop()]), Ok(()));
    assert_eq!(resident(vec![Instruction::repeat(3, 2), nop(), nop()]), Ok(()));
    let nested = "rank 0, instruction 1: loop of 2 rounds and 1 instructions, with 2 instructions after it: expected \
                  rounds, a complete body, and no loop in it";
    assert_eq!(resident(vec![Instruction::repeat(2, 3), round, nop(), nop()]), Err(nested.to_owned()));
    let short = "rank 0, instruction 1: loop of 2 rounds and 2 instructions, with 1 instructions after it: expected \
                 rounds, a complete body, and no loop in it";
    assert_eq!(resident(vec![nop(), Instruction::repeat(2, 2), nop()]), Err(short.to_owned()));
    // Each instruction of a body is named by its own place.
    for wrong in 0..3 {
        let mut program = vec![nop(), Instruction::repeat(2, 3), nop(), nop(), nop()];
        program[2 + wrong] = Instruction::fill(at(9 << 30), 8, 0);
        let refusal = resident(program).unwrap_err();
        assert!(
            refusal.starts_with(&format!("rank 0, instruction {}: fill: 8 B at 0x240000000 exceed", 2 + wrong)),
            "{refusal}"
        );
    }
}

/// Only what a stored program of the same slot is there for is run in place.
#[test]
fn launches_of_other_slots_stay() {
    let store = Instruction::store(3, 0, 1);
    let launch = |slot| Instruction::launch(slot, [0; 3]);
    let run = |instructions: &[Instruction]| {
        let set = ProgramSet::new([0], [instructions.to_vec()]);
        verify_launches(&set, &[], &connected(1)).map_err(|it| (it.instruction, it.reason))
    };
    assert_eq!(run(&[launch(3)]), Err((Some(0), Reason::Stored)));
    assert_eq!(run(&[store, launch(3)]), Err((Some(1), Reason::Stored)), "what it stores is not known");
    // Verified alone, it may be anything.
    assert_eq!(first(&[store, launch(3)], &connected(4)), Ok(()));
}
