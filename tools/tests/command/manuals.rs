//! Man pages, completions and the version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use crate::stdout;

/// The names of all commands, as man pages have them, with the usage of each, from what `--help` prints.
fn usages(command: &[&str]) -> BTreeMap<String, String> {
    let help = stdout(&[command, &["--help"]].concat());
    let usage = help.split_once("Usage: ").unwrap().1.split_once("\n\n").unwrap().0;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let listed = listed.filter_map(|line| line.strip_prefix("  ")?.split_once(' ')).map(|(name, _)| name);
    let name = ["fpgactl"].iter().chain(command).copied().collect::<Vec<_>>().join("-");
    let mut all = BTreeMap::from([(name, words(usage))]);
    for name in listed.filter(|name| !name.is_empty() && *name != "help") {
        all.extend(usages(&[command, &[name]].concat()));
    }
    all
}

/// The words of a text, with one blank between them.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of a page's section, without fonts and control lines.
fn plain(section: &str) -> String {
    let lines: Vec<_> = section.lines().filter(|line| !line.starts_with('.')).collect();
    words(&lines.join(" ").replace("\\fB", "").replace("\\fR", "").replace("\\-", "-"))
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
    let usages = usages(&[]);
    assert_eq!(written, usages.keys().cloned().collect());
    let codes = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md")).unwrap();
    let codes = codes.split_once("## Exit codes").unwrap().1.lines().filter_map(|line| line.split('|').nth(1));
    let codes: BTreeSet<u8> = codes.filter_map(|code| code.trim().parse().ok()).collect();
    for name in &written {
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "\"SEE ALSO\""] {
            assert!(sections.contains(&section), "{name} has the sections {sections:?}, not {section}");
        }
        for variable in ["FPGACTL_STATS_DIR", "FPGACTL_BOARDS", "NO_COLOR"] {
            assert!(page.contains(&format!("\\fB{variable}\\fR\n")), "{name}: {variable}");
        }
        let synopsis = page.split_once(".SH SYNOPSIS\n").unwrap().1.split_once(".SH").unwrap().0;
        assert_eq!(plain(synopsis), usages[name], "{name}: the synopsis, and the usage of --help");
        let exits = page.split_once("\"EXIT STATUS\"\n").unwrap().1.split_once(".SH").unwrap().0;
        let exits = exits.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR")?.parse().ok());
        assert_eq!(exits.collect::<BTreeSet<u8>>(), codes, "{name}, and docs/cli.md");
    }
    // The options that the help of commands leaves out, on the page of the program.
    let page = fs::read_to_string(pages.join("fpgactl.1")).unwrap();
    let options = page.split_once(".SH OPTIONS\n").unwrap().1.split_once(".SH").unwrap().0;
    for option in ["stats\\-dir", "board", "board\\-dir"] {
        assert!(options.contains(&format!("\\fB\\-\\-{option}\\fR")), "{option}: {options}");
    }
}

/// What bash completes a line with, in the order of the script.
fn completed(script: &str, line: &str) -> Vec<String> {
    // As bash calls the function: readline divides words at blanks, colons and equal signs.
    let ask = r#". "$1"
        line=$2 words=${2//:/ : }
        read -ra COMP_WORDS <<<"${words//=/ = }"
        [[ $line == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
        before=${COMP_WORDS[*]}
        function=$(complete -p fpgactl | sed 's/.* -F \([^ ]*\).*/\1/')
        "$function" fpgactl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        [[ $before == "${COMP_WORDS[*]}" ]] || exit 1
        printf '%s\n' "${COMPREPLY[@]}""#;
    let output = Command::new("bash").args(["--norc", "-c", ask, "bash", script, line]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{line}: {errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_what_the_line_has() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("fpgactl");
    fs::write(&script, stdout(&["completions", "bash"])).unwrap();
    let of = |line: &str| completed(script.to_str().unwrap(), line);
    assert_eq!(of("fpgactl co"), ["coll", "completions"]);
    for options in ["", "--cards mock:optweb:4 ", "--cards=mock:optweb:4 ", "--stats-dir run ", "--json --board coll "]
    {
        assert_eq!(of(&format!("fpgactl {options}coll allg")), ["allgather", "allgatherv"], "{options}");
        assert_eq!(of(&format!("fpgactl {options}sel")), ["selftest"], "{options}");
        assert_eq!(of(&format!("fpgactl {options}bench coll --ra")), Vec::<String>::new(), "{options}");
        assert_eq!(of(&format!("fpgactl {options}coll allreduce --dtype bf")), ["bf16"], "{options}");
    }
    // A value after an equal sign, also that of an option without values.
    assert_eq!(of("fpgactl coll allreduce --dtype=bf"), ["bf16"]);
    assert_eq!(of("fpgactl --cards=mock:optweb:4 coll allreduce --dtype="), of("fpgactl coll allreduce --dtype "));
    assert_eq!(of("fpgactl coll --json=al"), Vec::<String>::new());
    // Of an option that the command has not, and of a program that `mock serve` starts.
    for line in ["--op=", "--dtype=bf", "topo --op=", "topo --op=s", "list --dtype="] {
        assert!(of(&format!("fpgactl {line}")).is_empty(), "{line}");
    }
    for line in ["prog --seed=", "prog --op=su", "fpgactl coll allreduce --dtype=bf", "prog --so"] {
        assert!(of(&format!("fpgactl mock serve mock:optweb:2 --socket-dir=run -- {line}")).is_empty(), "{line}");
    }
    // Files, which bash itself completes if the function knows nothing.
    for line in ["run ", "--cards mock:optweb:4 lint /etc/", "mem write 0x0 ", "image inspect ", "stats a b "] {
        assert!(of(&format!("fpgactl {line}")).is_empty(), "{line}");
    }
    assert!(of("fpgactl run --tr").contains(&"--trace".to_owned()));
    assert!(of("fpgactl list ").contains(&"--json".to_owned()));
    // What a command that looks at no machine refuses is not offered.
    assert_eq!(of("fpgactl metrics --sta"), ["--stats-dir"]);
    for refused in ["metrics --c", "top --b", "top --j", "mock serve --stats", "mock serve --ca"] {
        assert!(of(&format!("fpgactl {refused}")).is_empty(), "{refused}");
    }
    assert_eq!(of("fpgactl coll --boa"), ["--board", "--board-dir"]);
    assert_eq!(
        of("fpgactl schema fpgactl.c"),
        [
            "fpgactl.calibration/1",
            "fpgactl.channel-check/1",
            "fpgactl.channel-generate/1",
            "fpgactl.channel-load/1",
            "fpgactl.coll/1"
        ]
    );
    // What readline keeps of a word is not given again.
    let file = folder.path().join("a:bc");
    fs::write(&file, "").unwrap();
    let typed = file.to_str().unwrap().trim_end_matches("bc");
    assert_eq!(of(&format!("fpgactl run --trace {typed}b")), ["bc"]);
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
