//! Mutants that no switch can hold: each is built on its own, and tried with the tests of its crate.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::attempt::{Verdict, attempt};
use crate::kept::Kept;
use crate::list::Mutant;
use crate::process::{Desk, Switched};
use crate::reach::{Test, tests};
use crate::tree::{Build, changed, copy};

pub fn all(tree: &Path, mutants: &[&Mutant], kept: &Kept) -> Result<BTreeMap<u32, Verdict>> {
    let mut verdicts = BTreeMap::new();
    if mutants.is_empty() {
        return Ok(verdicts);
    }
    copy(tree)?;
    let desk = Desk::new(0);
    let mut times: BTreeMap<&str, Vec<Test>> = BTreeMap::new();
    for (done, mutant) in mutants.iter().enumerate() {
        let packages = ["-p", mutant.package.as_str()];
        if !times.contains_key(mutant.package.as_str()) {
            let built = Build::of(tree, &packages)?;
            times.insert(&mutant.package, tests(&built.binaries)?);
        }
        let original = fs::read_to_string(&mutant.file)?;
        fs::write(tree.join(&mutant.file), changed(&original, mutant))?;
        let built = Build::of(tree, &packages)?;
        let verdict = match built.is_whole {
            true => attempt(&desk, mutant, times[mutant.package.as_str()].iter().collect(), Switched::Absent),
            false => Verdict::Unviable,
        };
        kept.add(mutant, &verdict);
        verdicts.insert(mutant.id, verdict);
        fs::write(tree.join(&mutant.file), original)?;
        if (done + 1) % 20 == 0 {
            println!("{} of {} built one by one", done + 1, mutants.len());
        }
    }
    Ok(verdicts)
}
