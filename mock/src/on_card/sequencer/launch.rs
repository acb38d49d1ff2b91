//! A running resident program: what comes next, and the totals of what has ended.

use cmdseq::completion::Status;
use cmdseq::{Instruction, Operation};

use crate::card::launch::{Launch, Rounds};
use crate::event::Step;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::refusal::Refusal;

impl OnCard<'_> {
    pub(super) fn begin_launch(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let slot = self.resident_slot(instruction.extent)?;
        let now = self.env.now;
        let card = &mut *self.card;
        if card.resident[slot].is_empty() {
            return Err((Status::BadProgram, 0));
        }
        // The instructions of the program take the place of the launch.
        card.lanes[at.lane].running = None;
        card.sequencer.in_flight.take_back();
        card.sequencer.is_fenced = true;
        card.sequencer.launch = Some(Launch::new(instruction, slot, now, card.rings.life()));
        Ok(())
    }

    /// Dispatches the loop: each round begins with a dispatch.
    pub(super) fn begin_loop(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let dispatch = self.env.profile.cycles(self.env.profile.dispatch_cycles);
        let moves = instruction.extent_argument.map(|argument| (argument, instruction.extent));
        let launch = self.card.sequencer.launch.as_mut();
        // Only a stored program has following instructions to return to.
        let launch = launch.ok_or((Status::BadOperation, Operation::Loop as u16))?;
        let end = launch.next + usize::from(instruction.loop_body);
        launch.rounds = Some(Rounds { first: launch.next, end, left: instruction.loop_count, moves });
        self.schedule_step(at, dispatch, Step::Finish);
        Ok(())
    }
}
