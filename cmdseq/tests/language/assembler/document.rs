//! The examples of `docs/seq.md`.

use std::path::Path;

use cmdseq::Flags;
use cmdseq::asm::{Options, decode, disassemble, encode, lint};

use super::assemble_with;

/// Blocks between ```` ```seq ```` and ```` ``` ````, with the name that their first line may give as a comment.
fn examples(document: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = document;
    while let Some((_, after)) = rest.split_once("```seq\n") {
        let (text, behind) = after.split_once("```").expect("a block has an end");
        let name = text.lines().next().and_then(|line| line.strip_prefix("# file ")).unwrap_or("main.seq");
        found.push((name.to_owned(), text.to_owned()));
        rest = behind;
    }
    found
}

#[test]
fn every_example_is_assembled() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/seq.md");
    let document = std::fs::read_to_string(path).unwrap();
    let all = examples(&document);
    let files: Vec<(&str, &str)> = all.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut count = 0;
    for (name, text) in all.iter().filter(|(name, _)| name == "main.seq") {
        let assembled =
            assemble_with(&files, text, &Options::default()).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert!(assembled.assembly.programs.iter().any(|program| !program.instructions.is_empty()));
        let read = decode(&encode(&assembled.assembly)).unwrap();
        let again = assemble_with(&[], &disassemble(&read), &Options::default()).unwrap();
        assert_eq!(again.assembly, assembled.assembly);
        let mut sources = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(String::new)
        };
        let warnings = lint(name, text, &mut sources, &Options::default()).unwrap();
        assert!(warnings.warnings.is_empty(), "{warnings:?}\n{text}");
        count += 1;
    }
    assert!(count >= 8, "{count} examples");
    for word in WORDS {
        assert!(document.contains(word), "{word} is not in the document");
    }
}

#[test]
fn every_flag_is_listed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/seq.md");
    let document = std::fs::read_to_string(path).unwrap();
    let list = document.split_once("in any order, and flags: ").unwrap().1.split_once('.').unwrap().0;
    let listed: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    let flags: Vec<String> = Flags::all().iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    assert_eq!(listed, flags);
}

/// Every construct, to be found in the document.
const WORDS: [&str; 30] = [
    "blocks",
    "wait_signal",
    "ranks",
    "const",
    "buffer",
    "communicator",
    "include",
    "for",
    "repeat",
    "if",
    "else",
    "end",
    "assert",
    "striped",
    "unstriped",
    "argument",
    "align",
    "step",
    "size(",
    "address(",
    "min(",
    "max(",
    "@",
    "tag",
    "eager",
    "rendezvous",
    "interrupt",
    "last",
    "lane",
    "fence",
];
