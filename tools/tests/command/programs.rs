//! Programs: assembled, printed, checked and run.

use std::path::PathBuf;

use crate::{json, run, stdout};

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Directory(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = PathBuf::from(self.path(name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        self.path(name)
    }
}

const EXCHANGE: &str = "\
ranks 2
buffer input = host size 4KiB
buffer result = host size 4KiB
buffer here = card size 4KiB
buffer there = card size 4KiB
communicator both = 1 of 1, 0
copy source input, destination here, bytes 4KiB
sendrecv communicator both, peer rank, root rank, source here, destination there, bytes 4KiB, tag 9
copy source there, destination result, bytes 4KiB
";

fn bytes(seed: u8) -> Vec<u8> {
    (0..4096_u32).map(|index| (index.wrapping_mul(31) as u8) ^ seed).collect()
}

/// From files through host memory, card memory and the fabric to files; as text and as words.
#[test]
fn data_goes_from_files_to_files() {
    let directory = Directory::new();
    let text = directory.write("exchange.seq", EXCHANGE);
    let (a, b) = (directory.write("a.bin", bytes(1)), directory.write("b.bin", bytes(2)));
    let words = directory.path("exchange.seqb");
    let printed = json(&["asm", &text]);
    assert_eq!((&printed["schema"], &printed["output"]), (&"fpgactl.asm/1".into(), &words.as_str().into()));
    assert_eq!(printed["programs"][1]["bindings"], 2);
    for program in [&text, &words] {
        let (out, array) = (directory.path("out"), directory.path("there.npy"));
        let (load_a, load_b) = (format!("input@0={a}"), format!("input@1={b}"));
        let (dump, dump_card) = (format!("result={out}"), format!("there@1={array}"));
        let printed = json(&[
            "run",
            program,
            "--cards",
            "mock:optweb:2",
            "--load",
            &load_a,
            "--load",
            &load_b,
            "--dump",
            &dump,
            "--dump",
            &dump_card,
            "--dtype",
            "u16",
        ]);
        assert_eq!((&printed["schema"], &printed["mock"]), (&"fpgactl.run/1".into(), &true.into()));
        let completions = printed["completions"].as_array().unwrap();
        assert_eq!(completions.len(), 6);
        assert!(completions.iter().all(|one| one["status"] == "done" && one["t2_us"].as_f64().unwrap() > 0.0));
        assert_eq!(completions[1]["tag"], 9);
        assert_eq!(completions[1]["place"].is_string(), program == &text);
        // Communicator `both` turns the ranks around: peer 0 of it is rank 1.
        assert_eq!(std::fs::read(format!("{out}-0")).unwrap(), bytes(2));
        assert_eq!(std::fs::read(format!("{out}-1")).unwrap(), bytes(1));
        let array = npyz::NpyFile::new(std::fs::File::open(&array).unwrap()).unwrap();
        let values: Vec<u16> = array.into_vec().unwrap();
        let expected: Vec<u16> = bytes(1).chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        assert_eq!(values, expected);
    }
}

/// A disk that fills after the run: no file appears, and what the instructions did is printed all the same.
#[test]
fn all_files_are_written_or_none() {
    let directory = Directory::new();
    let text = directory.write("exchange.seq", EXCHANGE);
    let dumps = [format!("result@0={}", directory.path("out")), "result@1=/dev/full".to_owned()];
    let dumps = ["--dump", &dumps[0], "--dump", &dumps[1]];
    let output = run(&[&["run", &text, "--cards", "mock:optweb:2", "--json"], &dumps[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = crate::parsed(&output.stderr);
    assert!(error["message"].as_str().unwrap().contains("/dev/full"), "{error}");
    let printed = crate::parsed(&output.stdout);
    assert_eq!(printed["completions"].as_array().unwrap().len(), 6);
    assert_eq!(printed["outputs"], serde_json::json!([]));
    let left: Vec<_> = std::fs::read_dir(directory.0.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["exchange.seq"]);
}

#[test]
fn words_are_printed_as_text_that_assembles_to_the_same() {
    let directory = Directory::new();
    let text = directory.write("exchange.seq", EXCHANGE);
    for only in [&[][..], &["--rank", "1"][..]] {
        let (words, again) = (directory.path("words"), directory.path("again"));
        stdout(&[&["asm", &text, "-o", &words], only].concat());
        let back = directory.write("back.seq", stdout(&["disasm", &words]));
        stdout(&[&["asm", &back, "-o", &again], only].concat());
        assert_eq!(std::fs::read(&words).unwrap(), std::fs::read(&again).unwrap());
    }
    let mut damaged = std::fs::read(directory.path("words")).unwrap();
    damaged[100] ^= 1;
    let damaged = directory.write("damaged", damaged);
    let output = run(&["disasm", &damaged]);
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8(output.stderr).unwrap().contains("checksum"));
}

#[test]
fn a_binary_whose_source_is_too_long_for_asm_is_told_with_the_limit() {
    let directory = Directory::new();
    // No two instructions in a row are equal.
    let text = "ranks 4\nfor i in 0 .. 60_000\n  sendrecv_reduce peer rank ^ 1, root rank ^ 1, source 0x1_0000_0000, \
                destination 0x1_4000_0000, extent 0x1_8000_0000, bytes 4096, element f32, reduction sum, tag i\nend\n";
    let text = directory.write("long.seq", text);
    let words = directory.path("words");
    stdout(&["asm", &text, "-o", &words]);
    let output = run(&["disasm", &words]);
    assert!(output.status.success() && output.stdout.len() > 8 << 20);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("`asm` accepts at most 8388608 (limit source_bytes)"), "{error}");
}

/// No choice of cards makes a program of all ranks of it.
#[test]
fn a_binary_of_one_rank_is_not_run() {
    let directory = Directory::new();
    let text = directory.write("four.seq", "ranks 4\nbarrier\n");
    let words = directory.path("one.seqb");
    stdout(&["asm", &text, "-o", &words, "--rank", "1"]);
    for cards in ["mock:optweb:4", "mock:optweb:4/1"] {
        let output = run(&["run", &words, "--cards", cards, "--json"]);
        let error = crate::parsed(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{error}");
        assert_eq!(error["message"], format!("{words}: holds only rank 1 of 4: assemble it without --rank"));
    }
}

/// One line can ask for more than any machine has; all that a buffer takes is taken at once.
#[test]
fn host_buffers_beyond_the_memory_of_the_machine_are_refused() {
    let directory = Directory::new();
    let queued = (&["--json"][..], "copy source h, destination 0, bytes 64");
    // A stored program does not use it, but it is there for --load.
    let stored = (&["--json", "--persistent"][..], "barrier");
    for (bytes, expected) in [
        ("1TiB", "the host buffers of all ranks need 2 TiB: the limit is half of the "),
        ("1 << 62", "the host buffers of all ranks need 8388608 TiB: the limit is half of the "),
        ("(1 << 64) - 1", "rank 0: the host buffers exceed 2^64 B"),
    ] {
        for (mode, instruction) in [queued, stored] {
            let program = format!("ranks 2\nbuffer h = host size {bytes}\n{instruction}\n");
            let path = directory.write("large.seq", program);
            // If it were not refused, it should fail alone and not take the machine with it.
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "ulimit -v 8000000 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_fpgactl")]);
            let output = shell.args(["run", &path, "--cards", "mock:optweb:2"]).args(mode).output().unwrap();
            assert_eq!(output.status.code(), Some(7), "{bytes}");
            let error = crate::parsed(&output.stderr);
            assert!(error["message"].as_str().unwrap().starts_with(expected), "{error}");
        }
    }
}

/// Host buffers lie one behind the other: what leaves one would be in the next.
#[test]
fn a_copy_past_its_host_buffer_is_refused() {
    let directory = Directory::new();
    let path = directory.write(
        "past.seq",
        "ranks 2\nbuffer a = host size 4KiB\nbuffer b = host size 4KiB\nfill destination 0, bytes 8KiB, extent 1\n\
         copy source 0, destination a, bytes 8KiB\ncopy source b, destination 0, bytes 64\n",
    );
    let output = run(&["run", &path, "--cards", "mock:optweb:2", "--json"]);
    assert_eq!(output.status.code(), Some(7));
    let error = crate::parsed(&output.stderr);
    assert_eq!(error["places"][0]["line"], 5, "{error}");
    let expected = "the destination, 8192 B from byte 0 on, exceeds host buffer `a` of 4096 B";
    assert_eq!(error["places"][0]["message"], expected);
}

/// Source errors, and what the verifier refuses, name the place.
#[test]
fn what_is_wrong_is_refused_with_its_place() {
    let directory = Directory::new();
    let refused = |name: &str, text: &str, command: &[&str]| {
        let path = directory.write(name, text);
        let output = run(&[&command[..1], &[&path, "--json"], &command[1..]].concat());
        assert_eq!(output.status.code(), Some(7));
        assert!(output.stdout.is_empty());
        crate::parsed(&output.stderr)
    };
    let error = refused("wrong.seq", "ranks 2\nsned\nsend peer 1\n", &["asm"]);
    let lines: Vec<_> = error["places"].as_array().unwrap().iter().map(|one| one["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [2, 3]);
    assert_eq!(error["places"][0]["message"], "unknown operation `sned`; did you mean `send`?");
    let alone = "ranks 2\nnop\nif rank == 1\n  fill destination 1 << 60, bytes 64, extent 0\nend\n";
    let error = refused("alone.seq", alone, &["run", "--cards", "mock:optweb:2"]);
    assert_eq!((&error["rank"], &error["instruction"]), (&1.into(), &1.into()), "{error}");
    assert_eq!(
        (&error["places"][0]["line"], &error["places"][0]["source"]),
        (&4.into(), &"  fill destination 1 << 60, bytes 64, extent 0".into())
    );
    refused("four.seq", "ranks 4\nnop\n", &["run", "--cards", "mock:optweb:2"]);
    let buffer = "ranks 2\nbuffer a = card size 8\nnop\n";
    let long = format!("a={}", directory.write("long.bin", [0; 9]));
    refused("long.seq", buffer, &["run", "--cards", "mock:optweb:2", "--load", &long]);
    refused("none.seq", buffer, &["run", "--cards", "mock:optweb:2", "--dump", "b=x"]);
    refused(
        "odd.seq",
        "ranks 2\nbuffer a = card size 9\nnop\n",
        &["run", "--cards", "mock:optweb:2", "--dump", "a=x.npy", "--dtype", "u16"],
    );
    assert_eq!(run(&["run", "x.seq", "--load", "a"]).status.code(), Some(2));
    // A file that the kernel makes up says that it has no bytes.
    let made_up = run(&["run", &directory.path("long.seq"), "--cards", "mock:optweb:2", "--load", "a=/proc/version"]);
    let error = String::from_utf8(made_up.stderr).unwrap();
    assert!(made_up.status.code() == Some(1) && error.contains("has more than 0 bytes"), "{error}");
    assert_eq!(run(&["asm", &directory.path("absent.seq")]).status.code(), Some(4));
}

/// A refused communicator or table has no instruction: its declaration is named.
#[test]
fn a_refused_declaration_is_named() {
    let directory = Directory::new();
    let on_cards = ["--cards", "mock:optweb:2"];
    let two = |of_rank_1: &str| {
        let of_rank_0 = "ranks 2\nif rank == 0\n communicator a = 1 of 0\nend\n";
        format!("{of_rank_0}if rank == 1\n communicator b = {of_rank_1}\nend\n")
    };
    for (name, text, place, rank, options) in [
        ("id.seq", "ranks 2\nnop\ncommunicator bad = 32 of 0, 1\nbarrier communicator bad\n", (3, 20), None, &[][..]),
        ("entry.seq", "ranks 2\ncommunicator a = 1 of 0, 1\ncommunicator b = 33 of 1, 0\n", (3, 18), Some(1), &[]),
        // Not all members declare it.
        ("one.seq", "ranks 2\nif rank == 1\n communicator c = 9999 of 0, 1\nend\n", (3, 19), None, &[]),
        ("shared.seq", &two("33 of 1, 0"), (6, 19), Some(0), &[]),
        ("other.seq", &two("1 of 1, 0"), (6, 19), Some(0), &[]),
        ("slot.seq", "ranks 2\nif rank == 1\n  blocks t = 99 of 4, 4\nend\n", (3, 14), Some(1), &[]),
        ("blocks.seq", "ranks 2\nblocks t = 0 of 4 for i in 0 .. 2000\n", (2, 12), Some(0), &[]),
        ("resident.seq", "ranks 2\nbarrier\nblocks t = 0 of 4, 4\n", (3, 12), Some(0), &["--persistent"]),
    ] {
        let path = directory.write(name, text);
        let output = run(&[&["run", &path, "--json"], &on_cards[..], options].concat());
        let error = crate::parsed(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{error}");
        assert_eq!((&error["rank"], &error["instruction"]), (&rank.into(), &serde_json::Value::Null), "{error}");
        let (line, column) = place;
        let at = &error["places"][0];
        assert_eq!((&at["file"], &at["line"], &at["column"]), (&name.into(), &line.into(), &column.into()), "{error}");
    }
}

/// `run` reads `*.seq` as a source.
#[test]
fn a_binary_is_not_named_like_a_source() {
    let directory = Directory::new();
    let text = directory.write("ring.seq", "ranks 2\nbarrier\n");
    let output = directory.path("binary.seq");
    let plan = ["plan", "barrier", "--cards", "mock:optweb:2", "--save", &output];
    for (option, command) in [("--output", &["asm", &text, "-o", &output][..]), ("--save", &plan)] {
        let refused = run(command);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{error}");
        let expected = format!("fpgactl: {option} {output}: `*.seq` is a source: name the binary `*.seqb`\n");
        assert_eq!(error, expected);
        assert!(!std::path::Path::new(&output).exists());
    }
}

/// A source where a binary is expected, and the other way round.
#[test]
fn a_source_and_a_binary_are_told_apart() {
    let directory = Directory::new();
    let (source, unnamed) = (directory.write("exchange.seq", EXCHANGE), directory.write("exchange", EXCHANGE));
    let binary = directory.path("exchange.seqb");
    stdout(&["asm", &source, "-o", &binary]);
    let no_source = "not a source but an assembled program; `fpgactl disasm` prints its source";
    let no_binary = "not a program file (the magic bytes differ); `asm` and `plan --save` write programs; \
                     a source is named `*.seq`";
    for (command, program, why) in [
        ("asm", &binary, no_source),
        ("lint", &binary, no_source),
        ("run", &unnamed, no_binary),
        ("disasm", &source, no_binary),
    ] {
        let output = run(&[command, program]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*text), (Some(7), &*format!("fpgactl: {program}: {why}\n")), "{command}");
    }
}

/// What the verifier does not see, and the card does: the completions are printed all the same.
#[test]
fn what_fails_on_a_card_ends_the_command_with_its_place() {
    let directory = Directory::new();
    let text = directory.write("user.seq", "ranks 2\nnop\nuser source 0, destination 64, bytes 64, extent 1\n");
    let output = run(&["run", &text, "--cards", "mock:optweb:2", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = crate::parsed(&output.stdout);
    let error = crate::parsed(&output.stderr);
    assert_eq!(printed["completions"][1]["code"], 17);
    assert_eq!((&error["instruction"], &error["places"][0]["line"]), (&1.into(), &3.into()), "{error}");
}

#[test]
fn included_files_stay_in_their_folder() {
    let directory = Directory::new();
    let main = directory.write("in/main.seq", "ranks 2\ninclude \"part.seq\"\n");
    directory.write("in/part.seq", "nop\n");
    stdout(&["asm", &main]);
    directory.write("secret.seq", "nop\n");
    std::fs::remove_file(directory.path("in/part.seq")).unwrap();
    std::os::unix::fs::symlink(directory.path("secret.seq"), directory.path("in/part.seq")).unwrap();
    assert_eq!(run(&["asm", &main]).status.code(), Some(7));
    let root = directory.path("");
    stdout(&["asm", &main, "--root", &root]);
    directory.write("in/main.seq", "ranks 2\ninclude \"../secret.seq\"\n");
    assert_eq!(run(&["asm", &main]).status.code(), Some(7));
    stdout(&["asm", &main, "--root", &root]);
}

#[test]
fn warnings_are_printed_and_may_end_the_command() {
    let directory = Directory::new();
    let text = directory.write("idle.seq", "ranks 2\nconst idle = 1\nnop\n");
    let printed = json(&["lint", &text]);
    assert_eq!(
        (&printed["warnings"][0]["check"], &printed["warnings"][0]["line"]),
        (&"unused-constant".into(), &2.into())
    );
    assert!(stdout(&["lint", &text]).contains("constant `idle` is never used\n2 | const idle = 1\n"));
    assert_eq!(run(&["lint", &text, "--check"]).status.code(), Some(1));
    assert_eq!(
        stdout(&["lint", &directory.write("fine.seq", "ranks 2\nnop\n"), "--check"]),
        "no warnings\nverified for mock:optweb:2\n"
    );
}

#[test]
fn programs_are_verified_without_being_asked() {
    let directory = Directory::new();
    let text = directory.write("alone.seq", "ranks 2\nif rank == 0\n  send peer 1, source 0, bytes 8\nend\n");
    for cards in [&[][..], &["--cards", "mock:optweb:2"]] {
        let output = run(&[&["lint", &text, "--json"], cards].concat());
        let error = crate::parsed(&output.stderr);
        assert_eq!((output.status.code(), &error["reason"]), (Some(7), &"unmatched".into()), "{error}");
        assert_eq!((&error["rank"], &error["instruction"]), (&0.into(), &0.into()), "{error}");
    }
    let fine = directory.write("fine.seq", "ranks 3\nbarrier\n");
    assert_eq!(json(&["lint", &fine])["verified_for"], "mock:optweb:3");
    assert_eq!(run(&["lint", &fine, "--cards", "mock:optweb:2"]).status.code(), Some(7));
    // There is no fabric of one card.
    let one = directory.write("one.seq", "ranks 1\nnop\n");
    assert_eq!(json(&["lint", &one])["verified_for"], serde_json::Value::Null);
    assert!(stdout(&["lint", &one]).contains("not verified: no mock fabric for ranks = 1; "));
    // Host buffers lie apart; within one, a copy overlaps.
    let buffers = "ranks 2\nbuffer a = host size 64\nbuffer b = host size 64\n";
    let apart = directory.write("apart.seq", format!("{buffers}copy source a, destination b, bytes 64\n"));
    stdout(&["lint", &apart]);
    stdout(&["run", &apart, "--cards", "mock:optweb:2"]);
    let over =
        directory.write("over.seq", format!("{buffers}copy source a, destination a + 8, bytes 32\nnop tag size(b)\n"));
    let output = run(&["lint", &over, "--json"]);
    let error = crate::parsed(&output.stderr);
    assert_eq!((output.status.code(), &error["reason"]), (Some(7), &"overlap".into()), "{error}");
}

#[test]
fn addresses_in_host_memory_have_to_be_allowed() {
    let directory = Directory::new();
    let text = directory.write("raw.seq", "ranks 2\ncopy source host 1 << 46, destination 0, bytes 8\n");
    let words = directory.path("raw.seqb");
    let refused = |arguments: &[&str]| {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("--allow-raw-host"), "{said}");
    };
    refused(&["asm", &text]);
    refused(&["lint", &text]);
    refused(&["run", &text, "--cards", "mock:optweb:2"]);
    stdout(&["asm", &text, "--allow-raw-host"]);
    refused(&["run", &words, "--cards", "mock:optweb:2"]);
    // Nothing is there: now it is the card that says so.
    let output = run(&["run", &words, "--cards", "mock:optweb:2", "--allow-raw-host"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("the bus refused it"));
}

#[test]
fn warnings_past_the_limit_are_counted() {
    let directory = Directory::new();
    let constants: String = (0..150).map(|number| format!("const c{number} = 1\n")).collect();
    let text = directory.write("many.seq", format!("ranks 2\n{constants}nop\n"));
    let printed = json(&["lint", &text]);
    assert_eq!((printed["warnings"].as_array().unwrap().len(), &printed["more"]), (100, &50.into()));
    assert!(stdout(&["lint", &text]).contains("150 warnings, 50 not shown\n"));
}

/// Tabs before what is wrong are tabs before its marks, so that both are in one place.
#[test]
fn sources_keep_their_tabs() {
    let directory = Directory::new();
    let path = directory.write("tabs.seq", "ranks 2\n\tnop\t\tbogus\n");
    let output = run(&["lint", &path]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("| \tnop\t\tbogus\n") && error.contains("| \t   \t\t^^^^^"), "{error:?}");
}

/// The examples of `docs/seq.md` with tables and signals, on the cards.
#[test]
fn examples_with_tables_and_signals_run() {
    let document = include_str!("../../../docs/seq.md");
    let examples = document.split("```seq\n").skip(1).filter_map(|part| part.split("```").next());
    let directory = Directory::new();
    let mut count = 0;
    for text in examples.filter(|text| text.contains("\nblocks ") || text.contains("put_signal")) {
        let ranks = text.lines().find_map(|line| line.strip_prefix("ranks ")).unwrap();
        let program = directory.write("example.seq", text);
        let mut arguments = vec!["run".to_owned(), program, "--cards".to_owned(), format!("mock:optweb:{ranks}")];
        let file = directory.write("data", vec![0x5a; 5 << 16]);
        let (out, is_signals) = (directory.path("out"), text.contains("put_signal"));
        if is_signals {
            arguments.extend(["--load".into(), format!("data@0={file}"), "--dump".into(), format!("data@1={out}")]);
        }
        json(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        if is_signals {
            assert!(std::fs::read(&out).unwrap() == vec![0x5a; 5 << 16], "all blocks have come");
        }
        count += 1;
    }
    assert_eq!(count, 3);
}
