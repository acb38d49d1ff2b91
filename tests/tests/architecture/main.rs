//! `docs/architecture.md` tells the truth: rooms and arrows, the picture, names of files and items. And files stay short.
#![forbid(unsafe_code)]

mod imports;
mod page;
mod picture;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use imports::Sources;
use page::{Page, root};
use serde_json::Value;

type Arrows = BTreeSet<(PathBuf, PathBuf)>;

/// A crate of the workspace that `fpgactl` needs, or `fpgactl`.
struct Package {
    name: String,
    /// The folder of `lib.rs` or `main.rs`, relative to the repository.
    folder: PathBuf,
    /// Names of crates of the workspace.
    dependencies: Vec<String>,
}

/// Reads `fpgactl` and all crates of the workspace that it needs to be built.
fn packages() -> Vec<Package> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: BTreeMap<String, Package> = BTreeMap::new();
    for package in list(&metadata["packages"]) {
        let targets = list(&package["targets"]);
        let kinds = ["lib", "bin"].map(Value::from);
        let Some(target) = targets.iter().find(|target| kinds.contains(&target["kind"][0])) else { continue };
        let file = PathBuf::from(text(&target["src_path"]));
        let folder = file.parent().and_then(|folder| folder.strip_prefix(root()).ok()).expect("a folder of ours");
        let dependencies = list(&package["dependencies"]);
        let needed = dependencies.iter().filter(|one| one["path"].is_string() && one["kind"].is_null());
        let dependencies = needed.map(|one| text(&one["name"])).collect();
        let name = text(&package["name"]);
        all.insert(name.clone(), Package { name, folder: folder.to_owned(), dependencies });
    }
    let mut packages = Vec::new();
    let mut next = vec!["fpgactl".to_owned()];
    while let Some(name) = next.pop() {
        if let Some(package) = all.remove(&name) {
            next.extend(package.dependencies.iter().cloned());
            packages.push(package);
        }
    }
    packages
}

fn sources() -> Sources {
    let mut sources = Sources::default();
    for package in packages() {
        sources.add(&package.name.replace('-', "_"), &root().join(package.folder));
    }
    sources
}

/// Pairs of files of which the first uses the second, relative to the repository.
fn arrows() -> Arrows {
    let arrows = sources().arrows();
    assert!(arrows.len() > 300, "{} arrows were found: the code was not read", arrows.len());
    let short = |path: PathBuf| path.strip_prefix(root()).unwrap().to_owned();
    arrows.into_iter().map(|(from, to)| (short(from), short(to))).collect()
}

/// The files that `from` uses, directly or not.
fn reached<'a>(uses: &BTreeMap<&'a Path, BTreeSet<&'a Path>>, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        next.extend(uses.get(file).into_iter().flatten().copied().filter(|to| reached.insert(*to)));
    }
    reached
}

/// Groups of files, or of rooms, that use each other in a circle.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<&Path>> {
    let mut uses: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for (from, to) in arrows {
        uses.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = uses.keys().map(|file| (*file, reached(&uses, file))).collect();
    let mut circles: Vec<BTreeSet<&Path>> = Vec::new();
    for (file, others) in &reached {
        if others.contains(file) && !circles.iter().any(|circle| circle.contains(file)) {
            let back = |other: &&&Path| reached.get(**other).is_some_and(|others| others.contains(file));
            circles.push(others.iter().filter(back).copied().collect());
        }
    }
    circles
}

/// The circles among `arrows` in words; empty if there are none.
fn describe_circles(arrows: &Arrows) -> String {
    let mut text = String::new();
    for circle in circles(arrows) {
        text += &format!("\ncircle of {}:\n", circle.len());
        for (from, to) in arrows {
            if circle.contains(from.as_path()) && circle.contains(to.as_path()) {
                text += &format!("  {} uses {}\n", from.display(), to.display());
            }
        }
    }
    text
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let text = describe_circles(&arrows());
    assert!(text.is_empty(), "files use each other in circles:{text}");
}

#[test]
fn rooms_use_each_other_as_the_page_says_and_in_no_circle() {
    let page = Page::read();
    let mut all = Arrows::new();
    // On the page a room names rooms of its crate, and other crates as a whole.
    let mut found: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for (from, to) in arrows() {
        let place = |file: &Path| {
            let room = page.room_of(file).unwrap_or_else(|| panic!("{} is in no room of the page", file.display()));
            let one = page.crates().find(|one| file.starts_with(&one.folder));
            (room, one.unwrap_or_else(|| panic!("{} is in no crate of the page", file.display())))
        };
        let ((from_room, from_crate), (to_room, to_crate)) = (place(&from), place(&to));
        if from_room.name != to_room.name {
            all.insert((from_room.name.clone().into(), to_room.name.clone().into()));
            let target = if from_crate.name == to_crate.name { &to_room.name } else { &to_crate.name };
            let files = format!("{} uses {}", from.display(), to.display());
            found.entry((&from_room.name, target)).or_insert(files);
        }
    }
    let on_page = page.rooms.iter().flat_map(|room| room.uses.iter().map(|to| (room.name.as_str(), to.as_str())));
    let on_page: BTreeSet<(&str, &str)> = on_page.collect();
    let mut wrong = String::new();
    for ((from, to), files) in found.iter().filter(|(arrow, _)| !on_page.contains(arrow)) {
        wrong += &format!("\n  not on the page: {from} uses {to} ({files})");
    }
    for (from, to) in on_page.iter().filter(|arrow| !found.contains_key(arrow)) {
        wrong += &format!("\n  only on the page: {from} uses {to}");
    }
    wrong += &describe_circles(&all);
    assert!(wrong.is_empty(), "docs/architecture.md, table of rooms, column \"uses\", differs from the code:{wrong}");
}

#[test]
fn the_page_has_all_crates_and_each_dependency_is_used() {
    let page = Page::read();
    let packages = packages();
    let on_page: BTreeSet<(&str, &Path)> = page.crates().map(|one| (one.name.as_str(), one.folder.as_path())).collect();
    let found = packages.iter().map(|one| (one.name.as_str(), one.folder.as_path())).collect();
    assert_eq!(on_page, found, "left: crates of the picture in docs/architecture.md, right: crates that fpgactl needs");
    for package in &packages {
        for needed in &package.dependencies {
            let is_used = page.rooms_in(&package.folder).any(|room| room.uses.contains(needed));
            assert!(is_used, "{} depends on {needed} and does not use it", package.name);
        }
    }
}

#[test]
fn each_room_has_files_and_each_step_a_room() {
    let page = Page::read();
    for path in page.rooms.iter().flat_map(|room| &room.files) {
        assert!(root().join(path).exists(), "docs/architecture.md: {} does not exist", path.display());
    }
    let names: BTreeSet<&str> = page.rooms.iter().map(|room| room.name.as_str()).collect();
    assert_eq!(names.len(), page.rooms.len(), "two rooms have one name");
    for name in page.steps.keys() {
        assert!(names.contains(name.as_str()), "docs/architecture.md: there is no room {name:?}");
    }
}

#[test]
fn the_picture_is_drawn_from_the_page() {
    let committed = fs::read_to_string(root().join("docs/architecture.svg")).unwrap_or_default();
    assert!(
        committed == picture::draw(&Page::read()),
        "docs/architecture.svg is not drawn from docs/architecture.md: \
         cargo run -p fpga-tests --example architecture > docs/architecture.svg"
    );
}

/// All Rust files of the repository, relative to it.
fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match path.is_dir() {
                true if name != "target" && !name.starts_with('.') => folders.push(path),
                false if name.ends_with(".rs") => files.push(path.strip_prefix(root()).unwrap().to_owned()),
                _ => {}
            }
        }
    }
    files
}

/// What a piece of code in the text names: `a/file.rs`, or `Type::function`.
#[test]
fn files_and_items_that_the_page_names_exist() {
    let page = Page::read();
    let sources: Vec<String> = rust_files().iter().map(|file| fs::read_to_string(root().join(file)).unwrap()).collect();
    let any = |needles: &[String]| sources.iter().any(|text| needles.iter().any(|needle| text.contains(needle)));
    for quoted in page.quoted() {
        if quoted.contains(' ') || quoted.starts_with('-') || quoted.contains("://") {
            continue;
        }
        if let Some((kind, member)) = quoted.split_once("::") {
            let defined = ["struct ", "enum ", "trait ", "mod ", "type "].map(|keyword| format!("{keyword}{kind}"));
            assert!(any(&defined), "docs/architecture.md names `{quoted}`: there is no {kind}");
            let member = [format!("fn {member}("), format!("fn {member}<"), format!("    {member}")];
            assert!(any(&member), "docs/architecture.md names `{quoted}`: {kind} has no such member");
        } else if quoted.contains('/') || quoted.ends_with(".rs") || quoted.ends_with(".md") || quoted.ends_with(".svg")
        {
            let found = [root().join(quoted), root().join("docs").join(quoted)].iter().any(|path| path.exists());
            assert!(found, "docs/architecture.md names {quoted}, which does not exist");
        }
    }
}

const MOST_LINES: usize = 600;

#[test]
fn no_file_is_longer_than_600_lines() {
    let mut wrong = String::new();
    for file in rust_files() {
        let lines = fs::read_to_string(root().join(&file)).unwrap().lines().count();
        if lines > MOST_LINES {
            wrong += &format!("\n  {}: {lines} lines", file.display());
        }
    }
    assert!(wrong.is_empty(), "split by what the parts are about:{wrong}");
}
