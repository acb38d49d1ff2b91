//! Communicators, tables and resident programs that a program itself defines.

use std::collections::{HashMap, HashSet};

use crate::instruction::takes_tables;
use crate::matching::entry_of;
use crate::ranges::alltoallv_slots;
use crate::refusal::{Reason, Refusal, refuse};
use crate::{Instruction, Operation};

/// The definitions by the instructions so far.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The last `group` or `free` of each communicator, and its index.
    communicators: HashMap<u16, (usize, Operation)>,
    /// The communicator in each entry of the card's table that the program has defined and not freed.
    defined: HashMap<Option<u32>, u16>,
    /// Index of the instruction that stored each table.
    tables: HashMap<u64, usize>,
    /// Slots with stored programs.
    programs: HashSet<u64>,
}

impl Slots {
    /// Checks instruction `index` of the program and notes what it defines.
    ///
    /// `occupant` returns the communicator in the same table entry before the program.
    pub(super) fn step(
        &mut self,
        index: usize,
        instruction: &Instruction,
        occupant: impl Fn(u16) -> Option<u16>,
    ) -> Result<(), Refusal> {
        let Instruction { operation, communicator, extent, .. } = *instruction;
        match operation {
            Operation::Group | Operation::Free => {
                self.check_entry(instruction, occupant(communicator))?;
                self.communicators.insert(communicator, (index, operation));
                match operation {
                    Operation::Group => self.defined.insert(entry_of(communicator), communicator),
                    _ => self.defined.remove(&entry_of(communicator)),
                };
            }
            Operation::Table => {
                self.tables.insert(extent, index);
            }
            Operation::Store => {
                self.programs.insert(extent);
            }
            Operation::Launch if !self.programs.contains(&extent) => {
                let cause = format!("no program in slot {extent}; store one first");
                return refuse(Reason::Stored, cause);
            }
            _ => return self.check_use(instruction),
        }
        Ok(())
    }

    /// Checks that `group` finds a free entry, and `free` its communicator.
    fn check_entry(&self, instruction: &Instruction, before: Option<u16>) -> Result<(), Refusal> {
        let Instruction { operation, communicator, .. } = *instruction;
        let freed = |id: u16| self.communicators.get(&id).filter(|one| one.1 == Operation::Free).map(|one| one.0);
        let defined = self.defined.get(&entry_of(communicator)).copied();
        let occupant = defined.or(before.filter(|id| freed(*id).is_none()));
        match (operation, occupant) {
            (Operation::Free, Some(id)) if id == communicator => Ok(()),
            (Operation::Free, _) => match freed(communicator) {
                Some(at) => {
                    let cause = format!("instruction {at} already freed communicator {communicator}");
                    refuse(Reason::Membership, cause)
                }
                None => {
                    let cause = format!("communicator {communicator} is not defined on this card");
                    refuse(Reason::Membership, cause)
                }
            },
            (_, Some(id)) => {
                let cause = format!("communicator {id} occupies the same table entry; free it first");
                refuse(Reason::Communicators, cause)
            }
            (_, None) => Ok(()),
        }
    }

    /// Refuses the use of definitions from host memory, whose content is unknown.
    fn check_use(&self, instruction: &Instruction) -> Result<(), Refusal> {
        let Instruction { operation, communicator, extent, .. } = *instruction;
        if operation.fields().communicator
            && let Some((at, how)) = self.communicators.get(&communicator)
        {
            let what = if *how == Operation::Free { "freed" } else { "defined" };
            let cause = format!(
                "instruction {at} {what} communicator {communicator}, whose members the verifier does not know"
            );
            return refuse(Reason::Membership, cause);
        }
        let (sends, receives) =
            if operation == Operation::Alltoallv { alltoallv_slots(extent) } else { (extent, extent) };
        if takes_tables(operation)
            && let Some((slot, at)) =
                [sends, receives].into_iter().find_map(|slot| Some((slot, self.tables.get(&slot)?)))
        {
            let cause = format!(
                "instruction {at} stored table {slot} from host memory, whose content the verifier does not know"
            );
            return refuse(Reason::Stored, cause);
        }
        Ok(())
    }
}
