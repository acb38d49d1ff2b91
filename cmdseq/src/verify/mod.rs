//! Checks the programs of all ranks together before any card gets them.
//!
//! First each instruction by itself: fields, communicator, ranks, links, addresses. Then all programs side by side: whether
//! every instruction finds its partners, in an order in which none waits for ever, and whether one-sided transfers and
//! signals leave alone what others use. `docs/verifier.md` says what is claimed of programs that pass, and what is not.

mod barrier;
mod instruction;
mod order;
mod races;
mod resident;
#[cfg(test)]
pub(crate) mod sample;
mod shadow;
mod slots;
mod spread;

use crate::Capabilities;
use crate::matching::{Matching, Members, is_one_sided};
use crate::program::{Communicator, Program};

use instruction::Instructions;
use races::Races;
use slots::Slots;
use spread::Spans;

pub use crate::refusal::{Reason, Refusal};
pub(crate) use barrier::early_end;
pub(crate) use instruction::check_combine;
pub(crate) use resident::Unrolled;
pub use resident::{Stored, verify_in_flight, verify_launches, verify_resident};

/// Verifies one program for each rank of `group`, with `communicators` defined on their members and the tables of the
/// programs in their slots. All signals are zero before.
///
/// # Errors
/// The first thing that a card would refuse or wait for in vain, or that would come out differently from run to run: which
/// rank, which instruction, why, and what would be right. Of partners that disagree, the one that is alone with what it
/// says is named.
pub fn verify(
    programs: &[Program],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    check(programs, communicators, group, capabilities).map(|_| ())
}

/// As [`verify`], and gives who is a member of what.
pub(crate) fn check(
    programs: &[Program],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<Members, Refusal> {
    if programs.len() != group.len() {
        let cause = format!("{} programs for {} ranks; each rank needs one", programs.len(), group.len());
        return Err(Refusal::general(cause).because(Reason::Programs));
    }
    if let Some(rank) = group.iter().position(|node| *node >= capabilities.nodes) {
        let cause = format!("there is no node {}; the fabric has {}", group[rank], capabilities.nodes);
        return Err(Refusal::of(rank, cause).because(Reason::Programs));
    }
    let members = Members::new(communicators, group, capabilities)?;
    let mut instructions = Instructions::new(&members, capabilities);
    let mut has_one_sided = false;
    for (rank, program) in programs.iter().enumerate() {
        check_tables(rank, program, capabilities)?;
        let spans = Spans::new(&program.tables);
        let mut slots = Slots::default();
        for (index, instruction) in program.instructions.iter().enumerate() {
            let checked = instructions.check(rank, instruction, &program.tables, &spans);
            let occupant = |id| members.occupant(rank, id);
            checked.and_then(|()| slots.step(index, instruction, occupant)).map_err(|fault| {
                let cause = format!("{}: {}", instruction.operation, fault.cause);
                Refusal::at(rank, index, cause).because(fault.reason)
            })?;
            has_one_sided |= is_one_sided(instruction.operation);
        }
    }
    drop(instructions);
    if has_one_sided {
        Races::check(programs, &members, capabilities)?;
    } else {
        let mut matching = Matching::new(programs, &members, capabilities);
        let mut together = Vec::new();
        while matching.step_into(&mut together)? {}
    }
    Ok(members)
}

fn check_tables(rank: usize, program: &Program, capabilities: &Capabilities) -> Result<(), Refusal> {
    for (slot, table) in &program.tables {
        table
            .check(*slot, capabilities)
            .map_err(|error| Refusal::of(rank, error.to_string()).because(Reason::Stored))?;
    }
    Ok(())
}
