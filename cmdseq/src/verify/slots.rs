//! What a program changes on its card that later instructions name: communicators, tables, resident programs.

use std::collections::{HashMap, HashSet};

use crate::instruction::takes_tables;
use crate::matching::entry_of;
use crate::refusal::{Fault, Reason};
use crate::{Instruction, Operation};

/// What instructions before have put into a card's slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Communicators that were defined anew or freed last, and where.
    communicators: HashMap<u16, (usize, Operation)>,
    /// Of the entries of the card's table, the communicator that was defined last and not freed since.
    defined: HashMap<Option<u32>, u16>,
    /// Tables that were stored, and where.
    tables: HashMap<u64, usize>,
    /// Resident programs that were stored.
    programs: HashSet<u64>,
}

impl Slots {
    /// What instruction `index` of the program finds and leaves.
    ///
    /// `occupant` says which communicator was in the same entry of the card's table before the program.
    pub(super) fn step(
        &mut self,
        index: usize,
        instruction: &Instruction,
        occupant: impl Fn(u16) -> Option<u16>,
    ) -> Result<(), Fault> {
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
                let cause = format!("no instruction before it has stored a program in slot {extent}");
                return Err(Fault::new(Reason::Stored, cause));
            }
            _ => return self.check_use(instruction),
        }
        Ok(())
    }

    /// A communicator is defined in an empty entry, and freed where it is.
    fn check_entry(&self, instruction: &Instruction, before: Option<u16>) -> Result<(), Fault> {
        let Instruction { operation, communicator, .. } = *instruction;
        let freed = |id: u16| self.communicators.get(&id).filter(|one| one.1 == Operation::Free).map(|one| one.0);
        let defined = self.defined.get(&entry_of(communicator)).copied();
        let occupant = defined.or(before.filter(|id| freed(*id).is_none()));
        let refuse = |reason, cause| Err(Fault::new(reason, cause));
        match (operation, occupant) {
            (Operation::Free, Some(id)) if id == communicator => Ok(()),
            (Operation::Free, _) => match freed(communicator) {
                Some(at) => {
                    let cause = format!("instruction {at} has freed communicator {communicator} already");
                    refuse(Reason::Membership, cause)
                }
                None => {
                    let cause = format!("communicator {communicator} is not defined on this card");
                    refuse(Reason::Membership, cause)
                }
            },
            (_, Some(id)) => {
                let cause =
                    format!("communicator {id} is in the same entry of the card's table; it has to be freed before");
                refuse(Reason::Communicators, cause)
            }
            (_, None) => Ok(()),
        }
    }

    /// What lies in host memory is not known here.
    fn check_use(&self, instruction: &Instruction) -> Result<(), Fault> {
        let Instruction { operation, communicator, extent, .. } = *instruction;
        if operation.fields().communicator
            && let Some((at, how)) = self.communicators.get(&communicator)
        {
            let what = if *how == Operation::Free { "freed" } else { "defined out of host memory" };
            let cause =
                format!("instruction {at} has {what} communicator {communicator}; who is in it is not known here");
            return Err(Fault::new(Reason::Membership, cause));
        }
        let named = if operation == Operation::Alltoallv { [extent & 0xffff, extent >> 16] } else { [extent; 2] };
        if takes_tables(operation)
            && let Some((slot, at)) = named.iter().find_map(|slot| Some((slot, self.tables.get(slot)?)))
        {
            let cause =
                format!("instruction {at} has stored table {slot} out of host memory; what it says is not known here");
            return Err(Fault::new(Reason::Stored, cause));
        }
        Ok(())
    }
}
