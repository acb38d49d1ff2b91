//! What sources mean, beside instructions made by hand.

use cmdseq::asm::{Assembly, Options, RankProgram, lint};
use cmdseq::{Flags, Instruction, Layout, Operand, Operation};

use super::{assemble_with, plain, raw_host};

fn programs(text: &str) -> Vec<RankProgram> {
    assemble_with(&[], text, &raw_host()).unwrap_or_else(|errors| panic!("{errors}")).assembly.programs
}

fn instructions(text: &str) -> Vec<Instruction> {
    programs(text).swap_remove(0).instructions
}

/// The number that an expression is, by way of a delay.
fn value(expression: &str) -> u64 {
    instructions(&format!("ranks 8\ndelay extent {expression}\n"))[0].extent
}

#[test]
fn expressions() {
    for (text, expected) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("2 * 3 % 4", 2),
        ("-1 + 2", 1),
        ("-7 / 2 + 4", 0),
        ("7 / -2 + 4", 1),
        ("-7 / -2", 4),
        ("-7 % -2 + 7 % -2", 2),
        ("(rank - 1) % ranks", 7),
        ("1 << 4 | 1", 17),
        ("6 & 3 ^ 1", 3),
        ("0xff >> 4", 15),
        ("1 + 1 == 2 and not 1 > 2", 1),
        ("not 1 == 2", 1),
        ("rank == 0 or 1 / rank", 1),
        ("ranks == 1 and 1 / 0", 0),
        ("min(3, 1, 2) + max(4, 5)", 6),
        ("4KiB / 1_024", 4),
        ("0xffff_ffff_ffff_ffff", u64::MAX),
        ("(1 << 64) - 1", u64::MAX),
        ("1 << 126 >> 126", 1),
        ("(0 - 1) << 127 >> 127 == 0 - 1 and (0 - 1) << 127 < 0 - (1 << 126)", 1),
        ("(0 - 1) << 127 == 0 - (1 << 126) - (1 << 126)", 1),
        ("0 << 127", 0),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn every_field_has_its_place() {
    let text = "
        ranks 4
        communicator odd = 7 of 1 .. ranks step 2, 0
        sendrecv communicator odd, root 1, peer 2, source 0x40 striped, destination card 0x80, bytes 64, tag 9, interrupt
        copy source host 0x1000 argument 2, destination 64, bytes 8
        fill destination 0, bytes 16, extent 0xaa
        launch source 1, destination 2, bytes 3, extent 4
        group communicator 3, source host 0, bytes 8, last
        barrier
    ";
    let first = &programs(text)[0];
    assert_eq!(first.communicators[0].members, [1, 3, 0]);
    let expected = [
        Instruction::sendrecv(2, 1, Operand::card(0x40).striped(), Operand::card(0x80), 64)
            .on(7)
            .with_tag(9)
            .with_flags(Flags::INTERRUPT),
        Instruction::copy(Operand::host(0x1000).plus_argument(2), Operand::card(64), 8),
        Instruction::fill(Operand::card(0), 16, 0xaa),
        Instruction::launch(4, [1, 2, 3]),
        Instruction::group(3, 0, 4).with_flags(Flags::LAST),
        Instruction::barrier(),
    ];
    assert_eq!(first.instructions, expected);
    assert!(programs(text)[2].communicators.is_empty(), "rank 2 is no member");
}

#[test]
fn the_loop_of_the_sequencer_is_a_word_before_its_body() {
    let text = "
        ranks 2
        communicator both = 33 of 1, 0
        before:
        repeat 3 + rank step -4KiB argument 2
          inside: broadcast communicator both, root 0, source 0 argument 2, destination 0x10000 argument 2, bytes 64
          if rank == 1
            for i in 0 .. 2
              delay extent i
            end
          end
        end
        repeat 2
          nop tag @inside - @before
        end
        loop count 65535, body 2, extent 1
        nop
        nop
        free communicator both, last
    ";
    let programs = programs(text);
    let step = Instruction { extent: 4096_u64.wrapping_neg(), extent_argument: Some(2), ..Instruction::repeat(4, 3) };
    let operand = |address| Operand::card(address).plus_argument(2);
    let expected = [
        step,
        Instruction::broadcast(0, operand(0), operand(0x10000), 64).on(33),
        Instruction::delay(0),
        Instruction::delay(1),
        Instruction::repeat(2, 1),
        Instruction::nop().with_tag(1),
        Instruction { extent: 1, ..Instruction::repeat(65_535, 2) },
        Instruction::nop(),
        Instruction::nop(),
        Instruction::free(33).with_flags(Flags::LAST),
    ];
    assert_eq!(programs[1].instructions, expected);
    assert_eq!(programs[0].instructions[0], Instruction { loop_count: 3, loop_body: 1, ..step });
}

#[test]
fn loops_and_branches_are_unrolled_for_each_rank() {
    let text = "
        ranks 3
        const root = 1
        buffer in = card at 0 size 192
        for i in 0 .. ranks
          if rank == root and i != root
            send peer i, source in + 64 * i, bytes 64, tag i
          else if rank == i and i != root
            recv peer root, destination in + 64 * i, bytes 64
          end
        end
        for i in 5 .. 5
          nop
        end
        for i in 0 .. 10 step 4
          delay extent i
        end
    ";
    let programs = programs(text);
    let counts: Vec<_> = programs.iter().map(|one| one.instructions.len()).collect();
    assert_eq!(counts, [4, 5, 4]);
    assert_eq!(programs[1].instructions[1], Instruction::send(2, Operand::card(128), 64).with_tag(2));
    assert_eq!(programs[2].instructions[0], Instruction::recv(1, Operand::card(128), 64));
    assert_eq!(programs[0].instructions[1..].iter().map(|one| one.extent).collect::<Vec<_>>(), [0, 4, 8]);
}

#[test]
fn buffers_lie_one_behind_the_other_and_host_buffers_are_bound_later() {
    let text = "
        ranks 1
        buffer a = card size 1
        buffer h = host size 64
        buffer b = card size 100 align 64
        buffer c = card at 2MiB size 4KiB striped
        const middle = b + 50
        copy source h + 8, destination middle + 14, bytes size(h) - 8
        copy source c, destination h, bytes address(c) - address(b) - 2MiB + 64
    ";
    let mut program = programs(text).swap_remove(0);
    let addresses: Vec<_> = program.buffers.iter().map(|one| one.address).collect();
    assert_eq!(addresses, [0, 0, 64, 2 << 20]);
    let bound = program.bound(|buffer| 0x10_0000 * buffer as u64).unwrap();
    assert_eq!(bound[0], Instruction::copy(Operand::host(0x10_0008), Operand::card(128), 56));
    assert_eq!(bound[1].destination, Operand::host(0x10_0000));
    program.instructions[0].source = Operand::card(0);
    assert!(program.bound(|_| 0).is_err());
}

#[test]
fn what_is_bound_ends_in_its_host_buffer() {
    let text = "
        ranks 2
        buffer h = host size 256
        if rank == 1
          copy source h, destination 0, bytes 256
          repeat 4 step 64 argument 2
            copy source 0, destination h argument 2, bytes 64
            copy source 64, destination h + 192, bytes 64
          end
          repeat 4 step -64 argument 2
            copy source h argument 2, destination 0, bytes 0
          end
          copy source h argument 2, destination 0, bytes 256
        end
    ";
    let program = programs(text).swap_remove(1);
    assert_eq!(program.bound(|_| 4096).unwrap()[2].destination.address, 4096);
    let refused = |change: &dyn Fn(&mut RankProgram), expected: &str| {
        let mut changed = program.clone();
        change(&mut changed);
        assert_eq!(changed.bound(|_| 4096).unwrap_err(), expected);
        let assembly = Assembly { ranks: 2, programs: vec![changed] };
        assert_eq!(assembly.check().unwrap_err(), expected);
    };
    refused(
        &|program| program.instructions[0].bytes = 257,
        "rank 1: instruction 0: the source, 257 B from byte 0 on, exceeds host buffer `h` of 256 B",
    );
    refused(
        &|program| program.instructions[1].loop_count = 5,
        "rank 1: instruction 2: the destination, 64 B from byte 256 on, exceeds host buffer `h` of 256 B",
    );
    refused(
        &|program| program.instructions[4].loop_count = 3,
        "rank 1: instruction 6: the source, 256 B from byte 64 on, exceeds host buffer `h` of 256 B",
    );
    refused(&|program| program.bindings.swap(0, 1), "rank 1: the bindings are not sorted");
}

#[test]
fn a_striped_buffer_makes_striped_operands() {
    let text = "ranks 2\nbuffer b = card at 0 size 4KiB striped\n\
                alltoall source b, destination b + 2KiB unstriped, bytes 64\n";
    let expected = Instruction::alltoall(Operand::card(0).striped(), Operand::card(2048), 64);
    assert_eq!(instructions(text), [expected]);
}

/// All operations on card memory, those with an element type or a window too.
#[test]
fn a_striped_buffer_is_in_blocks_for_operations_without_stripes() {
    for operation in Operation::ALL {
        let fields = operation.fields();
        let is_host = matches!(operation, Operation::Group | Operation::Store | Operation::Table);
        if is_host || !fields.source && !fields.destination {
            continue;
        }
        let text = format!("ranks 2\nbuffer s = card at 0x1000 size 4KiB striped\n{}", written(*operation, "s", "s"));
        let found = instructions(&text)[0];
        let mut striped = found;
        for (is_read, operand) in [(fields.source, &mut striped.source), (fields.destination, &mut striped.destination)]
        {
            operand.layout = if is_read { Layout::Striped } else { Layout::Block };
        }
        let mut block = striped;
        (block.source.layout, block.destination.layout) = (Layout::Block, Layout::Block);
        let expected = if striped.check_fields().is_ok() { striped } else { block };
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn labels_are_found_though_zeros_for_them_are_wrong() {
    for rounds in [999, 1000, 60_000] {
        let text = format!("ranks 2\nfor i in 0 .. {rounds}\n  nop tag @stop - i - 1\nend\nstop:\n");
        let assembled = plain(&text).unwrap();
        let tags: Vec<u16> = assembled.assembly.programs[1].instructions.iter().map(|one| one.tag).collect();
        assert_eq!(tags, (0..rounds).rev().collect::<Vec<u16>>());
    }
    // Other errors of the second run are found.
    let text = "ranks 2\nfor i in 0 .. 1000\n  nop tag @stop - i - 2\nend\nstop:\n";
    let errors = plain(text).map(drop).unwrap_err().to_string();
    assert!(errors.contains("invalid `tag` -1: expected 0 to 65535"), "{errors}");
}

#[test]
fn labels_are_indices_wherever_they_stand() {
    let text = "ranks 1\nstart: nop\ndelay extent @end - @start\nend:\n";
    assert_eq!(instructions(text)[1].extent, 2);
}

#[test]
fn files_are_included_relative_to_the_one_that_includes() {
    let files = [("lib/a.seq", "include \"b.seq\"\nconst a = b + 1"), ("lib/b.seq", "const b = 1")];
    let text = "ranks 1\ninclude \"lib/a.seq\"\ndelay extent a";
    let assembled = assemble_with(&files, text, &Options::default()).unwrap();
    assert_eq!(assembled.assembly.programs[0].instructions[0].extent, 2);
    assert_eq!(assembled.line(0, 0), Some(("main.seq", 3)));
    let said = assembled.diagnose(0, 0, "so").unwrap().to_string();
    assert_eq!(said, "main.seq:3:1: on rank 0: so\n3 | delay extent a\n  | ^^^^^");
}

#[test]
fn one_rank_alone_is_as_it_is_among_all() {
    let text = "ranks 5\ndelay extent rank + @end\nend:";
    let all = programs(text);
    for rank in 0..5 {
        let options = Options { only: Some(rank), ..Options::default() };
        let one = assemble_with(&[], text, &options).unwrap().assembly;
        assert_eq!((one.ranks, one.programs), (5, vec![all[rank as usize].clone()]));
    }
}

#[test]
fn addresses_in_host_memory_are_told_from_host_buffers() {
    let text = "ranks 2\nbuffer a = host size 8\ncopy source a, destination 0, bytes 8\n\
                if rank\ncopy source 8, destination host 0x1000, bytes 8\nend";
    let raw: Vec<Option<usize>> = programs(text).iter().map(RankProgram::raw_host).collect();
    assert_eq!(raw, [None, Some(1)]);
}

#[test]
fn tables_list_blocks() {
    let text = "ranks 4
const gap = 4KiB
blocks lengths = 2 of 64, 0, 32 at gap, 8
blocks each = 3 of (i + 1) * 64 at i * gap for i in 0 .. ranks
blocks mixed = 9 of 1KiB, rank for i in 0 .. 2, 5 at 0
scatterv root 1, source 0, destination 0x1000_0000, bytes 8, extent lengths
alltoallv source 0, destination 0x1000_0000, extent lengths | each << 16
";
    let programs = programs(text);
    let blocks = |slot: u16| -> Vec<(u64, u64)> {
        programs[3].tables[&slot].entries.iter().map(|entry| (entry.displacement, entry.bytes)).collect()
    };
    assert_eq!(blocks(2), [(0, 64), (64, 0), (4096, 32), (4128, 8)]);
    assert_eq!(blocks(3), [(0, 64), (4096, 128), (8192, 192), (12288, 256)]);
    assert_eq!(blocks(9), [(0, 1024), (1024, 3), (1027, 3), (0, 5)]);
    assert_eq!(programs[0].instructions[0].extent, 2);
    assert_eq!(programs[0].instructions[1].extent, 3 << 16 | 2);
}

#[test]
fn all_operations_can_be_written() {
    for operation in Operation::ALL {
        let is_host = matches!(operation, Operation::Group | Operation::Store | Operation::Table);
        let text = format!("ranks 2\n{}", written(*operation, if is_host { "host 64" } else { "64" }, "128"));
        assert_eq!(instructions(&text)[0].operation, *operation);
    }
}

/// A line of `operation` with all fields that it reads.
fn written(operation: Operation, source: &str, destination: &str) -> String {
    let fields = operation.fields();
    let (source, destination) = (format!("source {source}"), format!("destination {destination}"));
    let parts = [
        (fields.root, "root 1"),
        (fields.peer, "peer 1"),
        (fields.source, source.as_str()),
        (fields.destination, destination.as_str()),
        (fields.bytes, "bytes 64"),
        (fields.extent, if fields.combine { "extent 64" } else { "extent 1" }),
        (fields.communicator, "communicator 2"),
        (fields.combine, "element f32, reduction sum"),
        (fields.signal, "signal 3, value 1"),
        (fields.rounds, "count 5, body 2"),
        (fields.extent_argument, "extent_argument 2"),
        (fields.lane, "lane 1"),
        (fields.window, "window 3, key 0x1234_5678"),
        (fields.rights, "rights read_write"),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(is_read, _)| *is_read).map(|(_, text)| text).collect();
    format!("{operation} {}\n", parts.join(", "))
}

#[test]
fn warnings_name_what_is_probably_not_meant() {
    let text = "ranks 2
const unused = 1
buffer a = card at 0 size 128
buffer b = card at 64 size 128
buffer idle = host size 1
communicator both = 1 of 0, 1
here: send peer 1 - rank, source a + 64, bytes 128
recv peer 1 - rank, destination b, bytes 0, last
copy source a, destination a, bytes 8
if rank == 2
  nop
end
rdma_write peer 1 - rank, source a, destination b, bytes 8
";
    let mut none = |_: &str| Err(String::new());
    let warnings = lint("main.seq", text, &mut none, &Options::default()).unwrap();
    let found: Vec<_> = warnings.warnings.iter().map(|one| (one.check, one.diagnostic.line)).collect();
    let expected = [
        ("unused-constant", 2),
        ("overlapping-buffers", 4),
        ("unused-buffer", 5),
        ("unused-communicator", 6),
        ("unused-label", 7),
        ("past-buffer", 7),
        ("no-effect", 8),
        ("after-last", 9),
        ("in-place", 9),
        ("dead-branch", 10),
        ("no-barrier", 13),
    ];
    assert_eq!(found, expected);
    let past = "ranks 2\nbuffer a = card at 0 size 64\nallgather source a, destination 128, bytes 64\n\
                alltoall source a, destination 256, bytes 64\nif rank == 9\nelse\nend\n";
    let warnings = lint("main.seq", past, &mut none, &Options::default()).unwrap();
    let found: Vec<_> = warnings.warnings.iter().map(|one| (one.check, one.diagnostic.line)).collect();
    assert_eq!(found, [("past-buffer", 4), ("dead-branch", 5)]);
    let listed = "ranks 2\nbuffer a = card at 0 size 64\nbuffer b = card size 64\nblocks unused = 1 of 8, 8\n\
                  blocks used = 2 of 32, 33\nallgatherv source a, destination b, bytes 32 + rank, extent used\n\
                  put_signal peer 1 - rank, source a, destination b, bytes 0, signal 1, value 1\nwait_signal signal 1, value 1\n";
    let warnings = lint("main.seq", listed, &mut none, &Options::default()).unwrap();
    let found: Vec<_> = warnings.warnings.iter().map(|one| (one.check, one.diagnostic.line)).collect();
    assert_eq!(found, [("unused-table", 4), ("past-buffer", 6)]);
    let no_rounds = "ranks 2\nbarrier\nfor i in 0 .. 0\n  if rank == 0\n    nop\n  end\nend\n";
    let warnings = lint("main.seq", no_rounds, &mut none, &Options::default()).unwrap();
    let [warning] = warnings.warnings.as_slice() else { panic!("{warnings:?}") };
    assert_eq!((warning.check, warning.diagnostic.line), ("dead-branch", 4));
    assert!(
        warning.diagnostic.message.ends_with("or the loop around it has no rounds"),
        "{}",
        warning.diagnostic.message
    );
    let clean = "ranks 2\nbuffer a = card size 64\nbuffer b = card size 64\n\
                 sendrecv peer 1 - rank, root 1 - rank, source a, destination b, bytes 64\n";
    assert_eq!(lint("main.seq", clean, &mut none, &Options::default()).unwrap().warnings, []);
}

#[test]
fn operands_end_in_the_buffer_that_they_name() {
    let text = "ranks 2
buffer a = card at 0 size 64
buffer b = card at 64 size 64
buffer c = card at 0x1000 size 64 striped
fill destination a + 64, bytes 64, extent 1
fill destination a + 32, bytes 32, extent 1
fill bytes 64, destination a + 64, extent address(b)
fill destination 64, bytes 64, extent 1
copy destination a + 64, source b + 64, bytes 8
send peer 1 - rank, source c + 64, bytes 1
send peer 1 - rank, source c, bytes 64
alltoall source c, destination c + 8, bytes 64
fill destination a + 64, bytes 0, extent 1
fill destination b + 64 argument 0, bytes 64, extent 1
barrier
";
    let warnings = lint("main.seq", text, &mut |_: &str| Err(String::new()), &Options::default()).unwrap();
    let found: Vec<_> = warnings.warnings.iter().map(|one| (one.check, one.diagnostic.line)).collect();
    let past = |line| ("past-buffer", line);
    assert_eq!(found, [past(5), past(7), past(9), past(9), past(10), past(12), ("no-effect", 13)]);
    let message = "the destination of 64 B exceeds buffer `a`, which has 0 B left there";
    assert_eq!(warnings.warnings[0].diagnostic.message, message);
}

/// Of one instruction, each operand has its own warning, whichever rank has it first.
#[test]
fn each_operand_past_its_buffer_is_a_warning() {
    let both = "buffer a = card at 0 size 64\nbuffer b = card size 64\nalltoall source a, destination b, bytes 33\n";
    let ranks = "if rank == 0\nbuffer a = card at 0 size 32\nbuffer b = card at 0x1000 size 64\nelse\n\
                 buffer a = card at 0 size 64\nbuffer b = card at 0x1000 size 32\nend\n\
                 sendrecv peer 1 - rank, root 1 - rank, source a, destination b, bytes 64\n";
    let extent = "buffer a = card at 0 size 64\nbuffer b = card size 64\nbuffer c = card size 64\n\
                  fold source a, extent address(b) + 32, destination c, bytes 64, element u8, reduction sum\n";
    let argument = extent.replace("reduction sum", "reduction sum, extent_argument 1");
    for (text, expected) in [
        (both, &[(0, "source", 66), (0, "destination", 66)][..]),
        (ranks, &[(0, "source", 64), (1, "destination", 64)][..]),
        (extent, &[(0, "extent", 64)][..]),
        (&argument, &[][..]),
    ] {
        let options = Options { ranks: Some(2), ..Options::default() };
        let warnings = lint("main.seq", text, &mut |_: &str| Err(String::new()), &options).unwrap().warnings;
        assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
        for (warning, (rank, operand, bytes)) in warnings.iter().zip(expected) {
            assert_eq!((warning.check, warning.diagnostic.rank), ("past-buffer", Some(*rank)));
            let start = format!("the {operand} of {bytes} B exceeds buffer");
            assert!(warning.diagnostic.message.starts_with(&start), "{warning:?}");
        }
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let files = [("a.seq", "\u{feff}delay extent 1\n")];
    let options = Options { ranks: Some(1), ..Options::default() };
    let assembled = assemble_with(&files, "\u{feff}nop\ninclude \"a.seq\"\n", &options).unwrap();
    assert_eq!(assembled.assembly.programs[0].instructions.len(), 2);
    let errors = assemble_with(&[], "\u{feff}nop x\n\u{feff}nop\n", &options).unwrap_err().errors;
    let found: Vec<_> = errors.iter().map(|one| (one.line, one.column, one.source.as_str())).collect();
    assert_eq!(found, [(1, 5, "nop x"), (2, 1, "\u{feff}nop")]);
}
