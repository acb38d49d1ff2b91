//! Wrong sources, and what is said about each: `expected/wrong.txt`, written anew with UPDATE=1 in the environment.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cmdseq::asm::{Diagnostic, Limits, Options, lint};

use super::{assemble_with, plain};

const FILES: &[(&str, &str)] = &[
    ("self.seq", "include \"self.seq\"\n"),
    ("one.seq", "include \"two.seq\"\n"),
    ("two.seq", "nop\ninclude \"one.seq\"\n"),
    ("bad.seq", "# fine\n  send peer 1\n"),
    ("open.seq", "if rank\n"),
];

/// Name, source. Where nothing else is said, it is for four ranks.
const WRONG: &[(&str, &str)] = &[
    ("unknown operation", "sned peer 1, source 0, bytes 64"),
    ("no operation", "1 + 2"),
    ("unknown field", "send peer 1, sorce 0, bytes 64"),
    ("unknown field like one of another operation", "barrier roof 1\nnop bad\nbarrier bytex 1"),
    ("field of another operation", "send peer 1, root 2, source 0, bytes 64"),
    ("missing fields", "send peer 1"),
    ("field twice", "delay extent 1, extent 2"),
    ("flag twice", "nop last, last"),
    ("tag twice", "nop tag 1, tag 2"),
    ("no comma", "send peer 1 source 0, bytes 64"),
    ("comma at the end", "nop tag 1,"),
    ("eager and rendezvous", "send peer 1, source 0, bytes 64, eager, rendezvous"),
    ("form of send", "send peer 1, source 0, bytes 64, tree"),
    ("two forms", "broadcast root 0, source 0, destination 64, bytes 64, tree, ring"),
    ("form and rendezvous", "broadcast root 0, source 0, destination 64, bytes 64, tree, rendezvous"),
    ("peer too large", "send peer 65536, source 0, bytes 64"),
    ("negative peer on one rank", "send peer rank - 1, source 0, bytes 64"),
    ("negative bytes", "fill destination 0, bytes -8, extent 0"),
    ("tag too large", "nop tag 1 << 16"),
    ("address too large", "fill destination 1 << 64, bytes 8, extent 0"),
    ("host memory for send", "send peer 1, source host 0, bytes 64"),
    ("card memory for group", "group communicator 1, source 0, bytes 8"),
    ("an address in host memory", "copy source host 0x1000, destination 0, bytes 64"),
    ("an address in host memory that is stored", "store source host 4KiB, bytes 64, extent 0"),
    ("host memory for the destination", "recv peer 1, destination host 0, bytes 64"),
    ("stripes of copy", "copy source 0 striped, destination 64, bytes 8"),
    ("stripes of fold", "fold source 0, destination 128 striped, extent 64, bytes 64, element f32, reduction sum"),
    ("argument of launch", "launch source 0 argument 1, destination 0, bytes 0, extent 0"),
    ("argument that is none", "copy source 0 argument 3, destination 64, bytes 8"),
    (
        "argument of launch in a striped buffer",
        "buffer s = card size 4KiB striped\nlaunch source s argument 1, destination 0, bytes 0, extent 0",
    ),
    (
        "bytes that are no whole elements",
        "allreduce source 0 striped, destination 0x1000_0000 argument 0, bytes 3, element f32, reduction sum",
    ),
    ("number with letters", "delay extent 12ab"),
    ("number too large", "delay extent 0x1_0000_0000_0000_0000"),
    ("unit of hexadecimal", "delay extent 0x10KiB"),
    ("text without end", "include \"a.seq"),
    ("sign without meaning", "delay extent 1 ? 2"),
    ("value missing", "delay extent"),
    ("operand missing", "delay extent 1 +"),
    ("parenthesis open", "delay extent (1 + 2"),
    ("parenthesis closed", "delay extent 1)"),
    ("division by zero", "delay extent 1 / (ranks - 4)"),
    ("remainder of zero", "delay extent 1 % 0"),
    ("shift too far", "delay extent 1 << 128"),
    ("negative shift", "delay extent 1 >> -1"),
    ("shift of a bit out of the number", "assert (1 << 127) % 2 == 0, \"x\""),
    ("product too large", "delay extent (1 << 100) * (1 << 100)"),
    ("unknown name", "const blocks = 4\ndelay extent block"),
    ("name used before", "delay extent later\nconst later = 1"),
    ("name twice", "const a = 1\nconst a = 2"),
    ("name of a loop twice", "for i in 0 .. 2\nfor i in 0 .. 2\nend\nend"),
    ("reserved name", "const rank = 1"),
    ("name missing", "const = 1"),
    ("constant without value", "const a 1"),
    ("unknown function", "delay extent mix(1, 2)"),
    ("too few arguments", "delay extent min(1)"),
    ("too many arguments", "buffer a = card size 8\ndelay extent size(a, a)"),
    ("size of a number", "delay extent size(4)"),
    ("address of a host buffer", "buffer h = host size 8\ndelay extent address(h)"),
    ("buffer as a number", "buffer a = card size 8\ndelay extent a"),
    ("buffer times two", "buffer a = card size 8\nfill destination a * 2, bytes 8, extent 0"),
    ("behind a buffer", "buffer a = card size 8\nfill destination a + 9, bytes 8, extent 0"),
    ("before a buffer", "buffer a = card size 8\nfill destination a - 1, bytes 8, extent 0"),
    ("end past a host buffer", "buffer h = host size 64\ncopy source 0, destination h + 32, bytes 33"),
    (
        "host buffer read past its end",
        "buffer h = host size 64\nbuffer g = host size 64\ncopy source h, destination g, bytes 65",
    ),
    ("group past a host buffer", "buffer h = host size 6\ngroup communicator 1, source h, bytes 8"),
    ("store past a host buffer", "buffer h = host size 64\nstore source h, bytes 128, extent 0"),
    ("table past a host buffer", "buffer h = host size 63\ntable source h, bytes 64, extent 0"),
    (
        "loop past a host buffer",
        "buffer h = host size 256\nrepeat 5 step 64 argument 1\ncopy source 0, destination h argument 1, bytes 64\nend",
    ),
    (
        "loop before a host buffer",
        "buffer h = host size 256\nrepeat 2 step -64 argument 1\ncopy source 0, destination h argument 1, bytes 64\nend",
    ),
    (
        "behind a loop past a host buffer",
        "buffer h = host size 256\nrepeat 4 step 64 argument 1\nnop\nend\ncopy source h argument 1, destination 0, bytes 1",
    ),
    ("space of a buffer", "buffer a = card size 8\nfill destination card a, bytes 8, extent 0"),
    ("buffer without size", "buffer a = card at 0"),
    ("buffer of nothing", "buffer a = card size 0"),
    ("buffer nowhere", "buffer a = disk size 8"),
    ("buffer past the end", "buffer a = card at 0xffff_ffff_ffff_fff0 size 32"),
    ("host buffer with an address", "buffer h = host at 0 size 8"),
    ("striped host buffer", "buffer h = host size 8 striped"),
    ("unaligned buffer", "buffer a = card at 100 size 8 align 64"),
    ("alignment of nothing", "buffer a = card size 8 align 0"),
    ("word behind a buffer", "buffer a = card size 8 stripd"),
    ("buffer in a loop", "for i in 0 .. 2\nbuffer a = card size 8\nend"),
    ("communicator 0", "communicator c = 0 of 1"),
    ("member that is none", "communicator c = 1 of 3, 4"),
    ("member twice", "communicator c = 1 of 0 .. 3, 1"),
    ("no members", "communicator c = 1 of 3 .. 3"),
    ("id twice", "communicator c = 1 of 0, 1\ncommunicator d = 1 of 1, 2"),
    ("communicator without members", "communicator c = 1"),
    ("table in a loop", "for i in 0 .. 2\nblocks b = 0 of 8\nend"),
    ("table without blocks", "blocks b = 0 of 8 for i in 3 .. 3"),
    ("table without slot", "blocks b = of 8"),
    ("slot twice", "blocks b = 1 of 8\nblocks c = 1 of 8"),
    ("slot too large", "blocks b = 1 << 16 of 8"),
    ("negative length", "blocks b = 1 of rank - 1"),
    ("blocks past all memory", "blocks b = 1 of 1, 8 at 0xffff_ffff_ffff_ffff"),
    ("too many blocks", "blocks b = 1 of 8 for i in 0 .. 1 << 40"),
    ("name of a block's loop", "const i = 1\nblocks b = 1 of i for i in 0 .. 3"),
    ("signal without value", "wait_signal signal 3"),
    ("value too large", "wait_signal signal 3, value 1 << 32"),
    ("step of nothing", "for i in 0 .. 4 step 0\nend"),
    ("loop without range", "for i in 4\nend"),
    ("loop without end", "for i in 0 .. 4\nnop"),
    ("repeat without end", "repeat 4\nnop"),
    ("repeat without count", "repeat\nnop\nend"),
    ("repeat of no round", "repeat ranks - 4\nnop\nend"),
    ("repeat of too many rounds", "repeat 65536\nnop\nend"),
    ("repeat of nothing", "repeat 4\nif rank > 2\nnop\nend\nend"),
    ("repeat inside of repeat", "repeat 4\nfor i in 0 .. 2\nrepeat 2\nnop\nend\nend\nend"),
    ("repeat around a loop", "repeat 4\nloop count 2, body 1, extent 0\nnop\nend"),
    ("close with key 0", "close window 0, key 0"),
    ("open with key 0", "open destination 0, bytes 64, window 0, key 1 - 1, rights read"),
    ("window without key", "rdma_read peer 1, source 0, destination 64, bytes 8, window 3"),
    ("window with key 0", "rdma_read peer 1, source 0, destination 64, bytes 8, window 3, key 0"),
    ("repeat with half a step", "repeat 4 step 64\nnop\nend"),
    ("repeat that steps too far", "repeat 4 step 1 << 64 argument 0\nnop\nend"),
    ("repeat of an argument that is none", "repeat 4 step 64 argument 3\nnop\nend"),
    ("sign without meaning in a head", "for i in 0..$3\nbarrier\nend"),
    ("number too large in a head", "repeat 2 step 18446744073709551616 argument 1\nnop\nend"),
    ("free of a rank", "free communicator 1, root 0"),
    ("end of nothing", "nop\nend"),
    ("else of nothing", "else"),
    ("else twice", "if rank\nelse\nelse\nend"),
    ("if without condition", "if\nend"),
    ("letter without meaning in a condition", "if rank == 0é\nnop\nelse\nnop\nend"),
    ("sign without meaning behind else", "a: if rank\nelse if rank ? 2\nelse\nend"),
    ("word behind end", "if rank\nnop\nend if"),
    ("sign without meaning behind end", "if rank\nnop\nend ?"),
    ("if and else without end", "if rank\nnop\nelse\nnop"),
    ("if and several else without end", "nop\na: if rank\nelse if ranks\nelse\nfor i in 0 .. 2\nend"),
    ("blocks around else without end", "for i in 0 .. 2\nrepeat 2\nif rank\nelse\nend"),
    ("label twice", "a: nop\na: nop"),
    ("label in a loop", "for i in 0 .. 2\na: nop\nend"),
    ("label of a block in a loop", "for i in 0 .. 2\na: if rank\nnop\nend\nend"),
    ("unknown label", "start: delay extent @stat"),
    ("label outside of fields", "a: nop\nconst b = @a"),
    ("assertion", "assert ranks > 4, \"it takes at least five ranks\""),
    ("assertion without sentence", "assert ranks > 4"),
    ("two statements", "nop nop"),
    ("other number of ranks", "ranks 4\nranks 8"),
    ("include without quotes", "include a.seq"),
    ("include of nothing", "include \"none.seq\""),
    ("include outside", "include \"../../etc/passwd\""),
    ("include absolute", "include \"/etc/passwd\""),
    ("include of itself", "include \"self.seq\""),
    ("include in a circle", "include \"one.seq\""),
    ("wrong in an included file", "include \"bad.seq\""),
    ("open in an included file", "include \"open.seq\"\nend"),
    ("several", "sned 1\nsend peer 1\ndelay extent 1 +\nnop"),
    ("several on ranks", "delay extent rank - 1\ndelay extent 1 - rank\ndelay extent 1 / (rank - 2)\ndelay extent -1"),
    ("tabs", "\tdelay\textent\tx"),
];

#[test]
fn wrong_sources_are_refused_in_sentences() {
    assert!(WRONG.len() >= 30);
    let mut printed = String::new();
    for (name, source) in WRONG {
        let text = format!("{source}\n");
        let ranks = if text.contains("ranks 4\n") { None } else { Some(4) };
        let options = Options { ranks, ..Options::default() };
        let errors = assemble_with(FILES, &text, &options).map(drop).expect_err(name);
        assert!(errors.errors.iter().all(|error| error.line > 0 && error.column > 0 && !error.message.is_empty()));
        let _ = writeln!(printed, "== {name}\n{errors}\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/language/assembler/expected/wrong.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, printed).unwrap();
    } else {
        let expected = std::fs::read_to_string(&path).unwrap();
        let (found, wanted): (Vec<_>, Vec<_>) = (printed.split("== ").collect(), expected.split("== ").collect());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found, wanted, "UPDATE=1 writes {} anew", path.display());
        }
        assert_eq!(found.len(), wanted.len(), "UPDATE=1 writes {} anew", path.display());
    }
}

fn refused(text: &str, options: &Options) -> String {
    assemble_with(FILES, text, options).map(drop).expect_err(text).to_string()
}

#[test]
fn the_number_of_ranks_must_be_known() {
    assert!(plain("nop").unwrap_err().to_string().contains("number of ranks"));
    assert!(plain("ranks 0\nnop").unwrap_err().to_string().contains("1 to 65536"));
    assert!(plain("ranks ranks\nnop").unwrap_err().to_string().contains("numbers only"));
    let only = Options { ranks: Some(2), only: Some(2), ..Options::default() };
    assert!(refused("nop", &only).contains("no rank 2"));
    let other = Options { ranks: Some(2), ..Options::default() };
    assert!(refused("ranks 4\nnop", &other).contains("for 4 ranks, but is assembled for 2"));
}

#[test]
fn nothing_takes_for_ever() {
    let limits = Limits {
        source_bytes: 1000,
        files: 3,
        include_depth: 2,
        instructions: 10,
        all_instructions: 15,
        steps: 1000,
        values: 3000,
        buffers: 4,
        entries: 10,
        errors: 3,
        warnings: 2,
    };
    let options = Options { ranks: Some(2), limits, ..Options::default() };
    assert!(refused("for i in 0 .. 1 << 100\nend", &options).contains("steps"));
    assert!(refused("for i in 0 .. 11\nnop\nend", &options).contains("more than 10 instructions"));
    assert!(refused("for i in 0 .. 8\nnop\nend", &options).contains("15 instructions together"));
    assert!(refused(&"#".repeat(1001), &options).contains("longer than 1000 B"));
    assert!(refused("communicator c = 1 of 0 .. 2\nfor i in 0..1<<90\nend", &options).contains("limit steps"));
    let sum = format!("for i in 0 .. 200\nconst a = i{}\nend", " + i".repeat(20));
    assert!(refused(&sum, &options).contains("limit values"));
    let buffers: String = (0..3).map(|number| format!("buffer b{number} = card size 1\n")).collect();
    assert!(refused(&buffers, &options).contains("limit buffers"));
    assert!(refused("blocks b = 0 of 1 for i in 0 .. 6", &options).contains("limit entries"));
    let communicators: String = (1..4).map(|id| format!("communicator c{id} = {id} of 0, 1\n")).collect();
    assert!(refused(&communicators, &options).contains("limit entries"));
    let many = refused(&"x\n".repeat(20), &options);
    assert!(many.ends_with("and 17 more"), "{many}");
    let fan = [("a.seq", "include \"b.seq\"\ninclude \"b.seq\""), ("b.seq", "include \"c.seq\""), ("c.seq", "")];
    let errors = assemble_with(&fan, "include \"a.seq\"", &options).unwrap_err().to_string();
    assert!(errors.contains("2 levels") || errors.contains("3 files"), "{errors}");
    let deep = Options { limits: Limits { include_depth: 9, ..options.limits.clone() }, ..options.clone() };
    let errors = assemble_with(&fan, "include \"a.seq\"", &deep).unwrap_err().to_string();
    assert!(errors.contains("too many includes: at most 3 files (limit files)"), "{errors}");
    let half = "#".repeat(600);
    let errors = assemble_with(&[("a.seq", &half)], &format!("{half}\ninclude \"a.seq\""), &options).unwrap_err();
    assert!(errors.to_string().contains("longer than 1000 B (limit source_bytes)"), "{errors}");
    // Blocks that never end are neither kept nor searched: 65 of them count.
    let options = Options { ranks: Some(2), limits: Limits { errors: 100, ..Limits::default() }, ..Options::default() };
    for line in ["a:\n", "buffer b = card size 1\n"] {
        let text = "if rank\n".repeat(200_000) + &line.repeat(200_000);
        assert_short(line, || {
            let errors = assemble_with(&[], &text, &options).map(drop).unwrap_err();
            assert_eq!((errors.errors.len(), errors.more, errors.is_partial), (65, 0, false));
            assert!(errors.errors[..64].iter().all(|one| one.message == "`if` without `end`"), "{errors}");
            let deep = &errors.errors[64];
            assert_eq!((deep.line, deep.message.as_str()), (65, "blocks nested too deeply: at most 64 levels"));
        });
    }
}

#[test]
fn errors_are_counted_past_their_limit() {
    let counted = |ranks: u32, line: &str, lines: usize| {
        let options = Options { ranks: Some(ranks), ..Options::default() };
        let errors = assemble_with(&[], &format!("{line}\n").repeat(lines), &options).map(drop).unwrap_err();
        assert_eq!(errors.errors.len(), 20);
        errors
    };
    let foo = counted(2, "foo", 30);
    assert_eq!((foo.more, foo.is_partial), (10, false));
    assert!(foo.to_string().ends_with("\nand 10 more"));
    for line in ["foo", "nop tag q"] {
        let many = counted(2, line, 3000);
        assert_eq!((many.more, many.is_partial), (980, true), "{line}");
        assert!(many.to_string().ends_with("\nand at least 980 more"));
    }
    // Each rank has fewer than 1000, so both are searched to the end.
    let each = |name: &str| format!("nop tag {name}\n").repeat(900);
    let text = format!("ranks 2\nif rank == 0\n{}else\n{}end\n", each("q"), each("r"));
    let both = plain(&text).map(drop).unwrap_err();
    assert_eq!((both.errors.len(), both.more, both.is_partial), (20, 1780, false));
    // A place counts once: the search ends in a loop, with one error to report.
    let round = plain("ranks 2\nfor i in 0 .. 3000\nnop tag q\nend\n").map(drop).unwrap_err();
    assert_eq!((round.errors.len(), round.more, round.is_partial), (1, 0, true));
    // On all ranks, whether or not all of them are evaluated.
    for (ranks, is_partial) in [(1, false), (4, false), (64, true)] {
        let alike = counted(ranks, "nop tag q", 21);
        assert_eq!((alike.more, alike.is_partial), (1, is_partial));
        assert!(alike.errors.iter().all(|error| error.rank.is_none()), "{alike}");
    }
    let some = counted(4, "nop tag 1 - rank", 21);
    assert!(some.errors.iter().all(|error| error.rank == Some(2)), "{some}");
}

#[test]
fn warnings_are_counted_past_their_limit() {
    let limits = Limits { warnings: 2, ..Limits::default() };
    let options = Options { ranks: Some(2), limits, ..Options::default() };
    let text: String = (0..5).map(|number| format!("const c{number} = 1\n")).collect();
    let found = lint("main.seq", &(text + "barrier\n"), &mut |_: &str| Err(String::new()), &options).unwrap();
    let lines: Vec<u32> = found.warnings.iter().map(|one| one.diagnostic.line).collect();
    assert_eq!((lines, found.more), (vec![1, 2], 3));
}

/// Far more than any of this takes, and far less than a search for each name, warning or instruction through all others.
const LONG: Duration = Duration::from_secs(60);

fn assert_short(what: &str, run: impl FnOnce()) {
    let started = Instant::now();
    run();
    assert!(started.elapsed() < LONG, "{what}: {:?}", started.elapsed());
}

#[test]
fn hints_are_made_only_for_what_is_reported() {
    let long = |number: u32| format!("n{number:0>63}");
    let mut text: String = (0..8000).map(|number| format!("const {} = 1\n", long(number))).collect();
    text.extend((8000..9000).map(|number| format!("delay extent {}\n", long(100 * number))));
    let options = Options { ranks: Some(1000), ..Options::default() };
    assert_short("hints", || {
        let errors = assemble_with(&[], &text, &options).map(drop).unwrap_err();
        assert_eq!((errors.errors.len(), errors.more, errors.is_partial), (20, 980, true));
        assert!(errors.errors[0].message.contains("; did you mean `n0"), "{errors}");
    });
}

#[test]
fn names_that_come_later_or_are_other_things_are_no_hints() {
    let text = "ranks 2\nbuffer table = card size 1\ndelay extent tabel\ndelay extent later\nconst latr = 1\n\
                send peer 1 - rank, source table, bytes 1, tag @tabl\ntabla: nop\nif rank == 0\nconst mine = 1\nend\n\
                delay extent mine";
    let errors = plain(text).map(drop).unwrap_err();
    let hints: Vec<Option<&str>> =
        errors.errors.iter().map(|one| one.message.split_once("; ").map(|it| it.1)).collect();
    let expected = [Some("did you mean `table`?"), None, Some("did you mean `tabla`?"), None];
    assert_eq!(hints, expected, "{errors}");
}

/// Many buffers and many instructions: neither is looked for among all of the other.
#[test]
fn looking_for_warnings_is_linear() {
    let mut text: String = (0..20_000).map(|number| format!("buffer b{number} = card size 64\n")).collect();
    text += "for i in 0 .. 60000\nsend peer 1 - rank, source b19999, bytes 65\nend\n";
    let options = Options { ranks: Some(2), ..Options::default() };
    assert_short("warnings", || {
        let found = lint("main.seq", &text, &mut |_: &str| Err(String::new()), &options).unwrap();
        assert_eq!((found.warnings.len(), found.more), (100, 19_900));
    });
}

#[test]
fn blocks_nested_too_deeply_are_one_error() {
    for inner in [
        "if rank\nfor i in 0 .. 2\nnop\nend\nelse if ranks\nnop\nelse\nrepeat 2\nnop\nend\nend\n",
        "for i in 0 .. 2\nif rank\nrepeat 2\nnop\nend\nelse if ranks\nnop\nelse\nnop\nend\nend\nelse\nnop\n",
    ] {
        let text = format!("{}{inner}{}", "if rank\n".repeat(64), "end\n".repeat(64));
        let options = Options { ranks: Some(2), ..Options::default() };
        let errors = assemble_with(&[], &text, &options).map(drop).unwrap_err();
        let found: Vec<_> = errors.errors.iter().map(|error| (error.line, error.message.as_str())).collect();
        assert_eq!(found, [(65, "blocks nested too deeply: at most 64 levels")], "{inner}");
    }
}

/// Files `1.seq`, `2.seq` and so on, each of which includes the next within `blocks` blocks; the last one has the text `last` there.
fn nested_files(files: usize, blocks: usize, last: &str) -> Vec<(String, String)> {
    let (open, close) = ("if 1\n".repeat(blocks), "end\n".repeat(blocks));
    let file = |number: usize| {
        let inner = if number < files { format!("include \"{}.seq\"\n", number + 1) } else { last.to_owned() };
        (format!("{number}.seq"), format!("{open}{inner}{close}"))
    };
    (1..=files).map(file).collect()
}

#[test]
fn includes_and_blocks_have_limits_of_their_own() {
    let assembled = |files: usize, blocks: usize, last: &str, include_depth: usize| {
        let limits = Limits { include_depth, ..Limits::default() };
        let options = Options { ranks: Some(2), limits, ..Options::default() };
        let files = nested_files(files, blocks, last);
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let errors = assemble_with(&files, "include \"1.seq\"\n", &options).map(drop);
        errors.map_err(|errors| {
            let place = |one: &Diagnostic| format!("{}:{}: {}", one.file, one.line, one.message);
            errors.errors.iter().map(place).collect::<Vec<String>>().join("\n")
        })
    };
    let refused = |message: &str| Err(message.to_owned());
    assert_eq!(assembled(16, 4, "nop\n", 16), Ok(()));
    assert_eq!(assembled(2, 32, "nop\n", 16), Ok(()));
    let too_many_blocks = refused("16.seq:5: blocks nested too deeply: at most 64 levels");
    assert_eq!(assembled(16, 4, "if 1\nend\n", 16), too_many_blocks);
    // An include there is no further error.
    assert_eq!(assembled(16, 4, "if 1\ninclude \"none.seq\"\nend\n", 16), too_many_blocks);
    for (files, blocks, include_depth) in [(17, 0, 16), (17, 3, 16), (3, 32, 2), (65, 0, 64), (65, 0, 1000)] {
        let most = files - 1;
        let place = format!("{most}.seq:{}", blocks + 1);
        let message = format!("{place}: includes nested too deeply: at most {most} levels (limit include_depth)");
        assert_eq!(assembled(files, blocks, "nop\n", include_depth), refused(&message));
    }
    // Within the most blocks.
    let text = format!("{}include \"plain.seq\"\n{}", "if 1\n".repeat(64), "end\n".repeat(64));
    let options = Options { ranks: Some(2), ..Options::default() };
    let assembled = assemble_with(&[("plain.seq", "nop\n")], &text, &options).unwrap();
    assert_eq!(assembled.assembly.programs[0].instructions.len(), 1);
}

/// No text is deep enough to overflow the stack.
#[test]
fn depth_is_bounded() {
    for text in [
        format!("delay extent {}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("delay extent {}1", "-".repeat(5000)),
        format!("delay extent {}1", "not ".repeat(5000)),
        format!("delay extent 1{}", " + 1".repeat(5000)),
        format!("delay extent {}1", "min(1,".repeat(5000)),
        format!("delay extent 1{}", " or 1 and 1".repeat(5000)),
        format!("{}{}", "if rank\n".repeat(5000), "end\n".repeat(5000)),
        format!("{}{}", "for i in 0 .. 1\n".repeat(5000), "end\n".repeat(5000)),
    ] {
        let options = Options { ranks: Some(1), ..Options::default() };
        let message = refused(&text, &options);
        assert!(["nested", "too long"].iter().any(|word| message.contains(word)), "{message}");
    }
}
