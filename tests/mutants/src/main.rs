//! Mutation testing with one build: `fpga-mutants [AREA...]`, from the root of the project.
//!
//! cargo-mutants lists the changes. Here each change stands in the code behind a switch, all of them in one build, so that trying
//! one costs only the tests that reach it. A change that no switch can hold (a constant, a pattern) is built on its own.
//!
//! 1. [`list`]: the mutants of the areas, from cargo-mutants.
//! 2. [`tree`]: a copy of the project with a switch for each mutant, built.
//! 3. [`reach`]: every test once, alone, to see which switches it reaches and how long it takes.
//! 4. [`attempt`]: every mutant with the tests that reach it, fastest first, those of its own crate before the others.
//! 5. [`plain`]: the mutants without a switch, one build each.
//! 6. [`kept`]: a verdict is on file as soon as it is known, and the next run does not try that mutant again.
//! 7. [`verdicts`]: what survived, and which survivors `tests/mutants.explained` explains.

mod area;
mod attempt;
mod kept;
mod list;
mod plain;
mod process;
mod reach;
mod switch;
mod tree;
mod verdicts;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use kept::Kept;
use list::Mutant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all were tried, and every survivor is explained.
fn run(names: &[String]) -> Result<bool> {
    let areas = area::named(names)?;
    let home = Path::new("target/mutants");
    fs::create_dir_all(home)?;
    let mutants = list::mutants(&areas)?;
    let (kept, mut verdicts) = Kept::open(&home.join("kept.jsonl"), &mutants)?;
    println!("{} mutants, {} of them tried before", mutants.len(), verdicts.len());

    let open: Vec<&Mutant> = mutants.iter().filter(|mutant| !verdicts.contains_key(&mutant.id)).collect();
    if !open.is_empty() {
        let switched = tree::build(&home.join("switched"), &open)?;
        println!("{} behind switches, in {} test binaries", switched.ids.len(), switched.binaries.len());
        let tests = reach::tests(&switched.binaries)?;
        verdicts.extend(attempt::all(&open, &switched.ids, &tests, &kept));

        let rest: Vec<&Mutant> = open.into_iter().filter(|mutant| !switched.ids.contains(&mutant.id)).collect();
        println!("{} to build one by one", rest.len());
        if std::env::var("MUTANTS_BUILDS").as_deref() != Ok("0") {
            verdicts.extend(plain::all(&home.join("plain"), &rest, &kept)?);
        }
    }
    verdicts::write(&home.join("verdicts.txt"), &mutants, &verdicts)?;
    verdicts::report(&areas, &mutants, &verdicts, Path::new("tests/mutants.explained"))
}
