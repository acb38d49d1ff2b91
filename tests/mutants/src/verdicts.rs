//! What the mutants say about the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Result;
use crate::area::Area;
use crate::attempt::Verdict;
use crate::list::Mutant;

/// Most survivors of an area that may be explained, of a hundred mutants.
const EXPLAINED_MAX: usize = 3;

/// The name of a mutant without line and column, which move with every edit.
fn lasting(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    let (Some(file), Some(_), Some(_), Some(change)) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return name.to_owned();
    };
    format!("{file}:{change}")
}

/// Writes the verdict on each mutant to a file.
pub fn write(path: &Path, mutants: &[Mutant], verdicts: &BTreeMap<u32, Verdict>) -> Result<()> {
    let line = |mutant: &Mutant| {
        let verdict = match verdicts.get(&mutant.id) {
            Some(Verdict::Caught(test)) => format!("caught by {test}"),
            Some(Verdict::Stopped) => "stopped by the limit".to_owned(),
            Some(Verdict::Survived { tried, reaching }) => format!("survived {tried} of {reaching} tests"),
            Some(Verdict::Unviable) => "does not compile".to_owned(),
            None => "not tried".to_owned(),
        };
        format!("{}\t{verdict}\n", mutant.name)
    };
    Ok(fs::write(path, mutants.iter().map(line).collect::<String>())?)
}

/// Prints the survivors and the sums of the areas. Whether all were tried, every survivor is explained, and few enough are.
pub fn report(areas: &[Area], mutants: &[Mutant], verdicts: &BTreeMap<u32, Verdict>, explained: &Path) -> Result<bool> {
    let explained = fs::read_to_string(explained)?;
    let explained: BTreeSet<&str> = explained.lines().map(|line| line.split('#').next().unwrap_or("").trim()).collect();
    let mut is_whole = true;
    for area in areas {
        let [mut caught, mut stopped, mut unviable, mut with_reason, mut without, mut untried] = [0; 6];
        for mutant in mutants.iter().filter(|mutant| area.has(&mutant.file)) {
            match verdicts.get(&mutant.id) {
                Some(Verdict::Caught(_)) => caught += 1,
                Some(Verdict::Stopped) => stopped += 1,
                Some(Verdict::Unviable) => unviable += 1,
                Some(Verdict::Survived { .. }) if explained.contains(lasting(&mutant.name).as_str()) => {
                    with_reason += 1
                }
                Some(Verdict::Survived { tried, reaching }) => {
                    without += 1;
                    println!("survived {tried} of {reaching} tests: {}", mutant.name);
                }
                None => untried += 1,
            }
        }
        let tried = caught + stopped + with_reason + without;
        println!(
            "{}: {tried} mutants, {caught} caught, {stopped} stopped by the limit, {with_reason} explained, {without} survived; {unviable} do not compile, {untried} not tried",
            area.name
        );
        if with_reason * 100 > tried * EXPLAINED_MAX {
            println!("{}: more than {EXPLAINED_MAX} % are explained", area.name);
            is_whole = false;
        }
        is_whole &= without == 0 && untried == 0;
    }
    Ok(is_whole)
}
