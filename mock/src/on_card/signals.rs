//! Signals: counters of a card; others add to them, the card's sequencer waits for them.

use cmdseq::Instruction;
use cmdseq::completion::Status;

use crate::card::running::{Running, Work};
use crate::event::Step;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::signal::Signal;
use crate::proto::refusal::Refusal;

impl OnCard<'_> {
    pub(crate) fn begin_wait(&mut self, at: LaneId, instruction: &Instruction) -> Result<(), Refusal> {
        let signal = Signal::of(instruction)?;
        self.set_work(at, Work::Signal { signal, is_read: false });
        self.schedule_step(at, self.env.profile.cycles(self.env.profile.dispatch_cycles), Step::SignalsRead);
        Ok(())
    }

    pub(crate) fn signals_read(&mut self, at: LaneId) {
        let now = self.env.now;
        if let Some(Running { work: Work::Signal { is_read, .. }, counted_out, .. }) = self.running_mut(at) {
            (*is_read, *counted_out) = (true, now);
            self.use_signal(at);
        }
    }

    /// Adds to a signal of this card. An addition that would overflow is dropped.
    pub(crate) fn add_signal(&mut self, signal: Signal) -> Result<(), Refusal> {
        let count = &mut self.card.signals[usize::from(signal.id)];
        *count = count.checked_add(signal.value).ok_or((Status::BadSignal, signal.id))?;
        // A wait is no exchange.
        self.use_signal(LaneId::first(self.index()));
        Ok(())
    }

    /// Ends the lane's instruction if it waits for a signal that has arrived.
    fn use_signal(&mut self, at: LaneId) {
        let card = &mut *self.card;
        let Some(Running { work: Work::Signal { signal, is_read: true }, arrival, .. }) =
            &mut card.lanes[at.lane].running
        else {
            return;
        };
        let count = &mut card.signals[usize::from(signal.id)];
        if let Some(left) = count.checked_sub(signal.value).filter(|_| !card.is_frozen) {
            *count = left;
            *arrival = Some(self.env.now);
            self.finish(at);
        }
    }
}
