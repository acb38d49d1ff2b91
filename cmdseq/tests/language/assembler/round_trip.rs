//! Random programs to text and to files, and back; random texts and bytes to anything but a panic.

use cmdseq::asm::{
    Assembly, Binding, Buffer, FileError, Limits, Options, RankProgram, Side, decode, disassemble, encode,
};
use cmdseq::instruction::takes_tables;
use cmdseq::plan::Communicator;
use cmdseq::reduction::Combine;
use cmdseq::table::{Entry, Table};
use cmdseq::{AddressSpace, Flags, Instruction, Layout, Operand, Operation};
use proptest::prelude::*;

use super::{assemble_with, plain, raw_host};

/// A whole assembler's worth of text, for all ranks of `assembly` or the one it is of.
fn again(assembly: &Assembly) -> Assembly {
    let text = disassemble(assembly);
    let only = match assembly.programs.as_slice() {
        [one] if assembly.ranks > 1 => Some(one.rank),
        _ => None,
    };
    let options = Options { only, ..raw_host() };
    assemble_with(&[], &text, &options).unwrap_or_else(|errors| panic!("{errors}\n{text}")).assembly
}

#[test]
fn many_different_ranks_come_back() {
    for (ranks, text) in [(1 << 16, "delay extent rank"), (7000, "delay extent rank / 3"), (40, "nop tag rank / 2")] {
        let assembly = plain(&format!("ranks {ranks}\n{text}\n")).unwrap().assembly;
        assert!(disassemble(&assembly).len() <= Limits::default().source_bytes);
        assert!(again(&assembly) == assembly, "{text} of {ranks} ranks");
    }
    // One rank of many alone, and a communicator of some.
    let options = Options { only: Some(4000), ..Options::default() };
    let alone = assemble_with(&[], "ranks 7000\nnop tag rank\n", &options).unwrap().assembly;
    assert_eq!(again(&alone), alone);
    assert_eq!(disassemble(&alone), "ranks 7000\nif rank == 4000\n  nop tag 4000\nend\n");
}

#[test]
fn equal_instructions_are_a_loop() {
    let text = "ranks 2\nbuffer i = card size 8\nfor n in 0 .. 60_000\n  barrier tag 1\nend\n\
                nop\nnop\nnop\nrepeat 2\nfor n in 0 .. 4\nbarrier\nend\nend\n";
    let assembly = plain(text).unwrap().assembly;
    assert_eq!(again(&assembly), assembly);
    let expected = "ranks 2\nbuffer i = card at 0x0 size 8\nfor i_ in 0 .. 60000\n  barrier tag 1\nend\n\
                    nop\nnop\nnop\nloop extent 0, count 2, body 4\nfor i_ in 0 .. 4\n  barrier\nend\n";
    assert_eq!(disassemble(&assembly), expected);
}

/// Numbers with the edges of their range.
fn wide() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0..1_u64 << 20, any::<u64>()]
}

fn short() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(u16::MAX), 0..8_u16, any::<u16>()]
}

fn operand() -> impl Strategy<Value = Operand> {
    (any::<bool>(), any::<bool>(), prop::option::of(0..3_u8), wide()).prop_map(|(host, striped, argument, address)| {
        let space = if host { AddressSpace::Host } else { AddressSpace::Card };
        let layout = if striped { Layout::Striped } else { Layout::Block };
        Operand { space, layout, argument, address }
    })
}

/// Leaves one form, of what switches compute, or none.
fn with_one_form(operation: Operation, flags: Flags, extent: u64) -> Flags {
    use Operation::{Allgather, Allreduce, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let forms = [Reduce, Allreduce, Broadcast, Scatter, Gather, Allgather, ReduceScatter];
    match (Flags::FORMS & flags).bits().is_power_of_two() && forms.contains(&operation) && extent == 0 {
        true => flags - (Flags::EAGER | Flags::RENDEZVOUS),
        false => flags - Flags::FORMS,
    }
}

/// Any instruction that a card could take: what an operation does not read or reach is made what it must be.
fn instruction() -> impl Strategy<Value = Instruction> {
    let numbers = (short(), short(), short(), short(), wide(), wide());
    (0..Operation::ALL.len(), numbers, 0..=Flags::all().bits(), operand(), operand()).prop_map(
        |(operation, (tag, communicator, root, peer, bytes, extent), flags, source, destination)| {
            let operation = Operation::ALL[operation];
            let fields = operation.fields();
            let mut flags = Flags::from_bits_truncate(flags);
            if flags.contains(Flags::EAGER | Flags::RENDEZVOUS) {
                flags -= Flags::EAGER;
            }
            flags = with_one_form(operation, flags, extent);
            let zero = Operand::card(0);
            let mut made = Instruction {
                tag,
                flags,
                communicator: if fields.communicator { communicator } else { 0 },
                root: if fields.root { root } else { 0 },
                peer: if fields.peer { peer } else { 0 },
                source: if fields.source { source } else { zero },
                destination: if fields.destination { destination } else { zero },
                bytes: if fields.bytes { bytes } else { 0 },
                extent: if fields.extent { extent } else { 0 },
                extent_argument: Some((extent % 3) as u8).filter(|_| fields.extent_argument && bytes % 2 == 0),
                signal_id: if fields.signal { root } else { 0 },
                signal_value: if fields.signal { bytes as u32 } else { 0 },
                loop_count: if fields.rounds { root } else { 0 },
                loop_body: if fields.rounds { peer } else { 0 },
                lane: if fields.lane { tag as u8 } else { 0 },
                ..Instruction::new(operation)
            };
            // Slot, rights and key of a window; a one-sided operation may name none.
            if fields.window && !(fields.peer && extent == 0) {
                let rights = if fields.rights { 1 + extent % 7 } else { 0 };
                made.extent = u64::from(root) | rights << 16 | (1 + extent % u64::from(u32::MAX)) << 32;
            }
            if fields.combine {
                let defined: Vec<Combine> = Combine::all().collect();
                let Combine { element, reduction } = defined[(extent % defined.len() as u64) as usize];
                (made.element, made.reduction) = (Some(element), Some(reduction));
                made.bytes -= made.bytes % element.bytes();
                made.extent -= made.extent % element.bytes();
            }
            // The nearest instruction with these numbers that is allowed.
            let host = |operand: Operand| Operand { space: AddressSpace::Host, ..operand };
            let card = |operand: Operand| Operand { space: AddressSpace::Card, ..operand };
            let changes: [fn(Operand) -> Operand; 3] = [
                |operand| operand,
                |operand| Operand { layout: Layout::Block, ..operand },
                |operand| Operand { layout: Layout::Block, argument: None, ..operand },
            ];
            for change in changes {
                for (a, b) in [(0, 0), (1, 1), (2, 1)] {
                    let space = |which: i32, operand: Operand, is_read: bool| match (which, is_read) {
                        (_, false) => zero,
                        (0, _) => operand,
                        (1, _) => card(operand),
                        _ => host(operand),
                    };
                    let candidate = Instruction {
                        source: space(a, change(made.source), fields.source),
                        destination: space(b, change(made.destination), fields.destination),
                        ..made
                    };
                    if candidate.check_fields().is_ok() {
                        return candidate;
                    }
                }
            }
            made.source = zero;
            made.destination = zero;
            made
        },
    )
}

fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
    let one = (any::<bool>(), any::<bool>(), 0..u64::MAX / 2, 1..u64::MAX / 2);
    prop::collection::vec(one, 0..4).prop_map(|all| {
        let named = |(index, (is_host, striped, address, bytes)): (usize, (bool, bool, u64, u64))| Buffer {
            name: ["in", "size", "communicator_1", "bytes"][index].to_owned(),
            space: if is_host { AddressSpace::Host } else { AddressSpace::Card },
            layout: if striped && !is_host { Layout::Striped } else { Layout::Block },
            address: if is_host { 0 } else { address },
            bytes,
        };
        all.into_iter().enumerate().map(named).collect()
    })
}

fn rank_program(rank: u32, ranks: u32) -> impl Strategy<Value = RankProgram> {
    let ids = prop::collection::btree_set(1..9_u16, 0..3);
    let members = prop::collection::btree_set(0..ranks, 0..ranks as usize);
    let words = prop::collection::vec(instruction(), 0..12);
    let table = prop::collection::vec((0..u64::MAX / 2, 0..u64::MAX / 2), 1..5);
    let tables = prop::collection::btree_map(prop_oneof![0..4_u16, any::<u16>()], table, 0..3);
    (words, buffers(), ids, members, tables, any::<u64>()).prop_map(
        move |(instructions, buffers, ids, mut members, tables, mut seed)| {
            members.insert(rank);
            let mut program = RankProgram { rank, instructions, buffers, ..RankProgram::default() };
            let entry = |(displacement, bytes)| Entry { displacement, bytes };
            let table = |entries: Vec<(u64, u64)>| Table { entries: entries.into_iter().map(entry).collect() };
            program.tables = tables.into_iter().map(|(slot, entries)| (slot, table(entries))).collect();
            // Some vector forms use them.
            for instruction in program.instructions.iter_mut().filter(|one| takes_tables(one.operation)) {
                let pick =
                    |bits: u64| program.tables.keys().nth(bits as usize % 3).map_or(bits % 8, |slot| u64::from(*slot));
                instruction.extent = match instruction.operation {
                    Operation::Alltoallv => pick(seed) | pick(seed >> 8) << 16,
                    _ => pick(seed),
                };
            }
            let mut members: Vec<u32> = members.into_iter().collect();
            for id in ids {
                program.communicators.push(Communicator { id, members: members.clone() });
                members.rotate_left(1);
            }
            let hosts: Vec<usize> = (0..program.buffers.len())
                .filter(|index| program.buffers[*index].space == AddressSpace::Host)
                .collect();
            let is_moved = program.instructions.iter().any(|one| one.operation == Operation::Loop);
            for index in 0..program.instructions.len() {
                for side in [Side::Source, Side::Destination] {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let instruction = &mut program.instructions[index];
                    let bytes = instruction.bytes;
                    let operand = side.operand_mut(instruction);
                    if operand.space == AddressSpace::Host && !hosts.is_empty() && seed >> 63 == 1 {
                        let buffer = hosts[(seed >> 32) as usize % hosts.len()];
                        let size = program.buffers[buffer].bytes;
                        operand.address %= size + 1;
                        operand.argument = operand.argument.filter(|_| !is_moved);
                        // It ends in its buffer, too.
                        instruction.bytes = bytes.min(size - operand.address);
                        let (instruction, buffer) = (index as u32, buffer as u32);
                        program.bindings.push(Binding { instruction, side, buffer });
                    }
                }
            }
            program
        },
    )
}

fn assembly() -> impl Strategy<Value = Assembly> {
    (1..6_u32).prop_flat_map(|ranks| {
        let programs: Vec<_> = (0..ranks).map(|rank| rank_program(rank, ranks)).collect();
        (programs, any::<bool>(), 0..ranks, any::<bool>()).prop_map(move |(mut programs, alike, only, alone)| {
            if alike {
                // Neighbours that run the same share a branch.
                for rank in 1..programs.len() {
                    let before = RankProgram { rank: rank as u32, ..programs[rank - 1].clone() };
                    let of = |one: &Communicator| one.members.contains(&(rank as u32));
                    if before.communicators.iter().all(of) {
                        programs[rank] = before;
                    }
                }
            }
            if alone {
                programs = vec![programs.swap_remove(only as usize)];
            }
            Assembly { ranks, programs }
        })
    })
}

/// The text of two programs of four ranks would be that of four programs.
#[test]
fn a_file_is_of_all_ranks_or_of_one() {
    let all = assemble_with(&[], "ranks 4\nnop tag rank\n", &Options::default()).unwrap().assembly;
    for count in 0..=4 {
        let some = Assembly { ranks: 4, programs: all.programs[..count].to_vec() };
        let read = decode(&encode(&some));
        match count {
            1 | 4 => assert_eq!((again(&some), read), (some.clone(), Ok(some))),
            _ => {
                let cause = format!("{count} programs for 4 ranks: expected one, or one for each rank");
                assert_eq!(read, Err(FileError::Parts(cause)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn disassembled_programs_assemble_to_the_same(assembly in assembly()) {
        prop_assert_eq!(assembly.check(), Ok(()));
        let back = again(&assembly);
        prop_assert_eq!(&back, &assembly);
        prop_assert_eq!(disassemble(&back), disassemble(&assembly));
        let words = |assembly: &Assembly| -> Vec<[u8; 64]> {
            assembly.programs.iter().flat_map(|one| &one.instructions).map(Instruction::encode).collect()
        };
        prop_assert_eq!(words(&back), words(&assembly));
        for word in words(&assembly) {
            prop_assert!(Instruction::decode(&word).is_ok());
        }
    }

    #[test]
    fn files_hold_what_was_put_in(assembly in assembly()) {
        let bytes = encode(&assembly);
        prop_assert_eq!(decode(&bytes), Ok(assembly));
    }

    /// Any change of a file is refused, whatever the checksum says.
    #[test]
    fn a_changed_file_is_refused_or_means_what_it_says(
        assembly in assembly(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        is_sealed in any::<bool>(),
    ) {
        let mut bytes = encode(&assembly);
        prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        let before = std::mem::replace(&mut bytes[at], to);
        if is_sealed {
            let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..28]), &bytes[32..]);
            bytes[28..32].copy_from_slice(&sum.to_le_bytes());
        }
        match decode(&bytes) {
            Ok(read) => {
                prop_assert!(before == to || is_sealed);
                prop_assert_eq!(encode(&read), bytes);
                prop_assert_eq!(read.check(), Ok(()));
            }
            Err(_) => prop_assert!(before != to),
        }
    }

    #[test]
    fn words_in_any_order_are_assembled_or_refused(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..60),
    ) {
        let limits = Limits { steps: 2000, instructions: 100, ..Limits::default() };
        let options = Options { ranks: Some(3), limits, ..raw_host() };
        match assemble_with(&[], &words.join(" ").replace(" \n ", "\n"), &options) {
            Ok(assembled) => {
                prop_assert_eq!(assembled.assembly.check(), Ok(()));
                prop_assert_eq!(again(&assembled.assembly), assembled.assembly);
            }
            Err(errors) => prop_assert!(!errors.errors.is_empty()),
        }
    }
}

const WORDS: &[&str] = &[
    "\n",
    "\n",
    "\n",
    "send",
    "nop",
    "delay",
    "copy",
    "barrier",
    "peer",
    "source",
    "destination",
    "bytes",
    "extent",
    "tag",
    "eager",
    "lane",
    "fence",
    "last",
    ",",
    ",",
    "1",
    "0",
    "64",
    "4KiB",
    "rank",
    "ranks",
    "+",
    "-",
    "*",
    "/",
    "%",
    "(",
    ")",
    "<<",
    "and",
    "not",
    "==",
    "<",
    "const",
    "buffer",
    "communicator",
    "for",
    "if",
    "else",
    "end",
    "end",
    "in",
    "..",
    "step",
    "a",
    "b",
    "i",
    "=",
    ":",
    "@",
    "host",
    "card",
    "size",
    "at",
    "striped",
    "argument",
    "of",
    "assert",
    "\"x\"",
    "include",
    "min",
    "#",
];
