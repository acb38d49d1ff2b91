//! What pages of the documentation show besides the tutorial: examples run, and figures are those of the command.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{json, stdout};

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
}

/// The blocks of a page in this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let start = format!("```{language}\n");
    page.split(&start).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn every_program_is_verified_on_the_cards_that_the_page_names() {
    let page = page("seq.md");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (mut programs, mut with_lanes) = (Vec::new(), 0);
    for (number, text) in blocks(&page, "seq").into_iter().enumerate() {
        let name = text.lines().next().and_then(|line| line.strip_prefix("# file "));
        let file = path(&name.map_or_else(|| format!("{number}.seq"), str::to_owned));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        if name.is_none() {
            programs.push((file, text));
        }
    }
    for (file, text) in &programs {
        let ranks = text.lines().find_map(|line| line.strip_prefix("ranks ")).expect("a number of ranks");
        let has_lanes = text.contains("lane 1");
        with_lanes += usize::from(has_lanes);
        let lanes = if has_lanes { "+lanes=2" } else { "" };
        let cards = format!("mock:optweb:{ranks}{lanes}");
        let printed = stdout(&["lint", file.to_str().unwrap(), "--cards", &cards]);
        assert_eq!(printed, format!("no warnings\nverified for {cards}\n"), "{text}");
    }
    assert!(programs.len() >= 8, "{} programs", programs.len());
    assert!(with_lanes == 1 && page.contains("needs `mock:optweb:4+lanes=2`"), "{with_lanes} with lanes");
}

#[test]
fn the_tables_of_the_routers_are_compiled_and_loaded() {
    let page = page("novo-g.md");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("collectives.json"), blocks(&page, "json")[0]).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("    fpgactl "));
    let script: Vec<String> = lines
        .filter(|line| line.contains("route compile") || line.contains("route load"))
        .map(|line| format!("fpgactl {line}"))
        .collect();
    assert_eq!(script.len(), 2, "{script:?}");
    let bin = Path::new(env!("CARGO_BIN_EXE_fpgactl")).parent().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script.join("\n")]).current_dir(folder.path());
    shell.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let output = shell.env("FPGACTL_SYSFS_ROOT", "/nowhere").env_remove("FPGACTL_CARDS").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("\nin force on all cards: tables 1 "), "{printed}");
}

#[test]
fn figures_over_the_bound_are_those_of_the_planner() {
    let page = page("planning.md");
    let section = page.split_once("What is left over the bound").unwrap().1;
    let (introduction, table) = section.split_once("\n\n").unwrap();
    let rows: Vec<_> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    for (cards, selector) in [("64 cards, ", "mock:optweb:64+lanes=2"), ("22x44, ", "mock:optweb:22x44+lanes=6")] {
        assert!(introduction.contains(&format!("`--cards {selector}`")), "{selector}: {introduction}");
        let printed = json(&["bench", "planner", "--cards", selector]);
        let mut count = 0;
        for row in &rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let Some(what) = cells[1].strip_prefix(cards) else { continue };
            let (operations, size) = what.split_once(" of ").unwrap();
            let figures: Vec<&str> = cells[2].split(", ").collect();
            for (number, operation) in operations.split(", ").flat_map(|some| some.split(" and ")).enumerate() {
                let figure = if figures.len() == 1 { &figures[0] } else { &figures[number] };
                assert_eq!(over(&printed, operation, size), *figure, "{row}");
                count += 1;
            }
        }
        assert!(count >= 2, "{selector}: {count} figures");
    }
}

/// The options of the command line that a variable sets.
#[test]
fn every_variable_is_in_the_page_of_the_command() {
    let (page, source) = (page("cli.md"), Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let files = fs::read_dir(source.join("cli")).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for file in files.chain([source.join("cli.rs")]) {
        let text = fs::read_to_string(&file).unwrap();
        for name in text.split("env = \"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
            count += 1;
        }
    }
    assert!(count >= 6, "{count} variables");
}

/// The predicted time over the bound, as the table prints it.
fn over(printed: &serde_json::Value, operation: &str, size: &str) -> String {
    let mib: u64 = size.strip_suffix(" MiB").unwrap().parse().unwrap();
    let is_it = |row: &&serde_json::Value| row["op"] == operation && row["bytes"] == mib << 20;
    let row = printed["rows"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{operation} of {size}"));
    format!("{:.2}", row["over_bound"].as_f64().unwrap())
}
