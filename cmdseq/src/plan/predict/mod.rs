//! What programs should take, from a cost model and nothing else.
//!
//! Instructions that run together are timed together: each is dispatched, reads memory, waits for its partners if it must,
//! puts its beats on the links, and ends when the signals of its partners are back; the next is issued after the hand-over.
//! What a step waits for is known before anything moves, so all streams of the step are known, and only what they share
//! (links, pseudo channels, reduction units) is worked out from change to change. Cards meet only in their steps:
//! what each carries to its next one is when it gets there. Steps in different lanes are timed as if each had the memory for
//! itself, so programs should give them different pseudo channels. Over routers, steps of different cards share links: there, all
//! that goes on at a time is timed together.

mod alike;
mod clock;
mod earliest;
mod flow;
mod issues;
mod signals;
mod step;
mod switched;
mod times;
mod together;
mod wires;

use super::outcome::Prediction;
use crate::cost::{CostModel, Moment};
use crate::matching::{Job, Matching};
use crate::program::ProgramSet;
use crate::refusal::Refusal;
use crate::{Capabilities, verify};
use alike::Alike;
use clock::Clock;
use issues::Issues;
use step::{Part, Step};
use times::Times;

pub(super) use earliest::at_least;

/// Verifies programs and predicts their times, if all cards begin at the same time, with the reported parameters.
///
/// # Errors
/// As [`verify::verify`].
pub fn predict(set: &ProgramSet, capabilities: &Capabilities) -> Result<Prediction, Refusal> {
    predict_with(set, capabilities, &CostModel::stated(capabilities))
}

/// As [`predict`], with the parameters of `model`.
///
/// # Errors
/// As [`verify::verify`].
pub fn predict_with(set: &ProgramSet, capabilities: &Capabilities, model: &CostModel) -> Result<Prediction, Refusal> {
    let members = verify::check(set, capabilities)?;
    predict_steps(Job { programs: &set.programs, members: &members, capabilities }, model, false)
}

/// Verifies programs and predicts when each of them ends, in picoseconds, if all cards begin at the same time, with the reported
/// parameters.
///
/// # Errors
/// As [`verify::verify`].
pub fn predict_ends(set: &ProgramSet, capabilities: &Capabilities) -> Result<Vec<u64>, Refusal> {
    let members = verify::check(set, capabilities)?;
    let job = Job { programs: &set.programs, members: &members, capabilities };
    let mut ends = vec![0; set.programs.len()];
    each_step(job, &CostModel::stated(capabilities), |rank, times| {
        ends[rank] = times.t2.ps.max(ends[rank]);
    })?;
    Ok(ends)
}

/// As [`predict_with`], for programs that were checked. `is_barrier`: nothing is moved for its own sake, so the arrival is when
/// the last card is through.
pub(super) fn predict_steps(job: Job<'_>, model: &CostModel, is_barrier: bool) -> Result<Prediction, Refusal> {
    let [mut t1, mut t2, mut arrival] = [Moment::default(); 3];
    each_step(job, model, |_, times| {
        t1 = t1.max(times.t1);
        t2 = t2.max(times.t2);
        arrival = arrival.max(times.arrival.unwrap_or_default());
    })?;
    if is_barrier || arrival.ps == 0 {
        arrival = t2;
    }
    Ok(Prediction { t1_ps: t1.ps, t2_ps: t2.ps, arrival_ps: arrival.ps, terms: arrival.terms })
}

/// Times all instructions of programs that were checked, and tells the rank and the times of each.
fn each_step(job: Job<'_>, model: &CostModel, mut timed: impl FnMut(usize, &Times)) -> Result<(), Refusal> {
    let Job { programs, capabilities, .. } = job;
    let clock = Clock { capabilities, model };
    if capabilities.topology.has_routers() {
        return together::each_step(job, &clock, timed);
    }
    let mut step = Step::new(&clock, programs.len());
    let mut issues = Issues::new(&clock, job);
    let mut alike = Alike::new(job, &clock);
    let mut matching = Matching::new(job);
    while let Some(together) = matching.step()? {
        let issued: Vec<Moment> = together.iter().map(|(rank, index)| issues.of(*rank, *index)).collect();
        let shape = alike.shape(&together, &issued);
        let times = shape.as_ref().and_then(|shape| alike.find(shape, &issued)).unwrap_or_else(|| {
            let parts = together.iter().zip(&issued).map(|(one, issue)| Part::new(*one, *issue, job));
            let mut parts: Vec<Part<'_>> = parts.collect();
            step.pair(&mut parts);
            let times = step.run(&parts);
            if let Some(shape) = shape {
                alike.add(shape, issued, times.clone());
            }
            times
        });
        for ((rank, index), times) in together.iter().zip(times) {
            timed(*rank, &times);
            issues.end(*rank, *index, times.t2);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
