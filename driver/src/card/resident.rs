//! Programs stored on the card, launched again by one doorbell.

use std::sync::Arc;

use cmdseq::{Completion, Flags, Instruction, instruction};

use crate::card::Card;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ledger::bound::Bound;
use crate::ledger::token::Token;

/// A program stored in a slot of a card. It is there as long as its card is held, is not reset, and nothing else is
/// stored in the slot.
#[derive(Debug)]
pub struct Resident {
    stored: Arc<()>,
    slot: u32,
}

impl Resident {
    /// The slot it is stored in.
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

impl Card {
    /// Stores `program` in `slot`. What was there before is gone. The last instruction is marked as such. Buffers bound to
    /// the instructions are kept until another program is stored in the slot, or the card is reset.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if the card has no such slot or the program does not fit; [`Error::HostMemoryUnbound`] if an
    /// instruction names host memory that no buffer bound to it covers, or adds a launch argument to a host address;
    /// [`Error::Failed`] if the card refuses it.
    pub fn store(&mut self, slot: u32, program: impl IntoIterator<Item = impl Into<Bound>>) -> Result<Resident> {
        self.store_until(slot, program, Deadline::after(self.timeout()))
    }

    /// [`store`](Card::store) with a deadline that several calls share.
    pub(crate) fn store_until(
        &mut self,
        slot: u32,
        program: impl IntoIterator<Item = impl Into<Bound>>,
        deadline: Deadline,
    ) -> Result<Resident> {
        let program: Vec<Bound> = program.into_iter().map(Into::into).collect();
        let capabilities = self.capabilities();
        if slot >= capabilities.resident_programs {
            let expected = format!("the card has {} slots", capabilities.resident_programs);
            return Err(Error::argument("slot", slot, expected));
        }
        if program.is_empty() || program.len() > capabilities.resident_words as usize {
            let expected = format!("a resident program has 1 to {} instructions", capabilities.resident_words);
            return Err(Error::argument("program length", program.len(), expected));
        }
        if let Some(index) =
            program[..program.len() - 1].iter().position(|one| one.instruction.flags.contains(Flags::LAST))
        {
            return Err(Error::argument(
                "last flag",
                format!("at instruction {index}"),
                "allowed at the last instruction only",
            ));
        }
        if let Some(one) = program.iter().find(|one| one.instruction.names_host() && !self.queue().reaches_host()) {
            let (name, operation) = (self.name().to_owned(), one.instruction.operation);
            return Err(Error::NoHostMemory { name, operation });
        }
        program.iter().try_for_each(|one| one.check_operands(self.function()))?;
        let word = |(index, one): (usize, &Bound)| {
            let mut flags = one.instruction.flags;
            flags.set(Flags::LAST, index + 1 == program.len());
            one.instruction.with_flags(flags).encode()
        };
        let words: Vec<u8> = program.iter().enumerate().flat_map(word).collect();
        let (slot_number, count) = (u64::from(slot), program.len() as u64);
        let store = self.hand_over(&words, deadline, |address| Instruction::store(slot_number, address, count))?;
        let named: Vec<_> = program.iter().flat_map(|one| one.buffers().iter().cloned()).collect();
        let queue = self.queue_mut();
        // Until the store is done, either program may be there.
        queue.ledger.keep_resident(slot, &named);
        let token = queue.push_when_room(store, deadline)?;
        self.wait_done(&token, deadline)?;
        let stored = self.queue_mut().ledger.set_resident(slot, named);
        Ok(Resident { stored, slot })
    }

    /// Whether `resident` is still there.
    pub(crate) fn has(&self, resident: &Resident) -> bool {
        let stored = self.queue().ledger.stored(resident.slot);
        stored.is_some_and(|stored| Arc::ptr_eq(stored, &resident.stored))
    }

    /// Returns the last slot whose program nobody holds.
    pub(crate) fn free_slot(&self) -> Result<u32> {
        let ledger = &self.queue().ledger;
        let is_free = |slot: &u32| ledger.stored(*slot).is_none_or(|stored| Arc::strong_count(stored) == 1);
        let slots = self.capabilities().resident_programs;
        (0..slots).rev().find(is_free).ok_or_else(|| {
            let expected = format!("node {} has {slots}, all in use: release a program first", self.node());
            Error::argument("number of resident programs", slots + 1, expected)
        })
    }

    /// Launches `resident` with three arguments: one doorbell. Wait for the token with [`Card::wait`].
    ///
    /// # Errors
    /// [`Error::Stale`] if the program is no longer there, [`Error::Full`] with the instruction.
    pub fn launch(&mut self, resident: &Resident, arguments: [u64; instruction::ARGUMENTS]) -> Result<Token> {
        if !self.has(resident) {
            return Err(Error::Stale { what: "resident program" });
        }
        self.queue_mut().submit(Instruction::launch(u64::from(resident.slot), arguments))
    }

    /// [`launch`](Card::launch), then waits for the completion and checks its status.
    ///
    /// # Errors
    /// As [`launch`](Card::launch) and [`wait`](Card::wait).
    pub fn run_resident(
        &mut self,
        resident: &Resident,
        arguments: [u64; instruction::ARGUMENTS],
    ) -> Result<Completion> {
        let token = self.launch(resident, arguments)?;
        self.wait(&token, self.timeout())
    }
}
