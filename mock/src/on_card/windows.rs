//! Windows: what one-sided operations of other cards reach in the memory of a card.
//!
//! The card whose memory it is checks the beat that announces a transfer, before a byte is read or written. A card without slots
//! is that of before version 1.5 of the registers: it checks nothing.

use cmdseq::Instruction;
use cmdseq::instruction::{Window, offset};

use crate::card::Card;
use crate::card::running::{Running, Work};
use crate::event::Step;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::one_sided::{Admission, Request};
use crate::proto::refusal::{Refusal, bad_field};

/// Longest time that a `close` waits for transfers through its window, in cycles: 1.3 seconds at 200 MHz.
const CLOSE_CYCLES: u64 = 1 << 28;

impl Card {
    /// Admits a transfer that `node` announces.
    pub(crate) fn admit(&self, node: u32, request: &Request) -> Option<Admission> {
        if self.windows.count() == 0 {
            return Some(Admission::Unchecked);
        }
        let window = request.window?;
        let slot = usize::from(window.slot);
        let open = self.windows.slots.get(slot)?.as_ref().filter(|open| open.allows(request, window))?;
        open.members.contains(&node).then_some(Admission::Window { slot, number: open.number })
    }
}

/// Returns the window of an instruction that opens or closes one.
fn named(instruction: &Instruction) -> Result<Window, Refusal> {
    instruction.window().ok_or(bad_field(offset::EXTENT))
}

impl OnCard<'_> {
    pub(crate) fn begin_open(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let window = named(instruction)?;
        let membership = self.card.membership(instruction)?;
        self.check_memory(instruction.destination.address, instruction.bytes)?;
        self.card.windows.open(instruction, window, membership.members)?;
        self.schedule_step(at, self.env.profile.cycles(self.env.profile.dispatch_cycles), Step::Finish);
        Ok(())
    }

    /// Closes a window to new transfers, and waits for those through it.
    pub(crate) fn begin_close(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let window = named(instruction)?;
        let admission = self.card.windows.begin_close(window)?;
        self.set_work(at, Work::Closing(admission));
        let cycles = if self.is_passed(admission) { CLOSE_CYCLES } else { self.env.profile.dispatch_cycles };
        self.schedule_step(at, self.env.profile.cycles(cycles), Step::Closed);
        Ok(())
    }

    /// Whether a transfer goes through this window of this card.
    fn is_passed(&self, admission: Admission) -> bool {
        self.card.served.iter().any(|served| served.admission == Some(admission))
    }

    /// A transfer to or from this card has ended: a `close` there may wait for it.
    pub(crate) fn transfer_ended(&mut self) {
        let at = LaneId::first(self.index());
        if let Some(Running { work: Work::Closing(admission), .. }) = self.running(at)
            && !self.card.is_frozen
            && !self.is_passed(*admission)
        {
            self.schedule_step(at, 0, Step::Closed);
        }
    }

    /// Empties the slot. Transfers that have not ended by now fail before they write.
    pub(crate) fn closed(&mut self, at: LaneId) {
        if let Some(Running { work: Work::Closing(admission), .. }) = self.running(at) {
            let admission = *admission;
            self.card.windows.close(admission);
            self.timed_finish(at);
        }
    }
}
