//! Tries mutants with the tests that reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::kept::Kept;
use crate::list::Mutant;
use crate::process::{Desk, Outcome, Switched};
use crate::reach::Test;

/// Tests of one binary run together up to this time: a process costs more than most tests.
const TOGETHER: f64 = 1.0;

#[derive(Clone, Serialize, Deserialize)]
pub enum Verdict {
    /// By the test that this line names.
    Caught(String),
    /// The tests did not end, or took all memory.
    Stopped,
    /// After so many tests of all those that reach it.
    Survived { tried: usize, reaching: usize },
    /// The compiler refuses it.
    Unviable,
}

pub fn all(mutants: &[&Mutant], switched: &BTreeSet<u32>, tests: &[Test], kept: &Kept) -> BTreeMap<u32, Verdict> {
    let picked: Vec<&Mutant> = mutants.iter().copied().filter(|mutant| switched.contains(&mutant.id)).collect();
    let verdicts = side_by_side(picked, "mutants", |desk, mutant| {
        let reaching = tests.iter().filter(|test| test.ids.contains(&mutant.id)).collect();
        let verdict = attempt(desk, mutant, reaching, Switched::On(mutant.id));
        kept.add(mutant, &verdict);
        Some((mutant.id, verdict))
    });
    verdicts.into_iter().collect()
}

/// Most seconds of tests of other crates for each mutant.
pub fn far_seconds() -> f64 {
    std::env::var("MUTANTS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20.0)
}

/// Tries a mutant with tests in order of time, those of its own crate first.
///
/// Tests of other crates are tried for at most MUTANTS_SECONDS (20), because a place that everything passes through would take an hour.
pub fn attempt(desk: &Desk, mutant: &Mutant, tests: Vec<&Test>, switched: Switched) -> Verdict {
    let reaching = tests.len();
    let home = mutant.file.split_once("/src/").map_or("", |(home, _)| home);
    let (near, far): (Vec<&Test>, Vec<&Test>) =
        tests.into_iter().partition(|test| test.binary.folder.ends_with(&format!("/{home}")));
    let mut tried = 0;
    for (tests, bound) in [(near, f64::INFINITY), (far, far_seconds())] {
        let mut spent = 0.0;
        for group in grouped(tests) {
            let seconds: f64 = group.iter().map(|test| test.seconds).sum();
            if spent + seconds > bound {
                break;
            }
            spent += seconds;
            tried += group.len();
            let names: Vec<&str> = group.iter().map(|test| test.name.as_str()).collect();
            let run = || desk.run(&group[0].binary, &names, switched, Duration::from_secs_f64(8.0 + 4.0 * seconds));
            // A test that fails once and then passes has noticed how busy the machine is.
            match run().and_then(|first| if matches!(first, Outcome::Failed(_)) { run() } else { Ok(first) }) {
                Ok(Outcome::Passed(_)) => {}
                Ok(Outcome::Failed(test)) => return Verdict::Caught(test),
                Ok(Outcome::Stopped) => return Verdict::Stopped,
                Err(error) => eprintln!("{}: {error}", mutant.name),
            }
        }
    }
    Verdict::Survived { tried, reaching }
}

/// Groups tests of one binary, fastest first.
fn grouped(mut tests: Vec<&Test>) -> Vec<Vec<&Test>> {
    let mut groups = Vec::new();
    while let Some(first) = tests.first().copied() {
        let mut seconds = 0.0;
        let (group, rest) = tests.into_iter().partition(|test| {
            let is_short = !test.is_alone && seconds + test.seconds < TOGETHER;
            let fits = test.binary == first.binary && (seconds == 0.0 || is_short);
            seconds += if fits { test.seconds } else { 0.0 };
            fits
        });
        groups.push(group);
        tests = rest;
    }
    groups
}

/// Does work with two workers for each core, because tests often wait, and says how far it is.
pub fn side_by_side<W: Send, R: Send>(
    mut work: Vec<W>,
    what: &str,
    step: impl Fn(&Desk, W) -> Option<R> + Sync,
) -> Vec<R> {
    let (begin, total) = (Instant::now(), work.len());
    work.reverse();
    let (work, done) = (Mutex::new(work), Mutex::new((0, Vec::new())));
    let workers = 2 * std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (work, done, step) = (&work, &done, &step);
            scope.spawn(move || {
                let desk = Desk::new(worker);
                loop {
                    let Some(next) = work.lock().unwrap().pop() else { return };
                    let result = step(&desk, next);
                    let mut done = done.lock().unwrap();
                    done.0 += 1;
                    done.1.extend(result);
                    if done.0 % 100 == 0 {
                        println!("{} of {total} {what}, {} s", done.0, begin.elapsed().as_secs());
                    }
                }
            });
        }
    });
    done.into_inner().unwrap().1
}
