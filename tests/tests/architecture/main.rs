//! Files use each other in one direction.
#![forbid(unsafe_code)]

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use imports::Sources;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn sources() -> Sources {
    let mut sources = Sources::default();
    for (name, folder) in [
        ("cmdseq", "cmdseq/src"),
        ("fpga_regs", "driver/regs/src"),
        ("fpga_pci", "hal/pci/src"),
        ("fpga_sysfs", "hal/sysfs/src"),
        ("fpga_hal", "hal/src"),
        ("fpga_driver", "driver/src"),
        ("fpga_mock", "mock/src"),
        ("fpga_select", "tools/select/src"),
        ("fpgactl", "tools/src"),
    ] {
        sources.add(name, &root().join(folder));
    }
    sources
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

/// Groups of files that use each other in a circle.
fn circles(arrows: &BTreeSet<(PathBuf, PathBuf)>) -> Vec<BTreeSet<&Path>> {
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

/// Crates with circles that are still to be undone.
const TO_DO: [&str; 1] = ["mock/src"];

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut arrows = sources().arrows();
    assert!(arrows.len() > 300, "{} arrows were found: the code was not read", arrows.len());
    arrows.retain(|(from, _)| !TO_DO.iter().any(|folder| from.starts_with(root().join(folder))));
    let short = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    let mut text = String::new();
    for circle in circles(&arrows) {
        text += &format!("\n{} files:\n", circle.len());
        for (from, to) in &arrows {
            if circle.contains(from.as_path()) && circle.contains(to.as_path()) {
                text += &format!("  {} uses {}\n", short(from), short(to));
            }
        }
    }
    assert!(text.is_empty(), "files use each other in circles:{text}");
}
