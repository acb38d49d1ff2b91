//! Verifies resident programs: adds launch arguments and unrolls loops, then verifies the result like any program.

use std::collections::HashSet;

use super::instruction::{check_form, check_word};
use super::program_ends::reaches_outside_launch;
use super::verify;
use crate::instruction::ARGUMENTS;
use crate::limits::EXPANDED_MAX;
use crate::matching::{Job, Members, is_one_sided};
use crate::program::{Program, ProgramSet};
use crate::refusal::{Declaration, Reason, Refusal, refuse};
use crate::{Capabilities, Flags, Instruction, Operation};

/// A program in a slot of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The slot.
    pub slot: u64,
    /// The stored program.
    pub instructions: Vec<Instruction>,
}

/// Verifies resident programs that are launched together, each rank's with its `arguments`. A rank with an empty program launches
/// nothing.
///
/// # Errors
/// As [`verify`], with indices of stored instructions.
pub fn verify_resident(
    set: &ProgramSet,
    arguments: &[[u64; ARGUMENTS]],
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    let unrolled = Unrolled::of_resident(set, arguments, capabilities)?;
    unrolled.located(verify(&unrolled.set, capabilities))
}

/// Verifies that launches of these resident programs, accepted by [`verify_resident`], may be in flight together, with each
/// other and with launches of other such programs. Each card runs launches in order, but not all cards at the same time.
///
/// # Errors
/// A one-sided operation that may reach a card while that card does not run the same launch. Launch such programs only while
/// nothing else is in flight.
pub fn verify_in_flight(
    set: &ProgramSet,
    arguments: &[[u64; ARGUMENTS]],
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    if !set.instructions().any(|one| is_one_sided(one.operation)) {
        return Ok(());
    }
    let unrolled = Unrolled::of_resident(set, arguments, capabilities)?;
    let members = Members::new(&unrolled.set, capabilities)?;
    let found = reaches_outside_launch(Job { programs: &unrolled.set.programs, members: &members, capabilities });
    unrolled.located(found.and_then(|refusal| refusal.map_or(Ok(()), Err)))
}

/// Verifies programs that launch the programs `stored` on their cards before, by rank. Launches of other slots are refused,
/// and launches of what the programs store themselves.
///
/// # Errors
/// As [`verify`]. An error in a stored program names the launching instruction.
pub fn verify_launches(set: &ProgramSet, stored: &[Vec<Stored>], capabilities: &Capabilities) -> Result<(), Refusal> {
    let mut unrolled = Unrolled::empty(set);
    let mut room = EXPANDED_MAX;
    for (rank, program) in set.programs.iter().enumerate() {
        let slots = stored.get(rank).map_or(&[][..], Vec::as_slice);
        let mut all = Expanded { rank, ..Expanded::default() };
        let mut replaced: HashSet<u64> = HashSet::new();
        for (index, instruction) in program.instructions.iter().enumerate() {
            match instruction.operation {
                Operation::Store => {
                    replaced.insert(instruction.extent);
                }
                Operation::Launch if replaced.contains(&instruction.extent) => {
                    let cause = format!(
                        "launch: an earlier store replaced the program in slot {}, whose content the verifier does not know",
                        instruction.extent
                    );
                    return Err(Refusal::at(rank, index, cause).because(Reason::Stored));
                }
                _ => {}
            }
            let is_launch = instruction.operation == Operation::Launch;
            match slots.iter().find(|one| is_launch && one.slot == instruction.extent) {
                Some(launched) => {
                    check_windows(launched, capabilities)
                        .and_then(|()| check_form(instruction, capabilities))
                        .map_err(|refusal| refusal.located(rank, index))?;
                    let arguments = [instruction.source.address, instruction.destination.address, instruction.bytes];
                    all.resident(&launched.instructions, arguments, Some(index), capabilities, &mut room)?;
                }
                None => all.push(*instruction, index, &mut room)?,
            }
        }
        unrolled.push(all, program);
    }
    unrolled.located(verify(&unrolled.set, capabilities))
}

/// Refuses a stored program whose one-sided operations name no windows: nobody opens any for a launch in the ring.
fn check_windows(stored: &Stored, capabilities: &Capabilities) -> Result<(), Refusal> {
    match stored.instructions.iter().position(Instruction::needs_window).filter(|_| capabilities.windows > 0) {
        Some(at) => {
            let cause = format!(
                "launch: instruction {at} of the stored program ({}) names no window, and a launch opens none; name one",
                stored.instructions[at].operation
            );
            refuse(Reason::Window, cause)
        }
        None => Ok(()),
    }
}

/// Programs of all ranks, with loops unrolled and arguments added.
#[derive(Debug)]
pub(crate) struct Unrolled {
    /// The unrolled programs, with the same inputs and outputs.
    pub(crate) set: ProgramSet,
    /// Indices of the original instructions, by rank.
    origins: Vec<Vec<usize>>,
}

impl Unrolled {
    /// Unrolls resident programs that are launched together, each with its `arguments`.
    ///
    /// # Errors
    /// Programs that a card refuses to store, and those that change the state in which the next launch begins.
    pub(crate) fn of_resident(
        set: &ProgramSet,
        arguments: &[[u64; ARGUMENTS]],
        capabilities: &Capabilities,
    ) -> Result<Self, Refusal> {
        if arguments.len() != set.programs.len() {
            let cause = format!("{} sets of launch arguments for {} programs", arguments.len(), set.programs.len());
            return Err(Refusal::general(cause).because(Reason::Programs));
        }
        check_storable(&set.programs, capabilities)?;
        let mut unrolled = Unrolled::empty(set);
        let mut room = EXPANDED_MAX;
        for (rank, (program, arguments)) in set.programs.iter().zip(arguments).enumerate() {
            let mut all = Expanded { rank, ..Expanded::default() };
            // An empty program is neither stored nor launched.
            if !program.instructions.is_empty() {
                all.resident(&program.instructions, *arguments, None, capabilities, &mut room)?;
            }
            unrolled.push(all, program);
        }
        Ok(unrolled)
    }

    /// Returns the nodes and communicators of `set`, without programs.
    fn empty(set: &ProgramSet) -> Self {
        let (nodes, communicators) = (set.nodes.clone(), set.communicators.clone());
        Unrolled { set: ProgramSet { nodes, programs: Vec::new(), communicators }, origins: Vec::new() }
    }

    fn push(&mut self, expanded: Expanded, program: &Program) {
        let Expanded { instructions, origins, .. } = expanded;
        let (tables, input, output) = (program.tables.clone(), program.input.clone(), program.output.clone());
        self.set.programs.push(Program { instructions, input, output, tables });
        self.origins.push(origins);
    }

    /// Returns the index of the original of an unrolled instruction.
    pub(super) fn origin(&self, rank: usize, index: usize) -> Option<usize> {
        self.origins.get(rank)?.get(index).copied()
    }

    /// Converts a refusal of the unrolled programs to one of the original programs.
    pub(crate) fn located<T>(&self, found: Result<T, Refusal>) -> Result<T, Refusal> {
        found.map_err(|mut refusal| {
            let at = refusal.rank.zip(refusal.instruction);
            let origin = at.and_then(|(rank, index)| self.origin(rank as usize, index));
            refusal.instruction = origin.or(refusal.instruction);
            let is_same = |origins: &Vec<usize>| origins.iter().enumerate().all(|(index, origin)| index == *origin);
            if names_instruction(&refusal.cause) && !self.origins.iter().all(is_same) {
                refusal.cause += "; other indices in this message count unrolled instructions";
            }
            refusal
        })
    }
}

/// Whether a cause names an instruction by its index.
fn names_instruction(cause: &str) -> bool {
    cause.split("instruction ").skip(1).any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// An unrolled program, with the indices of its original instructions.
#[derive(Debug, Default)]
struct Expanded {
    rank: usize,
    instructions: Vec<Instruction>,
    origins: Vec<usize>,
    /// Whether the next instruction waits for all before it, as the first of a launch, of a round, and after a launch does.
    is_fenced: bool,
}

impl Expanded {
    fn push(&mut self, mut instruction: Instruction, origin: usize, room: &mut usize) -> Result<(), Refusal> {
        *room = room.checked_sub(1).ok_or_else(|| {
            let cause = format!("more than {EXPANDED_MAX} instructions with loops unrolled (limit EXPANDED_MAX)");
            Refusal::at(self.rank, origin, cause).because(Reason::TooLong)
        })?;
        if std::mem::take(&mut self.is_fenced) {
            instruction.flags |= Flags::FENCE;
        }
        self.instructions.push(instruction);
        self.origins.push(origin);
        Ok(())
    }

    /// Appends a resident program. Its instructions originate from instruction `origin`, or from their own index.
    fn resident(
        &mut self,
        program: &[Instruction],
        mut arguments: [u64; ARGUMENTS],
        origin: Option<usize>,
        capabilities: &Capabilities,
        room: &mut usize,
    ) -> Result<(), Refusal> {
        check_stored(program, capabilities)
            .map_err(|(at, refusal)| refusal.located(self.rank, origin.unwrap_or(at)))?;
        let has_lanes = capabilities.lanes > 1;
        self.is_fenced = has_lanes;
        let mut at = 0;
        while let Some(instruction) = program.get(at) {
            if instruction.operation != Operation::Loop {
                self.push(instruction.with_arguments(&arguments), origin.unwrap_or(at), room)?;
                at += 1;
                continue;
            }
            let end = at + 1 + usize::from(instruction.loop_body);
            for _ in 0..instruction.loop_count {
                self.is_fenced = has_lanes;
                for (place, one) in program[at + 1..end].iter().enumerate() {
                    self.push(one.with_arguments(&arguments), origin.unwrap_or(at + 1 + place), room)?;
                }
                if let Some(argument) = instruction.extent_argument.and_then(|it| arguments.get_mut(usize::from(it))) {
                    *argument = argument.wrapping_add(instruction.extent);
                }
            }
            at = end;
        }
        self.is_fenced = has_lanes;
        Ok(())
    }
}

/// Refuses programs that need tables, or are too long to be stored. An empty program is not stored.
pub(crate) fn check_storable(programs: &[Program], capabilities: &Capabilities) -> Result<(), Refusal> {
    let refusal = |rank, cause: String| Refusal::of(rank, cause).because(Reason::Stored);
    for (rank, program) in programs.iter().enumerate() {
        if let Some(slot) = program.tables.keys().next() {
            let declaration = Declaration::Table { rank: rank as u32, slot: *slot };
            let cause = "needs tables, which no resident program has: other programs overwrite them";
            return Err(refusal(rank, cause.into()).in_declaration(Some(declaration)));
        }
        if let Err(cause) = check_length(program.instructions.len(), capabilities) {
            return Err(refusal(rank, cause));
        }
    }
    Ok(())
}

fn check_length(length: usize, capabilities: &Capabilities) -> Result<(), String> {
    let most = capabilities.resident_words;
    match length as u64 <= u64::from(most) {
        true => Ok(()),
        false => Err(format!("has {length} instructions: a resident program has at most {most}")),
    }
}

/// Refuses what a card refuses to store, and what changes the state in which the next launch begins, with the instruction's index.
fn check_stored(program: &[Instruction], capabilities: &Capabilities) -> Result<(), (usize, Refusal)> {
    let refuse = |at: usize, cause: String| Err((at, Refusal::general(cause).because(Reason::Stored)));
    if program.is_empty() {
        return refuse(0, "has no instructions: a resident program has at least 1".into());
    }
    check_length(program.len(), capabilities).or_else(|cause| refuse(0, cause))?;
    let mut body_end = 0;
    for (at, instruction) in program.iter().enumerate() {
        let is_early = instruction.flags.contains(Flags::LAST) && at + 1 < program.len();
        if is_early || matches!(instruction.operation, Operation::Launch | Operation::Store) {
            let what = if is_early { "ends before its last instruction" } else { "launches or stores programs" };
            return refuse(at, format!("{}: a resident program never {what}", instruction.operation));
        }
        let lasting = match instruction.operation {
            Operation::Group | Operation::Free => Some("communicators"),
            Operation::Table => Some("tables"),
            _ => None,
        };
        if let Some(lasting) = lasting {
            let cause = format!(
                "{}: the next launch would begin with different {lasting}; a resident program must not change them",
                instruction.operation
            );
            return refuse(at, cause);
        }
        if instruction.operation != Operation::Loop {
            continue;
        }
        // Unrolling leaves nothing of the loop itself.
        check_word(instruction, capabilities).map_err(|refusal| (at, refusal))?;
        let end = at + 1 + usize::from(instruction.loop_body);
        if at < body_end || instruction.loop_count == 0 || instruction.loop_body == 0 || end > program.len() {
            let cause = format!(
                "loop of {} rounds and {} instructions, with {} instructions after it: expected rounds, a complete body, and no loop in it",
                instruction.loop_count,
                instruction.loop_body,
                program.len() - at - 1
            );
            return refuse(at, cause);
        }
        body_end = end;
    }
    Ok(())
}
