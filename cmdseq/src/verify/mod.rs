//! The verifier: checks the programs of all ranks together before any card runs them.
//!
//! It checks each instruction by itself (`instruction`, `slots`), then all programs together: that every instruction meets its
//! partners (`matching`), that no one-sided transfer races (`races`, by the vector clocks of `order`) or misses its window
//! (`windows`), and that exchanges which run at once use different memory (`lanes`).
//! Resident programs are unrolled first (`resident`). `docs/verifier.md` lists the guarantees. For programs that name no windows,
//! `exposure` finds those to open before they run.
//!
//! The verifier uses instructions, [`ranges`](crate::ranges), programs, refusals and matching, and never the planner.

mod bounds;
mod exposure;
mod instruction;
mod lanes;
mod order;
mod program_ends;
mod races;
mod resident;
mod run;
#[cfg(test)]
pub(crate) mod sample;
mod shadow;
mod slots;
mod windows;

use std::collections::HashSet;

use crate::Capabilities;
use crate::matching::{Job, Matching, Members};
use crate::program::{Program, ProgramSet};
use crate::ranges::Spans;
use crate::refusal::{Declaration, Reason, Refusal};

use instruction::Instructions;
use races::Races;
use slots::Slots;

pub use exposure::{Exposed, Exposure, exposure};
pub(crate) use instruction::check_combine;
pub(crate) use program_ends::early_end;
pub use resident::{Stored, verify_in_flight, verify_launches, verify_resident};
pub(crate) use resident::{Unrolled, check_storable};

/// Verifies a program set. Before the programs, its communicators are defined on their members, the programs' tables are in their
/// slots, and all signals are zero.
///
/// # Errors
/// The first instruction that a card would refuse, that would wait forever, or whose result could differ between runs. If
/// partners disagree, the one that disagrees with most others is named.
pub fn verify(set: &ProgramSet, capabilities: &Capabilities) -> Result<(), Refusal> {
    check(set, capabilities).map(|_| ())
}

/// As [`verify`]; returns the members of all communicators.
pub(crate) fn check(set: &ProgramSet, capabilities: &Capabilities) -> Result<Members, Refusal> {
    let ProgramSet { nodes, programs, .. } = set;
    if programs.len() != nodes.len() {
        let cause = format!("{} programs for {} ranks: each rank needs one", programs.len(), nodes.len());
        return Err(Refusal::general(cause).because(Reason::Programs));
    }
    if let Some(rank) = nodes.iter().position(|node| *node >= capabilities.nodes) {
        let cause = format!("no node {} (the fabric has {} nodes)", nodes[rank], capabilities.nodes);
        return Err(Refusal::of(rank, cause).because(Reason::Programs));
    }
    let mut named = HashSet::new();
    if let Some(rank) = nodes.iter().position(|node| !named.insert(*node)) {
        let cause = format!("node {} has the program of another rank: each rank needs a card of its own", nodes[rank]);
        return Err(Refusal::of(rank, cause).because(Reason::Programs));
    }
    let members = Members::new(set, capabilities)?;
    let job = Job { programs, members: &members, capabilities };
    if !check_each(job)? {
        let mut matching = Matching::new(job);
        let mut together = Vec::new();
        while matching.step_into(&mut together)? {}
    }
    Ok(members)
}

/// As [`verify`], but does not run [`Matching`] for programs without one-sided operations: the caller's prediction runs it.
pub(crate) fn check_without_matching(job: Job<'_>) -> Result<(), Refusal> {
    check_each(job).map(|_| ())
}

/// Checks each instruction by itself, and all that run at once. If there are one-sided operations, runs the programs and returns
/// true; else they must still be matched.
fn check_each(job: Job<'_>) -> Result<bool, Refusal> {
    let Job { programs, members, capabilities } = job;
    let count = programs.iter().map(|program| program.instructions.len()).sum();
    let mut instructions = Instructions::new(members, capabilities, count);
    let mut has_one_sided = false;
    let spans = Spans::of_each(programs.iter().map(|program| &program.tables));
    for (rank, program) in programs.iter().enumerate() {
        check_tables(rank, program, capabilities)?;
        let mut slots = Slots::default();
        for (index, instruction) in program.instructions.iter().enumerate() {
            let checked = instructions.check(rank, instruction, &program.tables, &spans[rank]);
            let occupant = |id| members.occupant(rank, id);
            checked.and_then(|()| slots.step(index, instruction, occupant)).map_err(|refusal| {
                let lane = if instruction.lane == 0 { String::new() } else { format!(" in lane {}", instruction.lane) };
                let cause = format!("{}{lane}: {}", instruction.operation, refusal.cause);
                Refusal { cause, ..refusal }.located(rank, index)
            })?;
            has_one_sided |= instruction.operation.fields().window;
        }
    }
    drop(instructions);
    lanes::check(job, &spans)?;
    if has_one_sided {
        windows::check_room(job)?;
        Races::check(job, &spans)?;
    }
    Ok(has_one_sided)
}

fn check_tables(rank: usize, program: &Program, capabilities: &Capabilities) -> Result<(), Refusal> {
    for (slot, table) in &program.tables {
        let declaration = Declaration::Table { rank: rank as u32, slot: *slot };
        table.check(*slot, capabilities).map_err(|error| {
            Refusal::of(rank, error.to_string()).because(Reason::Stored).in_declaration(Some(declaration))
        })?;
    }
    Ok(())
}
