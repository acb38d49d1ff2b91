//! What the cards are expected to do with a set.

use cmdseq::plan::{Program, ProgramSet};
use cmdseq::{Flags, Instruction, Operand, Operation, Status};

use super::set::{DEFINED, ENTRIES, RandomSet};
use super::stored::{has_logic, stored};

/// What the interpreter runs in place of a program: what is launched, logic that copies, and a nop for what only changes slots and
/// communicators, or begins or ends a launch: other lanes wait for it.
pub(crate) fn meant(set: &ProgramSet) -> ProgramSet {
    let ranks = set.programs.len() as u32;
    let plain = |rank: usize, it: &Instruction| -> Vec<Instruction> {
        match it.operation {
            Operation::Group | Operation::Free | Operation::Store | Operation::Table => vec![Instruction::nop()],
            Operation::User => vec![Instruction::copy(it.source, it.destination, it.bytes)],
            Operation::Launch => {
                let arguments = [it.source.address, it.destination.address];
                let add = |side: Operand| match side.argument {
                    Some(argument) => Operand::card(side.address + arguments[usize::from(argument)]),
                    None => side,
                };
                let launched = stored(rank, ranks).into_iter().find(|one| one.slot == it.extent);
                let launched = launched.map_or_else(Vec::new, |one| one.instructions).into_iter();
                let launched =
                    launched.map(|it| Instruction { source: add(it.source), destination: add(it.destination), ..it });
                [Instruction::nop()].into_iter().chain(launched).chain([Instruction::nop()]).collect()
            }
            _ => vec![*it],
        }
    };
    let of_rank = |(rank, program): (usize, &Program)| Program {
        instructions: program.instructions.iter().flat_map(|it| plain(rank, it)).collect(),
        tables: program.tables.clone(),
        ..Program::default()
    };
    ProgramSet { programs: set.programs.iter().enumerate().map(of_rank).collect(), ..set.clone() }
}

/// The statuses of which one is that of an instruction whose content is wrong, by `docs/verifier.md`; none if it is right.
/// `None` if it reads beyond what it was given.
pub(crate) fn fails_as(rank: usize, it: &Instruction, set: &RandomSet, host: u64) -> Option<&'static [Status]> {
    let ranks = set.set.programs.len() as u32;
    let content = || {
        let from = usize::try_from(it.source.address.checked_sub(host)?).ok()?;
        set.contents[rank].get(from..from.checked_add(it.bytes as usize)?)
    };
    match it.operation {
        Operation::User => Some(if has_logic(rank, ranks) { &[] } else { &[Status::NoUserLogic] }),
        // In these entries lies what the host calls the set's communicators.
        Operation::Group if it.communicator % ENTRIES < DEFINED => None,
        Operation::Group => {
            let nodes: Vec<u16> = content()?.chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
            let different: std::collections::BTreeSet<u16> = nodes.iter().copied().collect();
            let is_right = different.len() == nodes.len()
                && nodes.iter().all(|node| u32::from(*node) < ranks)
                && nodes.contains(&(rank as u16));
            Some(if is_right { &[] } else { &[Status::BadCommunicator, Status::NotMember] })
        }
        Operation::Store => {
            let words: Vec<_> = content()?.as_chunks::<64>().0.iter().map(Instruction::decode).collect();
            let is_right = words.iter().enumerate().all(|(place, word)| {
                word.as_ref().is_ok_and(|it| {
                    it.flags.contains(Flags::LAST) == (place + 1 == words.len())
                        && !matches!(it.operation, Operation::Launch | Operation::Store | Operation::Loop)
                })
            });
            Some(if is_right { &[] } else { &[Status::BadProgram] })
        }
        // Whatever the entries are: it is the use of a table that looks at them.
        Operation::Table => content().map(|_| &[][..]),
        _ => Some(&[]),
    }
}
