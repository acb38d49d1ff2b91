//! Which tests reach which mutants.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::attempt::side_by_side;
use crate::process::{Binary, Outcome, Switched};

/// Far beyond the slowest test.
const LIMIT: Duration = Duration::from_secs(600);

pub struct Test {
    pub binary: Binary,
    pub name: String,
    /// Its runner takes only one name.
    pub is_alone: bool,
    /// How long it takes alone, without waiting for a core.
    pub seconds: f64,
    /// Mutants whose switches it reaches.
    pub ids: BTreeSet<u32>,
}

/// Runs every test of the binaries alone, without a mutant. A test that does not pass on a switched build is left out.
pub fn tests(binaries: &[Binary]) -> Result<Vec<Test>> {
    let mut names = Vec::new();
    for binary in binaries {
        let output =
            Command::new(&binary.path).args(["--list", "--format", "terse"]).current_dir(&binary.folder).output()?;
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut found = listed.lines().filter_map(|line| line.strip_suffix(": test")).peekable();
        // Only of a binary that has named tests: others run all they have.
        let is_alone = found.peek().is_some()
            && !Command::new(&binary.path).args(["--list", "one", "two"]).output()?.status.success();
        names.extend(found.map(|name| (binary.clone(), name.to_owned(), is_alone)));
    }
    let total = names.len();
    let mut tests: Vec<Test> = side_by_side(names, "tests", |desk, (binary, name, is_alone)| {
        match desk.run(&binary, &[&name], Switched::Record, LIMIT) {
            Ok(Outcome::Passed(time)) => Some(Test {
                binary,
                name,
                is_alone,
                seconds: time.as_secs_f64(),
                ids: desk.reached().into_iter().collect(),
            }),
            _ => {
                println!("left out, because it fails without a mutant: {name}");
                None
            }
        }
    });
    tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    println!(
        "{} of {total} tests pass, {:.0} s one by one",
        tests.len(),
        tests.iter().map(|test| test.seconds).sum::<f64>()
    );
    Ok(tests)
}
