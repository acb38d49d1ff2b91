//! Man pages and the version.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::stdout;

/// The names of all commands, as man pages have them, from what `--help` lists.
fn names(command: &[&str]) -> BTreeSet<String> {
    let help = stdout(&[command, &["--help"]].concat());
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let listed = listed.filter_map(|line| line.strip_prefix("  ")?.split_once(' ')).map(|(name, _)| name);
    let mut all = BTreeSet::from([["fpgactl"].iter().chain(command).copied().collect::<Vec<_>>().join("-")]);
    for name in listed.filter(|name| !name.is_empty() && *name != "help") {
        all.extend(names(&[command, &[name]].concat()));
    }
    all
}

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages");
    assert_eq!(stdout(&["man-pages", pages.to_str().unwrap()]), "");
    let written: BTreeSet<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().strip_suffix(".1").unwrap().to_owned())
        .collect();
    assert_eq!(written, names(&[]));
    let codes = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md")).unwrap();
    let codes = codes.split_once("## Exit codes").unwrap().1.lines().filter_map(|line| line.split('|').nth(1));
    let codes: BTreeSet<u8> = codes.filter_map(|code| code.trim().parse().ok()).collect();
    for name in &written {
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "\"SEE ALSO\""] {
            assert!(sections.contains(&section), "{name} has the sections {sections:?}, not {section}");
        }
        let exits = page.split_once("\"EXIT STATUS\"\n").unwrap().1.split_once(".SH").unwrap().0;
        let exits = exits.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR")?.parse().ok());
        assert_eq!(exits.collect::<BTreeSet<u8>>(), codes, "{name}, and docs/cli.md");
    }
}

/// A source without git, such as a packed one, has only the version.
#[test]
fn the_version_is_one_line_with_the_commit() {
    let git = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"]).output();
    let commit = git.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let expected = match &commit {
        Some(commit) => format!("{} ({})\n", env!("CARGO_PKG_VERSION"), std::str::from_utf8(&commit[..12]).unwrap()),
        None => format!("{}\n", env!("CARGO_PKG_VERSION")),
    };
    assert_eq!(stdout(&["--version"]), format!("fpgactl {expected}"));
    assert_eq!(stdout(&["-V"]), format!("fpgactl {expected}"));
    assert_eq!(stdout(&["coll", "--version"]), format!("fpgactl-coll {expected}"));
}
