//! Moves data between card memories at one instant of the fabric's time, in pieces.
//!
//! No other event runs at this instant, but hosts must not wait for the whole move: on its own clock, the fabric releases its
//! lock after [`HOLD_BYTES`]. A host's access meanwhile, such as a reset, comes in the middle of the move.

use crate::fabric::Core;
use crate::fold::Fold;
use crate::lanes::LaneId;
use crate::memory::{MemoryError, copy_between};
use crate::sequencer::memory_refusal;
use cmdseq::completion::Status;

/// Bytes that the clock reads or writes before it releases the lock: less than 1 ms of work.
pub(crate) const HOLD_BYTES: u64 = 1 << 20;

/// Source and destination of a move, each a card and an address in its memory.
#[derive(Debug)]
pub(crate) enum Data {
    /// A block, to another place.
    Block { from: (usize, u64), to: (usize, u64), bytes: u64 },
    /// A pattern.
    Pattern { to: (usize, u64), bytes: u64, pattern: u64 },
    /// The result of a fold.
    Result(Box<Fold>),
}

/// Follow-up of a complete move.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    /// A block from a link is received.
    Received { port: usize, place: usize },
    /// The card's own block is in place.
    OwnKept,
    /// A copy or fill within the card is over.
    LocalDone,
    /// A one-sided transfer is counted.
    RdmaMoved,
    /// All receives of a fold are over.
    Folded,
}

/// A move in progress, for one instruction.
#[derive(Debug)]
pub(crate) struct Move {
    at: LaneId,
    epoch: u64,
    data: Data,
    then: Then,
    /// Bytes moved.
    done: u64,
    /// Cards whose memory the move uses, and their clear counts; set once hosts could have cleared the memory.
    seen: Vec<(usize, u64)>,
}

impl Data {
    fn bytes(&self) -> u64 {
        match self {
            Data::Block { bytes, .. } | Data::Pattern { bytes, .. } => *bytes,
            Data::Result(fold) => fold.reduced.bytes,
        }
    }

    /// Returns the cards whose memory is read or written.
    fn cards(&self, own: usize) -> Vec<usize> {
        match self {
            Data::Block { from, to, .. } => vec![from.0, to.0],
            Data::Pattern { to, .. } => vec![to.0],
            Data::Result(fold) => fold.sources().chain([own]).collect(),
        }
    }
}

impl Core {
    /// Moves `data` for the instruction that runs in a lane. The follow-up may run before this returns, so callers must be done.
    pub(crate) fn start_move(&mut self, at: LaneId, data: Data, then: Then) {
        if let Data::Block { to, bytes, .. } | Data::Pattern { to, bytes, .. } = data {
            self.cards[to.0].memory.expect_write(to.1, bytes);
        }
        let epoch = self.lane(at).epoch;
        self.moving = Some(Move { at, epoch, data, then, done: 0, seen: Vec::new() });
        self.go_on_moving();
    }

    /// Continues the current move. Returns `false` if the lock must be released first.
    pub(crate) fn go_on_moving(&mut self) -> bool {
        let Some(mut this) = self.moving.take() else { return true };
        if self.lane(this.at).epoch != this.epoch {
            // A host ended the instruction.
            return true;
        }
        if let Some((card, _)) = this.seen.iter().find(|(card, clears)| self.cards[*card].memory.clears() != *clears) {
            // A card was reset during the move: its data is gone.
            let peer = self.cards[*card].node;
            self.fail(this.at, (Status::Mismatch, peer as u16));
            return true;
        }
        while this.done < this.data.bytes() {
            if self.has_held_enough() {
                if this.seen.is_empty() {
                    let cards = this.data.cards(this.at.card).into_iter();
                    this.seen = cards.map(|card| (card, self.cards[card].memory.clears())).collect();
                }
                self.moving = Some(this);
                return false;
            }
            match self.move_piece(&mut this) {
                Ok(bytes) => this.done += bytes,
                Err(error) => {
                    self.fail(this.at, memory_refusal(error));
                    return true;
                }
            }
        }
        match this.then {
            Then::Received { port, place } => self.received(this.at, port, place),
            Then::OwnKept => self.own_kept(this.at),
            Then::LocalDone => self.timed_finish(this.at),
            Then::RdmaMoved => self.rdma_moved(this.at),
            Then::Folded => self.all_received(this.at),
        }
        true
    }

    /// Moves the next piece, and returns its bytes.
    fn move_piece(&mut self, this: &mut Move) -> Result<u64, MemoryError> {
        let (done, left) = (this.done, this.data.bytes() - this.done);
        match &mut this.data {
            Data::Block { from, to, .. } => {
                let bytes = left.min(HOLD_BYTES);
                self.hold_bytes += bytes;
                let (source, destination) = (from.1 + done, to.1 + done);
                if from.0 == to.0 {
                    self.cards[to.0].memory.copy_within(source, destination, bytes)?;
                } else if let Ok([from, to]) = self.cards.get_disjoint_mut([from.0, to.0]) {
                    copy_between(&mut from.memory, source, &mut to.memory, destination, bytes)?;
                }
                Ok(bytes)
            }
            Data::Pattern { to, pattern, .. } => {
                let bytes = left.min(HOLD_BYTES);
                self.hold_bytes += bytes;
                self.cards[to.0].memory.fill(to.1 + done, bytes, *pattern)?;
                Ok(bytes)
            }
            Data::Result(fold) => self.fold_piece(this.at.card, fold, done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use cmdseq::{Completion, Instruction, Operand};
    use fpga_hal::Iova;
    use fpga_hal::endpoint::{DmaPort, DmaProgress, DmaTag, InterruptPort};
    use fpga_regs::sequencer::queue;

    use super::*;
    use crate::card::BusPorts;
    use crate::clock::Pace;
    use crate::profile::Profile;
    use crate::sequencer::{Running, Work};

    const BYTES: u64 = 8 * HOLD_BYTES;

    /// A host that records completions.
    #[derive(Default)]
    struct Host(Mutex<Vec<Status>>);

    impl DmaPort for Host {
        fn read(&self, _: DmaTag, _: Iova, _: &mut [u8]) -> DmaProgress {
            DmaProgress::Done(Ok(()))
        }

        fn write(&self, _: DmaTag, _: Iova, data: &[u8]) -> DmaProgress {
            let completion = Completion::decode(data.try_into().expect("a completion"));
            self.0.lock().unwrap().push(completion.status);
            DmaProgress::Done(Ok(()))
        }
    }

    impl InterruptPort for Host {
        fn raise(&self, _: u16) {}
        fn set_intx(&self, _: bool) {}
    }

    /// A block in flight from card 0 to card 1, on a clock without a thread.
    struct Amid {
        core: Core,
        host: Arc<Host>,
    }

    impl Amid {
        /// The lock was released once.
        fn start() -> Self {
            let (mut core, host) = (Core::new(Profile::optweb(2)), Arc::new(Host::default()));
            core.pace = Pace::Due;
            core.cards[0].memory.fill(0, BYTES, 1).unwrap();
            let card = &mut core.cards[1];
            card.bus = Some(BusPorts::new(Arc::clone(&host) as Arc<dyn DmaPort>, Arc::clone(&host) as _));
            card.config.write(4, &[6, 0]);
            card.rings[0].configure(queue::DEPTH, 4);
            card.rings[0].configure(queue::ENABLE, 1);
            let instruction = Instruction::fill(Operand::card(0), BYTES, 0);
            let order = card.sequencer.in_flight.begin();
            card.lanes[0].running = Some(Running { work: Work::Timed, ..Running::begun(instruction, 0, order) });
            core.start_move(LaneId::first(1), Data::Block { from: (0, 0), to: (1, 0), bytes: BYTES }, Then::LocalDone);
            assert_eq!(core.hold_bytes, HOLD_BYTES);
            Amid { core, host }
        }

        /// Continues until done, taking the lock each time. Returns the number of times, the statuses, and the block's last word.
        fn finish(mut self) -> (u32, Vec<Status>, u8) {
            let mut holds = 1;
            self.core.hold_bytes = 0;
            while !self.core.go_on_moving() {
                assert!(self.host.0.lock().unwrap().is_empty(), "what follows comes last");
                self.core.hold_bytes = 0;
                holds += 1;
            }
            assert!(self.core.moving.is_none());
            let last = self.core.cards[1].memory.slice(BYTES - 8, 1).unwrap()[0];
            (holds, self.host.0.lock().unwrap().clone(), last)
        }
    }

    #[test]
    fn the_lock_is_given_back_after_each_piece() {
        assert_eq!(Amid::start().finish(), (7, vec![Status::Done], 1));
    }

    #[test]
    fn a_block_whose_source_was_reset_is_not_received() {
        let mut amid = Amid::start();
        amid.core.reset(0);
        assert_eq!(amid.finish(), (1, vec![Status::Mismatch], 0));
    }

    #[test]
    fn a_move_ends_with_the_instruction_it_is_for() {
        let mut amid = Amid::start();
        amid.core.abort(1);
        assert_eq!(amid.finish(), (1, vec![Status::Aborted], 0));
        let mut amid = Amid::start();
        amid.core.reset(1);
        assert_eq!(amid.finish(), (1, vec![], 0));
    }
}
