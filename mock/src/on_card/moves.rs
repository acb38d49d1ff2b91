//! Moves data between card memories at one instant of the fabric's time, in pieces.
//!
//! No other event runs at this instant, but hosts must not wait for the whole move: on its own clock, the fabric releases its
//! lock after [`HOLD_BYTES`]. A host's access meanwhile, such as a reset, comes in the middle of the move.

use cmdseq::completion::Status;

use crate::card::memory::MemoryError;
use crate::card::running::memory_refusal;
use crate::on_card::OnCard;
use crate::proto::optweb::lane::LaneId;
use crate::proto::optweb::moving::{Data, HOLD_BYTES, Move, Then};
use crate::proto::refusal::Refusal;

impl OnCard<'_> {
    /// Moves `data` to the memory of the card, for the instruction that runs in the lane or for what the card serves. The follow-up
    /// may run before this returns, so callers must be done.
    pub(crate) fn start_move(&mut self, at: LaneId, data: Data, then: Then) {
        let (epoch, clears) = (self.lane(at).epoch, self.card.memory.clears());
        self.env.moving = Some(Move { at, epoch, clears, data, then, done: 0 });
        self.go_on_moving();
    }

    /// Continues the current move. Returns `false` if the lock must be released first.
    pub(crate) fn go_on_moving(&mut self) -> bool {
        let Some(mut this) = self.env.moving.take() else { return true };
        let Some(ended) = self.move_pieces(&mut this) else {
            self.env.moving = Some(this);
            return false;
        };
        if let Data::Block { payload, .. } = this.data
            && payload.len() > HOLD_BYTES
        {
            self.env.discarded.push(Box::new(payload));
        }
        match (ended, this.then) {
            (Err(refusal), Then::Written { id, .. }) => self.write_failed(id, refusal),
            (Err(refusal), _) => self.fail(this.at, refusal),
            (Ok(false), _) => {}
            (Ok(true), Then::Received { port, place }) => self.received(this.at, port, place),
            (Ok(true), Then::OwnKept) => self.own_kept(this.at),
            (Ok(true), Then::LocalDone) => self.timed_finish(this.at),
            (Ok(true), Then::ReadDone) => self.read_done(this.at),
            (Ok(true), Then::Written { id, signal }) => self.written(id, signal),
            (Ok(true), Then::Folded) => self.all_received(this.at),
        }
        true
    }

    /// Moves piece after piece: to the end, or until a host has ended what it is for (`false`). `None` if the lock must be released
    /// first.
    fn move_pieces(&mut self, this: &mut Move) -> Option<Result<bool, Refusal>> {
        let goes_on = match this.then {
            Then::Written { id, .. } => self.is_served(id),
            _ => self.lane(this.at).epoch == this.epoch,
        };
        if !goes_on {
            return Some(Ok(false));
        }
        if self.card.memory.clears() != this.clears {
            // The card was reset during the move.
            return Some(Err((Status::Mismatch, self.card.node as u16)));
        }
        while this.done < this.data.bytes() {
            if self.env.has_held_enough() {
                return None;
            }
            match self.move_piece(this) {
                Ok(bytes) => this.done += bytes,
                Err(error) => return Some(Err(memory_refusal(error))),
            }
        }
        Some(Ok(true))
    }

    /// Moves the next piece, and returns its bytes.
    fn move_piece(&mut self, this: &mut Move) -> Result<u64, MemoryError> {
        let (done, left) = (this.done, this.data.bytes() - this.done);
        let bytes = left.min(HOLD_BYTES);
        let memory = &mut self.card.memory;
        match &mut this.data {
            Data::Block { payload, to } => {
                self.env.hold_bytes += bytes;
                memory.write_payload(*to + done, payload, done..done + bytes)?;
                Ok(bytes)
            }
            Data::Pattern { to, pattern, .. } => {
                self.env.hold_bytes += bytes;
                memory.fill(*to + done, bytes, *pattern)?;
                Ok(bytes)
            }
            Data::Result(fold) => self.fold_piece(fold, done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cmdseq::{Instruction, Operand};

    use super::*;
    use crate::card::running::Running;
    use crate::card::running::Work;
    use crate::environment::Pace;
    use crate::profile::Profile;
    use crate::testing::Host;
    use crate::world::Core;

    const BYTES: u64 = 8 * HOLD_BYTES;

    /// A block in flight from card 0 to card 1, on a clock without a thread.
    struct Amid {
        core: Core,
        host: Arc<Host>,
    }

    impl Amid {
        /// The lock was released once.
        fn start() -> Self {
            let (mut core, host) = (Core::new(Profile::optweb(2)), Arc::new(Host::default()));
            core.env.pace = Pace::Due;
            core.cards[0].memory.fill(0, BYTES, 1).unwrap();
            host.attach(&mut core, 1);
            let card = &mut core.cards[1];
            let instruction = Instruction::fill(Operand::card(0), BYTES, 0);
            let order = card.sequencer.in_flight.begin();
            card.lanes[0].running =
                Some(Running { work: Work::Timed, ..Running::begun(instruction, 0, order, card.rings.life()) });
            let payload = core.cards[0].memory.payload(0, BYTES).unwrap();
            core.on(1).start_move(LaneId::first(1), Data::Block { payload, to: 0 }, Then::LocalDone);
            assert_eq!(core.env.hold_bytes, HOLD_BYTES);
            Amid { core, host }
        }

        /// Continues until done, taking the lock each time. Returns the number of times, the statuses, and the block's last word.
        fn finish(mut self) -> (u32, Vec<Status>, u8) {
            let mut holds = 1;
            self.core.env.hold_bytes = 0;
            while !self.core.on(1).go_on_moving() {
                assert!(self.host.statuses().is_empty(), "what follows comes last");
                self.core.env.hold_bytes = 0;
                holds += 1;
            }
            assert!(self.core.env.moving.is_none());
            let last = self.core.cards[1].memory.read(BYTES - 8, 1).unwrap()[0];
            (holds, self.host.statuses(), last)
        }
    }

    #[test]
    fn the_lock_is_given_back_after_each_piece() {
        assert_eq!(Amid::start().finish(), (7, vec![Status::Done], 1));
    }

    #[test]
    fn a_block_that_has_come_is_received_whatever_becomes_of_its_source() {
        let mut amid = Amid::start();
        amid.core.reset(0);
        assert_eq!(amid.finish(), (7, vec![Status::Done], 1));
    }

    #[test]
    fn a_move_ends_with_the_instruction_it_is_for() {
        let mut amid = Amid::start();
        amid.core.on(1).abort();
        assert_eq!(amid.finish(), (1, vec![Status::Aborted], 0));
        let mut amid = Amid::start();
        amid.core.reset(1);
        assert_eq!(amid.finish(), (1, vec![], 0));
    }
}
