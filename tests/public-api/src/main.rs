//! Compares the public items of each library with `docs/public-api/CRATE.txt`; with `--write`, writes the files.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use public_api::PublicApi;
use serde_json::Value;

/// Version of rustdoc's JSON that `public-api` reads; of Rust 1.95.
const FORMAT: u64 = 57;
const COMMAND: &str = "tests/run public-api --write";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("no repository")?;
    let write = match std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [] => false,
        [ref only] if only == "--write" => true,
        _ => return Err("usage: fpga-public-api [--write]".into()),
    };
    let (target, libraries) = libraries(root)?;
    document(root, &libraries)?;
    let mut differ = false;
    let folder = root.join("docs/public-api");
    let mut stale: BTreeSet<PathBuf> = BTreeSet::new();
    if write {
        fs::create_dir_all(&folder)?;
    }
    for entry in fs::read_dir(&folder)? {
        stale.insert(entry?.path());
    }
    for library in &libraries {
        let json = target.join("doc").join(format!("{}.json", library.replace('-', "_")));
        let Some(listed) = list(&json)? else {
            println!("docs/public-api is checked with Rust 1.95 only: this rustdoc writes another format");
            // CI has the compiler that the files are for.
            return Ok(if std::env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        };
        let file = folder.join(format!("{library}.txt"));
        stale.remove(&file);
        let committed = fs::read_to_string(&file).unwrap_or_default();
        if write {
            fs::write(&file, &listed)?;
        } else if committed != listed {
            differ = true;
            print_difference(library, &committed, &listed);
        }
    }
    for file in stale {
        match write {
            true => fs::remove_file(file)?,
            false => {
                differ = true;
                println!("{}: there is no such library", file.display());
            }
        }
    }
    if differ {
        println!("If this is meant: {COMMAND}");
        return Ok(ExitCode::FAILURE);
    }
    println!("{} libraries, as in docs/public-api", libraries.len());
    Ok(ExitCode::SUCCESS)
}

/// The target folder, and the libraries of the workspace but those of the tests.
fn libraries(root: &Path) -> Result<(PathBuf, Vec<String>), Box<dyn Error>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]).current_dir(root);
    let metadata: Value = serde_json::from_slice(&cargo.output()?.stdout)?;
    let mut libraries = Vec::new();
    for package in metadata["packages"].as_array().ok_or("no packages")? {
        let manifest = Path::new(package["manifest_path"].as_str().ok_or("no manifest")?);
        let of_tests = manifest.starts_with(root.join("tests"));
        let targets = package["targets"].as_array().ok_or("no targets")?;
        if !of_tests && targets.iter().any(|target| target["kind"][0] == "lib") {
            libraries.push(package["name"].as_str().ok_or("no name")?.to_owned());
        }
    }
    let target = metadata["target_directory"].as_str().ok_or("no target folder")?;
    Ok((target.into(), libraries))
}

/// Writes the JSON of the libraries' documentation.
fn document(root: &Path, libraries: &[String]) -> Result<(), Box<dyn Error>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["doc", "--locked", "--quiet", "--no-deps", "--lib", "--all-features"]).current_dir(root);
    cargo.args(libraries.iter().flat_map(|library| ["-p", library]));
    cargo.env("RUSTDOC", root.join("tests/public-api/rustdoc"));
    cargo.env("RUSTDOCFLAGS", "-Zunstable-options --output-format json --cap-lints allow");
    match cargo.status()?.success() {
        true => Ok(()),
        false => Err("rustdoc failed".into()),
    }
}

/// The public items of one library, one a line; `None` if the JSON is of another version.
fn list(json: &Path) -> Result<Option<String>, Box<dyn Error>> {
    let text = fs::read_to_string(json)?;
    let parsed: Value = serde_json::from_str(&text)?;
    if parsed["format_version"] != FORMAT {
        return Ok(None);
    }
    let mut builder = public_api::Builder::from_rustdoc_json(json);
    builder = builder.omit_blanket_impls(true).omit_auto_trait_impls(true).omit_auto_derived_impls(true);
    let items: PublicApi = builder.build()?;
    Ok(Some(items.items().map(|item| format!("{item}\n")).collect()))
}

fn print_difference(library: &str, committed: &str, listed: &str) {
    println!("public items of {library}:");
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (committed.lines().collect(), listed.lines().collect());
    new.difference(&old).for_each(|line| println!("  + {line}"));
    old.difference(&new).for_each(|line| println!("  - {line}"));
}
