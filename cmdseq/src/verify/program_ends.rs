//! Checks by vector clocks at begin and end of programs: whether they are a barrier together, and whether one-sided operations
//! reach a card only while its program runs.

use std::collections::BTreeMap;
use std::iter::once;

use super::order::{Signals, check_size};
use super::run;
use crate::Instruction;
use crate::matching::{Job, is_one_sided};
use crate::program::Program;
use crate::refusal::{Reason, Refusal};

/// Returns one of the first `ranks` ranks whose program may end before that of another begins; the programs are verified.
///
/// # Errors
/// As [`Matching::step`].
pub(crate) fn early_end(job: Job<'_>, ranks: usize) -> Result<Option<(usize, usize)>, Refusal> {
    let programs = begun(job)?;
    let job = Job { programs: &programs, ..job };
    run::until_none(Signals::new(job), |signals| {
        let clocks = run::clocks(job, signals, |_, _, _| Ok(()))?;
        let all = 0..ranks;
        Ok(all.clone().find_map(|rank| {
            let other = all.clone().find(|other| !clocks.is_over(*other, 0, rank))?;
            Some((rank, other))
        }))
    })
}

/// Refuses a one-sided operation that may reach a card before its program begins or after it ends; the programs are verified.
///
/// # Errors
/// As [`Matching::step`].
pub(super) fn reaches_outside_launch(job: Job<'_>) -> Result<Option<Refusal>, Refusal> {
    let programs = begun(job)?;
    let job = Job { programs: &programs, ..job };
    run::until_none(Signals::new(job), |signals| {
        let mut early = None;
        // The last instruction of each rank that reaches each other rank.
        let mut last: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let clocks = run::clocks(job, signals, |rank, index, clocks| {
            let Some(peer) = reached(job, rank, index) else { return Ok(()) };
            last.insert((rank, peer), index);
            if early.is_none() && !clocks.is_over(peer, 0, rank) {
                early = Some((rank, index, peer));
            }
            Ok(())
        })?;
        let late = || {
            let is_late = |((rank, peer), index): (&(usize, usize), &usize)| {
                (!clocks.is_over(*rank, *index, *peer)).then_some((*rank, *index, *peer))
            };
            last.iter().find_map(is_late)
        };
        let refusal = |(rank, index, peer): (usize, usize, usize), when: &str, where_to: &str| {
            let operation = job.instruction(rank, index).operation;
            let cause = format!(
                "{operation} reaches rank {peer}, {when}, where another launch may use the same memory; add a barrier \
                 {where_to}, or launch only after the last launch has finished"
            );
            Refusal::at(rank, index - 1, cause).because(Reason::Race)
        };
        let early = early.map(|it| refusal(it, "which may not have begun yet", "before it"));
        Ok(early.or_else(|| late().map(|it| refusal(it, "whose program may have ended already", "after it"))))
    })
}

/// Returns the programs with a nop before their first instruction: when the nop has ended, the program has begun.
fn begun(job: Job<'_>) -> Result<Vec<Program>, Refusal> {
    check_size(job.programs)?;
    let begun = |program: &Program| Program {
        instructions: once(Instruction::nop()).chain(program.instructions.iter().copied()).collect(),
        tables: program.tables.clone(),
        ..Program::default()
    };
    Ok(job.programs.iter().map(begun).collect())
}

/// Returns the rank whose memory or signals an instruction of `rank` reaches.
fn reached(job: Job<'_>, rank: usize, index: usize) -> Option<usize> {
    let instruction = job.instruction(rank, index);
    let is_empty = instruction.bytes == 0 && instruction.signal_value == 0;
    if !is_one_sided(instruction.operation) || is_empty {
        return None;
    }
    job.peer(rank, instruction)
}
