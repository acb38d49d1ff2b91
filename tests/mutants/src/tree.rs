//! A copy of the project with a switch for each mutant, built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::attempt::far_seconds;
use crate::list::{Genre, Mutant};
use crate::process::Binary;
use crate::switch::switched;

pub struct Switches {
    /// Mutants that have a switch.
    pub ids: BTreeSet<u32>,
    pub binaries: Vec<Binary>,
}

/// Copies the files of the project, as they are in the working tree, into a folder that keeps its `target`.
pub fn copy(tree: &Path) -> Result<()> {
    fs::create_dir_all(tree)?;
    for entry in fs::read_dir(tree)? {
        let path = entry?.path();
        match path.is_dir() {
            true if path.ends_with("target") => {}
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    // With the times of the files, by which cargo tells what to build.
    let copied = Command::new("cp").args(["-p", "--parents", "-t"]).arg(tree).args(files()?).status()?;
    copied.success().then_some(()).ok_or_else(|| "the project could not be copied".into())
}

/// The files of the project, as they are in the working tree.
pub fn files() -> Result<Vec<String>> {
    let listed = Command::new("git").args(["ls-files", "-z", "-co", "--exclude-standard"]).output()?;
    let files = String::from_utf8(listed.stdout)?;
    Ok(files.split('\0').filter(|file| Path::new(file).is_file()).map(str::to_owned).collect())
}

/// Packages whose tests may reach the packages of the mutants, as arguments of cargo; only these packages if there is no time for
/// others.
fn packages(tree: &Path, mutants: &[&Mutant]) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for package in mutants.iter().map(|mutant| mutant.package.as_str()).collect::<BTreeSet<_>>() {
        names.insert(package.to_owned());
        if far_seconds() == 0.0 {
            continue;
        }
        let arguments = ["tree", "--locked", "--workspace", "--prefix=none", "--format={p}", "--invert", package];
        let listed = Command::new("cargo").args(arguments).current_dir(tree).output()?;
        let text = String::from_utf8(listed.stdout)?;
        names.extend(text.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())));
    }
    Ok(names.into_iter().flat_map(|name| ["-p".to_owned(), name]).collect())
}

/// Places all switches that the compiler allows.
pub fn build(tree: &Path, mutants: &[&Mutant]) -> Result<Switches> {
    copy(tree)?;
    let mut by_file: BTreeMap<String, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        let (home, _) = mutant.file.split_once("/src/").ok_or("a mutant outside of src")?;
        by_file.entry(format!("{home}/src/lib.rs")).or_default();
        by_file.entry(mutant.file.clone()).or_default().push(mutant);
        fs::write(tree.join(home).join("src/mutants.rs"), include_str!("runtime.rs"))?;
    }
    let packages = packages(tree, mutants)?;
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let mut refused: BTreeSet<u32> = BTreeSet::new();
    let mut dirty: BTreeSet<&str> = by_file.keys().map(String::as_str).collect();
    let mut placed: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    loop {
        for file in std::mem::take(&mut dirty) {
            let kept: Vec<&Mutant> =
                by_file[file].iter().copied().filter(|mutant| !refused.contains(&mutant.id)).collect();
            let (mut text, ids) = switched(&fs::read_to_string(file)?, &kept)?;
            if file.ends_with("/src/lib.rs") {
                text.push_str("\n#[doc(hidden)]\npub mod mutants;\n");
            }
            fs::write(tree.join(file), text)?;
            placed.insert(file, ids);
        }
        let built = Build::of(tree, &packages)?;
        if built.is_whole {
            return Ok(Switches { ids: placed.into_values().flatten().collect(), binaries: built.binaries });
        }
        let before = refused.len();
        for error in &built.errors {
            for (file, first, last) in places(error) {
                let Some((file, _)) = by_file.get_key_value(&file) else { continue };
                let text = fs::read_to_string(tree.join(file))?;
                let mut ids = near(&text, first, last);
                if ids.is_empty() && is_missing_arm(error) {
                    ids = deleted_arms(&text, error, last);
                }
                if !ids.is_empty() {
                    dirty.insert(file);
                }
                refused.extend(ids);
            }
        }
        println!("{} compiler errors, {} switches taken out", built.errors.len(), refused.len() - before);
        if refused.len() == before {
            let text: String = built.errors.iter().filter_map(|error| error["rendered"].as_str()).collect();
            return Err(format!("no switch explains the compiler's errors:\n{text}").into());
        }
    }
}

/// Files and lines, first to last, that an error names.
fn places(error: &Value) -> Vec<(String, usize, usize)> {
    // The help of an error about an arm that is missing (E0004) names the last arm, which has the switch most often.
    let spans: Vec<&Value> = match is_missing_arm(error) {
        true => error["children"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|child| child["spans"].as_array().into_iter().flatten())
            .collect(),
        false => error["spans"].as_array().into_iter().flatten().collect(),
    };
    let place = |span: &&Value| {
        let line = |name: &str| Some(span[name].as_u64()? as usize);
        Some((span["file_name"].as_str()?.to_owned(), line("line_start")?, line("line_end")?))
    };
    spans.iter().filter_map(place).collect()
}

fn is_missing_arm(error: &Value) -> bool {
    error["code"]["code"] == "E0004"
}

/// The switches of all deleted arms from the `match` that lacks one up to line `last`.
fn deleted_arms(text: &str, error: &Value, last: usize) -> Vec<u32> {
    let spans = error["spans"].as_array().into_iter().flatten();
    let lines = spans.filter(|span| span["is_primary"] == true).filter_map(|span| span["line_start"].as_u64());
    let Some(first) = lines.min() else { return Vec::new() };
    let arms = text.lines().take(last).skip(first as usize).filter_map(|line| line.split_once("!crate::mutants::on("));
    arms.filter_map(|(_, rest)| rest.split("u32").next()?.parse().ok()).collect()
}

/// The switches at lines of a file, or else those of the closest of the three lines before: a value stands after its switch.
fn near(text: &str, first: usize, last: usize) -> Vec<u32> {
    let lines: Vec<&str> = text.lines().collect();
    let first = first.saturating_sub(1);
    let last = last.min(lines.len()).min(first + 6);
    (0..4)
        .map(|back| {
            let text = lines[first.saturating_sub(back)..last].join(" ");
            text.split("mutants::on(")
                .skip(1)
                .filter_map(|rest| rest.split("u32").next()?.parse().ok())
                .collect::<Vec<u32>>()
        })
        .find(|ids| !ids.is_empty())
        .unwrap_or_default()
}

/// Unit tests and the tests that MUTANTS_TESTS names, or all.
fn targets() -> Vec<String> {
    let Ok(names) = std::env::var("MUTANTS_TESTS") else { return Vec::new() };
    let tests = names.split(',').flat_map(|name| ["--test".to_owned(), name.to_owned()]);
    std::iter::once("--lib".to_owned()).chain(tests).collect()
}

/// What a build of the tests gave.
pub struct Build {
    pub is_whole: bool,
    pub binaries: Vec<Binary>,
    /// Messages of the compiler.
    errors: Vec<Value>,
}

impl Build {
    pub fn of(tree: &Path, packages: &[&str]) -> Result<Self> {
        let output = Command::new("cargo")
            .args(["test", "--locked", "--no-run", "--message-format=json"])
            .args(packages)
            .args(targets())
            .current_dir(tree)
            .env("RUSTFLAGS", "--cap-lints=allow")
            .stderr(Stdio::null())
            .output()?;
        let mut build = Self { is_whole: output.status.success(), binaries: Vec::new(), errors: Vec::new() };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(mut message) = serde_json::from_str::<Value>(line) else { continue };
            if message["profile"]["test"] == true
                && let Some(path) = message["executable"].as_str()
                && let Some(folder) =
                    message["manifest_path"].as_str().and_then(|path| path.strip_suffix("/Cargo.toml"))
            {
                build.binaries.push(Binary { path: path.to_owned(), folder: folder.to_owned() });
            }
            if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
                build.errors.push(message["message"].take());
            }
        }
        Ok(build)
    }
}

/// The text of a file with one mutant in it.
pub fn changed(text: &str, mutant: &Mutant) -> String {
    let offset = |place: crate::list::Place| {
        let line: usize = text.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
        line + text[line..].chars().take(place.column - 1).map(char::len_utf8).sum::<usize>()
    };
    let (start, end) = (offset(mutant.span.start), offset(mutant.span.end));
    // A deleted arm leaves its comma; an operator needs room beside it.
    let space = if mutant.genre == Genre::FnValue { "" } else { " " };
    format!("{}{space}{}{space}{}", &text[..start], mutant.replacement, &text[end..])
}
