//! Whether programs are a barrier together: none ends before all have begun.

use std::iter::once;

use super::order::{Clocks, Signals, signal_of_put};
use super::races::MORE_RUNS;
use super::refusal::Refusal;
use crate::matching::{Matching, Members};
use crate::plan::Program;
use crate::{Capabilities, Instruction, Operation};

/// A rank whose program may end before that of the other rank begins, of programs that are verified.
///
/// # Errors
/// As [`Matching::step`].
pub(crate) fn early_end(
    programs: &[Program],
    members: &Members,
    capabilities: &Capabilities,
) -> Result<Option<(usize, usize)>, Refusal> {
    // That its first instruction is over says of a program that it has begun.
    let begun = |program: &Program| Program {
        instructions: once(Instruction::nop()).chain(program.instructions.iter().copied()).collect(),
        tables: program.tables.clone(),
        ..Program::default()
    };
    let programs: Vec<Program> = programs.iter().map(begun).collect();
    let mut signals = Signals::new(&programs, members);
    let mut runs = if signals.are_shared() { MORE_RUNS } else { 0 };
    loop {
        let clocks = run(&programs, members, capabilities, &mut signals)?;
        let all = 0..programs.len();
        let early = all.clone().find_map(|rank| {
            let other = all.clone().find(|other| !clocks.is_over(*other, 0, rank))?;
            Some((rank, other))
        });
        if early.is_none() || runs == 0 {
            return Ok(early);
        }
        runs -= 1;
        signals.again();
    }
}

/// What is over at the ends of the programs.
fn run(
    programs: &[Program],
    members: &Members,
    capabilities: &Capabilities,
    signals: &mut Signals,
) -> Result<Clocks, Refusal> {
    let mut clocks = Clocks::new(programs.len());
    let mut matching = Matching::new(programs, members, capabilities);
    let mut together = Vec::new();
    while matching.step_into(&mut together)? {
        for (rank, index) in together.iter().copied() {
            let instruction = &programs[rank].instructions[index];
            if let Some(signal) = signal_of_put(rank, instruction, members) {
                signals.put(rank, signal, &clocks);
            }
            if instruction.operation == Operation::WaitSignal {
                signals.wait((rank, index), instruction, &mut clocks);
            }
        }
        clocks.end_together(&together, programs, members, capabilities);
    }
    Ok(clocks)
}
