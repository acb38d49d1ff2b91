//! Resident programs: launch arguments added, loops unrolled, and then verified as any others.

use std::collections::HashSet;

use super::barrier::stray;
use super::instruction::check_form;
use super::verify;
use crate::instruction::ARGUMENTS;
use crate::limits::EXPANDED_MAX;
use crate::matching::{Members, is_one_sided};
use crate::program::{Communicator, Program};
use crate::refusal::{Fault, Reason, Refusal};
use crate::{Capabilities, Flags, Instruction, Operation};

/// A program in a slot of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The slot.
    pub slot: u64,
    /// What is in it.
    pub instructions: Vec<Instruction>,
}

/// Verifies resident programs that are launched together, the one of each rank with its `arguments`. A rank without
/// instructions launches nothing.
///
/// # Errors
/// As [`verify`]; instructions are counted as they are stored.
pub fn verify_resident(
    programs: &[Program],
    arguments: &[[u64; ARGUMENTS]],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    let unrolled = Unrolled::of_resident(programs, arguments, capabilities)?;
    unrolled.located(verify(&unrolled.programs, communicators, group, capabilities))
}

/// Verifies that launches of resident programs, which [`verify_resident`] has accepted, may be in flight together with each
/// other and with launches of other such programs: cards run them in order, but not all cards at the same time.
///
/// # Errors
/// A one-sided operation that may reach a card outside of the time in which that card runs the same launch. Such programs are
/// launched only when nothing else is in flight.
pub fn verify_in_flight(
    programs: &[Program],
    arguments: &[[u64; ARGUMENTS]],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    let unrolled = Unrolled::of_resident(programs, arguments, capabilities)?;
    let is_one_sided = |program: &Program| program.instructions.iter().any(|one| is_one_sided(one.operation));
    if !unrolled.programs.iter().any(is_one_sided) {
        return Ok(());
    }
    let members = Members::new(communicators, group, capabilities)?;
    let found = stray(&unrolled.programs, &members, capabilities);
    unrolled.located(found.and_then(|stray| stray.map_or(Ok(()), Err)))
}

/// Verifies programs that launch what is `stored` on their cards before them, by rank. Programs in other slots cannot be
/// launched, nor what they store themselves.
///
/// # Errors
/// As [`verify`]; of a resident program, the instruction that launches it is named.
pub fn verify_launches(
    programs: &[Program],
    stored: &[Vec<Stored>],
    communicators: &[Communicator],
    group: &[u32],
    capabilities: &Capabilities,
) -> Result<(), Refusal> {
    let mut unrolled = Unrolled::default();
    let mut room = EXPANDED_MAX;
    for (rank, program) in programs.iter().enumerate() {
        let slots = stored.get(rank).map_or(&[][..], Vec::as_slice);
        let mut all = Expanded::default();
        let mut replaced: HashSet<u64> = HashSet::new();
        for (index, instruction) in program.instructions.iter().enumerate() {
            match instruction.operation {
                Operation::Store => {
                    replaced.insert(instruction.extent);
                }
                Operation::Launch if replaced.contains(&instruction.extent) => {
                    let cause = format!(
                        "launch: the program has stored another in slot {} before, and what that does is not known here",
                        instruction.extent
                    );
                    return Err(refusal(rank, index, Fault::new(Reason::Stored, cause)));
                }
                _ => {}
            }
            let is_launch = instruction.operation == Operation::Launch;
            match slots.iter().find(|one| is_launch && one.slot == instruction.extent) {
                Some(launched) => {
                    check_form(instruction, capabilities).map_err(|fault| refusal(rank, index, fault))?;
                    let arguments = [instruction.source.address, instruction.destination.address, instruction.bytes];
                    all.resident(&launched.instructions, arguments, Some(index), capabilities, &mut room)
                        .map_err(|(_, fault)| refusal(rank, index, fault))?;
                }
                None => all.push(*instruction, index, &mut room).map_err(|(at, fault)| refusal(rank, at, fault))?,
            }
        }
        unrolled.push(all, program);
    }
    unrolled.located(verify(&unrolled.programs, communicators, group, capabilities))
}

fn refusal(rank: usize, index: usize, fault: Fault) -> Refusal {
    Refusal::at(rank, index, fault.cause).because(fault.reason)
}

/// Programs of all ranks without loops and arguments.
#[derive(Debug, Default)]
pub(crate) struct Unrolled {
    /// They do the same as those that they were made of. Inputs and outputs lie where they lay.
    pub(crate) programs: Vec<Program>,
    /// By rank: where each instruction comes from.
    origins: Vec<Vec<usize>>,
}

impl Unrolled {
    /// Resident programs that are launched together, each with its `arguments`.
    ///
    /// # Errors
    /// What a card refuses to store, and what makes a second launch begin otherwise than the first.
    pub(crate) fn of_resident(
        programs: &[Program],
        arguments: &[[u64; ARGUMENTS]],
        capabilities: &Capabilities,
    ) -> Result<Self, Refusal> {
        if arguments.len() != programs.len() {
            let cause = format!("arguments of {} launches for {} programs", arguments.len(), programs.len());
            return Err(Refusal::general(cause).because(Reason::Programs));
        }
        let mut unrolled = Unrolled::default();
        let mut room = EXPANDED_MAX;
        for (rank, (program, arguments)) in programs.iter().zip(arguments).enumerate() {
            let mut all = Expanded::default();
            // Nothing is stored on a card without instructions, and nothing launched.
            if !program.instructions.is_empty() {
                all.resident(&program.instructions, *arguments, None, capabilities, &mut room)
                    .map_err(|(index, fault)| refusal(rank, index, fault))?;
            }
            unrolled.push(all, program);
        }
        Ok(unrolled)
    }

    fn push(&mut self, expanded: Expanded, program: &Program) {
        let Expanded { instructions, origins } = expanded;
        let (tables, input, output) = (program.tables.clone(), program.input.clone(), program.output.clone());
        self.programs.push(Program { instructions, input, output, tables });
        self.origins.push(origins);
    }

    /// What was found of these programs, said of those that they were made of.
    pub(crate) fn located<T>(&self, found: Result<T, Refusal>) -> Result<T, Refusal> {
        found.map_err(|mut refusal| {
            let at = refusal.rank.zip(refusal.instruction);
            let origin = at.and_then(|(rank, index)| self.origins.get(rank as usize)?.get(index).copied());
            if let (Some(origin), Some(index)) = (origin, refusal.instruction)
                && origin != index
            {
                refusal.instruction = Some(origin);
                refusal.cause += "; instructions in this sentence are counted with loops unrolled";
            }
            refusal
        })
    }
}

/// A program without loops and arguments, and where each of its instructions comes from.
#[derive(Debug, Default)]
struct Expanded {
    instructions: Vec<Instruction>,
    origins: Vec<usize>,
}

/// Which instruction is wrong, and how.
type Misplaced = (usize, Fault);

impl Expanded {
    fn push(&mut self, instruction: Instruction, origin: usize, room: &mut usize) -> Result<(), Misplaced> {
        *room = room.checked_sub(1).ok_or_else(|| {
            let cause = format!(
                "with its loops unrolled, more than {EXPANDED_MAX} instructions are to be verified (limit EXPANDED_MAX)"
            );
            (origin, Fault::new(Reason::TooLong, cause))
        })?;
        self.instructions.push(instruction);
        self.origins.push(origin);
        Ok(())
    }

    /// Adds a resident program; all of it comes from instruction `origin`, or each from its own place.
    fn resident(
        &mut self,
        program: &[Instruction],
        mut arguments: [u64; ARGUMENTS],
        origin: Option<usize>,
        capabilities: &Capabilities,
        room: &mut usize,
    ) -> Result<(), Misplaced> {
        check_stored(program, capabilities).map_err(|(at, fault)| (origin.unwrap_or(at), fault))?;
        let mut at = 0;
        while let Some(instruction) = program.get(at) {
            if instruction.operation != Operation::Loop {
                self.push(instruction.with_arguments(&arguments), origin.unwrap_or(at), room)?;
                at += 1;
                continue;
            }
            let end = at + 1 + usize::from(instruction.loop_body);
            for _ in 0..instruction.loop_count {
                for (place, one) in program[at + 1..end].iter().enumerate() {
                    self.push(one.with_arguments(&arguments), origin.unwrap_or(at + 1 + place), room)?;
                }
                if let Some(argument) = instruction.extent_argument.and_then(|it| arguments.get_mut(usize::from(it))) {
                    *argument = argument.wrapping_add(instruction.extent);
                }
            }
            at = end;
        }
        Ok(())
    }
}

/// What a card refuses to store, and what changes what the next launch begins with.
fn check_stored(program: &[Instruction], capabilities: &Capabilities) -> Result<(), Misplaced> {
    let refuse = |at: usize, reason, cause: String| Err((at, Fault::new(reason, cause)));
    if program.is_empty() || program.len() as u64 > u64::from(capabilities.resident_words) {
        let most = capabilities.resident_words;
        let cause = format!("a resident program has 1 to {most} instructions, and this one {}", program.len());
        return refuse(0, Reason::Stored, cause);
    }
    let mut body_end = 0;
    for (at, instruction) in program.iter().enumerate() {
        let is_early = instruction.flags.contains(Flags::LAST) && at + 1 < program.len();
        if is_early || matches!(instruction.operation, Operation::Launch | Operation::Store) {
            let what = if is_early { "ends before its end" } else { "starts or stores programs" };
            return refuse(at, Reason::Stored, format!("{}: a resident program never {what}", instruction.operation));
        }
        let lasting = match instruction.operation {
            Operation::Group | Operation::Free => Some("communicators"),
            Operation::Table => Some("tables"),
            _ => None,
        };
        if let Some(lasting) = lasting {
            let cause = format!(
                "{}: the next launch would begin with other {lasting} than this one; a program that is launched again and \
                 again leaves them as they are",
                instruction.operation
            );
            return refuse(at, Reason::Stored, cause);
        }
        if instruction.operation != Operation::Loop {
            continue;
        }
        instruction.check_fields().map_err(|error| (at, Fault::new(Reason::Field, error.to_string())))?;
        let end = at + 1 + usize::from(instruction.loop_body);
        if at < body_end || instruction.loop_count == 0 || instruction.loop_body == 0 || end > program.len() {
            let cause = format!(
                "loop: {} rounds of {} instructions, with {} behind it; a loop has rounds, a body that is there, and no loop in it",
                instruction.loop_count,
                instruction.loop_body,
                program.len() - at - 1
            );
            return refuse(at, Reason::Stored, cause);
        }
        body_end = end;
    }
    Ok(())
}
