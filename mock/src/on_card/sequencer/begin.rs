//! Begins each operation: checks it, and starts its work.

use cmdseq::completion::Status;
use cmdseq::instruction::{self, offset};
use cmdseq::table::ENTRY_BYTES;
use cmdseq::{Instruction, Operation};

use crate::card::RESIDENT_WORDS;
use crate::card::running::Work;
use crate::card::user_logic::UserCall;
use crate::event::Step;
use crate::on_card::OnCard;
use crate::on_card::stored::table_slot;
use crate::proto::optweb::lane::LaneId;
use crate::proto::refusal::{Refusal, bad_field};

/// Longest delay an instruction may ask for, in cycles: close to six minutes at 200 MHz.
const DELAY_MAX: u64 = 1 << 36;

impl OnCard<'_> {
    /// Begins an instruction that was just issued in the lane.
    pub(crate) fn begin(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let dispatch = self.env.profile.cycles(self.env.profile.dispatch_cycles);
        if instruction.form().is_some() {
            return self.begin_switched(at, instruction);
        }
        match instruction.operation {
            Operation::Nop => self.schedule_step(at, dispatch, Step::Finish),
            Operation::Delay if instruction.extent > DELAY_MAX => return Err(bad_field(offset::EXTENT)),
            Operation::Delay => self.schedule_step(at, self.env.profile.cycles(instruction.extent), Step::Finish),
            Operation::Barrier => return self.begin_barrier(at),
            Operation::RdmaRead | Operation::RdmaWrite | Operation::PutSignal => {
                return self.begin_rdma(at, instruction);
            }
            Operation::WaitSignal => return self.begin_wait(at, instruction),
            Operation::Copy => return self.begin_copy(at, instruction),
            Operation::Fill => {
                let destination = instruction.destination.address;
                self.check_memory(destination, instruction.bytes)?;
                self.begin_local(at, Vec::new(), destination);
            }
            Operation::Fold => return self.begin_fold(at, instruction),
            Operation::Group => {
                let most = 2 * u64::from(self.env.profile.nodes);
                self.card.communicators.check_free(instruction.communicator)?;
                if instruction.bytes == 0 || instruction.bytes % 2 != 0 || instruction.bytes > most {
                    return Err(bad_field(offset::BYTES));
                }
                self.begin_table(at, instruction);
            }
            Operation::Free => {
                self.card.communicators.free(instruction.communicator)?;
                self.freed_in_switches(instruction.communicator);
                self.schedule_step(at, dispatch, Step::Finish);
            }
            Operation::Store => {
                let words = instruction.bytes / instruction::BYTES as u64;
                let whole = instruction.bytes % instruction::BYTES as u64 == 0;
                if !whole || words == 0 || words > RESIDENT_WORDS.into() {
                    return Err(bad_field(offset::BYTES));
                }
                self.resident_slot(instruction.extent)?;
                self.begin_table(at, instruction);
            }
            Operation::Table => {
                let entries = instruction.bytes / ENTRY_BYTES as u64;
                if instruction.bytes % ENTRY_BYTES as u64 != 0
                    || !(1..=u64::from(self.env.profile.nodes)).contains(&entries)
                {
                    return Err(bad_field(offset::BYTES));
                }
                table_slot(instruction.extent)?;
                self.begin_table(at, instruction);
            }
            Operation::Open => return self.begin_open(at, instruction),
            Operation::Close => return self.begin_close(at, instruction),
            Operation::Launch => return self.begin_launch(at, instruction),
            Operation::Loop => self.begin_loop(at, instruction)?,
            Operation::User => return self.begin_user(at, instruction),
            Operation::Send
            | Operation::Recv
            | Operation::Sendrecv
            | Operation::Scatter
            | Operation::Gather
            | Operation::Broadcast
            | Operation::Alltoall
            | Operation::Allgather
            | Operation::Reduce
            | Operation::Allreduce
            | Operation::ReduceScatter
            | Operation::Scan
            | Operation::Exscan
            | Operation::AlltoallScan
            | Operation::Scatterv
            | Operation::Gatherv
            | Operation::Allgatherv
            | Operation::Alltoallv
            | Operation::RecvReduce
            | Operation::SendrecvReduce => return self.begin_transfer(at, instruction),
        }
        Ok(())
    }

    pub(crate) fn set_work(&mut self, at: LaneId, work: Work) {
        if let Some(running) = self.running_mut(at) {
            running.work = work;
        }
    }

    fn begin_user(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let call = UserCall {
            source: instruction.source.address,
            destination: instruction.destination.address,
            bytes: instruction.bytes,
            extent: instruction.extent,
        };
        let card = &mut *self.card;
        let logic = card.user_logic.as_mut().ok_or((Status::NoUserLogic, 0))?;
        let cycles = logic.run(&mut card.memory, call).map_err(|status| (status, 0))?;
        let cycles = cycles.min(DELAY_MAX) + self.env.profile.dispatch_cycles;
        self.schedule_step(at, self.env.profile.cycles(cycles), Step::Finish);
        Ok(())
    }

    pub(crate) fn check_memory(&self, address: u64, bytes: u64) -> Result<(), Refusal> {
        if self.card.memory.contains(address, bytes) { Ok(()) } else { Err((Status::OutOfRange, 0)) }
    }
}
