//! Checks by vector clocks at begin and end of programs: whether they are a barrier together, and whether one-sided operations
//! reach a card only while its program runs.

use std::collections::BTreeMap;
use std::iter::once;

use super::order::{Signals, check_size};
use super::run::Run;
use crate::matching::{Members, is_one_sided};
use crate::program::Program;
use crate::refusal::{Reason, Refusal};
use crate::{Capabilities, Instruction};

/// Returns one of the first `ranks` ranks whose program may end before that of another begins; the programs are verified.
///
/// # Errors
/// As [`Matching::step`].
pub(crate) fn early_end(
    programs: &[Program],
    ranks: usize,
    members: &Members,
    capabilities: &Capabilities,
) -> Result<Option<(usize, usize)>, Refusal> {
    let begun = Begun::new(programs, members)?;
    let run = begun.run(capabilities);
    run.until_none(begun.signals(), |signals| {
        let clocks = run.clocks(signals, |_, _, _| Ok(()))?;
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
pub(super) fn stray(
    programs: &[Program],
    members: &Members,
    capabilities: &Capabilities,
) -> Result<Option<Refusal>, Refusal> {
    let begun = Begun::new(programs, members)?;
    let run = begun.run(capabilities);
    run.until_none(begun.signals(), |signals| {
        let mut early = None;
        // The last instruction of each rank that reaches each other rank.
        let mut last: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let clocks = run.clocks(signals, |rank, index, clocks| {
            let Some(peer) = begun.reached(rank, index) else { return Ok(()) };
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
            let operation = begun.programs[rank].instructions[index].operation;
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

/// Programs with a nop before their first instruction: when the nop has ended, the program has begun.
struct Begun<'a> {
    programs: Vec<Program>,
    members: &'a Members,
}

impl<'a> Begun<'a> {
    fn new(programs: &[Program], members: &'a Members) -> Result<Self, Refusal> {
        check_size(programs)?;
        let begun = |program: &Program| Program {
            instructions: once(Instruction::nop()).chain(program.instructions.iter().copied()).collect(),
            tables: program.tables.clone(),
            ..Program::default()
        };
        Ok(Begun { programs: programs.iter().map(begun).collect(), members })
    }

    fn run<'b>(&'b self, capabilities: &'b Capabilities) -> Run<'b> {
        Run { programs: &self.programs, members: self.members, capabilities }
    }

    fn signals(&self) -> Signals {
        Signals::new(&self.programs, self.members)
    }

    /// Returns the rank whose memory or signals an instruction of `rank` reaches.
    fn reached(&self, rank: usize, index: usize) -> Option<usize> {
        let instruction = &self.programs[rank].instructions[index];
        let is_empty = instruction.bytes == 0 && instruction.signal_value == 0;
        if !is_one_sided(instruction.operation) || is_empty {
            return None;
        }
        self.members.of(rank, instruction)?.program_rank(instruction.peer.into())
    }
}
