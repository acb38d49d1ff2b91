//! Groups, tables and resident programs, read from host memory and kept on the card.

use std::sync::Arc;

use cmdseq::completion::Status;
use cmdseq::instruction::{self, offset};
use cmdseq::table::Table;
use cmdseq::{Flags, Instruction, Operation};

use crate::card::TABLES;
use crate::card::decode::decode;
use crate::card::host_jobs::{HostFault, Job};
use crate::card::running::Work;
use crate::event::Step;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::refusal::{Refusal, bad_field};

impl OnCard<'_> {
    pub(crate) fn begin_table(&mut self, at: LaneId, instruction: &Instruction) {
        self.set_work(at, Work::HostTable);
        self.push_host_job(Job::Table { iova: instruction.source.address, bytes: instruction.bytes });
    }

    /// Takes a table or a resident program.
    pub(crate) fn table_read(&mut self, at: LaneId, table: Result<&[u8], HostFault>) {
        let dispatch = self.env.profile.cycles(self.env.profile.dispatch_cycles);
        let Some(instruction) = self.running(at).map(|running| running.instruction) else { return };
        let kept = match (table, instruction.operation) {
            (Err(fault), _) => Err(fault.refusal(false)),
            (Ok(table), Operation::Store) => self.store(&instruction, table),
            (Ok(table), Operation::Table) => self.keep_table(&instruction, table),
            (Ok(table), _) => self.define(&instruction, table),
        };
        match kept {
            Ok(()) => self.schedule_step(at, dispatch, Step::Finish),
            Err(refusal) => self.fail_after(at, refusal, dispatch),
        }
    }

    fn define(&mut self, instruction: &Instruction, table: &[u8]) -> Result<(), Refusal> {
        let (numbers, _) = table.as_chunks::<2>();
        let members: Arc<[u32]> = numbers.iter().map(|number| u16::from_le_bytes(*number).into()).collect();
        let mut seen = vec![false; self.env.profile.nodes as usize];
        for node in members.iter() {
            match seen.get_mut(*node as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err((Status::BadCommunicator, *node as u16)),
            }
        }
        let card = &mut *self.card;
        card.communicators.define(instruction.communicator, &members, card.node)?;
        self.defined_in_switches(instruction.communicator, &members);
        Ok(())
    }

    fn store(&mut self, instruction: &Instruction, table: &[u8]) -> Result<(), Refusal> {
        let slot = self.resident_slot(instruction.extent)?;
        let (words, _) = table.as_chunks::<{ instruction::BYTES }>();
        let mut program = Vec::with_capacity(words.len());
        for (place, word) in words.iter().enumerate() {
            let at = place as u16;
            let step = decode(&self.env.profile, word).map_err(|_| (Status::BadProgram, at))?;
            // A program ends at its last instruction, and does not start or change programs.
            let is_last = step.flags.contains(Flags::LAST);
            if is_last != (place + 1 == words.len()) || matches!(step.operation, Operation::Launch | Operation::Store) {
                return Err((Status::BadProgram, at));
            }
            program.push(step);
        }
        check_loops(&program)?;
        self.card.resident[slot] = program;
        Ok(())
    }

    fn keep_table(&mut self, instruction: &Instruction, table: &[u8]) -> Result<(), Refusal> {
        let slot = table_slot(instruction.extent)?;
        let table = Table::decode(table).map_err(|_| bad_field(offset::BYTES))?;
        self.card.tables.insert(slot, table);
        Ok(())
    }

    pub(crate) fn resident_slot(&self, slot: u64) -> Result<usize, Refusal> {
        usize::try_from(slot).ok().filter(|slot| *slot < self.card.resident.len()).ok_or((Status::BadProgram, 0))
    }
}

/// Checks that every loop has rounds and a body inside the program without another loop, so that the program ends.
fn check_loops(program: &[Instruction]) -> Result<(), Refusal> {
    let mut body_end = 0;
    for (place, step) in program.iter().enumerate().filter(|(_, step)| step.operation == Operation::Loop) {
        let end = place + 1 + usize::from(step.loop_body);
        if place < body_end || step.loop_count == 0 || step.loop_body == 0 || end > program.len() {
            return Err((Status::BadProgram, place as u16));
        }
        body_end = end;
    }
    Ok(())
}

/// Returns the slot of a table.
pub(crate) fn table_slot(slot: u64) -> Result<u16, Refusal> {
    u16::try_from(slot).ok().filter(|slot| *slot < TABLES).ok_or((Status::BadTable, slot as u16))
}
